"""Entry complete-job: a job's coordinator says that it is done."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.ids import JobId
from onyxlog.replica.commands import CompleteJob, Entry
from onyxlog.replica.endings import completed
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.progress import is_meant
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import rescheduled


@frozen
class Completed:
    """A job that completed."""

    job: JobId


def apply(replica: Replica, entry: Entry, command: CompleteJob) -> Replica:
    """Return the replica with the job completed and its workers given to others."""
    if not is_meant(replica, command.job, command.submitted):
        return replica
    return rescheduled(completed(replica, command.job, entry.position), entry.position)


def diff(old: Replica, new: Replica, command: CompleteJob) -> Completed | None:
    """Return the completed job, or None if nothing changed."""
    return Completed(command.job) if new.jobs is not old.jobs else None


KIND: Final = Kind[CompleteJob, Completed](apply, diff, no_reactions, no_effects)
