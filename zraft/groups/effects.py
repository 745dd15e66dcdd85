"""What a turn of the host of groups asks its owner to do. Values only."""

from __future__ import annotations

from attrs import Factory, define, frozen

from zraft.raft.messages import Message as RaftMessage
from zraft.raft.snapshot import SnapshotMeta
from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId, ServerId

GroupMessage = RaftMessage | SharedHeartbeat | SharedHeartbeatReply
"""What the hosts of groups say to each other."""


@frozen
class SnapshotTask:
    """Make this image durable as the group's newest snapshot, and say so by `GroupHost.snapshotted`."""

    group: GroupId
    meta: SnapshotMeta
    image: bytes
    digest: int


@define
class GroupEffects:
    """One turn's.

    Attributes:
        sends: what goes to whom, one datagram if it fits.
        touched: groups that were looked at: only their roles, members and commits can have changed.
        applied: groups whose state machines took entries.
        reads: (group, context): that read may be answered from the state machine as it is now.
        snapshots: what is to be made durable, in order.
        compactions: (group, index): `Wal.compact`, after the frame of this turn.
        coordination_due: the coordination group, which is not hosted here, is to be snapshotted for the log's sake.
        needs_snapshot: (group, follower): its log no longer reaches the leader's.
        placed: groups led here whose committed voters are the wanted disks now: whoever else has a replica may
            retire it.
        forgotten: groups of which the log knows nothing any more: their files go, before anything is compacted.
        wake_in: ticks until the next turn is due, if nothing arrives before; None if nothing is.
    """

    sends: dict[ServerId, list[GroupMessage]] = Factory(dict)
    touched: list[GroupId] = Factory(list)
    applied: list[GroupId] = Factory(list)
    reads: list[tuple[GroupId, int]] = Factory(list)
    snapshots: list[SnapshotTask] = Factory(list)
    compactions: list[tuple[GroupId, int]] = Factory(list)
    coordination_due: bool = False
    needs_snapshot: list[tuple[GroupId, ServerId]] = Factory(list)
    placed: list[GroupId] = Factory(list)
    forgotten: list[GroupId] = Factory(list)
    wake_in: int | None = None
