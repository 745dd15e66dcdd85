"""The numbers that a server counts for its operators. Values only; the callers measure."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import Final

from attrs import frozen

from zraft.monitoring.statistics import Distribution

DURATION_BOUNDS_S: Final = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
COMMAND_BOUNDS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
BYTE_BOUNDS: Final = tuple(64 << shift for shift in range(0, 18, 2))
"""Sizes from 64 bytes to 4 MiB."""


class Histogram:
    """The numbers of observed values, in buckets."""

    __slots__ = ("_above", "_bounds", "_bucket", "_counts", "_largest", "_smallest", "_total", "_up_to")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        # The bucket of the last value, which most values share with the one before.
        self._bucket = 0
        self._above, self._up_to = -inf, bounds[0]
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._largest = 0.0
        self._smallest = inf

    def add(self, value: float, count: int = 1) -> None:
        """Count `value`, which was observed `count` times."""
        if not self._above < value <= self._up_to:
            self._find_bucket(value)
        self._counts[self._bucket] += count
        self._total += value * count
        if value > self._largest:
            self._largest = value
        if value < self._smallest:
            self._smallest = value

    def _find_bucket(self, value: float) -> None:
        bounds = self._bounds
        self._bucket = bucket = bisect_left(bounds, value)
        self._above = bounds[bucket - 1] if bucket else -inf
        self._up_to = bounds[bucket] if bucket < len(bounds) else inf

    def reset(self) -> None:
        """Forget everything."""
        self._counts = [0] * len(self._counts)
        self._total = self._largest = 0.0
        self._smallest = inf

    def view(self) -> Distribution:
        """Return what was observed so far as an immutable value."""
        smallest = self._smallest if any(self._counts) else 0.0
        return Distribution(self._bounds, tuple(self._counts), self._total, smallest, self._largest)


class Latencies:
    """The seconds from the arrival of requests to the moment at which their answers were handed to the network.

    A turn answers its requests all at once, so they are measured once per turn: `add_writes` and `add_reads`
    while it runs, with the moments of arrival, and `answered` when its output is written. All moments are ms
    of one clock.
    """

    __slots__ = ("reads", "waiting", "writes")

    def __init__(self) -> None:
        self.writes = Histogram(DURATION_BOUNDS_S)
        self.reads = Histogram(DURATION_BOUNDS_S)
        self.waiting: list[tuple[Histogram, float, int]] = []
        """(histogram, arrival, count) of the requests of this turn whose answers are not written yet."""

    def add_writes(self, arrived_ms: float, count: int) -> None:
        """Take note that this turn answers `count` writes that arrived then."""
        self.waiting.append((self.writes, arrived_ms, count))

    def add_reads(self, arrived_ms: float, count: int) -> None:
        """Take note that this turn answers `count` requests that needed no entry: reads, and pings as in ZooKeeper."""
        self.waiting.append((self.reads, arrived_ms, count))

    def answered(self, now_ms: float) -> None:
        """Count the answers of this turn, which are written now."""
        for histogram, arrived_ms, count in self.waiting:
            histogram.add((now_ms - arrived_ms) / 1000 if now_ms > arrived_ms else 0.0, count)
        self.waiting = []

    def reset(self) -> None:
        """Forget what was counted."""
        self.writes.reset()
        self.reads.reset()


@frozen
class Sizes:
    """The last, smallest and largest of some sizes in bytes; -1 before the first, as ZooKeeper shows it."""

    last: int = -1
    smallest: int = -1
    largest: int = -1


class Proposals:
    """The entries that this server proposed as a leader: bytes and commands of each."""

    __slots__ = ("_last_bytes", "bytes", "commands")

    def __init__(self) -> None:
        self._last_bytes: int | None = None
        self.bytes = Histogram(BYTE_BOUNDS)
        self.commands = Histogram(COMMAND_BOUNDS)

    def add(self, size: int, commands: int) -> None:
        """Count one entry of `size` bytes."""
        self._last_bytes = size
        self.bytes.add(size)
        self.commands.add(commands)

    @property
    def sizes(self) -> Sizes:
        """The sizes of these entries."""
        if self._last_bytes is None:
            return Sizes()
        sizes = self.bytes.view()
        return Sizes(self._last_bytes, int(sizes.smallest), int(sizes.largest))

    def reset(self) -> None:
        """Forget everything."""
        self._last_bytes = None
        self.bytes.reset()
        self.commands.reset()


class ProcessStatistics:
    """The numbers that the process measures: its loop, its disk, and how long it knew no leader."""

    __slots__ = ("disk_full", "elections", "fsync", "leaving", "loop_lag", "stall_ms_max", "turns")

    def __init__(self) -> None:
        self.fsync = Histogram(DURATION_BOUNDS_S)
        self.turns = Histogram(DURATION_BOUNDS_S)
        self.loop_lag = Histogram(DURATION_BOUNDS_S)
        self.elections = Histogram(DURATION_BOUNDS_S)
        self.stall_ms_max = 0.0
        self.disk_full = False
        self.leaving = False
        """Whether the server was asked to stop, and lets its clients go."""

    def add_lag(self, seconds: float) -> None:
        """Take note that an alarm of the loop rang so many seconds late."""
        self.loop_lag.add(seconds)
        if seconds * 1000 > self.stall_ms_max:
            self.stall_ms_max = seconds * 1000

    def reset(self) -> None:
        """Forget what was measured; `disk_full` and `leaving` stay."""
        self.fsync.reset()
        self.turns.reset()
        self.loop_lag.reset()
        self.elections.reset()
        self.stall_ms_max = 0.0


class ConnectionLatency:
    """The answers to one client, in ms from the arrival of the oldest request that they answer.

    Attributes:
        answered_at: when the last answers left.
        count: how many batches of answers there were.
        zxid: that of the last answer; -1 before the first.
    """

    __slots__ = ("answered_at", "count", "largest", "last", "smallest", "total", "zxid")

    def __init__(self) -> None:
        self.answered_at = self.count = 0
        self.last = self.largest = self.smallest = self.total = 0.0
        self.zxid = -1

    def add(self, latency: float, now: int, zxid: int) -> None:
        """Take one batch of answers, which left at `now`."""
        self.answered_at = now
        self.zxid = zxid
        self.last = latency
        self.total += latency
        if latency > self.largest:
            self.largest = latency
        if latency < self.smallest or not self.count:
            self.smallest = latency
        self.count += 1
