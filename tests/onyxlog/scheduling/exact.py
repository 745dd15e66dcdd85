"""Answers by plain search, and divisions word by word as the document gives them: what fast code is compared with.

Source: docs/explanation/onyxlog.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from onyxlog.scheduling.requirements import (
    Allocations,
    JobRequirements,
    JobScheduler,
    Problem,
    TaskRequirements,
)
from tests.onyxlog.scheduling.problems import able

Key = tuple[str, str]


def tasks_of(problem: Problem) -> dict[Key, TaskRequirements]:
    return {(job.id, task.name): task for job in problem.jobs for task in job.tasks}


def stayers(problem: Problem, allocations: Allocations) -> int:
    """How many have the task that they had."""
    return sum(len(set(peers) & set(problem.present.get(key, ()))) for key, peers in allocations.items())


def most_stayers(problem: Problem, counts: dict[Key, int]) -> int:
    """How many can have the task that they had, when each task has so many workers. Tries all there is."""
    keys = sorted(counts)
    tasks = tasks_of(problem)
    had = {peer: key for key, peers in problem.present.items() for peer in peers}

    @cache
    def best(index: int, left: tuple[int, ...]) -> int:
        if index == len(problem.workers):
            return -1000 if any(left) else 0
        worker = problem.workers[index]
        found = best(index + 1, left)
        for number, key in enumerate(keys):
            if left[number] and able(worker, tasks[key]):
                fewer = (*left[:number], left[number] - 1, *left[number + 1 :])
                found = max(found, (had.get(worker.id) == key) + best(index + 1, fewer))
        return found

    return best(0, tuple(counts[key] for key in keys))


def most_at_work(problem: Problem, running: set[str]) -> int:
    """How many workers these jobs could use together: a matching by Kuhn's algorithm, worker by worker."""
    tasks = {key: task for key, task in tasks_of(problem).items() if key[0] in running}
    users: dict[Key, list[int]] = {key: [] for key in tasks}

    def seat(index: int, seen: set[Key]) -> bool:
        for key, task in tasks.items():
            if key in seen or not able(problem.workers[index], task):
                continue
            seen.add(key)
            if task.max_peers is None or len(users[key]) < task.max_peers:
                users[key].append(index)
                return True
            for position, other in enumerate(users[key]):
                if seat(other, seen):
                    users[key][position] = index
                    return True
        return False

    return sum(seat(index, set()) for index in range(len(problem.workers)))


def bounds(job: JobRequirements, workers: int) -> tuple[int, int]:
    lower = sum(task.min_peers for task in job.tasks)
    upper = sum(workers if task.max_peers is None else min(task.max_peers, workers) for task in job.tasks)
    return lower, min(upper, workers)


def divided(scheduler: JobScheduler, workers: int, jobs: Sequence[JobRequirements]) -> list[int]:
    """How many workers each job has, without tags, groups and colocation: one worker after the other."""
    limits = [bounds(job, workers) for job in jobs]
    numbers = list(range(len(jobs)))
    running = numbers
    if scheduler is JobScheduler.PERCENTAGE:
        running, shares = shared(workers, jobs)
    elif scheduler is JobScheduler.BALANCED:
        shares = [len(range(number, workers, len(jobs))) for number in numbers]
    else:
        shares = [workers if number == 0 else 0 for number in numbers]
    counts = [
        min(upper, share) if share >= lower else 0
        for (lower, upper), share in zip(limits, shares, strict=True)
    ]
    while spare := workers - sum(counts):
        wishes = []
        for number in running:
            lower, upper = limits[number]
            needed = 1 if counts[number] else lower
            if counts[number] + needed > upper or needed > spare:
                continue
            if scheduler is JobScheduler.GREEDY:
                wish = (number, 0, 0, number)
            elif not counts[number]:
                wish = (0, lower, 0, number)
            elif scheduler is JobScheduler.BALANCED:
                wish = (1, 0, counts[number], number)
            else:
                wish = (1, 0, counts[number] - shares[number], number)
            wishes.append((wish, number, needed))
        if not wishes:
            break
        _, number, needed = min(wishes)
        counts[number] += needed
    return counts


def shared(workers: int, jobs: Sequence[JobRequirements]) -> tuple[list[int], list[int]]:
    """Jobs that do not wait for their percentage, and everybody's share."""
    order = sorted(range(len(jobs)), key=lambda number: (-(jobs[number].percentage or 0), number))
    running: list[int] = []
    for number in order:
        if sum(jobs[other].percentage or 0 for other in [*running, number]) <= 100:
            running.append(number)
    exact = {number: workers * (jobs[number].percentage or 0) for number in running}
    shares = [exact.get(number, 0) // 100 for number in range(len(jobs))]
    total = sum(exact.values()) // 100
    for number in sorted(running, key=lambda number: -(exact[number] % 100)):
        if sum(shares) < total:
            shares[number] += 1
    return running, shares
