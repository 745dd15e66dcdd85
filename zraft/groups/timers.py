"""When which group has something due: one heap, so that a turn looks only at those whose time has come. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from zraft_core.ids import GroupId


class Timers:
    """One alarm per group at most. Setting it later costs nothing until the earlier one is looked at."""

    __slots__ = ("_due", "_heap")

    def __init__(self) -> None:
        self._due: dict[GroupId, float] = {}
        self._heap: list[tuple[float, GroupId]] = []

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, group: GroupId) -> bool:
        return group in self._due

    def set(self, group: GroupId, due: float) -> None:
        """Let it be due at tick `due`, instead of whenever it was before."""
        before = self._due.get(group)
        if before == due:
            return
        self._due[group] = due
        if before is None or due < before:
            heapq.heappush(self._heap, (due, group))
            self._tidy()

    def clear(self, group: GroupId) -> None:
        """It is not due any more."""
        self._due.pop(group, None)

    def next_due(self) -> float | None:
        """When the next one is due; None if none is."""
        heap, due = self._heap, self._due
        while heap:
            tick, group = heap[0]
            now_due = due.get(group)
            if now_due == tick:
                return tick
            heapq.heappop(heap)
            if now_due is not None and now_due > tick:
                heapq.heappush(heap, (now_due, group))
        return None

    def take_due(self, now: int) -> Iterator[GroupId]:
        """Those that are due at tick `now`; they are not any more."""
        while (tick := self.next_due()) is not None and tick <= now:
            _, group = heapq.heappop(self._heap)
            del self._due[group]
            yield group

    def _tidy(self) -> None:
        """Alarms that were taken back must not gather."""
        if len(self._heap) > 64 + 4 * len(self._due):
            self._heap = [(due, group) for group, due in self._due.items()]
            heapq.heapify(self._heap)
