"""How many workers each job has, as far as numbers tell: offers, claims, and what is spare after them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from attrs import frozen

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import JobRule


@frozen
class Division:
    """Of each job, in their order: how many workers it has, and its share: what it is offered when nobody is pinned."""

    counts: tuple[int, ...]
    shares: tuple[int, ...]


def divide(rule: JobRule, workers: int, jobs: Sequence[JobDemand]) -> Division:
    """Counts sum to at most `workers`; each is 0 or within its job's bounds."""
    shares = rule.offers(workers, jobs, {})
    offers, fixed = _offers(rule, workers, jobs, shares)
    counts = [
        fixed[index] if index in fixed else _claim(job, offer)
        for index, (job, offer) in enumerate(zip(jobs, offers, strict=True))
    ]
    assert sum(counts) <= workers, f"{sum(counts)} claimed of {workers}"
    spare = workers - sum(counts)
    waiting = rule.waiting(jobs)
    open_jobs = [index for index in range(len(jobs)) if index not in waiting or counts[index]]
    if rule.spare_in_order:
        for index in open_jobs:
            spare -= _raise(counts, index, jobs[index], spare)
    else:
        for index in sorted(
            (index for index in open_jobs if not counts[index]), key=lambda i: (jobs[i].lower, i)
        ):
            if jobs[index].lower <= min(spare, jobs[index].upper):
                counts[index] = jobs[index].lower
                spare -= jobs[index].lower
        _spread(rule, counts, shares, jobs, spare)
    return Division(tuple(counts), tuple(shares))


def _offers(
    rule: JobRule, workers: int, jobs: Sequence[JobDemand], shares: list[int]
) -> tuple[list[int], dict[int, int]]:
    """A job whose pinned workers are more than it is offered has just these and what they need; the others share the rest.

    If there are not enough even for that, it has nobody: who called must give up its pins.
    """
    fixed: dict[int, int] = {}
    offers = shares
    while True:
        short = [
            index
            for index, job in enumerate(jobs)
            if job.pinned and index not in fixed and _claim(job, offers[index]) < job.lower
        ]
        if not short:
            return offers, fixed
        for index in short:
            lower = jobs[index].lower
            possible = lower <= min(jobs[index].upper, workers - sum(fixed.values()))
            fixed[index] = lower if possible else 0
        offers = rule.offers(workers, jobs, fixed)


def _claim(job: JobDemand, offer: int) -> int:
    """As much of the offer as the job can use, if it can run with it."""
    claim = min(job.upper, offer)
    claim -= claim % job.step
    return claim if claim >= job.lower else 0


def _raise(counts: list[int], index: int, job: JobDemand, spare: int) -> int:
    """Let a job have all it can use; how many that is more than before."""
    before = counts[index]
    counts[index] = max(_claim(job, before + spare), before)
    return counts[index] - before


def _spread(
    rule: JobRule, counts: list[int], shares: Sequence[int], jobs: Sequence[JobDemand], spare: int
) -> None:
    """Step by step to the running job that ranks first."""
    heap = [(rule.rank(i, counts[i], shares[i]), i) for i in range(len(jobs)) if counts[i]]
    heapify(heap)
    while spare and heap:
        _, index = heappop(heap)
        step = jobs[index].step
        if step <= spare and counts[index] + step <= jobs[index].upper:
            counts[index] += step
            spare -= step
            heappush(heap, (rule.rank(index, counts[index], shares[index]), index))
