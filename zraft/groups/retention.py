"""Which group is to be snapshotted next: the one that wrote much, or the one that holds the oldest log back. Pure.

All groups of a server share one log, the coordination group's too, and a segment of it goes when no group needs anything
in it. So a group that writes seldom would hold back the log of all others: it is snapshotted when the log behind it grows
too long. What is special about the coordination group is said by its `SnapshotKeeper`, which also judges by the group's own
bytes: its image may be large, and costs as much, so the log behind it may be longer by that; and the log is kept back to the
image before its newest one, so the next is due at half of what may be held back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from math import inf

from zraft.groups.settings import GroupSettings
from zraft_core.ids import COORDINATION_GROUP, GroupId


class LogRetention:
    """How much was written since the oldest entry that each group still needs. Bytes of payload, roughly.

    A *position* is what all groups together had written at a moment, since the start of the process; it is negative for what
    an earlier process wrote.

    Attributes:
        written: the present position.
        coordination: the coordination group's part of it. Whoever applies its entries adds their bytes to both.
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
        # What other groups had written when the coordination group's newest image was begun, and how large that is; None:
        # it has no row here.
        self._covered: int | None = None
        self._allowance = 0
        # The position from which on each group needs the log, the oldest first.
        self._held_from: OrderedDict[GroupId, int] = OrderedDict()
        self._since_snapshot: dict[GroupId, int] = {}
        self._large: dict[GroupId, None] = {}
        self._under_way: dict[GroupId, tuple[int, int]] = {}
        self.due_at: float = inf

    def wrote(self, group: GroupId, size: int) -> None:
        """Entries of so many bytes went to the log."""
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
        """A start found that the group needs entries of about `size` bytes: the last `held` bytes of the log."""
        if held:
            self._since_snapshot[group] = size
            self.holds(group, self.written - held)

    def holds(self, group: GroupId, position: int) -> None:
        """The group needs the log from that position on, and nothing before it."""
        self._held_from[group] = position
        self._held_from = OrderedDict(sorted(self._held_from.items(), key=lambda item: item[1]))
        self.reckon()

    @property
    def others(self) -> int:
        """What groups other than the coordination group wrote."""
        return self.written - self.coordination

    def covered(self, others: int) -> None:
        """The coordination group's newest image was begun when other groups had written so much."""
        self._covered = others
        self.reckon()

    def allow(self, size: int) -> None:
        """So much more of the log may the coordination group hold back: about what its image comes to."""
        self._allowance = size
        self.reckon()

    def removed(self, group: GroupId) -> None:
        self._held_from.pop(group, None)
        self._since_snapshot.pop(group, None)
        self._large.pop(group, None)
        self._under_way.pop(group, None)
        self.reckon()

    def size_of(self, group: GroupId) -> int:
        """What it wrote since its last durable snapshot."""
        return self._since_snapshot.get(group, 0)

    def is_long(self, group: GroupId) -> bool:
        """Does the group hold back more of the log than it may?"""
        held = self.written - self._held_from.get(group, self.written)
        allowance = self._allowance if group == COORDINATION_GROUP else 0
        return held > self._settings.wal_bytes_max + allowance

    @property
    def oldest(self) -> GroupId | None:
        """The group that needs the oldest part of the log; None: nobody needs anything."""
        return next(iter(self._held_from), None)

    @property
    def needed_bytes(self) -> int:
        """Of the log, back to the oldest entry that any group needs."""
        oldest = next(iter(self._held_from.values()), self.written)
        return self.written - oldest

    def due(self) -> Iterator[GroupId]:
        """Groups to snapshot now, as many as may be under way; of topics, the one that holds back the oldest log first."""
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
        """Work out `due_at`, after a change or when it was reached for nothing."""
        settings = self._settings
        self.due_at = inf
        if len(self._under_way) >= settings.snapshots_at_once:
            return
        if any(group not in self._under_way for group in self._large):
            self.due_at = self.written
            return
        if self._covered is not None and COORDINATION_GROUP not in self._under_way:
            # Others write half of what is missing at the earliest when the log is longer by that.
            missing = settings.wal_bytes_max + self._allowance - 2 * (self.others - self._covered)
            self.due_at = self.written + max(0, missing // 2 + 1)
        for group, held_from in self._held_from.items():
            if group not in self._under_way and group != COORDINATION_GROUP:
                self.due_at = min(self.due_at, held_from + settings.wal_bytes_max + 1)
                return

    def put_off(self, group: GroupId) -> None:
        """Nothing of it is committed yet: it is looked at again when as much was written once more."""
        if group in self._held_from:
            self.holds(group, self.written)
        self._since_snapshot[group] = 0
        self._large.pop(group, None)
        self.reckon()

    def begun(self, group: GroupId) -> None:
        """Its state is being written as it is now."""
        self._under_way[group] = (self.written, self._since_snapshot.get(group, 0))
        self.reckon()

    def ended(self, group: GroupId, *, durable: bool, needs_more: bool, let_go: bool = True) -> None:
        """The snapshot is durable, or failed.

        Args:
            needs_more: the log holds entries of the group after it.
            let_go: what the snapshot covers is no longer needed; else the group goes on holding back what it held.
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
