"""Entry kill-job: a job ends before it is done."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.ids import JobId
from onyxlog.replica.commands import Entry, KillJob
from onyxlog.replica.endings import killed
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.progress import is_meant
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import rescheduled


@frozen
class Killed:
    """A job that was killed."""

    job: JobId
    reason: str


def apply(replica: Replica, entry: Entry, command: KillJob) -> Replica:
    """Return the replica with the job killed and its workers given to others."""
    if not is_meant(replica, command.job, command.submitted):
        return replica
    return rescheduled(killed(replica, [command.job], entry.position), entry.position)


def diff(old: Replica, new: Replica, command: KillJob) -> Killed | None:
    """Return the killed job, or None if nothing changed."""
    return Killed(command.job, command.reason) if new.jobs is not old.jobs else None


KIND: Final = Kind[KillJob, Killed](apply, diff, no_reactions, no_effects)
