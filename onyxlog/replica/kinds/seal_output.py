"""Entry seal-output: an output task wrote its last segment; with the last of them the job is complete."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import JobId, TaskName
from onyxlog.replica.commands import Entry, SealOutput
from onyxlog.replica.endings import completed
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.progress import all_sealed, is_meant, outputs
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import rescheduled


@frozen
class Sealed:
    """An output that is sealed."""

    job: JobId
    task: TaskName
    completed: bool


def apply(replica: Replica, entry: Entry, command: SealOutput) -> Replica:
    """Return the replica with the task sealed, or with the job completed."""
    key = (command.job, command.task)
    if key in replica.sealed or command.task not in outputs(replica, command.job):
        return replica
    if not is_meant(replica, command.job, command.submitted):
        return replica
    sealed = evolve(replica, sealed=replica.sealed.set(key, entry.position))
    if not all_sealed(sealed, command.job):
        return sealed
    # This is not a reaction of the coordinator, as that could die before it wrote it.
    return rescheduled(completed(sealed, command.job, entry.position), entry.position)


def diff(old: Replica, new: Replica, command: SealOutput) -> Sealed | None:
    """Return the task, and whether its job is complete; None if nothing changed."""
    done = new.completed is not old.completed
    return Sealed(command.job, command.task, done) if done or new.sealed is not old.sealed else None


KIND: Final = Kind[SealOutput, Sealed](apply, diff, no_reactions, no_effects)
