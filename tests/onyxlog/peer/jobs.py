"""Jobs whose functions nobody calls: for tests of coordination."""

from __future__ import annotations

from itertools import pairwise

from onyxlog.jobs.specification import Job, Plugin, Task, TaskKind


def a_job(name: str, tasks: int = 3) -> Job:
    """A chain of at least two tasks, from an input to an output."""
    names = [f"task-{number}" for number in range(tasks)]
    return Job(
        name,
        tuple(pairwise(names)),
        (
            Task(names[0], TaskKind.INPUT, plugin=Plugin("sequence", {"segments": []})),
            *(Task(task) for task in names[1:-1]),
            Task(names[-1], TaskKind.OUTPUT, plugin=Plugin("null")),
        ),
    )
