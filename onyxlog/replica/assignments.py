"""Which task each virtual peer runs, read from the allocations; and what a peer has to do when that changes."""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Position, TaskName
from onyxlog.replica.effects import Effect, StartTask, StopTask
from onyxlog.replica.replica import Replica


@frozen
class Assignment:
    job: JobId
    task: TaskName
    slot: int
    version: Position


def assignments(replica: Replica, peers: Collection[PeerId]) -> dict[PeerId, Assignment]:
    """Of those of `peers` that have a task."""
    return {
        peer: Assignment(job, task, replica.slots[job, task, peer], replica.allocation_versions[job])
        for (job, task), workers in replica.allocations.items()
        for peer in workers
        if peer in peers
    }


def changes(old: Replica, new: Replica, peers: Collection[PeerId]) -> tuple[Effect, ...]:
    """Starts and stops that lead from the assignments of `old` to those of `new`, for whatever reason they changed.

    A peer whose job was divided anew begins again even on the same task: all workers of a job agree on its version.
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
