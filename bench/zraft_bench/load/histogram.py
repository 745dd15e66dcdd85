"""Histogram of durations that can be merged, and its percentiles.

Pure.

Durations are counted in microseconds, exactly below 128, above in 64 buckets per power of two: a percentile
is at most 1.6 % above the true one, never below. Memory does not grow with the number of requests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from attrs import frozen

SUB_BITS: Final = 6
EXACT_BELOW: Final = 1 << (SUB_BITS + 1)
PERCENTILES: Final = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def bucket_of(microseconds: int) -> int:
    """Return the bucket for a duration."""
    if microseconds < EXACT_BELOW:
        return max(0, microseconds)
    shift = microseconds.bit_length() - SUB_BITS - 1
    return (shift << SUB_BITS) + (microseconds >> shift)


def highest_of(bucket: int) -> int:
    """Return the longest duration that is counted in `bucket`, in microseconds."""
    if bucket < EXACT_BELOW:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return (((bucket & ((1 << SUB_BITS) - 1)) | (1 << SUB_BITS)) + 1 << shift) - 1


@frozen
class Summary:
    """A summary in milliseconds. `percentiles` by name, "50" to "99.99"."""

    count: int
    mean_ms: float
    stdev_ms: float
    min_ms: float
    max_ms: float
    percentiles: dict[str, float]


class Histogram:
    """Counts of durations, for one test or one process of it. Mutable."""

    __slots__ = ("counts", "largest", "smallest", "total", "total_squares")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.smallest = math.inf
        self.largest = 0.0
        self.total = 0.0
        self.total_squares = 0.0

    def add(self, seconds: Iterable[float]) -> None:
        """Count durations, many at once: the loop that measures only appends to a list."""
        counts = self.counts
        for one in seconds:
            ms = one * 1000
            bucket = bucket_of(math.ceil(one * 1_000_000))
            counts[bucket] = counts.get(bucket, 0) + 1
            self.total += ms
            self.total_squares += ms * ms
            if ms < self.smallest:
                self.smallest = ms
            if ms > self.largest:
                self.largest = ms

    def merge(self, other: Histogram) -> None:
        """Add the counts of another histogram."""
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count
        self.total += other.total
        self.total_squares += other.total_squares
        self.smallest = min(self.smallest, other.smallest)
        self.largest = max(self.largest, other.largest)

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.counts.values())

    def percentile(self, percent: float) -> float:
        """Return the duration in ms that so many percent of the requests did not exceed; 0 if there were none."""
        need = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= need:
                return min(highest_of(bucket) / 1000, self.largest)
        return 0.0

    def share_below(self, ms: float) -> float:
        """Return the share of requests that took less than `ms`, 0 to 1; buckets count by their longest duration."""
        count = self.count
        below = sum(n for bucket, n in self.counts.items() if highest_of(bucket) < ms * 1000)
        return below / count if count else 0.0

    def cumulative(self) -> Iterator[tuple[float, float]]:
        """Return (ms, share of the requests that took no longer), growing, for plots."""
        count, seen = self.count, 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            yield min(highest_of(bucket) / 1000, self.largest), seen / count

    def summary(self) -> Summary:
        """Return mean, deviation, extremes and percentiles; durations are in milliseconds."""
        count = self.count
        if not count:
            return Summary(0, 0.0, 0.0, 0.0, 0.0, {})
        mean = self.total / count
        variance = max(0.0, self.total_squares / count - mean * mean)
        return Summary(
            count=count,
            mean_ms=mean,
            stdev_ms=math.sqrt(variance),
            min_ms=self.smallest,
            max_ms=self.largest,
            percentiles={f"{p:g}": self.percentile(p) for p in PERCENTILES},
        )

    def to_plain(self) -> dict[str, object]:
        """Return a plain value for JSON and MessagePack; bucket numbers are texts there."""
        return {
            "counts": {str(bucket): count for bucket, count in sorted(self.counts.items())},
            "smallest": self.smallest if self.counts else 0.0,
            "largest": self.largest,
            "total": self.total,
            "total_squares": self.total_squares,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, object]) -> Histogram:
        """Return the histogram of a plain value.

        Raises:
            KeyError: a field is missing.
            TypeError: the counts are no map.
            ValueError: a number is not one.
        """
        made = cls()
        counts = plain["counts"]
        if not isinstance(counts, Mapping):
            raise TypeError(f"counts: found {type(counts).__name__}, expected a map")
        made.counts = {int(bucket): int(count) for bucket, count in counts.items()}
        made.smallest = _number(plain["smallest"]) if made.counts else math.inf
        made.largest = _number(plain["largest"])
        made.total = _number(plain["total"])
        made.total_squares = _number(plain["total_squares"])
        return made


def _number(found: object) -> float:
    if not isinstance(found, int | float) or isinstance(found, bool):
        raise TypeError(f"found {type(found).__name__}, expected a number")
    return float(found)
