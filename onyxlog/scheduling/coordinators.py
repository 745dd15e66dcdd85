"""Coordinators of jobs: the worker that emits a job's barriers, and writes that it is complete."""

from __future__ import annotations

from onyxlog.ids import JobId, PeerId
from onyxlog.scheduling.requirements import Allocations, Coordinators


def coordinators(present: Coordinators, allocations: Allocations) -> dict[JobId, PeerId]:
    """Return the coordinator of each job that has workers.

    The present one stays as long as it works on the job; otherwise the worker with the smallest id
    follows.
    """
    smallest: dict[JobId, PeerId] = {}
    kept: set[JobId] = set()
    for (job, _task), peers in allocations.items():
        if job in kept or not peers:
            continue
        if (now := present.get(job)) is not None and now in peers:
            smallest[job] = now
            kept.add(job)
        else:
            smallest[job] = min(peers[0], smallest.get(job, peers[0]))
    return dict(sorted(smallest.items()))
