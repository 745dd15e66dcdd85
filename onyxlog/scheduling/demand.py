"""Bounds of the workers that each task and each job can use, with those workers that must not move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Site, TaskName
from onyxlog.scheduling.requirements import (
    Allocations,
    FluxPolicy,
    JobRequirements,
    TaskRequirements,
    TaskScheduler,
)
from onyxlog.scheduling.workforce import Workforce

Key = tuple[JobId, TaskName]
UNBOUNDED: Final = 1 << 30
"""More workers than there are."""
FREEZING: Final = (FluxPolicy.KILL, FluxPolicy.RECOVER)


@frozen
class TaskDemand:
    """A task with the bounds of how many workers it can have: what it asks for, what tags allow, what it must keep.

    `held`: workers of it which are pinned; those beyond come from the others.
    """

    key: Key
    kind: int
    least: int
    most: int
    weight: int = 0
    held: int = 0


@frozen
class JobDemand:
    """A job with the same bounds for all of it. Its workers come in multiples of `step` (all tasks of a colocated job).

    `pinned`: `lower` is not up for division, as workers of it must not move.
    """

    job: JobRequirements
    tasks: tuple[TaskDemand, ...]
    lower: int
    upper: int
    step: int = 1
    pinned: bool = False


def is_colocated(job: JobRequirements) -> bool:
    """Return whether the job's tasks are placed together."""
    return job.task_scheduler is TaskScheduler.COLOCATED


def is_frozen(task: TaskRequirements) -> bool:
    """Return whether the task keeps its workers, and their number, once it has some.

    Recovery up to its minimum is possible.
    """
    return task.grouped and task.flux_policy in FREEZING


def pins_of(
    jobs: Iterable[JobRequirements], present: Allocations, alive: Collection[PeerId]
) -> dict[Key, list[PeerId]]:
    """Return the workers that must not move.

    Of a colocated job with a frozen task these are all: its tasks have equally many, site by site.
    """
    pins: dict[Key, list[PeerId]] = {}
    for job in jobs:
        frozen_tasks = [task for task in job.tasks if is_frozen(task)]
        if not frozen_tasks:
            continue
        of_job = {
            (job.id, task.name): held
            for task in (job.tasks if is_colocated(job) else frozen_tasks)
            if (held := [peer for peer in present.get((job.id, task.name), ()) if peer in alive])
        }
        if any((job.id, task.name) in of_job for task in frozen_tasks) and not any(
            # It may not grow, so the job cannot go on with it: it begins anew, if it was not killed.
            task.flux_policy is FluxPolicy.KILL
            and 0 < len(of_job.get((job.id, task.name), ())) < task.min_peers
            for task in frozen_tasks
        ):
            pins |= of_job
    return pins


@frozen
class Circumstances:
    """Circumstances that bounds depend on, apart from the jobs.

    They are the workers, the pinned ones among them, and known limits.

    `limits`: upper bounds of jobs that turned out to be too high.
    """

    workforce: Workforce
    pool: Mapping[PeerId, int]
    """Class of each worker that is not pinned, by id."""
    pins: Mapping[Key, Sequence[PeerId]]
    sites: Mapping[PeerId, Site]
    limits: Mapping[JobId, int]


def demands(jobs: Sequence[JobRequirements], given: Circumstances) -> list[JobDemand]:
    """Return the demand of each job, in the order of `jobs`."""
    supply = given.workforce.supply(given.pool)
    by_kind = [sum(supply[number] for number in classes) for classes in given.workforce.able]
    site_sizes: Counter[int] = Counter()
    """The number of sites of each number of workers."""
    if any(map(is_colocated, jobs)):
        site_sizes.update(Counter(given.sites[peer] for peer in given.pool).values())
    pinned = {job for job, _task in given.pins}
    return [
        _colocated(job, given, site_sizes)
        if is_colocated(job)
        else _unbound(job, supply[0], given.limits)
        if given.workforce.alike and job.id not in pinned
        else _free(job, given, supply, by_kind)
        for job in jobs
    ]


def _unbound(job: JobRequirements, workers: int, limits: Mapping[JobId, int]) -> JobDemand:
    """Return what `_free` returns where all workers are alike and none is pinned: most jobs, nearly always."""
    tasks, lower, most = _unbound_tasks(job)
    return JobDemand(job, tasks, lower, min(most, workers, limits.get(job.id, workers)))


@lru_cache(maxsize=4096)
def _unbound_tasks(job: JobRequirements) -> tuple[tuple[TaskDemand, ...], int, int]:
    """Return the tasks with the sums of both bounds. Jobs do not change, and are many."""
    tasks = tuple(_task(job.id, task, 0, (UNBOUNDED,), 0) for task in job.tasks)
    return tasks, sum(task.least for task in tasks), sum(task.most for task in tasks)


def _free(
    job: JobRequirements, given: Circumstances, supply: Sequence[int], by_kind: Sequence[int]
) -> JobDemand:
    tasks = tuple(
        _task(
            job.id, task, given.workforce.kind_of(task), by_kind, len(given.pins.get((job.id, task.name), ()))
        )
        for task in job.tasks
    )
    held = sum(task.held for task in tasks)
    growing = {
        number for task in tasks if task.most > task.held for number in given.workforce.able[task.kind]
    }
    upper = min(sum(task.most for task in tasks), held + sum(supply[number] for number in growing))
    return JobDemand(
        job,
        tasks,
        sum(task.least for task in tasks),
        min(upper, given.limits.get(job.id, upper)),
        pinned=held > 0,
    )


def _task(job: JobId, task: TaskRequirements, kind: int, by_kind: Sequence[int], held: int) -> TaskDemand:
    least = max(task.min_peers, 1)
    able = held + by_kind[kind]
    if held:
        # It keeps as many as it has; with recovery it has at least its minimum.
        least = most = held if task.flux_policy is FluxPolicy.KILL else max(held, least)
    else:
        most = able if task.max_peers is None else task.max_peers
    return TaskDemand((job, task.name), kind, least, min(most, able), task.percentage or 0, held)


def _colocated(job: JobRequirements, given: Circumstances, site_sizes: Mapping[int, int]) -> JobDemand:
    """Return the demand of a colocated job.

    All tasks have as many workers as there are chunks: sets of one worker for each task, on one
    site.
    """
    size = len(job.tasks)
    least = max((max(task.min_peers, 1) for task in job.tasks), default=1)
    if pinned := pinned_chunks(job, given.pins, given.sites):
        least = most = max(sum(pinned.values()), least)
        if sum(pinned.values()) < least:
            most = 0
    else:
        # Sites are many, their sizes few.
        most = sum(count // size * sites for count, sites in site_sizes.items()) if size else 0
        bounds = [task.max_peers for task in job.tasks if task.max_peers is not None]
        most = min([most, *bounds])
    tasks = tuple(
        TaskDemand((job.id, task.name), given.workforce.kind_of(task), least, most) for task in job.tasks
    )
    limit = given.limits.get(job.id, size * most)
    return JobDemand(job, tasks, size * least, min(size * most, limit), max(size, 1), bool(pinned))


def pinned_chunks(
    job: JobRequirements, pins: Mapping[Key, Sequence[PeerId]], sites: Mapping[PeerId, Site]
) -> dict[Site, int]:
    """Return how many chunks each site must keep because workers of frozen tasks are there."""
    chunks: dict[Site, int] = {}
    for task in job.tasks:
        for site, count in Counter(sites[peer] for peer in pins.get((job.id, task.name), ())).items():
            chunks[site] = max(chunks.get(site, 0), count)
    return chunks
