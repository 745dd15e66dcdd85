"""Ends of jobs: what is forgotten of them at once, and what garbage collection forgets later."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import evolve

from onyxlog.ids import JobId, Position
from onyxlog.replica.replica import Replica


def killed(replica: Replica, jobs: Iterable[JobId], position: Position) -> Replica:
    """Return the replica without the killed jobs; their workers must still get other work by `rescheduled`."""
    ended = [job for job in jobs if job in replica.jobs]
    rest = _without(replica, ended)
    return evolve(rest, killed=rest.killed.update(dict.fromkeys(ended, position)))


def completed(replica: Replica, job: JobId, position: Position) -> Replica:
    """Return the replica after a job completed; its workers must still get other work by `rescheduled`."""
    rest = _without(replica, [job])
    return evolve(rest, completed=rest.completed.set(job, position))


def is_new(replica: Replica, job: JobId) -> bool:
    """Return whether the job's id is free: nobody submitted it since the last garbage collection."""
    return job not in replica.jobs and job not in replica.killed and job not in replica.completed


def _without(replica: Replica, jobs: list[JobId]) -> Replica:
    return evolve(
        replica,
        jobs=replica.jobs.without(*jobs),
        exhausted=replica.exhausted.where_not(lambda key: key[0] in jobs),
        sealed=replica.sealed.where_not(lambda key: key[0] in jobs),
    )
