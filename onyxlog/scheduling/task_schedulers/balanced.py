"""All tasks have equally many workers, except for their bounds; the first ones have the odd ones."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heapreplace

from onyxlog.scheduling.demand import TaskDemand
from onyxlog.scheduling.task_schedulers.rule import TaskRule


def split(workers: int, tasks: Sequence[TaskDemand]) -> list[int]:
    """Give each task its minimum, then in turn one more to the task that has the fewest."""
    counts = [task.least for task in tasks]
    spare = workers - sum(counts)
    assert spare >= 0, f"{workers} workers do not cover {counts}"
    heap = [(count, index) for index, count in enumerate(counts) if count < tasks[index].most]
    heapify(heap)
    while spare and heap:
        count, index = heap[0]
        counts[index] += 1
        spare -= 1
        if counts[index] < tasks[index].most:
            heapreplace(heap, (count + 1, index))
        else:
            heappop(heap)
    return counts


def _rank(index: int, count: int, _task: TaskDemand) -> tuple[int, int]:
    return count, index


RULE = TaskRule(split, _rank)
