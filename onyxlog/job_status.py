"""The state of a job as a replica has it. Pure."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from onyxlog.ids import JobId, PeerId, Position, TaskName
from onyxlog.replica.replica import Replica
from onyxlog.replica.rescheduling import problem
from onyxlog.scheduling.waiting import reasons_to_wait


class JobState(StrEnum):
    """States of a job."""

    UNKNOWN = "unknown"
    """The job was never submitted, or it is over and was collected."""
    WAITING = "waiting"
    """Too few virtual peers exist for the job, or other jobs have them."""
    RUNNING = "running"
    COMPLETED = "completed"
    KILLED = "killed"
    COLLECTED = "collected"
    """The job was awaited, and garbage collection forgot how it ended before this client could read it."""


@frozen
class JobStatus:
    """The state of one job.

    `workers`: the workers of each task. `since`: the position at which the job was submitted, or came to its
    end. `reason`: what a waiting job waits for, in words.
    """

    job: JobId
    state: JobState
    since: Position | None = None
    workers: tuple[tuple[TaskName, tuple[PeerId, ...]], ...] = ()
    coordinator: PeerId | None = None
    reason: str = ""


def job_status(replica: Replica, job: JobId) -> JobStatus:
    """Return the state of a job in a replica."""
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
