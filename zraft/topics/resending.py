"""Schedule of repeats that nobody has confirmed: at growing intervals, O(log n) per message, bounded per tick.

Nothing is repeated before an answer can be there: the first interval follows how long answers take at present, as that of
TCP does (RFC 6298). Otherwise a burst of messages that the other groups have not come to yet would be sent to them again,
and take their time from getting to them.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from zraft_core.topics.stamps import MessageId

AT_ONCE: Final = 0
"""The interval of what this leader has not said at all."""


class Resending:
    """A queue by due tick. What is done with is left in it until it is due; the caller asks whether it still matters.

    `ticks` is the shortest interval, `ticks_max` the longest.
    """

    __slots__ = ("_due", "_first", "_mean", "_ticks", "_ticks_max", "_variation")

    def __init__(self, ticks: int, ticks_max: int) -> None:
        self._ticks = ticks
        self._ticks_max = ticks_max
        self._first = ticks
        self._mean: float | None = None
        self._variation = 0.0
        self._due: list[tuple[int, MessageId, int]] = []

    def took(self, ticks: int) -> None:
        """Note after how many ticks all had answered a message."""
        if self._mean is None:
            self._mean, self._variation = ticks, ticks / 2
        else:
            self._variation += (abs(ticks - self._mean) - self._variation) / 4
            self._mean += (ticks - self._mean) / 8
        expected = int(self._mean + 4 * self._variation) + 1
        self._first = max(self._ticks, min(expected, self._ticks_max))

    def add(self, mid: MessageId, now: int, *, at_once: bool = False) -> None:
        """Add a message, which is due after the first interval."""
        interval = AT_ONCE if at_once else self._first
        heappush(self._due, (now + interval, mid, interval))

    def due(self, now: int, limit: int) -> list[tuple[MessageId, int]]:
        """Return at most `limit` messages whose time has come, each with its interval.

        What still matters goes back with `again`.
        """
        due, first = self._due, self._first
        found: list[tuple[MessageId, int]] = []
        while due and due[0][0] <= now and len(found) < limit:
            _, mid, interval = heappop(due)
            if AT_ONCE < interval < first:
                # Answers have come to take longer since.
                heappush(due, (now + first - interval, mid, first))
            else:
                found.append((mid, interval))
        return found

    def again(self, mid: MessageId, now: int, interval: int) -> None:
        """Add a repeated message, with twice the interval."""
        interval = max(interval, self._first)
        heappush(self._due, (now + interval, mid, min(2 * interval, self._ticks_max)))

    def next_due(self) -> int | None:
        """Return the tick at which something is due; None if nothing is left."""
        return self._due[0][0] if self._due else None

    def __len__(self) -> int:
        return len(self._due)
