"""Sparse index of a group's entries in the write-ahead log: a bounded list of points to start reading from.

Pure.

A point says: this entry is in the frame at this place, the following ones are there or after it. There is
a point every so many bytes of log, and one at each *seam*: the first entry written after a truncation.
Seams are what makes reading right: bytes of truncated entries stay in the files (D-10), so a reader that
started before a seam must not read on beyond it, but continue from the seam's own point.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from attrs import frozen


@frozen(order=True)
class Place:
    """Start of a frame: segment number, offset in bytes, and the frame's number."""

    segment: int
    offset: int
    frame: int


class SparseIndex:
    """Points of one group. At most `points_max`, beyond which every second one is dropped and the distance doubled.

    Seams are never dropped; there is at most one for each election that ended in a conflict, and the
    Raft log keeps a term run for each of those anyway.

    Attributes:
        due_at: the next entry that stands so many bytes into the log, or more, should become a point.
    """

    __slots__ = ("_due", "_indices", "_places", "_points_max", "_seams", "_stride", "due_at")

    def __init__(self, stride_bytes: int, points_max: int) -> None:
        self._stride = stride_bytes
        self._points_max = points_max
        self._indices: list[int] = []
        self._places: list[Place] = []
        self._seams: list[int] = []
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Let the next entry be a seam, as the very first one is."""
        self._due = True
        self.due_at = 0

    def add(self, index: int, place: Place, log_bytes: int) -> None:
        """Make a point of the entry. `log_bytes` is the frame's distance from the start of the log."""
        assert not self._indices or self._indices[-1] < index, f"{index=} after {self._indices[-1]=}"
        if self._due:
            self._seams.append(index)
            self._due = False
        self._indices.append(index)
        self._places.append(place)
        if len(self._indices) - len(self._seams) > self._points_max:
            self._thin_out()
        self.due_at = log_bytes + self._stride

    def truncate(self, from_index: int) -> None:
        """Forget the points of truncated entries; the next entry will be a seam."""
        keep = bisect_left(self._indices, from_index)
        del self._indices[keep:], self._places[keep:]
        del self._seams[bisect_left(self._seams, from_index) :]
        self._begin_anew()

    def reset(self) -> None:
        """Forget everything: the log begins anew."""
        self._indices.clear()
        self._places.clear()
        self._seams.clear()
        self._begin_anew()

    def compact(self, first_index: int, place: Place, *, exists: bool) -> None:
        """Forget what lies before `first_index`, which from now on is found from `place` on, if it exists yet."""
        if not exists:
            self.reset()
            return
        gone = bisect_left(self._indices, first_index)
        del self._indices[:gone], self._places[:gone]
        del self._seams[: bisect_left(self._seams, first_index)]
        if not self._indices or self._indices[0] != first_index:
            self._indices.insert(0, first_index)
            self._places.insert(0, place)

    def find(self, index: int) -> tuple[Place, int | None]:
        """Return where to start reading for `index`, and where that must end.

        The second is the first index that must not be taken from there (a seam), or None.
        """
        at = bisect_right(self._indices, index) - 1
        assert at >= 0, f"no point at or before {index=}"
        seam = bisect_right(self._seams, self._indices[at])
        return self._places[at], self._seams[seam] if seam < len(self._seams) else None

    def __len__(self) -> int:
        return len(self._indices)

    def _thin_out(self) -> None:
        seams = set(self._seams)
        kept: list[tuple[int, Place]] = []
        skip = False
        for index, place in zip(self._indices, self._places, strict=True):
            if index in seams or not skip:
                kept.append((index, place))
            skip = not skip
        self._indices = [index for index, _ in kept]
        self._places = [place for _, place in kept]
        self._stride *= 2
