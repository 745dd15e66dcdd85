"""A simulated process that plays the log: what a group's runtime is, without clocks, sockets and tasks."""

from __future__ import annotations

from attrs import define, field

from onyxlog.ids import GroupId, PeerId, Position
from onyxlog.replica import commands, effects
from onyxlog.replica.assignments import assignments
from onyxlog.replica.commands import Command, Record
from onyxlog.replica.effects import Effect
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects as effects_of
from onyxlog.replica.playing import jump_effects, owed, play
from onyxlog.replica.playing import reactions as reactions_of
from onyxlog.replica.replica import Replica
from onyxlog.replica.ring import helped, helper, subject
from onyxlog.testing.simulated_log import SimulatedLog, insist


@define(eq=False)
class Player:
    """A group, or a client that calls garbage collection (`group` None).

    `outbox`: to be appended, in order; `later`: after a back-off; `looks`: pulses to look at once.
    """

    name: str
    group: GroupId | None
    log: SimulatedLog
    replica: Replica
    chain: bytes
    peers: set[PeerId] = field(factory=set)
    outbox: list[Command] = field(factory=list)
    later: list[Command] = field(factory=list)
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
    offered: dict[PeerId, Position] = field(factory=dict)
    """Where the log has their add-virtual-peer."""
    jumps: int = 0

    @property
    def viewer(self) -> Viewer:
        return Viewer(self.group, frozenset(self.peers), self.name if self.group is None else None)

    @property
    def applied(self) -> Position:
        return self.replica.version

    @property
    def watched(self) -> list[GroupId]:
        """All pulses that it looks at, sorted."""
        return sorted({each for each in (self.subject, self.joiner, self.detecting, *self.looks) if each})

    def offer(self, peer: PeerId, site: str, tags: tuple[str, ...]) -> None:
        insist(self.group is not None, "clients have no workers")
        self.peers.add(peer)
        self.outbox.append(commands.AddVirtualPeer(peer, self.group or "", site, tags))

    def append_one(self) -> None:
        command = self.outbox.pop(0)
        if isinstance(command, commands.AddVirtualPeer):
            self.offered[command.peer] = self.log.end
        self.log.append(Record(command, self.name))

    def end_session(self) -> None:
        """The pulse goes, and so does what was not appended."""
        self.session = False
        self.outbox.clear()
        self.later.clear()

    def play(self, entries: int) -> None:
        """So many, or to the end of the log, or until it is out."""
        for _ in range(entries):
            if self.applied >= self.log.end - 1 or self.out:
                return
            entry = self.log.entry(self.applied + 1)
            if entry is None:
                self._jump()
                continue
            step = play(self.replica, entry, self.chain)
            self.replica, self.chain = step.replica, step.chain
            insist(
                self.chain == self.log.chains[self.applied], f"{self.name} differs after entry {self.applied}"
            )
            # both before anything is carried out, as a runtime does: the viewer is who it was
            reactions, found = reactions_of(step, self.viewer), effects_of(step, self.viewer)
            if self.session:
                self.outbox.extend(reactions)
            self._carry_out(found)

    def _jump(self) -> None:
        old = self.replica
        self.replica, self.chain = self.log.origin()
        self.jumps += 1
        offered = [peer for peer, position in self.offered.items() if position <= self.applied]
        self._carry_out(jump_effects(old, self.replica, self.viewer, offered))
        if self.session:
            self.outbox.extend(owed(self.replica, self.viewer))

    def _carry_out(self, found: tuple[Effect, ...]) -> None:
        for effect in found:
            self._do(effect)
        if not self.out and self.group is not None and self.group not in self.replica.left:
            self._check()

    def _check(self) -> None:
        """What the effects led to is what the replica says."""
        running = {
            peer: (task.job, task.task, task.slot, task.version) for peer, task in self.running.items()
        }
        expected = {
            peer: (each.job, each.task, each.slot, each.version)
            for peer, each in assignments(self.replica, self.peers).items()
        }
        insist(running == expected, f"{self.name} runs {running}, expected {expected}")
        group = self.group or ""
        watches = (self.subject, self.joiner, self.detecting)
        should = (
            subject(self.replica, group),
            helped(self.replica, group),
            helper(self.replica.prepared, group),
        )
        insist(watches == should, f"{self.name} watches {watches}, expected {should}")

    def _do(self, effect: Effect) -> None:
        match effect:
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
            case effects.AppendLater(command):
                if self.session:
                    self.later.append(command)
            case effects.RestartGroup():
                self.out = True
            case effects.RestartPeer(peer):
                self.peers.discard(peer)
                self.running.pop(peer, None)
            case effects.StartTask(peer):
                self.running[peer] = effect
            case effects.StopTask(peer):
                self.running.pop(peer, None)
            case effects.StoreOrigin():
                insist(effect.position == self.applied, "the origin is stored late")
                self.log.store_origin(self.replica, self.chain)
            case effects.ForgetJob():
                insist(self.log.origin_position >= self.applied, "a job is forgotten before the origin")
