"""Jobs whose functions nobody calls: for tests of coordination."""

from __future__ import annotations

from itertools import pairwise

from onyxlog.jobs.specification import Job, Plugin, Task, TaskKind


def a_job(name: str, tasks: int = 3) -> Job:
    """A chain of tasks, from an input to an output (one alone is both at once: a reduction of nothing)."""
    names = [f"task-{number}" for number in range(tasks)]
    kinds = [TaskKind.INPUT, *[TaskKind.FUNCTION] * (tasks - 2), TaskKind.OUTPUT][:tasks]
    catalog = tuple(
        Task(task, kind, plugin=Plugin("null") if kind is not TaskKind.FUNCTION else None)
        for task, kind in zip(names, kinds, strict=True)
    )
    return Job(name, tuple(pairwise(names)), catalog)
