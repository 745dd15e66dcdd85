"""What has become of a job, as a replica has it. Pure."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Position, TaskName
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import problem
from onyxlog.scheduling.waiting import reasons_to_wait


class JobState(StrEnum):
    UNKNOWN = "unknown"
    """Never submitted, or over and collected."""
    WAITING = "waiting"
    """Too few virtual peers are there for it, or others have them."""
    RUNNING = "running"
    COMPLETED = "completed"
    KILLED = "killed"
    COLLECTED = "collected"
    """It was awaited, and garbage collection forgot how it ended before this client could read it."""


@frozen
class JobStatus:
    """`workers`: of each task. `since`: the position at which it was submitted, or came to its end. `reason`: of a job that
    waits, what it waits for, in words."""

    job: JobId
    state: JobState
    since: Position | None = None
    workers: tuple[tuple[TaskName, tuple[PeerId, ...]], ...] = ()
    coordinator: PeerId | None = None
    reason: str = ""


def job_status(replica: Replica, job: JobId) -> JobStatus:
    """Of a replica."""
    if job in replica.completed:
        return JobStatus(job, JobState.COMPLETED, replica.completed[job])
    if job in replica.killed:
        return JobStatus(job, JobState.KILLED, replica.killed[job])
    known = replica.jobs.get(job)
    if known is None:
        return JobStatus(job, JobState.UNKNOWN)
    workers = tuple(
        (task.name, replica.allocations.get((job, task.name), ())) for task in known.requirements.tasks
    )
    if not any(peers for _, peers in workers):
        reason = reasons_to_wait(problem(replica)).get(job, "")
        return JobStatus(job, JobState.WAITING, known.submitted, workers, reason=reason)
    return JobStatus(job, JobState.RUNNING, known.submitted, workers, replica.coordinators.get(job))
