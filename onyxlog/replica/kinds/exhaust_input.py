"""Entry exhaust-input: an input task has nothing more to read, and all it read is acknowledged."""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from onyxlog.ids import JobId, TaskName
from onyxlog.replica.commands import Entry, ExhaustInput
from onyxlog.replica.kind import Kind
from onyxlog.replica.kinds.silence import no_effects, no_reactions
from onyxlog.replica.progress import all_exhausted, inputs, is_meant
from onyxlog.replica.replica import Replica


@frozen
class Exhausted:
    """An exhausted input. `all`: no input of the job has anything more, so its outputs may be sealed."""

    job: JobId
    task: TaskName
    all: bool


def apply(replica: Replica, entry: Entry, command: ExhaustInput) -> Replica:
    """Return the replica with the task exhausted; a job without outputs may be complete by that."""
    key = (command.job, command.task)
    if key in replica.exhausted or command.task not in inputs(replica, command.job):
        return replica
    if not is_meant(replica, command.job, command.submitted):
        return replica
    return evolve(replica, exhausted=replica.exhausted.set(key, entry.position))


def diff(old: Replica, new: Replica, command: ExhaustInput) -> Exhausted | None:
    """Return the task, and whether all inputs of its job are exhausted; None if nothing changed."""
    if new.exhausted is old.exhausted:
        return None
    return Exhausted(command.job, command.task, all_exhausted(new, command.job))


KIND: Final = Kind[ExhaustInput, Exhausted](apply, diff, no_reactions, no_effects)
