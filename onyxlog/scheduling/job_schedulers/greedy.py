"""The first job has all the workers that it can use; the next ones what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import Fixed, JobRule, nobody


def _offers(workers: int, jobs: Sequence[JobDemand], fixed: Fixed) -> list[int]:
    left = workers - sum(fixed.values())
    offers = []
    for index in range(len(jobs)):
        if index in fixed:
            offers.append(fixed[index])
        else:
            offers.append(left)
            left = 0
    return offers


def _rank(index: int, _count: int, _share: int) -> int:
    return index


RULE = JobRule(_offers, _rank, nobody, spare_in_order=True)
