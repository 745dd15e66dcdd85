"""The kinds of entries in the log, as values.

The meaning of each is in a module of its own in `onyxlog.replica.kinds`.
"""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, Site, TaskName
from onyxlog.scheduling.requirements import JobRequirements


@frozen
class PrepareJoin:
    """A group asks to join the ring. The group writes it, once its pulse stands."""

    joiner: GroupId


@frozen
class NotifyJoin:
    """The group that is to watch the joiner does so now. That group, the watcher, writes it."""

    joiner: GroupId
    watcher: GroupId


@frozen
class AcceptJoin:
    """The joiner watches the group that its watcher watched before, and is part of the ring. The joiner writes it."""

    joiner: GroupId
    watcher: GroupId
    subject: GroupId


@frozen
class AbortJoin:
    """A join that was begun is given up; the joiner tries again. The joiner or its helper writes it."""

    joiner: GroupId


@frozen
class JoinDirect:
    """A group joins at once, without a ring: its leave is the will of its session.

    The group writes it, once the will stands.
    """

    group: GroupId


@frozen
class GroupLeave:
    """A group is gone. Its watcher, the group itself, or its session's will writes it."""

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
    """A worker leaves: it was stopped, it failed, or it was evicted for its silence. Its group writes it."""

    peer: PeerId
    group: GroupId


@frozen
class SubmitJob:
    """A job is submitted, once. A client writes it, after all other parts of the job stand in znodes."""

    job: JobRequirements


@frozen
class KillJob:
    """A job is killed.

    A client writes it, or a worker whose task raised what its job does not handle; `reason` is for people.

    `submitted`, here and below: the position of the job that is meant. Its id may be another job's when the
    entry comes.
    """

    job: JobId
    submitted: Position
    reason: str = ""


@frozen
class CompleteJob:
    """All inputs are exhausted and all outputs sealed. The job's coordinator writes it."""

    job: JobId
    submitted: Position


@frozen
class ExhaustInput:
    """All that an input task's source had was read and processed. The job's coordinator writes it."""

    job: JobId
    submitted: Position
    task: TaskName


@frozen
class SealOutput:
    """An output task wrote its last segment. The job's coordinator writes it."""

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
    """Command that lets everybody forget what is over.

    The caller stores the replica as origin and truncates the log.

    `caller` is the writer of the entry: a group or a client, by an id that it made for this call. `gone`:
    those of `onyxlog.replica.collection.unwatched` whose pulse the caller did not find; as a pulse stands
    before its group's first entry, nothing of theirs can follow.
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
    """Record that a writer puts into the log: a command, and where it comes from.

    `author` is the group or client that wrote it; `cause` is the position it reacted to, None for an act of
    its own; `at_ms` is the writer's clock, for people and metrics only: nothing is decided by it.
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
        """The record's command."""
        return self.record.command
