"""When a leader says again what nobody has confirmed: at growing intervals, O(log n) per message, bounded per tick."""

from __future__ import annotations

from heapq import heappop, heappush

from zraft.topics.stamps import MessageId


class Resending:
    """A queue by due tick. What is done with is left in it until it is due; the caller asks whether it still matters."""

    __slots__ = ("_due", "_ticks", "_ticks_max")

    def __init__(self, ticks: int, ticks_max: int) -> None:
        self._ticks = ticks
        self._ticks_max = ticks_max
        self._due: list[tuple[int, MessageId, int]] = []

    def add(self, mid: MessageId, now: int, *, at_once: bool = False) -> None:
        heappush(self._due, (now if at_once else now + self._ticks, mid, self._ticks))

    def due(self, now: int, limit: int) -> list[tuple[MessageId, int]]:
        """At most `limit` whose time has come, each with its interval; what still matters goes back with `again`."""
        found: list[tuple[MessageId, int]] = []
        while self._due and self._due[0][0] <= now and len(found) < limit:
            _, mid, interval = heappop(self._due)
            found.append((mid, interval))
        return found

    def again(self, mid: MessageId, now: int, interval: int) -> None:
        heappush(self._due, (now + interval, mid, min(2 * interval, self._ticks_max)))

    def next_due(self) -> int | None:
        """The tick at which something is due; None if nothing is left."""
        return self._due[0][0] if self._due else None

    def __len__(self) -> int:
        return len(self._due)
