"""What a server counts for its operators. Values only."""

from __future__ import annotations


class Latencies:
    """Milliseconds from taking a write in to its reply: minimum, mean and maximum since the start."""

    __slots__ = ("count", "max_ms", "min_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.min_ms = 0
        self.max_ms = 0

    def add(self, latency_ms: int, count: int) -> None:
        """`count` requests took `latency_ms` each."""
        self.min_ms = min(self.min_ms, latency_ms) if self.count else latency_ms
        self.max_ms = max(self.max_ms, latency_ms)
        self.total_ms += latency_ms * count
        self.count += count

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.count if self.count else 0.0


class Sizes:
    """The last, smallest and largest of some sizes in bytes; -1 before the first, as ZooKeeper shows it."""

    __slots__ = ("largest", "last", "smallest")

    def __init__(self) -> None:
        self.last = -1
        self.smallest = -1
        self.largest = -1

    def add(self, size: int) -> None:
        self.last = size
        if size > self.largest:
            self.largest = size
        if self.smallest < 0 or size < self.smallest:
            self.smallest = size
