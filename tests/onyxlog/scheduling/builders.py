"""Problems in a line: `workers(9)`, `job("a", "x y:2-3")`, `then(...)` for what an entry makes of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from onyxlog.scheduling.reconfigure import Plan, reconfigure
from onyxlog.scheduling.requirements import (
    FluxPolicy,
    JobRequirements,
    JobScheduler,
    Problem,
    TaskRequirements,
    TaskScheduler,
    Worker,
)


def workers(count: int, *, sites: int = 1, tags: Mapping[int, str] | None = None) -> tuple[Worker, ...]:
    """p00, p01, …, dealt to sites s0, s1, … in turn; `tags`: of some, separated by blanks."""
    given = tags or {}
    return tuple(
        Worker(f"p{number:02}", f"s{number % sites}", frozenset(given.get(number, "").split()))
        for number in range(count)
    )


def task(text: str, **more: Any) -> TaskRequirements:
    """`name`, `name:2` (minimum), `name:2-5` (and maximum)."""
    name, _, bounds = text.partition(":")
    least, _, most = bounds.partition("-")
    made = TaskRequirements(name, int(least or 1), int(most) if most else None)
    return evolve(made, **more)


def grouped(text: str, policy: FluxPolicy) -> TaskRequirements:
    return task(text, grouped=True, flux_policy=policy)


def job(
    name: str,
    tasks: str | tuple[TaskRequirements, ...],
    scheduler: TaskScheduler = TaskScheduler.BALANCED,
    percentage: int | None = None,
) -> JobRequirements:
    made = tuple(task(text) for text in tasks.split()) if isinstance(tasks, str) else tasks
    return JobRequirements(name, b"", made, task_scheduler=scheduler, percentage=percentage)


def problem(
    there: tuple[Worker, ...], *jobs: JobRequirements, scheduler: JobScheduler = JobScheduler.BALANCED
) -> Problem:
    return Problem(scheduler, there, jobs)


def decided(asked: Problem) -> Problem:
    """The same problem once it is decided."""
    plan = reconfigure(asked)
    return evolve(asked, present=plan.allocations, coordinators=plan.coordinators, slots=plan.slots)


def without(asked: Problem, *peers: str) -> Problem:
    return evolve(asked, workers=tuple(worker for worker in asked.workers if worker.id not in peers))


def counts(plan: Plan) -> dict[str, int]:
    """Of each task, "job/task"."""
    return {f"{name}/{part}": len(peers) for (name, part), peers in plan.allocations.items()}


def job_counts(plan: Plan, *names: str) -> list[int]:
    return [
        sum(len(peers) for (owner, _), peers in plan.allocations.items() if owner == name) for name in names
    ]
