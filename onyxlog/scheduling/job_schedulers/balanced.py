"""All jobs have equally many workers, but for what they cannot use; the first ones have the odd ones."""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import Fixed, JobRule, nobody


def _offers(workers: int, jobs: Sequence[JobDemand], fixed: Fixed) -> list[int]:
    sharing = len(jobs) - len(fixed)
    each, odd = divmod(workers - sum(fixed.values()), max(sharing, 1))
    offers, met = [], 0
    for index in range(len(jobs)):
        if index in fixed:
            offers.append(fixed[index])
        else:
            offers.append(each + (met < odd))
            met += 1
    return offers


def _rank(index: int, count: int, _share: int) -> tuple[int, int]:
    return count, index


RULE = JobRule(_offers, _rank, nobody)
