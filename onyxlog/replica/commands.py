"""The kinds of entries in the log, as values. What each means is in a module of its own, in `onyxlog.replica.kinds`."""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.scheduling.requirements import JobRequirements


@frozen
class PrepareJoin:
    """A group asks to be taken into the ring. Written by it, once its pulse stands."""

    joiner: GroupId


@frozen
class NotifyJoin:
    """The group that will watch the joiner does so now. Written by that group, the watcher."""

    joiner: GroupId
    watcher: GroupId


@frozen
class AcceptJoin:
    """The joiner watches the group that its watcher watched before, and is part of the ring. Written by the joiner."""

    joiner: GroupId
    watcher: GroupId
    subject: GroupId


@frozen
class AbortJoin:
    """A join that was begun is given up; the joiner tries again. Written by the joiner or by who was to help."""

    joiner: GroupId


@frozen
class JoinDirect:
    """A group is in at once, without a ring: its leave is the will of its session. Written by it, once the will stands."""

    group: GroupId


@frozen
class GroupLeave:
    """A group is gone. Written by who watched it, by itself, or by its session's will."""

    group: GroupId


@frozen
class AddVirtualPeer:
    """A worker offers itself. It waits as an orphan until its group has joined."""

    peer: PeerId
    group: GroupId
    site: Site
    tags: tuple[str, ...] = ()


@frozen
class Leave:
    """A worker goes: it was stopped, it failed, or it was evicted for its silence. Written by its group."""

    peer: PeerId
    group: GroupId


@frozen
class SubmitJob:
    """A job, once. Written by a client, after all other parts of the job stand in znodes."""

    job: JobRequirements


@frozen
class KillJob:
    """Written by a client, or by a worker whose task raised what its job does not handle; `reason` is for people.

    `submitted`, here and below: where the job stands that is meant. Its id may be another's when the entry comes.
    """

    job: JobId
    submitted: Position
    reason: str = ""


@frozen
class CompleteJob:
    """All inputs are exhausted and all outputs sealed. Written by the job's coordinator."""

    job: JobId
    submitted: Position


@frozen
class ExhaustInput:
    """All that an input task's source had was read and is done with. Written by the job's coordinator."""

    job: JobId
    submitted: Position
    task: TaskName


@frozen
class SealOutput:
    """An output task wrote its last. Written by the job's coordinator."""

    job: JobId
    submitted: Position
    task: TaskName


@frozen
class SignalReady:
    """A worker's task has started. `allocation_version` is the position that gave it the task."""

    peer: PeerId
    allocation_version: Position


@frozen
class BackpressureOn:
    """A worker's buffers are full: inputs of its job wait."""

    peer: PeerId


@frozen
class BackpressureOff:
    """A worker's buffers are empty enough again."""

    peer: PeerId


@frozen
class Gc:
    """What is over is forgotten by everybody; the caller stores the replica as origin and truncates the log.

    `caller` is whoever wrote the entry: a group or a client, by an id that it made for this call. `gone`: those of
    `onyxlog.replica.collection.unwatched` whose pulse the caller did not find; as a pulse stands before its group's
    first entry, nothing of theirs can follow.
    """

    caller: str
    gone: tuple[GroupId, ...] = ()


Command = (
    PrepareJoin
    | NotifyJoin
    | AcceptJoin
    | AbortJoin
    | JoinDirect
    | GroupLeave
    | AddVirtualPeer
    | Leave
    | SubmitJob
    | KillJob
    | CompleteJob
    | ExhaustInput
    | SealOutput
    | SignalReady
    | BackpressureOn
    | BackpressureOff
    | Gc
)


@frozen
class Record:
    """What a writer puts into the log: a command, and where it comes from.

    `author` is the group or client that wrote it; `cause` the position it reacted to, None for an act of its own;
    `at_ms` the
    writer's clock, for people and metrics only: nothing is decided by it.
    """

    command: Command
    author: str
    cause: Position | None = None
    at_ms: int = 0


@frozen
class Entry:
    """A record that the log has accepted."""

    position: Position
    record: Record

    @property
    def command(self) -> Command:
        return self.record.command
