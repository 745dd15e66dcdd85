"""One frame of the common log for the writes of all groups of a turn, one frame at a time (D-10, D-13). Pure."""

from __future__ import annotations

from zraft.ids import GroupId
from zraft.raft.ready import Write
from zraft.storage.records import (
    EntryRecord,
    ForgetRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    TruncateRecord,
)


class SharedCommit:
    """What waits for the disk, of all groups, and the newest write of each group in the frame under way."""

    __slots__ = (
        "_forgotten",
        "_pending",
        "_pending_numbers",
        "_writing",
        "_writing_forgotten",
        "waiting_bytes",
    )

    def __init__(self) -> None:
        self._pending: list[Record] = []
        self._pending_numbers: dict[GroupId, int] = {}
        self._writing: dict[GroupId, int] | None = None
        self._forgotten: list[GroupId] = []
        self._writing_forgotten: list[GroupId] = []
        self.waiting_bytes = 0
        """Payload of the entries that wait for the next frame: grows while the disk is stuck."""

    @property
    def due(self) -> bool:
        """Could a frame be written now?"""
        return self._writing is None and bool(self._pending)

    def add(self, group: GroupId, write: Write) -> int:
        """A write of a group's core, after all its earlier ones; bytes of payload in it."""
        records = self._pending
        if write.hard_state is not None:
            records.append(HardStateRecord(group, write.hard_state))
        if write.restore is not None:
            records.append(RestoreRecord(group, write.restore))
        if write.truncate_from is not None:
            records.append(TruncateRecord(group, write.truncate_from))
        size = 0
        for entry in write.entries:
            records.append(EntryRecord(group, entry))
            size += len(entry.payload)
        self._pending_numbers[group] = write.number
        self.waiting_bytes += size
        return size

    def forget(self, group: GroupId) -> None:
        """The group is gone for good; what waits of it need not be written."""
        self._pending = [record for record in self._pending if record.group != group]
        self._pending.append(ForgetRecord(group))
        self._pending_numbers.pop(group, None)
        self._forgotten.append(group)
        if self._writing is not None:
            self._writing.pop(group, None)

    def next_frame(self) -> list[Record] | None:
        """The records to write now; None while some are being written, or nothing waits."""
        if not self.due:
            return None
        records, self._pending = self._pending, []
        self._writing, self._pending_numbers = self._pending_numbers, {}
        self._writing_forgotten, self._forgotten = self._forgotten, []
        self.waiting_bytes = 0
        return records

    def durable(self) -> tuple[dict[GroupId, int], list[GroupId]]:
        """The frame is durable: the newest write of each group in it, and the groups that are forgotten by it."""
        assert self._writing is not None, "no frame is being written"
        numbers, self._writing = self._writing, None
        forgotten, self._writing_forgotten = self._writing_forgotten, []
        return numbers, forgotten
