"""A simulated process around a group's core as it ships: what `onyxlog.peer.incarnation` is, without clock and tasks."""

from __future__ import annotations

from typing import assert_never

from attrs import define, field

from onyxlog.ids import GroupId, PeerId, Position
from onyxlog.peer.core import GroupCore
from onyxlog.peer.log.port import Origin
from onyxlog.peer.turns import Act, Append, Truncate, Turn
from onyxlog.replica import effects
from onyxlog.replica.assignments import assignments
from onyxlog.replica.commands import Command
from onyxlog.replica.replica import Replica
from onyxlog.replica.ring import helped, helper, subject
from tests.onyxlog.simulation.simulated_log import SimulatedLog, insist


@define(eq=False)
class Player:
    """`outbox`: to be appended, in order; `answers`: positions of what was, not heard of yet.

    `later`: it tries to join again after a wait; `again`: virtual peers that begin again after one; `looks`: pulses to look
    at once.
    """

    core: GroupCore
    log: SimulatedLog
    outbox: list[Append] = field(factory=list)
    answers: list[tuple[int, Position]] = field(factory=list)
    later: bool = False
    again: list[PeerId] = field(factory=list)
    looks: list[GroupId] = field(factory=list)
    alive: bool = True
    """The process lives."""
    session: bool = True
    """Its session does: it can append, and others find its pulse."""
    out: bool = False
    """It was told to begin again under a new id."""
    subject: GroupId | None = None
    joiner: GroupId | None = None
    detecting: GroupId | None = None
    running: dict[PeerId, effects.StartTask] = field(factory=dict)
    jumps: int = 0

    @property
    def name(self) -> GroupId:
        return self.core.group

    @property
    def replica(self) -> Replica:
        return self.core.replica

    @property
    def applied(self) -> Position:
        return self.core.version

    @property
    def peers(self) -> frozenset[PeerId]:
        """Its virtual peers, in the log or on their way there."""
        return self.core.viewer.peers

    @property
    def watched(self) -> list[GroupId]:
        """All pulses that it looks at, sorted."""
        return sorted({each for each in (self.subject, self.joiner, self.detecting, *self.looks) if each})

    def say(self, command: Command) -> None:
        self.carry_out(self.core.say(command, 0))

    def join_again(self) -> None:
        self.later = False
        self.carry_out(self.core.join_again(0))

    def carry_out(self, turn: Turn) -> None:
        for act in turn.acts:
            self._do(act)
        if self.session:
            self.outbox.extend(turn.appends)

    def append_one(self) -> None:
        append = self.outbox.pop(0)
        self.answers.append((append.number, self.log.append(append.record)))

    def hear(self) -> None:
        """The answers to its appends arrive; that may be after it read the entries, or learned that they are truncated."""
        for number, position in self.answers:
            self.carry_out(self.core.accepted(number, position, 0))
        self.answers.clear()

    def end_session(self) -> None:
        """The pulse goes, and so does what was not appended."""
        self.session = False
        self.outbox.clear()
        self.later = False
        self.again.clear()

    def play(self, entries: int) -> None:
        """So many, or to the end of the log, or until it is out."""
        for _ in range(entries):
            if self.applied >= self.log.end - 1 or self.out:
                return
            entry = self.log.entry(self.applied + 1)
            if entry is None:
                replica, chain = self.log.origin()
                self.jumps += 1
                turn = self.core.jump(Origin(replica.version, replica, chain), 0)
            else:
                turn = self.core.take(entry, 0)
            same = self.core.chain == self.log.chains[self.applied]
            insist(same, f"{self.name} differs after entry {self.applied}")
            self.carry_out(turn)
            if not self.out and self.name not in self.replica.left:
                self._check()

    def _check(self) -> None:
        """What the acts led to is what the replica says."""
        running = {
            peer: (task.job, task.task, task.slot, task.version) for peer, task in self.running.items()
        }
        expected = {
            peer: (each.job, each.task, each.slot, each.version)
            for peer, each in assignments(self.replica, self.peers).items()
        }
        insist(running == expected, f"{self.name} runs {running}, expected {expected}")
        watches = (self.subject, self.joiner, self.detecting)
        should = (
            subject(self.replica, self.name),
            helped(self.replica, self.name),
            helper(self.replica.prepared, self.name),
        )
        insist(watches == should, f"{self.name} watches {watches}, expected {should}")

    def _do(self, act: Act) -> None:
        match act.what:
            case effects.WatchPulse(watched):
                self.subject = watched
            case effects.WatchNobody():
                self.subject = None
            case effects.WatchJoiner(joiner):
                self.joiner = joiner
            case effects.UnwatchJoiner():
                self.joiner = None
            case effects.DetectFailure(watched):
                self.detecting = watched
            case effects.StopDetecting():
                self.detecting = None
            case effects.LeaveIfGone(watched):
                self.looks.append(watched)
            case effects.JoinLater():
                self.later = self.session
            case effects.RestartGroup():
                self.out = True
            case effects.RestartPeer(peer):
                self.running.pop(peer, None)
                if self.session:
                    self.again.append(peer)
            case effects.StartTask(peer):
                self.running[peer] = act.what
            case effects.StopTask(peer):
                self.running.pop(peer, None)
            case Truncate(origin):
                insist(act.position == origin.position == self.applied, "the origin is stored late")
                self.log.store_origin(origin.replica, origin.chain)
            case effects.ForgetJob():
                insist(self.log.origin_position >= act.position, "a job is forgotten before the origin")
            case effects.StoreOrigin():
                raise AssertionError("the core hands out origins as Truncate")
            case _:
                assert_never(act.what)
