"""Entry submit-job: a job begins, once; an id that is known already means nothing new."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import JobId
from onyxlog.replica.commands import Entry, SubmitJob
from onyxlog.replica.endings import is_new
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.replica import Replica, SubmittedJob
from onyxlog.replica.rescheduling import rescheduled


@frozen
class Submitted:
    """A job that was submitted."""

    job: JobId


def apply(replica: Replica, entry: Entry, command: SubmitJob) -> Replica:
    """Return the replica with the job, and workers for it if there are enough."""
    if not is_new(replica, command.job.id):
        return replica
    jobs = replica.jobs.set(command.job.id, SubmittedJob(command.job, entry.position))
    return rescheduled(evolve(replica, jobs=jobs), entry.position)


def diff(old: Replica, new: Replica, command: SubmitJob) -> Submitted | None:
    """Return the job, or None if its id is known."""
    return Submitted(command.job.id) if new.jobs is not old.jobs else None


KIND: Final = Kind[SubmitJob, Submitted](apply, diff, no_reactions, no_effects)
