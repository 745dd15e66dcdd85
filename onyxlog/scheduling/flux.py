"""Flux policies: what a worker's leaving does to grouped tasks, whose state depends on how many workers they have."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from onyxlog.ids import JobId, PeerId
from onyxlog.scheduling.requirements import Allocations, FluxPolicy, JobRequirements


def flux_kills(
    jobs: Iterable[JobRequirements], allocations: Allocations, leavers: Collection[PeerId]
) -> tuple[JobId, ...]:
    """Return the jobs that are killed because `leavers` go: one of them works on a grouped task with policy kill.

    `allocations`: as they were before the leave. `leavers`: virtual peers; when a group goes, all of its
    peers. (Onyx compares the id of the group, which is in no allocation, so a dead machine kills nothing.)
    """
    gone = frozenset(leavers)
    return tuple(
        job.id
        for job in jobs
        if any(
            task.grouped
            and task.flux_policy is FluxPolicy.KILL
            and not gone.isdisjoint(allocations.get((job.id, task.name), ()))
            for task in job.tasks
        )
    )
