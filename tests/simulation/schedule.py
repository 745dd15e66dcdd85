"""Owns simulated time: one heap of future calls, executed in an order that only the seed decides.

Time is an integer number of milliseconds. Calls of the same millisecond run in the order in which they
were scheduled, so nothing depends on object addresses or hash order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

CALLS_MAX = 5_000_000
"""More calls than any sane run makes: a run that passes it has two parts that keep waking each other."""


class LivelockError(Exception):
    """The schedule executed `CALLS_MAX` calls; simulated time no longer advances meaningfully."""


class Schedule:
    """Future calls ordered by (time, order of scheduling)."""

    __slots__ = ("_count", "_heap", "executed", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self.executed = 0
        self._count = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, when_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        """Run `call(*arguments)` at `when_ms`, or now if that has passed."""
        self._count += 1
        heapq.heappush(self._heap, (max(when_ms, self.now_ms), self._count, call, arguments))

    def after(self, delay_ms: int, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now_ms + delay_ms, call, *arguments)

    def step(self) -> None:
        """Execute the next call, whenever it is due; nothing happens if there is none."""
        if self._heap:
            self.now_ms, _, call, arguments = heapq.heappop(self._heap)
            self.executed += 1
            call(*arguments)

    def run_until(self, end_ms: int) -> None:
        """Execute everything due before `end_ms`, then stand at `end_ms`."""
        assert end_ms >= self.now_ms, f"time does not go back from {self.now_ms} to {end_ms} ms"
        heap = self._heap
        while heap and heap[0][0] < end_ms:
            when, _, call, arguments = heapq.heappop(heap)
            self.now_ms = when
            self.executed += 1
            if self.executed > CALLS_MAX:
                raise LivelockError(f"{CALLS_MAX} calls executed by {when} ms")
            call(*arguments)
        self.now_ms = end_ms
