"""Tasks of virtual peers as the allocations have them, and what a peer has to do when they change."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Position, TaskName
from onyxlog.replica.effects import Effect, StartTask, StopTask
from onyxlog.replica.replica import Replica
from onyxlog.replica.table import Table


@frozen
class Assignment:
    """The task of one virtual peer."""

    job: JobId
    task: TaskName
    slot: int
    version: Position


def assignments(replica: Replica, peers: Iterable[PeerId]) -> dict[PeerId, Assignment]:
    """Return the assignments of those of `peers` that have a task."""
    # All workers of a job that was divided anew say that they are ready, one entry each: no entry must go
    # over all of them.
    task_of = replica.allocations.view(_tasks)
    return {
        peer: Assignment(*key, replica.slots[*key, peer], replica.allocation_versions[key[0]])
        for peer in peers
        if (key := task_of.get(peer)) is not None
    }


def _tasks(
    allocations: Table[tuple[JobId, TaskName], tuple[PeerId, ...]],
) -> dict[PeerId, tuple[JobId, TaskName]]:
    return {peer: key for key, workers in allocations.items() for peer in workers}


def changes(old: Replica, new: Replica, peers: Collection[PeerId]) -> tuple[Effect, ...]:
    """Return the starts and stops that lead from the assignments of `old` to those of `new`.

    It does not matter why they changed. A peer whose job was divided anew begins again even on the same task:
    all workers of a job agree on its version.
    """
    # tables that did not change are the same objects
    if not peers or (
        old.allocations is new.allocations
        and old.slots is new.slots
        and old.allocation_versions is new.allocation_versions
    ):
        return ()
    before, after = assignments(old, peers), assignments(new, peers)
    found: list[Effect] = []
    for peer in sorted(peers):
        was, now = before.get(peer), after.get(peer)
        if was == now:
            continue
        if now is not None:
            found.append(StartTask(peer, now.job, now.task, now.slot, now.version))
        elif was is not None:
            found.append(StopTask(peer, was.job, _why(new, peer, was.job)))
    return tuple(found)


def _why(new: Replica, peer: PeerId, job: JobId) -> str:
    if peer not in new.peers:
        return "left"
    if job in new.killed:
        return "killed"
    return "completed" if job in new.completed else "reallocated"
