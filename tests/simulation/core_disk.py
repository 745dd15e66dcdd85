"""What a consensus core's disk holds where cores run without servers: writes that may or may not survive a crash."""

from __future__ import annotations

from attrs import define, field

from zraft.raft.log import Log
from zraft.raft.messages import Entry, HardState
from zraft.raft.ready import LogWrite
from zraft.raft.snapshot import SnapshotMeta


@define
class CoreDisk:
    """What survives a crash, and the `pending` writes that may or may not.

    Attributes:
        base: the log on this disk begins after this snapshot.
        snapshot: the newest one.
        synced: number of the last write that is durable.
    """

    hard_state: HardState = field(factory=HardState)
    base: SnapshotMeta | None = None
    entries: list[Entry] = field(factory=list)
    snapshot: SnapshotMeta | None = None
    pending: list[LogWrite] = field(factory=list)
    synced: int = 0

    @property
    def first_index(self) -> int:
        return 1 if self.base is None else self.base.index + 1

    def sync_first(self) -> None:
        """The oldest pending write becomes durable."""
        write = self.pending.pop(0)
        assert write.restore is None or write.truncate_from is None
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        if write.restore is not None:
            self.base, self.entries = write.restore, []
        first = self.first_index
        if write.truncate_from is not None:
            del self.entries[write.truncate_from - first :]
        for entry in write.entries:
            assert entry.index == first + len(self.entries), f"{entry} after {first} + {len(self.entries)}"
            self.entries.append(entry)
        self.synced = write.number

    def lose_pending(self) -> None:
        """The process died."""
        self.pending.clear()
        self.synced = 0

    def holds(self, index: int, term: int) -> bool:
        """Does it survive a crash that this entry is in the log, or in a snapshot?"""
        if self.snapshot is not None and self.snapshot.index >= index:
            return True
        at = index - self.first_index
        return at < 0 or (at < len(self.entries) and self.entries[at].term == term)

    def recover(self) -> Log:
        """The log as a start finds it; it begins anew after a snapshot that it ends before or contradicts."""
        base, snapshot, first = self.base, self.snapshot, self.first_index
        if snapshot is not None and snapshot.index >= first:
            at = snapshot.index - first
            if at >= len(self.entries) or self.entries[at].term != snapshot.term:
                self.base = base = snapshot
                self.entries = []
        if base is None:
            return Log(entries=self.entries)
        return Log(
            entries=self.entries,
            first_index=base.index + 1,
            base_term=base.term,
            base_position=base.next_position,
            base_membership=base.membership,
        )

    def compact(self, base: SnapshotMeta) -> None:
        del self.entries[: base.index + 1 - self.first_index]
        self.base = base
