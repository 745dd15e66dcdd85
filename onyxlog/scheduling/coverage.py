"""Whether a job has what it needs to run: its minimum of workers on every task, or nothing at all."""

from __future__ import annotations

from collections.abc import Iterable

from onyxlog.ids import JobId
from onyxlog.scheduling.requirements import Allocations, JobRequirements


def is_covered(job: JobRequirements, allocations: Allocations) -> bool:
    """Every task of `job` has at least its minimum of workers."""
    return all(len(allocations.get((job.id, task.name), ())) >= max(task.min_peers, 1) for task in job.tasks)


def starved(jobs: Iterable[JobRequirements], allocations: Allocations) -> tuple[JobId, ...]:
    """Jobs that have workers, but too few on some task: what remains when workers leave. In the order of `jobs`.

    `schedule` never returns allocations with such a job; this tells of the ones before it ran.
    """
    return tuple(
        job.id
        for job in jobs
        if not is_covered(job, allocations) and any((job.id, task.name) in allocations for task in job.tasks)
    )
