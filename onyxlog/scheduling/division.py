"""Number of workers for each job, as far as numbers tell: offers, claims, and what is spare after them."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from attrs import frozen

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import JobRule, Rank


@frozen
class Division:
    """Numbers of workers for each job, in their order, and how many its scheduler offered it."""

    counts: tuple[int, ...]
    offers: tuple[int, ...]


def divide(rule: JobRule, workers: int, jobs: Sequence[JobDemand]) -> Division:
    """Divide the workers. Counts sum to at most `workers`; each is 0 or within its job's bounds."""
    offers = rule.offers(workers, jobs)
    assert sum(offers) <= workers, f"{sum(offers)} offered of {workers}"
    counts = [_claim(job, offer) for job, offer in zip(jobs, offers, strict=True)]
    spare = _reserve(rule, counts, offers, jobs, workers - sum(counts))
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
        _spread(rule, counts, offers, jobs, spare)
    return Division(tuple(counts), tuple(offers))


def _reserve(
    rule: JobRule, counts: list[int], offers: Sequence[int], jobs: Sequence[JobDemand], spare: int
) -> int:
    """Give jobs with pinned workers what these and those beside them need; return what is spare.

    This is for jobs that need more than their claim. If too few are spare for it, other jobs give some up. A
    pinned job for which even that is not enough has nobody; the caller must give up its pins.
    """
    givers = [
        (_last_first(rule.rank(i, counts[i], offers[i])), i)
        for i, job in enumerate(jobs)
        if counts[i] > (job.lower if job.pinned else 0)
    ]
    heapify(givers)
    for index, job in enumerate(jobs):
        if not job.pinned or counts[index] or job.upper < job.lower:
            continue
        while spare < job.lower and givers:
            _, giver = heappop(givers)
            less = counts[giver] - jobs[giver].step
            if less < jobs[giver].lower:
                less = 0
            spare += counts[giver] - less
            counts[giver] = less
            if less > (jobs[giver].lower if jobs[giver].pinned else 0):
                heappush(givers, (_last_first(rule.rank(giver, less, offers[giver])), giver))
        if spare >= job.lower:
            counts[index] = job.lower
            spare -= job.lower
    return spare


def _last_first(rank: Rank) -> Rank:
    return -rank[0], -rank[1]


def _claim(job: JobDemand, offer: int) -> int:
    """Return as much of the offer as the job can use, if it can run with it."""
    claim = min(job.upper, offer)
    claim -= claim % job.step
    return claim if claim >= job.lower else 0


def _raise(counts: list[int], index: int, job: JobDemand, spare: int) -> int:
    """Give a job all that it can use; return how many more workers that is than before."""
    before = counts[index]
    counts[index] = max(_claim(job, before + spare), before)
    return counts[index] - before


def _spread(
    rule: JobRule, counts: list[int], offers: Sequence[int], jobs: Sequence[JobDemand], spare: int
) -> None:
    """Spread workers step by step, each to the running job that ranks first."""
    heap = [(rule.rank(i, counts[i], offers[i]), i) for i in range(len(jobs)) if counts[i]]
    heapify(heap)
    while spare and heap:
        _, index = heappop(heap)
        step = jobs[index].step
        if step <= spare and counts[index] + step <= jobs[index].upper:
            counts[index] += step
            spare -= step
            heappush(heap, (rule.rank(index, counts[index], offers[index]), index))
