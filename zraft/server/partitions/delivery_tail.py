"""The newest deliveries of a partition in memory: what consumers read who follow, and what is not on the disk yet. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice

from zraft.server.partitions.statistics import Delivered
from zraft.storage.delivery.values import StoredDelivery

OVERHEAD_BYTES = 128
"""The bytes that a delivery takes in memory beside its payload, roughly."""


class DeliveryTail:
    """Deliveries from `first` up to `end`. Those from `written` on are nowhere else, so they stay.

    Attributes:
        size: bytes in memory, roughly.
    """

    __slots__ = (
        "_dropped",
        "_forgotten",
        "_kept",
        "_offsets",
        "_released",
        "_skipped",
        "_unwritten",
        "end",
        "first",
        "size",
        "written",
    )

    def __init__(self, end: int = 0) -> None:
        self._kept: dict[int, StoredDelivery] = {}
        self._offsets: list[int] = []
        """Those of the deliveries, and before them of `_forgotten` that are no longer kept."""
        self._forgotten = 0
        self._unwritten: deque[tuple[int, int]] = deque()
        self.first = self.end = self.written = end
        self.size = 0
        # What is not here any more of all that was ever appended, and the offsets of what never was.
        self._dropped = self._released = 0
        self._skipped = end

    def restart(self, end: int) -> None:
        """Begin anew at the end of a snapshot whose deliveries are on the disk."""
        self._dropped += len(self._offsets)
        self._released += self.size
        self._skipped += end - self.end
        self._kept.clear()
        self._offsets.clear()
        self._forgotten = 0
        self._unwritten.clear()
        self.first = self.end = self.written = end
        self.size = 0

    def append(self, deliveries: Sequence[StoredDelivery], index: int) -> None:
        """Append the deliveries of the entry at `index`."""
        for one in deliveries:
            assert one.offset == self.end, f"offset {one.offset} after {self.end}"
            self._kept[one.offset] = one
            self._offsets.append(one.offset)
            self.size += len(one.payload) + OVERHEAD_BYTES
            self.end = one.end
        self._unwritten.append((index, self.end))

    def wrote(self, index: int) -> None:
        """Note that whatever entries up to `index` delivered can be read from the disk."""
        unwritten = self._unwritten
        while unwritten and unwritten[0][0] <= index:
            self.written = unwritten.popleft()[1]

    def shrink(self, size_max: int) -> None:
        """Forget the oldest that are on the disk, down to `size_max` bytes."""
        before = self.size
        while self.size > size_max and self.first < self.written:
            one = self._kept.pop(self.first)
            self.size -= len(one.payload) + OVERHEAD_BYTES
            self.first = one.end
            self._forgotten += 1
        self._released += before - self.size
        if 2 * self._forgotten > len(self._offsets):
            del self._offsets[: self._forgotten]
            self._dropped += self._forgotten
            self._forgotten = 0

    def appended(self) -> Delivered:
        """Return how much was ever appended. It follows from what is kept and what went, so appending counts nothing."""
        messages = self._dropped + len(self._offsets)
        size = self._released + self.size - OVERHEAD_BYTES * messages
        return Delivered(messages, self.end - self._skipped, size)

    def offset_of_time(self, time_ms: int) -> int:
        """Return the offset of the first delivery here with that wall time or a later one; the end if there is none."""
        for offset in islice(self._offsets, self._forgotten, None):
            if self._kept[offset].time >= time_ms:
                return offset
        return self.end

    def read(self, offset: int, bytes_max: int) -> list[StoredDelivery]:
        """Return deliveries from the one on that holds `offset`, which is at least `first`.

        They are as many as `bytes_max` allows, at least one if there is any.
        """
        found: list[StoredDelivery] = []
        size = 0
        at = max(self._forgotten, bisect_right(self._offsets, offset) - 1)
        for one in map(self._kept.__getitem__, islice(self._offsets, at, None)):
            if one.end <= offset:
                continue
            size += len(one.payload)
            if found and size > bytes_max:
                break
            found.append(one)
        return found
