"""Numbers of workers for each task, from those for each job, when some workers can do only some tasks.

Without tags, or when tags exclude nobody, that is what job and task schedulers want. Otherwise jobs get their
minimum first, by order; then what was wanted for them; then what is still free goes to whichever job can use
it: one worker at a time, as the schedulers rank jobs and tasks. Taking one at a time is exact (see
`seating`).
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from onyxlog.scheduling import task_schedulers
from onyxlog.scheduling.demand import JobDemand, TaskDemand, is_colocated
from onyxlog.scheduling.division import Division
from onyxlog.scheduling.job_schedulers.rule import JobRule, Rank
from onyxlog.scheduling.seating import Seating

Counts = list[list[int]]
"""The number of workers of each job's tasks."""


def split(jobs: Sequence[JobDemand], division: Division) -> Counts:
    """Return what task schedulers make of the division."""
    return [
        task_schedulers.RULES[job.job.task_scheduler].split(count, job.tasks)
        if count
        else [0] * len(job.tasks)
        for job, count in zip(jobs, division.counts, strict=True)
    ]


def uncovered(seating: Seating, jobs: Sequence[JobDemand], counts: Counts) -> list[int]:
    """Seat the minima of the jobs that are to run; return those for whom not enough is left.

    Pinned jobs come first, then the others by order.
    """
    order = sorted(
        (index for index in range(len(jobs)) if any(counts[index])), key=lambda i: (not jobs[i].pinned, i)
    )
    return [index for index in order if not seating.take_all(_minima(jobs[index]))]


def outbid(seating: Seating, jobs: Sequence[JobDemand], counts: Counts) -> list[int]:
    """Let jobs below their minimum take workers from jobs with all they can use; return those still below.

    They are given by their numbers.
    """
    running = [index for index in range(len(jobs)) if any(counts[index])]
    failed = uncovered(
        seating, jobs, [count if job.pinned else [] for job, count in zip(jobs, counts, strict=True)]
    )
    for index in running:
        job = jobs[index]
        if not job.pinned and not seating.take_all(_minima(job)):
            failed.append(index)
            continue
        for kind, amount in _by_kind(job.tasks, _beyond(job, counts[index])).items():
            seating.take(kind, amount)
    return failed


def fill(
    seating: Seating, rule: JobRule, jobs: Sequence[JobDemand], division: Division, wanted: Counts
) -> Counts:
    """Return counts that are possible, beyond the minima, which are seated already."""
    extra: dict[int, int] = {}
    for job, of_tasks in zip(jobs, wanted, strict=True):
        if any(of_tasks):
            for kind, amount in _by_kind(job.tasks, _beyond(job, of_tasks)).items():
                extra[kind] = extra.get(kind, 0) + amount
    if seating.take_all(extra):
        return wanted
    counts = [
        [task.least for task in job.tasks] if any(of_tasks) else [0] * len(job.tasks)
        for job, of_tasks in zip(jobs, wanted, strict=True)
    ]
    growth = _Growth(seating, rule, jobs, division, counts)
    growth.up_to(wanted)
    _cover(seating, rule, jobs, counts)
    growth.up_to([[task.most for task in job.tasks] for job in jobs])
    return counts


def _minima(job: JobDemand) -> dict[int, int]:
    return _by_kind(job.tasks, [task.least - task.held for task in job.tasks])


def _beyond(job: JobDemand, counts: Sequence[int]) -> list[int]:
    return [count - task.least for task, count in zip(job.tasks, counts, strict=True)]


def _by_kind(tasks: Sequence[TaskDemand], amounts: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for task, amount in zip(tasks, amounts, strict=True):
        if amount:
            found[task.kind] = found.get(task.kind, 0) + amount
    return found


def _cover(seating: Seating, rule: JobRule, jobs: Sequence[JobDemand], counts: Counts) -> None:
    """Seat jobs that have nobody, but could run with workers that would idle."""
    waiting = rule.waiting(jobs)
    for index in sorted(range(len(jobs)), key=lambda index: (jobs[index].lower, index)):
        job = jobs[index]
        if (
            not any(counts[index])
            and index not in waiting
            and not is_colocated(job.job)
            and 0 < job.lower <= job.upper
            and seating.take_all(_minima(job))
        ):
            counts[index][:] = [task.least for task in job.tasks]


class _Growth:
    """Growth by one worker at a time for the job, and in it for the task, that rank first.

    It is the state of one decision.
    """

    def __init__(
        self, seating: Seating, rule: JobRule, jobs: Sequence[JobDemand], division: Division, counts: Counts
    ) -> None:
        self._seating: Final = seating
        self._rule: Final = rule
        self._jobs: Final = jobs
        self._offers: Final = division.offers
        self._counts: Final = counts
        self._dead: Final[set[int]] = set()
        """Kinds of which there are no more workers."""

    def up_to(self, bounds: Counts) -> None:
        """Give workers to jobs that run, up to these counts."""
        heap = [(self._rank(index), index) for index in range(len(self._jobs)) if any(self._counts[index])]
        heapify(heap)
        while heap and self._seating.free:
            _, index = heappop(heap)
            if self._grow(index, bounds[index]):
                heappush(heap, (self._rank(index), index))

    def _rank(self, index: int) -> Rank:
        return self._rule.rank(index, sum(self._counts[index]), self._offers[index])

    def _grow(self, index: int, bounds: Sequence[int]) -> bool:
        counts, job = self._counts[index], self._jobs[index]
        rank = task_schedulers.RULES[job.job.task_scheduler].rank
        growing = [
            j for j, task in enumerate(job.tasks) if counts[j] < bounds[j] and task.kind not in self._dead
        ]
        for j in sorted(growing, key=lambda j: rank(j, counts[j], job.tasks[j])):
            if self._seating.take(job.tasks[j].kind, 1):
                counts[j] += 1
                return True
            self._dead.add(job.tasks[j].kind)
        return False
