"""A deterministic simulation of many groups around one log: the shipped replica code, without clocks or sockets.

One seed decides who plays how far, whose appends arrive when, who dies, whose session ends, who calls garbage
collection. A referee plays the log as it grows and checks every invariant after every entry; every player's chain is
compared with the referee's at every position. `heal` stops the mischief and demands progress.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import Final

from attrs import define, field, frozen

from onyxlog.ids import BEFORE_ALL, GroupId, JobId, PeerId, Position
from onyxlog.replica import commands, effects
from onyxlog.replica.assignments import assignments
from onyxlog.replica.codec import decode_origin, decode_record, encode_origin, encode_record
from onyxlog.replica.collection import unwatched
from onyxlog.replica.commands import Command, Entry, Record
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.effects import Effect
from onyxlog.replica.invariants import step_violations, violations
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects as effects_of
from onyxlog.replica.playing import jump_effects, owed, play
from onyxlog.replica.playing import reactions as reactions_of
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.replica.ring import helped, helper, subject
from onyxlog.scheduling.requirements import (
    FluxPolicy,
    JobRequirements,
    TaskRequirements,
    TaskScheduler,
)

TURNS_TO_HEAL_MAX: Final = 4_000


class FleetError(AssertionError):
    """The simulated fleet did what it must not."""


def insist(holds: bool, complaint: str) -> None:
    if not holds:
        raise FleetError(complaint)


@define
class SimulatedLog:
    """Bytes, as the real one holds. `first`: the position of the oldest entry that is still there."""

    origin: bytes
    origin_position: Position = BEFORE_ALL
    entries: dict[Position, bytes] = field(factory=dict)
    end: Position = 0
    truncations: int = 0

    def append(self, record: Record) -> None:
        self.entries[self.end] = encode_record(record)
        self.end += 1

    def entry(self, position: Position) -> Entry | None:
        """None if it is truncated."""
        data = self.entries.get(position)
        return None if data is None else Entry(position, decode_record(data, f"entry-{position:010d}"))

    def store_origin(self, replica: Replica, chain: bytes) -> None:
        if replica.version <= self.origin_position:
            return
        self.origin, self.origin_position = encode_origin(replica, chain), replica.version
        for position in [each for each in self.entries if each <= replica.version]:
            del self.entries[position]
        self.truncations += 1


@define(eq=False)
class Player:
    """A process that plays the log: a group, or a client that calls garbage collection (`group` None)."""

    name: str
    group: GroupId | None
    replica: Replica
    chain: bytes
    peers: set[PeerId] = field(factory=set)
    outbox: list[Command] = field(factory=list)
    later: list[Command] = field(factory=list)
    alive: bool = True
    """The process lives."""
    session: bool = True
    """Its session does: it can append, and others find its pulse."""
    subject: GroupId | None = None
    joiner: GroupId | None = None
    detecting: GroupId | None = None
    running: dict[PeerId, effects.StartTask] = field(factory=dict)
    offered: dict[PeerId, Position] = field(factory=dict)
    """Where the log has their add-virtual-peer."""
    forgotten: set[JobId] = field(factory=set)
    jumps: int = 0

    @property
    def viewer(self) -> Viewer:
        client = self.name if self.group is None else None
        return Viewer(self.group, frozenset(self.peers), client)

    @property
    def applied(self) -> Position:
        return self.replica.version


@frozen
class Counts:
    """What a run went through: a test must see that it saw something."""

    entries: int
    jumps: int
    truncations: int
    deaths: int
    restarts: int
    jobs: int


@define
class Fleet:
    """`groups_max`: living ones. `workers_max`: of each group."""

    seed: int
    parameters: Parameters
    groups_max: int = 6
    workers_max: int = 2
    rng: Random = field(init=False)
    log: SimulatedLog = field(init=False)
    players: dict[str, Player] = field(factory=dict)
    referee: Replica = field(init=False)
    chains: dict[Position, bytes] = field(factory=dict)
    made: int = 0
    deaths: int = 0
    restarts: int = 0
    jobs: int = 0

    def __attrs_post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.referee = Replica(parameters=self.parameters)
        self.chains[BEFORE_ALL] = CHAIN_START
        self.log = SimulatedLog(encode_origin(self.referee, CHAIN_START))

    def counts(self) -> Counts:
        jumps = sum(player.jumps for player in self.players.values())
        return Counts(self.log.end, jumps, self.log.truncations, self.deaths, self.restarts, self.jobs)

    # what can happen

    def run(self, turns: int) -> None:
        """So many things happen, as the seed wills."""
        happenings: Sequence[tuple[int, Callable[[], None]]] = (
            (40, self.play_some),
            (40, self.append_some),
            (12, self.notice_some),
            (6, self.start_group),
            (3, self.kill_process),
            (1, self.end_session_of_the_living),
            (5, self.end_dead_session),
            (4, self.add_worker),
            (2, self.stop_worker),
            (2, self.stop_group),
            (4, self.submit),
            (2, self.kill_job),
            (8, self.work),
            (2, self.collect_garbage),
        )
        weights = [weight for weight, _ in happenings]
        for _ in range(turns):
            self.rng.choices(happenings, weights)[0][1]()

    def start_group(self) -> None:
        if len(self.living()) >= self.groups_max:
            return
        player = self._player(f"g{self._number()}", group=True)
        for _ in range(self.rng.randint(0, self.workers_max)):
            self._offer_worker(player)
        # A worker may offer itself before its group is in, and after.
        player.outbox.extend(owed(player.replica, player.viewer))
        self.rng.shuffle(player.outbox)

    def kill_process(self) -> None:
        """What it had appended may arrive still, what it had not does not."""
        if (player := self._some(self.living())) is not None and len(self.living()) > 1:
            player.alive = False
            self.deaths += 1

    def end_session_of_the_living(self) -> None:
        """A long pause, a lost network: the process lives, and learns from the log that it is out."""
        if (player := self._some(self.living())) is not None:
            self._end_session(player)

    def end_dead_session(self) -> None:
        dead = [each for each in self._players() if not each.alive and each.session]
        if (player := self._some(dead)) is not None:
            self._end_session(player)

    def stop_group(self) -> None:
        """In order: its leave is its last entry."""
        if (player := self._some(self.living())) is not None and player.group is not None:
            player.outbox = [*player.outbox, commands.GroupLeave(player.group)]
            while player.outbox:
                self._append_one(player)
            player.alive = False

    def add_worker(self) -> None:
        if (player := self._some(self.living())) is not None and len(player.peers) < self.workers_max:
            self._offer_worker(player)

    def stop_worker(self) -> None:
        player = self._some(self.living())
        if player is not None and player.group is not None and player.peers:
            peer = self.rng.choice(sorted(player.peers))
            player.outbox.append(commands.Leave(peer, player.group))

    def submit(self) -> None:
        names = ["in", "map", "out"][: self.rng.randint(2, 3)]
        grouped = self.rng.random() < 0.3
        tasks = tuple(
            TaskRequirements(
                name,
                min_peers=self.rng.choice((1, 1, 1, 2)),
                max_peers=self.rng.choice((None, None, 3)),
                grouped=grouped and name == "map",
                flux_policy=self.rng.choice(list(FluxPolicy)),
                required_tags=("gpu",) if self.rng.random() < 0.1 else (),
                input=name == "in",
                output=name == "out",
            )
            for name in names
        )
        edges = tuple(pairwise(names))
        # an id out of a few: submitted again while it runs, after it was killed, and after it was forgotten
        id = f"job{self.rng.randint(0, 12)}"
        job = JobRequirements(
            id, id.encode(), tasks, edges, self.rng.choice((TaskScheduler.BALANCED, TaskScheduler.COLOCATED))
        )
        self._append(Record(commands.SubmitJob(job), "client"))
        self.jobs += 1

    def kill_job(self) -> None:
        self._append(Record(commands.KillJob(f"job{self.rng.randint(0, 12)}"), "client"))

    def work(self) -> None:
        """A worker says what its task came to."""
        workers = [(p, peer) for p in self.living() for peer in sorted(p.running)]
        if not workers:
            return
        player, peer = self.rng.choice(workers)
        task = player.running[peer]
        player.outbox.append(
            self.rng.choice(
                (
                    commands.SignalReady(peer, task.version),
                    commands.SignalReady(peer, task.version),
                    commands.BackpressureOn(peer),
                    commands.BackpressureOff(peer),
                    commands.ExhaustInput(task.job, task.task),
                    commands.SealOutput(task.job, task.task),
                    commands.CompleteJob(task.job)
                    if self.rng.random() < 0.2
                    else commands.Leave(peer, "nobody"),
                )
            )
        )

    def collect_garbage(self) -> None:
        """By a group, or by a client that plays the log for it."""
        player = self._some(self.living())
        if player is None or self.rng.random() < 0.5:
            player = self._player(f"c{self._number()}", group=False)
            self._play(player, self.log.end)
        gone = tuple(each for each in unwatched(player.replica) if not self.has_pulse(each))
        player.outbox.append(commands.Gc(player.name, gone))

    def play_some(self) -> None:
        if (player := self._some([each for each in self._players() if each.alive])) is not None:
            self._play(player, self.rng.randint(1, 8))

    def append_some(self) -> None:
        """An append arrives; also one that a process sent before it died."""
        waiting = [each for each in self._players() if each.outbox and each.session]
        if (player := self._some(waiting)) is not None:
            self._append_one(player)

    def notice_some(self) -> None:
        """A group looks at the pulses that it watches; a back-off ends."""
        player = self._some(self.living())
        if player is None:
            return
        if player.later and self.rng.random() < 0.5:
            player.outbox.append(player.later.pop(0))
        for watched in sorted({each for each in (player.subject, player.joiner, player.detecting) if each}):
            if not self.has_pulse(watched):
                player.outbox.append(commands.GroupLeave(watched))

    # the end

    def heal(self) -> None:
        """No more mischief: all come to the same, in a bounded number of turns."""
        if not self.living():
            # Of a ring that died as a whole nobody is left to tell: who comes next finds it out.
            self.start_group()
        for _ in range(TURNS_TO_HEAL_MAX):
            self.end_dead_session()
            self.append_some()
            self.notice_quietly()
            for player in self._players():
                if player.alive:
                    self._play(player, 5)
            if self.is_quiet():
                break
        else:
            raise FleetError(
                f"seed {self.seed}: not quiet after {TURNS_TO_HEAL_MAX} turns: {self.restless()}"
            )
        self.check_quiet()

    def notice_quietly(self) -> None:
        """As `notice_some`, of everybody, and without writing the same leave again and again."""
        for player in self.living():
            if player.later:
                player.outbox.append(player.later.pop(0))
            for watched in sorted(
                {each for each in (player.subject, player.joiner, player.detecting) if each}
            ):
                leave = commands.GroupLeave(watched)
                if not self.has_pulse(watched) and leave not in player.outbox:
                    player.outbox.append(leave)

    def is_quiet(self) -> bool:
        return not self.restless()

    def restless(self) -> list[str]:
        found = [
            f"{each.name} has a session without a process"
            for each in self._players()
            if each.session and not each.alive
        ]
        for player in self.living():
            if player.applied != self.log.end - 1:
                found.append(f"{player.name} is at {player.applied}, the log at {self.log.end - 1}")
            if player.outbox or player.later:
                found.append(f"{player.name} is to append {player.outbox or player.later}")
            for watched in (player.subject, player.joiner, player.detecting):
                if watched is not None and not self.has_pulse(watched):
                    found.append(f"{player.name} is to notice that {watched} is gone")
        return found

    def check_quiet(self) -> None:
        living = {player.group for player in self.living()}
        insist(
            set(self.referee.groups) == living,
            f"seed {self.seed}: the log has {sorted(self.referee.groups)}, alive are {sorted(map(str, living))}",
        )
        for player in self.living():
            insist(
                player.chain == self.chains[self.log.end - 1] and player.replica == self.referee,
                f"seed {self.seed}: {player.name} has another replica",
            )
            known = {peer for peer, each in self.referee.peers.items() if each.group == player.group}
            insist(known == player.peers, f"seed {self.seed}: of {player.peers}, {known} are in")

    # how it works

    def referee_plays(self) -> None:
        while self.referee.version < self.log.end - 1:
            position = self.referee.version + 1
            entry = self.log.entry(position)
            if entry is None:
                raise FleetError(
                    f"seed {self.seed}: entry {position} was truncated before the referee saw it"
                )
            step = play(self.referee, entry, self.chains[position - 1])
            wrong = (*violations(step.replica), *step_violations(step.old, step.replica))
            insist(
                not wrong, f"seed {self.seed}: after entry {position}, {entry.command}: {'; '.join(wrong)}"
            )
            self.referee, self.chains[position] = step.replica, step.chain

    def living(self) -> list[Player]:
        """Groups whose process and session live."""
        return [each for each in self._players() if each.alive and each.session and each.group is not None]

    def has_pulse(self, group: GroupId) -> bool:
        player = self.players.get(group)
        return player is not None and player.session

    def _players(self) -> list[Player]:
        return list(self.players.values())

    def _some(self, players: list[Player]) -> Player | None:
        return self.rng.choice(players) if players else None

    def _number(self) -> int:
        self.made += 1
        # Not in the order of the strings: a group that comes later must not always be the last.
        return self.made * 7_919 % 9_973

    def _player(self, name: str, group: bool) -> Player:
        replica, chain = decode_origin(self.log.origin, "origin")
        player = Player(name, name if group else None, replica, chain)
        self.players[name] = player
        return player

    def _offer_worker(self, player: Player) -> None:
        insist(player.group is not None, "clients have no workers")
        peer = f"p{self._number()}"
        player.peers.add(peer)
        tags = ("gpu",) if self.rng.random() < 0.3 else ()
        site = f"host{self.rng.randint(0, 2)}:1"
        player.outbox.append(commands.AddVirtualPeer(peer, player.group or "", site, tags))

    def _end_session(self, player: Player) -> None:
        """The pulse goes; so does what was not appended; and the will is carried out."""
        player.session = False
        player.outbox.clear()
        player.later.clear()
        if self.parameters.join is JoinMode.DIRECT and player.group is not None:
            self._append(Record(commands.GroupLeave(player.group), player.group))
        if not player.alive:
            del self.players[player.name]

    def _append_one(self, player: Player) -> None:
        command = player.outbox.pop(0)
        if isinstance(command, commands.AddVirtualPeer):
            player.offered[command.peer] = self.log.end
        self._append(Record(command, player.name))

    def _append(self, record: Record) -> None:
        self.log.append(record)
        self.referee_plays()

    def _play(self, player: Player, entries: int) -> None:
        for _ in range(entries):
            if player.applied >= self.log.end - 1 or player.name not in self.players:
                return
            entry = self.log.entry(player.applied + 1)
            if entry is None:
                self._jump(player)
                continue
            step = play(player.replica, entry, player.chain)
            player.replica, player.chain = step.replica, step.chain
            insist(
                player.chain == self.chains[player.applied],
                f"seed {self.seed}: {player.name} differs after entry {player.applied}",
            )
            reactions, effects = reactions_of(step, player.viewer), effects_of(step, player.viewer)
            if player.session:
                player.outbox.extend(reactions)
            for effect in effects:
                self._carry_out(player, effect)
            self._check_derived(player)

    def _jump(self, player: Player) -> None:
        old = player.replica
        player.replica, player.chain = decode_origin(self.log.origin, "origin")
        player.jumps += 1
        insist(
            player.chain == self.chains[player.applied],
            f"seed {self.seed}: the origin at {player.applied} differs",
        )
        offered = [peer for peer, position in player.offered.items() if position <= player.applied]
        for effect in jump_effects(old, player.replica, player.viewer, offered):
            self._carry_out(player, effect)
        if player.session and player.group is not None:
            player.outbox.extend(owed(player.replica, player.viewer))
        self._check_derived(player)

    def _check_derived(self, player: Player) -> None:
        """What the effects led to is what the replica says."""
        if player.group is None or player.group in player.replica.left:
            return
        running = {
            peer: (task.job, task.task, task.slot, task.version) for peer, task in player.running.items()
        }
        expected = {
            peer: (each.job, each.task, each.slot, each.version)
            for peer, each in assignments(player.replica, player.peers).items()
        }
        insist(running == expected, f"seed {self.seed}: {player.name} runs {running}, expected {expected}")
        watches = (player.subject, player.joiner, player.detecting)
        should = (
            subject(player.replica, player.group),
            helped(player.replica, player.group),
            helper(player.replica.prepared, player.group),
        )
        insist(watches == should, f"seed {self.seed}: {player.name} watches {watches}, expected {should}")

    def _carry_out(self, player: Player, effect: Effect) -> None:
        match effect:
            case effects.WatchPulse(watched):
                player.subject = watched
            case effects.WatchNobody():
                player.subject = None
            case effects.WatchJoiner(joiner):
                player.joiner = joiner
            case effects.UnwatchJoiner():
                player.joiner = None
            case effects.DetectFailure(watched):
                player.detecting = watched
            case effects.StopDetecting():
                player.detecting = None
            case effects.LeaveIfGone(watched):
                if player.session and not self.has_pulse(watched):
                    player.outbox.append(commands.GroupLeave(watched))
            case effects.AppendLater(command):
                if player.session:
                    player.later.append(command)
            case effects.RestartGroup():
                self._restart(player)
            case effects.RestartPeer(peer):
                player.peers.discard(peer)
                player.running.pop(peer, None)
            case effects.StartTask(peer):
                player.running[peer] = effect
            case effects.StopTask(peer):
                player.running.pop(peer, None)
            case effects.StoreOrigin():
                insist(effect.position == player.applied, "the origin is stored late")
                self.log.store_origin(player.replica, player.chain)
            case effects.ForgetJob(job):
                insist(self.log.origin_position >= player.applied, "a job is forgotten before the origin")
                player.forgotten.add(job)

    def _restart(self, player: Player) -> None:
        """A new id, a new session, new workers."""
        if player.name not in self.players:
            return
        player.alive = False
        if player.session:
            self._end_session(player)
        else:
            del self.players[player.name]
        self.restarts += 1
        self.start_group()
