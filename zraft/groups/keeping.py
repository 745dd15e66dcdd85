"""Keeping of the common log: a host decides which group is snapshotted, and what of its log goes then (D-4, D-13). Pure."""

from __future__ import annotations

from zraft.groups.effects import SnapshotTask
from zraft.groups.hosting import HostState
from zraft.groups.replica import HostedReplica
from zraft.groups.retention import LogRetention
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import COORDINATION_GROUP, GroupId


class Keeping:
    """The snapshots and the length of the log, for the groups of one server.

    Attributes:
        retention: what each group holds back of the log.
        snapshots: how many became durable.
    """

    def __init__(self, state: HostState, retention: LogRetention) -> None:
        self._state = state
        self.retention = retention
        self.snapshots = 0

    def snapshotted(self, group: GroupId, meta: SnapshotMeta, *, durable: bool) -> None:
        """Take note that a `SnapshotTask` has ended: the snapshot is durable, or could not be made so."""
        replica = self._state.groups.get(group)
        if replica is None:
            return
        self._state.touch(replica)
        if durable and meta.index > replica.snapshot_index:
            self.snapshots += 1
            replica.kept_bytes += self.retention.size_of(group)
            replica.snapshot_index = meta.index
        index = self._compact(replica) if durable else 0
        self.retention.ended(
            group,
            durable=durable,
            needs_more=index < replica.raft.log.last_index,
            let_go=index >= replica.snapshot_index,
        )

    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes) -> bool:
        """Take over another server's snapshot, which is durable here, if it is ahead of the group's state.

        Returns:
            Whether it was taken over; False if it was not needed.

        Raises:
            ProtocolError: the image or the membership in it cannot be read; nothing was changed.
        """
        replica = self._state.groups.get(group)
        if replica is None:
            return False
        self._state.touch(replica)
        if meta.index <= replica.applied_index:
            return False
        # The log begins anew only once the image is known to be good: else it would be ahead of the state (D-4).
        adopt = replica.machine.prepare_restore(image)
        if not replica.raft.restore(meta):
            return False
        replica.restored(meta, adopt)
        self.retention.removed(group)
        return True

    def keep_log_short(self) -> None:
        """Begin the snapshots that are due, and let go of what the log no longer needs."""
        for group in tuple(self.retention.due()):
            if group == COORDINATION_GROUP:
                self._state.effects.coordination_due = True
                continue
            replica = self._state.groups[group]
            if not replica.applied_index or replica.machine.stopped:
                self.retention.put_off(group)
            elif replica.applied_index == replica.snapshot_index:
                # Its state is on the disk; what is left of its log was kept for slow followers.
                self._state.touch(replica)
                replica.kept_bytes = self._state.settings.keep_log_bytes_max + 1
                self.retention.begun(group)
                needs_more = self._compact(replica) < replica.raft.log.last_index
                self.retention.ended(group, durable=True, needs_more=needs_more)
            else:
                self.retention.begun(group)
                machine = replica.machine
                self._state.effects.snapshots.append(
                    SnapshotTask(group, replica.where_applied(), machine.snapshot(), machine.digest())
                )
        self.retention.reckon()

    def _compact(self, replica: HostedReplica) -> int:
        """Let go of the log that the snapshot covers, except for what slow followers lack.

        Returns:
            The last index that is not needed; the log begins after it.
        """
        raft = replica.raft
        index = replica.snapshot_index
        keeps = replica.kept_bytes <= self._state.settings.keep_log_bytes_max
        if raft.role is Role.LEADER and keeps and not self.retention.is_long(replica.group):
            reachable = [
                match for server, match in raft.matches.items() if not self._state.peer(server).silent
            ]
            index = min([index, *reachable])
        if index == replica.snapshot_index:
            replica.kept_bytes = 0
        if index >= raft.log.first_index:
            raft.compact(index)
            self._state.effects.compactions.append((replica.group, index))
        return index
