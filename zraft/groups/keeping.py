"""How a host keeps the common log short: which group is snapshotted, and what of its log goes then (D-4, D-13). Pure."""

from __future__ import annotations

from zraft.groups.covers.sharing import Sharing
from zraft.groups.effects import SnapshotTask
from zraft.groups.replica import Replica
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import COORDINATION_GROUP, GroupId


class Keeping(Sharing):
    """Snapshots and the length of the log. Part of `zraft.groups.host.GroupHost`."""

    def snapshotted(self, group: GroupId, meta: SnapshotMeta, *, durable: bool) -> None:
        """A `SnapshotTask` ended: it is durable, or could not be made so."""
        replica = self.groups.get(group)
        if replica is None:
            return
        self._touch(replica)
        if durable and meta.index > replica.snapshot_index:
            self._snapshots += 1
            replica.kept_bytes += self._retention.size_of(group)
            replica.snapshot_index = meta.index
        index = self._compact(replica) if durable else 0
        self._retention.ended(
            group,
            durable=durable,
            needs_more=index < replica.raft.log.last_index,
            let_go=index >= replica.snapshot_index,
        )

    def install(self, group: GroupId, meta: SnapshotMeta, image: bytes) -> bool:
        """Another server's snapshot is durable here: become it, if that is ahead; False if it is not needed.

        Raises:
            ProtocolError: the image or the membership in it cannot be read.
        """
        replica = self.groups.get(group)
        if replica is None:
            return False
        self._touch(replica)
        if meta.index <= replica.applied_index or not replica.raft.restore(meta):
            return False
        replica.restored(meta, image)
        self._retention.removed(group)
        return True

    def _keep_log_short(self) -> None:
        for group in tuple(self._retention.due()):
            if group == COORDINATION_GROUP:
                self._effects.coordination_due = True
                continue
            replica = self.groups[group]
            if not replica.applied_index or replica.machine.stopped:
                self._retention.put_off(group)
            elif replica.applied_index == replica.snapshot_index:
                # Its state is on the disk; what is left of its log was kept for who is slow.
                self._touch(replica)
                replica.kept_bytes = self.settings.keep_log_bytes_max + 1
                self._retention.begun(group)
                needs_more = self._compact(replica) < replica.raft.log.last_index
                self._retention.ended(group, durable=True, needs_more=needs_more)
            else:
                self._retention.begun(group)
                machine = replica.machine
                self._effects.snapshots.append(
                    SnapshotTask(group, replica.where_applied(), machine.snapshot(), machine.digest())
                )

    def _compact(self, replica: Replica) -> int:
        """Let go of what the snapshot covers, but for what slow followers lack; where the log begins after that."""
        raft = replica.raft
        index = replica.snapshot_index
        keeps = replica.kept_bytes <= self.settings.keep_log_bytes_max
        if raft.role is Role.LEADER and keeps and not self._retention.is_long(replica.group):
            reachable = [match for server, match in raft.matches.items() if not self._peer(server).silent]
            index = min([index, *reachable])
        if index == replica.snapshot_index:
            replica.kept_bytes = 0
        if index >= raft.log.first_index:
            raft.compact(index)
            self._effects.compactions.append((replica.group, index))
        return index
