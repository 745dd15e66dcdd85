"""Parts of a task scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen

from onyxlog.scheduling.demand import TaskDemand


@frozen
class TaskRule:
    """The decisions in which task schedulers differ.

    `split(workers, tasks)`: how many workers each task has, within its bounds; `workers` is within their
    sums. `rank(index, count, task)`: a task gets a worker that is spare before others with a greater rank.
    """

    split: Callable[[int, Sequence[TaskDemand]], list[int]]
    rank: Callable[[int, int, TaskDemand], Any]
