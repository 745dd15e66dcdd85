"""Which group is to be snapshotted next: the one that wrote much, or the one that keeps the oldest log alive. Pure.

All groups share one log, and a segment of it goes when no group needs anything in it. So a group that writes
seldom would keep the log of all others: it is snapshotted when the log grows too long behind it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from zraft.groups.settings import GroupSettings
from zraft.ids import GroupId


class Retention:
    """How much was written since the oldest entry that each group still needs. Bytes of payload, roughly."""

    __slots__ = ("_large", "_needed_from", "_settings", "_since_snapshot", "_under_way", "written")

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.written = 0
        """By all groups, since the start."""
        self._needed_from: OrderedDict[GroupId, int] = OrderedDict()
        self._since_snapshot: dict[GroupId, int] = {}
        self._large: dict[GroupId, None] = {}
        self._under_way: dict[GroupId, tuple[int, int]] = {}

    def wrote(self, group: GroupId, size: int) -> None:
        """Entries of so many bytes went to the log."""
        self._needed_from.setdefault(group, self.written)
        since = self._since_snapshot[group] = self._since_snapshot.get(group, 0) + size
        if since > self._settings.snapshot_bytes:
            self._large[group] = None
        self.written += size

    def recovered(self, group: GroupId, size: int) -> None:
        """A start found that the group needs entries of about so many bytes."""
        if size:
            self.wrote(group, size)

    def removed(self, group: GroupId) -> None:
        self._needed_from.pop(group, None)
        self._since_snapshot.pop(group, None)
        self._large.pop(group, None)
        self._under_way.pop(group, None)

    def size_of(self, group: GroupId) -> int:
        """What it wrote since its last durable snapshot."""
        return self._since_snapshot.get(group, 0)

    @property
    def needed_bytes(self) -> int:
        """Of the log, back to the oldest entry that any group needs."""
        oldest = next(iter(self._needed_from.values()), self.written)
        return self.written - oldest

    def due(self) -> Iterator[GroupId]:
        """Groups to snapshot now, as many as may be under way; the one that holds the oldest log first."""
        settings = self._settings
        room = settings.snapshots_at_once - len(self._under_way)
        for group, needed_from in self._needed_from.items():
            if room <= 0 or self.written - needed_from <= settings.wal_bytes_max:
                break
            if group not in self._under_way:
                room -= 1
                yield group
        for group in self._large:
            if room <= 0:
                return
            if group not in self._under_way:
                room -= 1
                yield group

    @property
    def is_due(self) -> bool:
        """Would `due` give anything?"""
        return next(self.due(), None) is not None

    def put_off(self, group: GroupId) -> None:
        """Nothing of it is committed yet: it is looked at again when as much was written once more."""
        if group in self._needed_from:
            self._needed_from[group] = self.written
            self._needed_from.move_to_end(group)
        self._since_snapshot[group] = 0
        self._large.pop(group, None)

    def begun(self, group: GroupId) -> None:
        """Its state is being written as it is now."""
        self._under_way[group] = (self.written, self._since_snapshot.get(group, 0))

    def ended(self, group: GroupId, *, durable: bool, needs_more: bool) -> None:
        """The snapshot is durable, or failed. `needs_more`: the log holds entries after it."""
        written, size = self._under_way.pop(group, (self.written, 0))
        if not durable:
            return
        left = self._since_snapshot.get(group, 0) - size
        self._since_snapshot.pop(group, None)
        self._needed_from.pop(group, None)
        if left <= self._settings.snapshot_bytes:
            self._large.pop(group, None)
        if left > 0 or needs_more:
            # Later than some that were begun before it: sorted in, so that the first is always the oldest.
            self._since_snapshot[group] = max(0, left)
            self._needed_from[group] = written
            self._needed_from = OrderedDict(sorted(self._needed_from.items(), key=lambda item: item[1]))
