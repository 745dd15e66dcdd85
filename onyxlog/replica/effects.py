"""Effects of an entry on the world, as values that the runtime carries out.

Each is idempotent: carrying it out again, or after a restart of the runtime, does no harm. The runtime knows
from which position it came.
"""

from __future__ import annotations

from attrs import frozen

from onyxlog.ids import GroupId, JobId, PeerId, Position, TaskName


@frozen
class WatchPulse:
    """Watch a group's pulse instead of any that was watched before; write its GroupLeave once it is gone.

    If the pulse is gone already, write it at once.
    """

    subject: GroupId


@frozen
class WatchNobody:
    """Stop watching: the ring has one member."""


@frozen
class WatchJoiner:
    """Watch the pulse of the group that is being helped to join, and write its GroupLeave once it is gone.

    It is watched beside the group of `WatchPulse`, and instead of any other joiner. The old subject stays
    watched until the joiner watches it; otherwise nobody would notice its end in between.
    """

    joiner: GroupId


@frozen
class UnwatchJoiner:
    """Stop watching the joiner: it is in, and watched as the neighbour in the ring, or its join is given up."""


@frozen
class LeaveIfGone:
    """Look at a group's pulse once; write its GroupLeave if it is gone."""

    subject: GroupId


@frozen
class DetectFailure:
    """Look at the pulse of the group that is to help with a join, once a second, until told to stop.

    Write its GroupLeave if the pulse is gone. Without it two groups that join at the same time can wait for
    each other for ever (Onyx' issue 416).
    """

    subject: GroupId


@frozen
class StopDetecting:
    """Stop looking at the helper's pulse, as it answered."""


@frozen
class JoinLater:
    """Ask to join again after a random wait, unless the group's turn comes before (`ring.has_turn`).

    `ahead`: how many groups wait for longer. Nobody waits where entries are applied.
    """

    ahead: int


@frozen
class RestartGroup:
    """Begin again under a new id: the log says that this group is out, although it lives."""


@frozen
class RestartPeer:
    """Begin again under a new id: the log says that this virtual peer is out, although it lives."""

    peer: PeerId


@frozen
class StartTask:
    """Effect: let this virtual peer run a task from now on, instead of what it ran before.

    `version`: the position at which the job's allocations last changed: all workers of the job begin again
    from there.
    """

    peer: PeerId
    job: JobId
    task: TaskName
    slot: int
    version: Position


@frozen
class StopTask:
    """Stop the virtual peer's task. `why`: reallocated, killed, completed, left."""

    peer: PeerId
    job: JobId
    why: str


@frozen
class ForgetJob:
    """Remove the znodes of a job that no replica knows any more.

    This follows StoreOrigin, and may be done only once that is done: a peer that starts at an older origin
    still meets the job.
    """

    job: JobId


@frozen
class StoreOrigin:
    """Store the replica as of `position` as origin, and truncate the log to begin after it, in one step."""

    position: Position


Effect = (
    WatchPulse
    | WatchNobody
    | WatchJoiner
    | UnwatchJoiner
    | LeaveIfGone
    | DetectFailure
    | StopDetecting
    | JoinLater
    | RestartGroup
    | RestartPeer
    | StartTask
    | StopTask
    | StoreOrigin
    | ForgetJob
)
