"""A deterministic simulation of many groups around one log: the shipped cores of groups, without clocks or sockets.

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
from onyxlog.peer.core import GroupCore
from onyxlog.peer.log.port import Origin
from onyxlog.replica import commands
from onyxlog.replica.collection import unwatched
from onyxlog.replica.commands import Record
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.scheduling.requirements import (
    FluxPolicy,
    JobRequirements,
    JobScheduler,
    TaskRequirements,
    TaskScheduler,
)
from tests.onyxlog.simulation.caller import Caller
from tests.onyxlog.simulation.player import Player
from tests.onyxlog.simulation.simulated_log import FleetError, SimulatedLog, insist

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
    players: dict[GroupId, Player] = field(factory=dict)
    callers: list[Caller] = field(factory=list)
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
            (4, self.begin_worker_again),
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
        workers = range(self.rng.randint(0, self.workers_max))
        offers = tuple(("gpu",) if self.rng.random() < 0.3 else () for _ in workers)
        replica, chain = self.log.origin()
        core = GroupCore(f"g{self._number()}", Origin(replica.version, replica, chain), offers=offers)
        player = self.players[core.group] = Player(core, self.log)
        player.carry_out(core.begin(f"host{self.rng.randint(0, 2)}:1", 0))

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
        if (player := self._some(self.living())) is not None:
            player.carry_out(player.core.leave(0))
            while player.outbox:
                player.append_one()
            player.alive = False

    def begin_worker_again(self) -> None:
        """A back-off is over."""
        if (player := self._some([each for each in self.living() if each.again])) is not None:
            player.carry_out(player.core.peer_again(player.again.pop(0), 0))

    def stop_worker(self) -> None:
        if (player := self._some([each for each in self.living() if each.peers])) is not None:
            peer = self.rng.choice(sorted(player.peers))
            player.carry_out(player.core.peer_failed(peer, 0))

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
        player.say(
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
        if player is not None and self.rng.random() < 0.5:
            player.say(commands.Gc(player.name, self._gone(player.replica)))
            return
        caller = Caller(f"c{self._number()}", self.log)
        caller.play(self.log.end)
        caller.gone = self._gone(caller.replica)
        self.callers.append(caller)

    def play_some(self) -> None:
        if playing := self._playing():
            self._play(self.rng.choice(playing), self.rng.randint(1, 8))

    def append_some(self) -> None:
        """An append arrives; also one that a process sent before it died. Its answer may take a while."""
        waiting: list[Player | Caller] = [
            *(each for each in self._players() if each.outbox and each.session),
            *(each for each in self.callers if each.asked is None),
        ]
        if waiting:
            one = self.rng.choice(waiting)
            one.append_one()
            if isinstance(one, Player) and self.rng.random() < 0.7:
                one.hear()

    def notice_some(self) -> None:
        """A group looks at the pulses that it watches; a back-off ends."""
        player = self._some(self.living())
        if player is None:
            return
        player.hear()
        if player.later and self.rng.random() < 0.5:
            player.join_again()
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
                player.hear()
                if player.later:
                    player.join_again()
                self.begin_worker_again()
                self._look(player)
            for one in self._playing():
                self._play(one, 5)
            if not self.restless():
                break
        else:
            raise FleetError(f"not quiet after {TURNS_TO_HEAL_MAX} turns: {self.restless()}")
        self.check_quiet()

    def restless(self) -> list[str]:
        """What is still to happen."""
        dead = [each.name for each in self._players() if each.session and not each.alive]
        found = [f"the session of {name} is to end" for name in dead]
        found.extend(f"{caller.name} is to collect" for caller in self.callers)
        for player in self._players():
            if player.alive and player.applied != self.log.end - 1:
                found.append(f"{player.name} is at {player.applied}, the log at {self.log.end - 1}")
        for player in self.living():
            if player.outbox or player.later or player.again:
                waits = player.outbox or player.later or player.again
                found.append(f"{player.name} is to append {waits}")
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
        unaware = [each.name for each in self._players() if each.alive and each.name in referee.left]
        insist(not unaware, f"{unaware} have read that they are out, and go on")
        for player in self.living():
            same = player.core.chain == self.log.chain and player.replica == referee
            insist(same, f"{player.name} has another replica")
            known = {peer for peer, each in referee.peers.items() if each.group == player.name}
            insist(known == player.peers, f"of {player.peers}, {known} are in")
            insist(not player.core.unseen, f"{player.name} waits for {player.core.unseen}, which the log has")

    # how it works

    def living(self) -> list[Player]:
        """Groups whose process and session live."""
        return [each for each in self._players() if each.alive and each.session]

    def has_pulse(self, group: GroupId) -> bool:
        player = self.players.get(group)
        return player is not None and player.session

    def _players(self) -> list[Player]:
        return list(self.players.values())

    def _playing(self) -> list[Player | Caller]:
        return [*(each for each in self._players() if each.alive), *self.callers]

    def _some(self, players: list[Player]) -> Player | None:
        return self.rng.choice(players) if players else None

    def _number(self) -> int:
        self.made += 1
        # Not in the order of the strings: a group that comes later must not always be the last.
        return self.made * 7_919 % 9_973

    def _gone(self, replica: Replica) -> tuple[GroupId, ...]:
        return tuple(each for each in unwatched(replica) if not self.has_pulse(each))

    def _end_session(self, player: Player) -> None:
        """The pulse goes, and the will is carried out."""
        player.end_session()
        if self.parameters.join is JoinMode.DIRECT:
            self.log.append(Record(commands.GroupLeave(player.name), player.name))
        if not player.alive:
            self._forget(player)

    def _forget(self, player: Player) -> None:
        self.gone_jumps += player.jumps
        del self.players[player.name]

    def _look(self, player: Player) -> None:
        """At all pulses that it watches."""
        for watched in player.watched:
            if not self.has_pulse(watched):
                player.carry_out(player.core.pulse_gone(watched, 0))
        player.looks.clear()

    def _play(self, one: Player | Caller, entries: int) -> None:
        one.play(entries)
        if isinstance(one, Caller):
            if one.done:
                self.callers.remove(one)
            return
        if one.out:
            self._begin_again(one)

    def _begin_again(self, player: Player) -> None:
        # A new id, a new session, new workers.
        player.alive = False
        if player.session:
            self._end_session(player)
        else:
            self._forget(player)
        self.restarts += 1
        self.start_group()
