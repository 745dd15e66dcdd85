"""Parts of a job scheduler."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from onyxlog.scheduling.demand import JobDemand

Rank = tuple[int, int]


@frozen
class JobRule:
    """The decisions in which job schedulers differ. Jobs are in the order in which they were submitted.

    `offers(workers, jobs)`: how many workers each job is offered; they sum to at most `workers`. `rank(index,
    count, offer)`: a job that runs gets spare workers before others with a greater rank, and gives some up
    after them. It grows with `count`. `waiting(jobs)`: those that get nothing at all now, however many
    workers are spare. `spare_in_order`: spare workers go to jobs by their order alone, running or not;
    otherwise jobs that do not run and could come first, those with the least requirement before others.
    """

    offers: Callable[[int, Sequence[JobDemand]], list[int]]
    rank: Callable[[int, int, int], Rank]
    waiting: Callable[[Sequence[JobDemand]], frozenset[int]]
    spare_in_order: bool = False


def nobody(_jobs: Sequence[JobDemand]) -> frozenset[int]:
    """Return no job."""
    return frozenset()
