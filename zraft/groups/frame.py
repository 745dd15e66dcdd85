"""One frame of the common log for the writes of all groups of a turn, one frame at a time (D-10, D-13).

Everything that gathers while one frame is being synced becomes the next one; a core hears of a frame by the number of its
last write in it (D-7). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import field, frozen

from zraft.groups.roster import Roster
from zraft.raft.ready import Write
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
    """What a frame made durable: the newest write of each group in it, groups that it forgot, whether it had the roster."""

    numbers: Mapping[GroupId, int] = field(factory=dict)
    forgotten: Sequence[GroupId] = ()
    roster: bool = False


class LogFrame:
    """What waits for the log's disk, of all groups of a server, and what is in the frame under way.

    Attributes:
        due: a frame could be written now.
    """

    __slots__ = ("_forgotten", "_numbers", "_pending", "_waiting_bytes", "_writing", "due")

    def __init__(self) -> None:
        self._pending: list[Record] = []
        self._numbers: dict[GroupId, int] = {}
        self._forgotten: list[GroupId] = []
        self._writing: Durable | None = None
        self._waiting_bytes: dict[GroupId, int] = {}
        self.due = False

    @property
    def is_free(self) -> bool:
        """Whether no frame is being written."""
        return self._writing is None

    @property
    def holds_groups(self) -> bool:
        """Whether writes of groups beside the coordination group, which is number 0, wait or are being written."""
        writing = self._writing
        return (
            any(self._numbers)
            or bool(self._forgotten)
            or (writing is not None and (any(writing.numbers) or bool(writing.forgotten)))
        )

    def waiting_bytes(self, group: GroupId) -> int:
        """Payload of the group's entries that wait for the next frame: it grows while the disk is stuck."""
        return self._waiting_bytes.get(group, 0)

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
        self._numbers[group] = write.number
        self.due = self._writing is None
        if size:
            waiting = self._waiting_bytes
            waiting[group] = waiting[group] + size if group in waiting else size
        return size

    def forget(self, group: GroupId) -> None:
        """The group is gone for good; what waits of it need not be written. Nobody removes the coordination group."""
        assert group != COORDINATION_GROUP, "the coordination group cannot be forgotten (D-1)"
        self._pending = [record for record in self._pending if record.group != group]
        self._pending.append(ForgetRecord(group))
        self._numbers.pop(group, None)
        self._waiting_bytes.pop(group, None)
        self._forgotten.append(group)
        self.due = self._writing is None
        if self._writing is not None:
            numbers = {other: number for other, number in self._writing.numbers.items() if other != group}
            self._writing = Durable(numbers, self._writing.forgotten, self._writing.roster)

    def take(self, roster: Roster | None = None) -> list[Record] | None:
        """The records to write now; None while some are being written, or nothing waits.

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
        self._numbers, self._forgotten, self._waiting_bytes = {}, [], {}
        return records

    def durable(self) -> Durable:
        """The frame is durable."""
        assert self._writing is not None, "no frame is being written"
        durable, self._writing = self._writing, None
        self.due = bool(self._pending)
        return durable
