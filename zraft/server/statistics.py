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
