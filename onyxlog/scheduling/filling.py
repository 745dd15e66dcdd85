"""From how many workers jobs should have to how many each task has, when some workers can do only some tasks.

Without tags, or when tags are in nobody's way, that is what job and task schedulers want. Else jobs get their minimum
first, by order; then tasks what was wanted for them, the smallest first; then what is still free goes to whoever can use
it, as the schedulers would have it. Taking one at a time is exact, see `seating`.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from onyxlog.scheduling import task_schedulers
from onyxlog.scheduling.demand import JobDemand, TaskDemand
from onyxlog.scheduling.division import Division
from onyxlog.scheduling.job_schedulers.rule import JobRule
from onyxlog.scheduling.seating import Seating

Counts = list[list[int]]
"""Of each job, of each of its tasks."""


def split(jobs: Sequence[JobDemand], division: Division) -> Counts:
    """What task schedulers make of the division."""
    return [
        task_schedulers.RULES[job.job.task_scheduler].split(count, job.tasks)
        if count
        else [0] * len(job.tasks)
        for job, count in zip(jobs, division.counts, strict=True)
    ]


def uncovered(seating: Seating, jobs: Sequence[JobDemand], counts: Counts) -> list[int]:
    """Seat the minima of the jobs that are to run, pinned ones first, then by order; those for whom not enough is left."""
    order = sorted(
        (index for index in range(len(jobs)) if any(counts[index])), key=lambda i: (not jobs[i].pinned, i)
    )
    return [
        index
        for index in order
        if not seating.take_all(_by_kind(jobs[index].tasks, [_minimum(task) for task in jobs[index].tasks]))
    ]


def fill(
    seating: Seating, rule: JobRule, jobs: Sequence[JobDemand], division: Division, wanted: Counts
) -> Counts:
    """Counts that are possible, beyond the minima, which are seated already."""
    extra: dict[int, int] = {}
    for job, of_tasks in zip(jobs, wanted, strict=True):
        if any(of_tasks):
            beyond = [count - task.least for task, count in zip(job.tasks, of_tasks, strict=True)]
            for kind, amount in _by_kind(job.tasks, beyond).items():
                extra[kind] = extra.get(kind, 0) + amount
    if seating.take_all(extra):
        return wanted
    counts = [
        [task.least for task in job.tasks] if any(of_tasks) else [0] * len(job.tasks)
        for job, of_tasks in zip(jobs, wanted, strict=True)
    ]
    dead = _towards(seating, jobs, counts, wanted)
    _cover(seating, rule, jobs, counts)
    _spend(seating, rule, jobs, division, counts, dead)
    return counts


def _minimum(task: TaskDemand) -> int:
    return task.least - task.held


def _by_kind(tasks: Sequence[TaskDemand], amounts: Sequence[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for task, amount in zip(tasks, amounts, strict=True):
        if amount:
            found[task.kind] = found.get(task.kind, 0) + amount
    return found


def _towards(seating: Seating, jobs: Sequence[JobDemand], counts: Counts, wanted: Counts) -> set[int]:
    """One at a time to the task with the fewest, up to what was wanted; kinds of which there are no more."""
    dead: set[int] = set()
    heap = [
        (counts[i][j], i, j)
        for i, job in enumerate(jobs)
        for j in range(len(job.tasks))
        if counts[i][j] < wanted[i][j]
    ]
    heapify(heap)
    while heap:
        count, i, j = heappop(heap)
        kind = jobs[i].tasks[j].kind
        if kind in dead:
            continue
        if not seating.take(kind, 1):
            dead.add(kind)
            continue
        counts[i][j] += 1
        if count + 1 < wanted[i][j]:
            heappush(heap, (count + 1, i, j))
    return dead


def _cover(seating: Seating, rule: JobRule, jobs: Sequence[JobDemand], counts: Counts) -> None:
    """Jobs that have nobody, but could run with workers that would idle."""
    waiting = rule.waiting(jobs)
    for index in sorted(range(len(jobs)), key=lambda index: (jobs[index].lower, index)):
        job = jobs[index]
        if (
            not any(counts[index])
            and index not in waiting
            and job.step == 1
            and 0 < job.lower <= job.upper
            and seating.take_all(_by_kind(job.tasks, [_minimum(task) for task in job.tasks]))
        ):
            counts[index][:] = [task.least for task in job.tasks]


def _spend(
    seating: Seating,
    rule: JobRule,
    jobs: Sequence[JobDemand],
    division: Division,
    counts: Counts,
    dead: set[int],
) -> None:
    """Workers that are still free, one at a time to the job and task that rank first."""

    def rank(index: int) -> tuple[object, int]:
        return rule.rank(index, sum(counts[index]), division.shares[index]), index

    heap = [rank(index) for index in range(len(jobs)) if any(counts[index])]
    heapify(heap)
    while heap and seating.free:
        _, index = heappop(heap)
        job = jobs[index]
        by_rank = task_schedulers.RULES[job.job.task_scheduler].rank
        growing = sorted(
            (by_rank(j, counts[index][j], task), j)
            for j, task in enumerate(job.tasks)
            if counts[index][j] < task.most and task.kind not in dead
        )
        for _, j in growing:
            if seating.take(job.tasks[j].kind, 1):
                counts[index][j] += 1
                heappush(heap, rank(index))
                break
            dead.add(job.tasks[j].kind)
