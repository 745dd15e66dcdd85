"""Requests of a turn of the host of groups to its owner. Values only."""

from __future__ import annotations

from attrs import Factory, define, frozen

from zraft.raft.messages import Message as RaftMessage
from zraft.raft.snapshot import SnapshotMeta
from zraft.transport.messages import SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId, ServerId

GroupMessage = RaftMessage | SharedHeartbeat | SharedHeartbeatReply
"""The messages that the hosts of groups exchange."""


@frozen
class SnapshotTask:
    """A request to make this image durable as the group's newest snapshot, and to answer by `GroupHost.snapshotted`."""

    group: GroupId
    meta: SnapshotMeta
    image: bytes
    digest: int


@define
class GroupEffects:
    """Requests of one turn of the host.

    Attributes:
        sends: messages by receiver; those to one receiver are one datagram if they fit.
        touched: groups that were looked at. Roles, members and commits of others cannot have changed.
        applied: groups whose state machines have applied entries.
        reads: (group, context) of reads that may be answered from the state machine as it is now.
        snapshots: images that are to be made durable, in this order.
        compactions: (group, index) for `Wal.compact`, after the frame of this turn.
        coordination_due: whether the coordination group, which is not hosted here, is to be snapshotted to
            shorten the log.
        needs_snapshot: (group, follower) of followers whose missing entries the leader's log no longer holds.
        placed: groups led here whose committed voters are the wanted disks now, so that other disks may
            retire their replicas.
        forgotten: groups that the log no longer knows. Their files are to be removed before anything is
            compacted.
        spoke: whether shared heartbeats are among the messages.
        wake_in: ticks until the next turn is due, if nothing arrives before; None if none is.
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
    spoke: bool = False
    wake_in: int | None = None
