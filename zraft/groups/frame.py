"""The frame of the log: what all groups of a server write in a turn, one frame at a time (D-10, D-13).

A *frame* is written and made durable as a whole. What comes while one is being synced becomes the next one.
Each core is told of a frame by the number of its last write in it (D-7). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from zraft.groups.roster import Roster
from zraft.raft.ready import LogWrite
from zraft.storage.records import (
    EntryRecord,
    ForgetRecord,
    HardStateRecord,
    Record,
    RestoreRecord,
    RosterRecord,
    TruncateRecord,
)
from zraft_core.ids import COORDINATION_GROUP, GroupId


@frozen
class Durable:
    """Contents of a frame that is durable.

    Attributes:
        numbers: the number of the newest write of each group in it.
        forgotten: groups that the log no longer knows from then on.
        roster: whether it holds the roster of the cluster's founders.
    """

    numbers: Mapping[GroupId, int] = field(factory=dict)
    forgotten: Sequence[GroupId] = ()
    roster: bool = False


class LogFrame:
    """The writes of all groups of a server that wait for the log's disk, and the frame that is being written.

    Attributes:
        due: whether a frame could be written now.
        waiting_bytes: by group, the bytes of payload of its entries that wait for the next frame: many if the disk
            hangs. A group of which none wait is not in it.
    """

    __slots__ = ("_forgotten", "_numbers", "_pending", "_writing", "due", "waiting_bytes")

    def __init__(self) -> None:
        self._pending: list[Record] = []
        self._numbers: dict[GroupId, int] = {}
        self._forgotten: list[GroupId] = []
        self._writing: Durable | None = None
        self.waiting_bytes: dict[GroupId, int] = {}
        self.due = False

    @property
    def is_free(self) -> bool:
        """True if no frame is being written."""
        return self._writing is None

    @property
    def holds_groups(self) -> bool:
        """True if writes of other groups than the coordination group (number 0) wait or are being written."""
        writing = self._writing
        return (
            any(self._numbers)
            or bool(self._forgotten)
            or (writing is not None and (any(writing.numbers) or bool(writing.forgotten)))
        )

    def add(self, group: GroupId, write: LogWrite) -> int:
        """Add a write of a group's core, which follows all its earlier ones; return the bytes of payload in it."""
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
        self._numbers[group] = write.number
        self.due = self._writing is None
        if size:
            waiting = self.waiting_bytes
            waiting[group] = waiting[group] + size if group in waiting else size
        return size

    def forget(self, group: GroupId) -> None:
        """Add a record by which the log forgets a group that is gone for good, and drop what waits of it.

        The coordination group is never forgotten (D-1).
        """
        assert group != COORDINATION_GROUP, "the coordination group cannot be forgotten (D-1)"
        self._pending = [record for record in self._pending if record.group != group]
        self._pending.append(ForgetRecord(group))
        self._numbers.pop(group, None)
        self.waiting_bytes.pop(group, None)
        self._forgotten.append(group)
        self.due = self._writing is None
        if self._writing is not None:
            numbers = {other: number for other, number in self._writing.numbers.items() if other != group}
            self._writing = Durable(numbers, self._writing.forgotten, self._writing.roster)

    def take(self, roster: Roster | None = None) -> list[Record] | None:
        """Return the records to write now; None if a frame is being written already, or nothing waits.

        A `roster` goes alone into a frame of its own, before everything else (D-1).
        """
        if self._writing is not None:
            return None
        self.due = False
        if roster is not None:
            self._writing = Durable(roster=True)
            return [RosterRecord(COORDINATION_GROUP, roster)]
        if not self._pending:
            return None
        records, self._pending = self._pending, []
        self._writing = Durable(self._numbers, self._forgotten)
        self._numbers, self._forgotten, self.waiting_bytes = {}, [], {}
        return records

    def durable(self) -> Durable:
        """Take note that the frame is durable, and return what it holds."""
        assert self._writing is not None, "no frame is being written"
        durable, self._writing = self._writing, None
        self.due = bool(self._pending)
        return durable
