"""What waits for the disk: everything that gathers while one frame is being synced becomes the next one.

At most one frame is being written at a time; the core hears of a frame by the number of its last write (D-7).

Pure. Source: rules D-1 and D-7 in docs/RULES.md.
"""

from __future__ import annotations

from zraft.ids import COORDINATION_GROUP
from zraft.raft.ready import Write
from zraft.server.bootstrap import Roster
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)


class GroupCommit:
    """The frame that is being written, and the writes that wait for the next."""

    def __init__(self) -> None:
        self._pending: list[Write] = []
        self._writing: int | None = None
        self._writing_roster = False
        self.waiting_bytes = 0
        """Payload of the entries that wait for the next frame: grows while the disk is stuck."""

    def add(self, write: Write) -> None:
        """A write of the core, to be made durable after all earlier ones."""
        self._pending.append(write)
        for entry in write.entries:
            self.waiting_bytes += len(entry.payload)

    @property
    def due(self) -> bool:
        """Whether a frame could be written now."""
        return self._writing is None and bool(self._pending)

    @property
    def under_way(self) -> bool:
        """Whether a frame of these is being written."""
        return self._writing is not None or self._writing_roster

    def next_frame(self, roster: Roster | None) -> list[Record] | None:
        """The frame to write now, None while one is being written or nothing waits; `roster` goes first (D-1)."""
        if self._writing is not None or self._writing_roster:
            return None
        if roster is not None:
            self._writing_roster = True
            return [RosterRecord(COORDINATION_GROUP, roster)]
        if not self._pending:
            return None
        writes, self._pending = self._pending, []
        self.waiting_bytes = 0
        records: list[Record] = []
        for write in writes:
            if write.hard_state is not None:
                records.append(HardStateRecord(COORDINATION_GROUP, write.hard_state))
            if write.restore is not None:
                records.append(RestoreRecord(COORDINATION_GROUP, write.restore))
            if write.truncate_from is not None:
                records.append(TruncateRecord(COORDINATION_GROUP, write.truncate_from))
            records.extend(EntryRecord(COORDINATION_GROUP, entry) for entry in write.entries)
        self._writing = writes[-1].number
        return records

    def durable(self) -> int | None:
        """The frame is durable: the number of its last write, or None if it was the roster's."""
        if self._writing_roster:
            self._writing_roster = False
            return None
        assert self._writing is not None
        number, self._writing = self._writing, None
        return number
