"""What a job scheduler consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from onyxlog.scheduling.demand import JobDemand

Fixed = Mapping[int, int]
"""Index of a job -> how many workers it has whatever the offers are."""


@frozen
class JobRule:
    """The three decisions in which job schedulers differ. Jobs are in the order in which they were submitted.

    `offers(workers, jobs, fixed)`: how many workers each job is offered; those that are fixed are offered what they
    have, and the others share the rest.
    `rank(index, count, share)`: a job that runs gets spare workers before others with a greater rank. It does not fall
    when `count` grows. `share`: what the job is offered when nothing is fixed.
    `waiting(jobs)`: those that get nothing at all now, however many workers are spare.
    """

    offers: Callable[[int, Sequence[JobDemand], Fixed], list[int]]
    rank: Callable[[int, int, int], Any]
    waiting: Callable[[Sequence[JobDemand]], frozenset[int]]
    spare_in_order: bool = False
    """Whether spare workers go to jobs by their order alone, running or not; else those that do not run come first."""


def nobody(_jobs: Sequence[JobDemand]) -> frozenset[int]:
    return frozenset()
