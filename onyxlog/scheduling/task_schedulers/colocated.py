"""A job's tasks side by side: workers come in chunks, each of one worker for every task, all on one site.

Sites with fewer workers than the job has tasks are not used, nor is what remains of a site beyond whole
chunks; other jobs may have those workers. Segments then need not leave the site. `chunks` decides on which
sites chunks are.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.demand import TaskDemand
from onyxlog.scheduling.task_schedulers.rule import TaskRule


def _split(workers: int, tasks: Sequence[TaskDemand]) -> list[int]:
    return [workers // len(tasks)] * len(tasks)


def _rank(index: int, count: int, _task: TaskDemand) -> tuple[int, int]:
    return count, index


RULE = TaskRule(_split, _rank)
