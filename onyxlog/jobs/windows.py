"""Windows: which stretches of time, or of everything, a segment belongs to. Pure; times are integers, as a rule ms.

An extent is half-open: it holds the times start <= t < end. The accumulated values of extents are in
`onyxlog.jobs.state`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

from attrs import frozen

from onyxlog.ids import TaskName
from onyxlog.jobs.aggregates import Aggregation


class Extent(NamedTuple):
    """A half-open stretch of time."""

    start: int
    end: int


EVERYTHING: Final = Extent(-(2**63), 2**63 - 1)


@frozen
class Fixed:
    """Stretches of one length, side by side; one of them begins at `offset`."""

    TYPE: ClassVar = "fixed"
    range: int
    offset: int = 0

    def extents(self, time: int) -> tuple[Extent, ...]:
        """Return the extent that holds this time."""
        start = time - (time - self.offset) % self.range
        return (Extent(start, start + self.range),)


@frozen
class Sliding:
    """Stretches of one length, one of which begins every `slide`: each time is in about range/slide of them."""

    TYPE: ClassVar = "sliding"
    range: int
    slide: int
    offset: int = 0

    def extents(self, time: int) -> tuple[Extent, ...]:
        """Return the extents of a time, earliest first."""
        last = time - (time - self.offset) % self.slide
        first = last - (last + self.range - 1 - time) // self.slide * self.slide
        return tuple(Extent(start, start + self.range) for start in range(first, last + 1, self.slide))


@frozen
class Global:
    """One extent, for ever."""

    TYPE: ClassVar = "global"

    def extents(self, time: int) -> tuple[Extent, ...]:
        """Return the one extent."""
        return (EVERYTHING,)


@frozen
class Session:
    """Stretches of activity: times less than `gap` apart are in the same one, which ends `gap` after its last."""

    TYPE: ClassVar = "session"
    gap: int

    def extents(self, time: int) -> tuple[Extent, ...]:
        """Return the session of this time alone; `joined` merges it with the existing ones."""
        return (Extent(time, time + self.gap),)


WindowType = Fixed | Sliding | Global | Session


class JoinedSessions(NamedTuple):
    """The outcome of merging a new stretch with sessions."""

    extent: Extent
    absorbed: tuple[Extent, ...]
    """The given sessions that are part of the new one now, earliest first."""


def joined(extents: Sequence[Extent], new: Extent) -> JoinedSessions:
    """Merge a new stretch with sessions, which are sorted and apart from each other."""
    first = bisect_left(extents, new.start, key=lambda extent: extent.end - 1)
    end = first
    start, stop = new
    while end < len(extents) and extents[end].start < stop:
        start, stop = min(start, extents[end].start), max(stop, extents[end].end)
        end += 1
    return JoinedSessions(Extent(start, stop), tuple(extents[first:end]))


@frozen
class Window:
    """Accumulation of a task's segments.

    `time_key`: where a segment has its time; needed for all but global windows. `extents_max`: the most
    extents of all groups together on one worker; the task fails beyond it, so that memory is bounded.
    Triggers that evict keep it low.
    """

    id: str
    task: TaskName
    over: WindowType
    aggregation: Aggregation
    time_key: str | None = None
    extents_max: int = 1_000_000
    doc: str = ""

    def time_of(self, segment: Any) -> int:
        """Return the segment's time.

        Raises:
            ValueError: the segment has no time at `time_key`.
        """
        if self.time_key is None:
            return 0
        time = segment.get(self.time_key)
        if type(time) is not int:
            raise ValueError(
                f"window {self.id!r}: expected an integer as time at {self.time_key!r} of the segment, found {time!r}"
            )
        return time
