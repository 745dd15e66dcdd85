"""Retention of the log: how much each group holds back, and which group is to be snapshotted next. Pure.

All groups of a server share one log, the coordination group's too, and a segment of it goes when no group
needs anything in it. So a group that writes seldom would hold back the log of all others: it is snapshotted
when the log behind it grows too long. A group that wrote much is snapshotted as well.

The coordination group's `SnapshotKeeper` says what is special about that group, and also judges by the
group's own bytes. Its image may be large, and costs as much, so the log behind it may be longer by the
image's size. The log is kept back to the image before the newest one, so the next is due at half of what may
be held back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

from zraft.groups.settings import GroupSettings
from zraft_core.ids import COORDINATION_GROUP, GroupId


class LogRetention:
    """The bytes that were written since the oldest entry that each group still needs: payload, roughly.

    A *position* is what all groups together had written at a moment, since the start of the process. It is
    negative for what an earlier process wrote.

    Attributes:
        written: the present position.
        coordination: the coordination group's part of it. Whoever applies its entries adds their bytes to
            both.
        due_at: before this position `due` gives nothing.
    """

    __slots__ = (
        "_allowance",
        "_covered",
        "_held_from",
        "_large",
        "_settings",
        "_since_snapshot",
        "_under_way",
        "coordination",
        "due_at",
        "written",
    )

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.written = 0
        self.coordination = 0
        # What other groups had written when the coordination group's newest image was begun; None if that group has no
        # row here.
        self._covered: int | None = None
        # How much more of the log that group may hold back: about the size of its image.
        self._allowance = 0
        # The position from which on each group needs the log, the oldest first.
        self._held_from: OrderedDict[GroupId, int] = OrderedDict()
        self._since_snapshot: dict[GroupId, int] = {}
        self._large: dict[GroupId, None] = {}
        self._under_way: dict[GroupId, tuple[int, int]] = {}
        self.due_at: float = inf

    def wrote(self, group: GroupId, size: int) -> None:
        """Take note that entries of the group with so many bytes went to the log."""
        known, sizes = group in self._held_from, self._since_snapshot
        if not known:
            self._held_from[group] = self.written
        since = sizes[group] = sizes[group] + size if group in sizes else size
        large = since > self._settings.snapshot_bytes
        if large:
            self._large[group] = None
        self.written += size
        if large or not known:
            self.reckon()

    def recovered(self, group: GroupId, size: int, held: int) -> None:
        """Take note of what a start found: the group needs entries of about `size` bytes.

        Args:
            held: bytes from the first of these entries to the end of the log of all groups.
        """
        if held:
            self._since_snapshot[group] = size
            self.holds(group, self.written - held)

    def holds(self, group: GroupId, position: int) -> None:
        """Take note that the group needs the log from that position on, and nothing before it."""
        self._held_from[group] = position
        self._held_from = OrderedDict(sorted(self._held_from.items(), key=lambda item: item[1]))
        self.reckon()

    @property
    def others(self) -> int:
        """The bytes that groups other than the coordination group have written."""
        return self.written - self.coordination

    def covered(self, others: int) -> None:
        """Take note of what other groups had written when the coordination group's newest image was begun, in bytes."""
        self._covered = others
        self.reckon()

    def allow(self, size: int) -> None:
        """Let the coordination group hold back so many more bytes of the log: about the size of its image."""
        self._allowance = size
        self.reckon()

    def removed(self, group: GroupId) -> None:
        """Forget a group, which holds back nothing any more."""
        self._held_from.pop(group, None)
        self._since_snapshot.pop(group, None)
        self._large.pop(group, None)
        self._under_way.pop(group, None)
        self.reckon()

    def size_of(self, group: GroupId) -> int:
        """Return the bytes that the group has written since its last durable snapshot."""
        return self._since_snapshot.get(group, 0)

    def is_long(self, group: GroupId) -> bool:
        """Return whether the group holds back more of the log than it may."""
        held = self.written - self._held_from.get(group, self.written)
        allowance = self._allowance if group == COORDINATION_GROUP else 0
        return held > self._settings.wal_bytes_max + allowance

    @property
    def oldest(self) -> GroupId | None:
        """The group that needs the oldest part of the log; None if no group needs anything."""
        return next(iter(self._held_from), None)

    @property
    def needed_bytes(self) -> int:
        """The bytes of the log back to the oldest entry that any group needs."""
        oldest = next(iter(self._held_from.values()), self.written)
        return self.written - oldest

    def due(self) -> Iterator[GroupId]:
        """Yield the groups to snapshot now, as many as may be under way.

        The coordination group is first, then those that hold back too much, the oldest first, then those that
        wrote much.
        """
        settings = self._settings
        room = settings.snapshots_at_once - len(self._under_way)
        if room > 0 and self._covered is not None and COORDINATION_GROUP not in self._under_way:
            since = self.written - self.coordination - self._covered
            if 2 * since > settings.wal_bytes_max + self._allowance:
                room -= 1
                yield COORDINATION_GROUP
        for group, held_from in self._held_from.items():
            if room <= 0 or self.written - held_from <= settings.wal_bytes_max:
                break
            if group not in self._under_way and group != COORDINATION_GROUP:
                room -= 1
                yield group
        for group in self._large:
            if room <= 0:
                return
            if group not in self._under_way:
                room -= 1
                yield group

    def reckon(self) -> None:
        """Compute `due_at`, after a change or when it was reached and nothing was due."""
        settings = self._settings
        self.due_at = inf
        if len(self._under_way) >= settings.snapshots_at_once:
            return
        if any(group not in self._under_way for group in self._large):
            self.due_at = self.written
            return
        if self._covered is not None and COORDINATION_GROUP not in self._under_way:
            # At the earliest, the others write half of what is missing while the log grows by that half.
            missing = settings.wal_bytes_max + self._allowance - 2 * (self.others - self._covered)
            self.due_at = self.written + max(0, missing // 2 + 1)
        for group, held_from in self._held_from.items():
            if group not in self._under_way and group != COORDINATION_GROUP:
                self.due_at = min(self.due_at, held_from + settings.wal_bytes_max + 1)
                return

    def put_off(self, group: GroupId) -> None:
        """Look at the group again after as much was written once more, because nothing of it is committed yet."""
        if group in self._held_from:
            self.holds(group, self.written)
        self._since_snapshot[group] = 0
        self._large.pop(group, None)
        self.reckon()

    def begun(self, group: GroupId) -> None:
        """Take note that the group's state, as it is now, is being written."""
        self._under_way[group] = (self.written, self._since_snapshot.get(group, 0))
        self.reckon()

    def ended(self, group: GroupId, *, durable: bool, needs_more: bool, let_go: bool = True) -> None:
        """Take note that the group's snapshot is durable, or has failed.

        Args:
            needs_more: whether the log holds entries of the group after it.
            let_go: whether what the snapshot covers is no longer needed; if not, the group goes on holding
                back what it held.
        """
        written, size = self._under_way.pop(group, (self.written, 0))
        if durable:
            self._let_go(group, written, size, needs_more=needs_more, let_go=let_go)
        self.reckon()

    def _let_go(self, group: GroupId, written: int, size: int, *, needs_more: bool, let_go: bool) -> None:
        left = self._since_snapshot.pop(group, 0) - size
        if left <= self._settings.snapshot_bytes:
            self._large.pop(group, None)
        if left <= 0 and not needs_more:
            self._held_from.pop(group, None)
            return
        self._since_snapshot[group] = max(0, left)
        if let_go:
            self.holds(group, written)
