"""The first job has all the workers that it can use; the next ones have what it leaves."""

from __future__ import annotations

from collections.abc import Sequence

from onyxlog.scheduling.demand import JobDemand
from onyxlog.scheduling.job_schedulers.rule import JobRule, Rank, nobody


def _offers(workers: int, jobs: Sequence[JobDemand]) -> list[int]:
    return [workers, *([0] * (len(jobs) - 1))] if jobs else []


def _rank(index: int, count: int, _offer: int) -> Rank:
    return index, count


RULE = JobRule(_offers, _rank, nobody, spare_in_order=True)
