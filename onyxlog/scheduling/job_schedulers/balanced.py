"""All jobs have equally many workers, except for what they cannot use; the first ones have the odd ones."""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import JobRule, Rank, nobody


def _offers(workers: int, jobs: Sequence[JobDemand]) -> list[int]:
    each, odd = divmod(workers, max(len(jobs), 1))
    return [each + (index < odd) for index in range(len(jobs))]


def _rank(index: int, count: int, _offer: int) -> Rank:
    return count, index


RULE = JobRule(_offers, _rank, nobody)
