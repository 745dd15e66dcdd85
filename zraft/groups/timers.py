"""The alarms of groups: when each one has something due. One heap, so that a turn looks only at those whose time has come.

Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from zraft.raft.settings import NEVER
from zraft_core.ids import GroupId


class Timers:
    """Alarms of groups, at most one for each. Setting one later costs nothing until the earlier one is reached.

    Attributes:
        due: the tick of each alarm; only for reading.
        next_at: the tick of the first alarm; `NEVER` if there is none.
    """

    __slots__ = ("_heap", "due", "next_at")

    def __init__(self) -> None:
        self.due: dict[GroupId, float] = {}
        self.next_at: float = NEVER
        self._heap: list[tuple[float, GroupId]] = []

    def __len__(self) -> int:
        return len(self.due)

    def __contains__(self, group: GroupId) -> bool:
        return group in self.due

    def set(self, group: GroupId, due: float) -> None:
        """Set the group's alarm to tick `due`, instead of the one that it had."""
        before = self.due.get(group)
        if before == due:
            return
        self.due[group] = due
        if before is None or due < before:
            heapq.heappush(self._heap, (due, group))
            if len(self._heap) > 64 + 4 * len(self.due):
                self._tidy()
        self._follow(before, due)

    def clear(self, group: GroupId) -> None:
        """Remove the group's alarm."""
        before = self.due.pop(group, None)
        if before is not None:
            self._follow(before, NEVER)

    def take_due(self, now: int) -> Iterator[GroupId]:
        """Yield the groups whose alarms are due at tick `now`; these alarms are removed."""
        while self.next_at <= now:
            _, group = heapq.heappop(self._heap)
            del self.due[group]
            self.next_at = self._first()
            yield group

    def _follow(self, before: float | None, due: float) -> None:
        """Update `next_at` after an alarm was moved from `before` to `due`."""
        if due < self.next_at:
            self.next_at = due
        elif before == self.next_at:
            self.next_at = self._first()

    def _first(self) -> float:
        """Return the tick of the first alarm, which is then at the top of the heap."""
        heap, due = self._heap, self.due
        while heap:
            tick, group = heap[0]
            now_due = due.get(group)
            if now_due == tick:
                return tick
            heapq.heappop(heap)
            if now_due is not None and now_due > tick:
                heapq.heappush(heap, (now_due, group))
        return NEVER

    def _tidy(self) -> None:
        """Build the heap anew, so that alarms which were taken back do not gather in it."""
        self._heap = [(due, group) for group, due in self.due.items()]
        heapq.heapify(self._heap)
