"""Scheduler that gives each job its percentage of all workers; a job that would exceed 100 % waits.

The greatest percentages come first, and among equal ones the job that was submitted first. A job that would
exceed 100 % is left out, and smaller ones after it may still fit. (Onyx' loop ends at the first one, unlike
its documentation.) What is left goes to the job that is furthest below its share, so no worker idles because
percentages sum to less than 100.
"""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.apportionment import largest_remainder
from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import JobRule, Rank


def _percentage(demand: JobDemand) -> int:
    return demand.job.percentage or 0


def _accepted(jobs: Sequence[JobDemand]) -> list[int]:
    """Return the accepted jobs by percentage, descending."""
    accepted, total = [], 0
    for index in sorted(range(len(jobs)), key=lambda index: (-_percentage(jobs[index]), index)):
        if total + _percentage(jobs[index]) <= 100:
            accepted.append(index)
            total += _percentage(jobs[index])
    return accepted


def _waiting(jobs: Sequence[JobDemand]) -> frozenset[int]:
    return frozenset(range(len(jobs))).difference(_accepted(jobs))


def _offers(workers: int, jobs: Sequence[JobDemand]) -> list[int]:
    accepted = _accepted(jobs)
    shares = largest_remainder(workers, [_percentage(jobs[index]) for index in accepted], 100)
    offers = dict(zip(accepted, shares, strict=True))
    return [offers.get(index, 0) for index in range(len(jobs))]


def _rank(index: int, count: int, offer: int) -> Rank:
    return count - offer, index


RULE = JobRule(_offers, _rank, _waiting)
