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

from onyxlog.ids import GroupId
from onyxlog.replica import commands
from onyxlog.replica.collection import unwatched
from onyxlog.replica.commands import Record
from onyxlog.replica.playing import owed
from onyxlog.replica.replica import JoinMode, Parameters
from onyxlog.scheduling.requirements import (
    FluxPolicy,
    JobRequirements,
    JobScheduler,
    TaskRequirements,
    TaskScheduler,
)
from onyxlog.testing.player import Player
from onyxlog.testing.simulated_log import FleetError, SimulatedLog, insist

TURNS_TO_HEAL_MAX: Final = 4_000


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
    gone_jumps: int = 0
    made: int = 0
    deaths: int = 0
    restarts: int = 0
    jobs: int = 0

    def __attrs_post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.log = SimulatedLog(self.parameters)

    def counts(self) -> Counts:
        jumps = self.gone_jumps + sum(player.jumps for player in self.players.values())
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
            (2, self.end_session_of_the_living),
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
            player.outbox.append(commands.GroupLeave(player.group))
            while player.outbox:
                player.append_one()
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
        scheduler = self.rng.choice(list(TaskScheduler))
        shares = [100 - 30 * (len(names) - 1), *(30 for _ in names[1:])]
        tasks = tuple(
            TaskRequirements(
                name,
                min_peers=self.rng.choice((1, 1, 1, 2)),
                max_peers=self.rng.choice((None, None, 3)),
                percentage=share if scheduler is TaskScheduler.PERCENTAGE else None,
                grouped=grouped and name == "map",
                flux_policy=self.rng.choice(list(FluxPolicy)),
                required_tags=("gpu",) if self.rng.random() < 0.1 else (),
                input=name == "in",
                output=name == "out",
            )
            for name, share in zip(names, shares, strict=True)
        )
        edges = tuple(pairwise(names))
        # an id out of a few: submitted again while it runs, after it was killed, and after it was forgotten
        id = f"job{self.rng.randint(0, 12)}"
        by_share = self.parameters.job_scheduler is JobScheduler.PERCENTAGE
        share = self.rng.choice((20, 40, 60)) if by_share else None
        job = JobRequirements(id, id.encode(), tasks, edges, scheduler, share)
        self.log.append(Record(commands.SubmitJob(job), "client"))
        self.jobs += 1

    def kill_job(self) -> None:
        """A job that somebody sees; whoever lags may mean one that is over, and whose id is another's by now."""
        seen = [(job, at.submitted) for p in self.living() for job, at in p.replica.jobs.items()]
        if seen:
            self.log.append(Record(commands.KillJob(*self.rng.choice(sorted(seen))), "client"))

    def work(self) -> None:
        """A worker says what its task came to."""
        workers = [(p, peer) for p in self.living() for peer in sorted(p.running)]
        if not workers:
            return
        player, peer = self.rng.choice(workers)
        task = player.running[peer]
        submitted = player.replica.jobs[task.job].submitted
        player.outbox.append(
            self.rng.choice(
                (
                    commands.SignalReady(peer, task.version),
                    commands.SignalReady(peer, task.version),
                    commands.BackpressureOn(peer),
                    commands.BackpressureOff(peer),
                    commands.ExhaustInput(task.job, submitted, task.task),
                    commands.SealOutput(task.job, submitted, task.task),
                    commands.CompleteJob(task.job, submitted)
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
            player.append_one()

    def notice_some(self) -> None:
        """A group looks at the pulses that it watches; a back-off ends."""
        player = self._some(self.living())
        if player is None:
            return
        if player.later and self.rng.random() < 0.5:
            player.outbox.append(player.later.pop(0))
        self._look(player)

    # the end

    def heal(self) -> None:
        """No more mischief: all come to the same, in a bounded number of turns."""
        if not self.living():
            # Of a ring that died as a whole nobody is left to tell: who comes next finds it out.
            self.start_group()
        for _ in range(TURNS_TO_HEAL_MAX):
            self.end_dead_session()
            self.append_some()
            for player in self.living():
                player.outbox.extend(player.later)
                player.later.clear()
                self._look(player)
            for player in [each for each in self._players() if each.alive]:
                self._play(player, 5)
            if not self.restless():
                break
        else:
            raise FleetError(f"not quiet after {TURNS_TO_HEAL_MAX} turns: {self.restless()}")
        self.check_quiet()

    def restless(self) -> list[str]:
        """What is still to happen."""
        dead = [each.name for each in self._players() if each.session and not each.alive]
        found = [f"the session of {name} is to end" for name in dead]
        for player in self._players():
            if player.alive and player.group is not None and player.applied != self.log.end - 1:
                found.append(f"{player.name} is at {player.applied}, the log at {self.log.end - 1}")
        for player in self.living():
            if player.outbox or player.later:
                found.append(f"{player.name} is to append {player.outbox or player.later}")
            gone = [each for each in player.watched if not self.has_pulse(each)]
            found.extend(f"{player.name} is to notice that {each} is gone" for each in gone)
        return found

    def check_quiet(self) -> None:
        """All that live are in, and nobody else; all have one replica."""
        referee = self.log.referee
        living = {player.name for player in self.living()}
        insist(
            set(referee.groups) == living, f"the log has {sorted(referee.groups)}, alive are {sorted(living)}"
        )
        unaware = [each.name for each in self._players() if each.alive and each.group in referee.left]
        insist(not unaware, f"{unaware} have read that they are out, and go on")
        for player in self.living():
            same = player.chain == self.log.chain and player.replica == referee
            insist(same, f"{player.name} has another replica")
            known = {peer for peer, each in referee.peers.items() if each.group == player.group}
            insist(known == player.peers, f"of {player.peers}, {known} are in")

    # how it works

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
        player = Player(name, name if group else None, self.log, *self.log.origin())
        self.players[name] = player
        return player

    def _offer_worker(self, player: Player) -> None:
        tags = ("gpu",) if self.rng.random() < 0.3 else ()
        player.offer(f"p{self._number()}", f"host{self.rng.randint(0, 2)}:1", tags)

    def _end_session(self, player: Player) -> None:
        """The pulse goes, and the will is carried out."""
        player.end_session()
        if self.parameters.join is JoinMode.DIRECT and player.group is not None:
            self.log.append(Record(commands.GroupLeave(player.group), player.group))
        if not player.alive:
            self._forget(player)

    def _forget(self, player: Player) -> None:
        self.gone_jumps += player.jumps
        del self.players[player.name]

    def _look(self, player: Player) -> None:
        """At all pulses that it watches; who is gone is written once."""
        for watched in player.watched:
            leave = commands.GroupLeave(watched)
            if not self.has_pulse(watched) and leave not in player.outbox:
                player.outbox.append(leave)
        player.looks.clear()

    def _play(self, player: Player, entries: int) -> None:
        player.play(entries)
        if not player.out:
            return
        # A new id, a new session, new workers.
        player.alive = False
        if player.session:
            self._end_session(player)
        else:
            self._forget(player)
        self.restarts += 1
        self.start_group()
