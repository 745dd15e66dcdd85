"""Progress of a running job in the replica: which of its tasks are done."""

from __future__ import annotations

from onyxlog.ids import JobId, Position, TaskName
from onyxlog.replica.replica import Replica


def is_meant(replica: Replica, job: JobId, submitted: Position) -> bool:
    """Return whether this very job is not over.

    A job of its id that was submitted after it was over and collected is another one.
    """
    known = replica.jobs.get(job)
    return known is not None and known.submitted == submitted


def inputs(replica: Replica, job: JobId) -> tuple[TaskName, ...]:
    """Return the tasks of a job that read from outside; none of a job that does not run."""
    known = replica.jobs.get(job)
    return () if known is None else tuple(task.name for task in known.requirements.tasks if task.input)


def outputs(replica: Replica, job: JobId) -> tuple[TaskName, ...]:
    """Return the tasks of a job that write to outside; none of a job that does not run."""
    known = replica.jobs.get(job)
    return () if known is None else tuple(task.name for task in known.requirements.tasks if task.output)


def all_exhausted(replica: Replica, job: JobId) -> bool:
    """Return whether every input task of a job has read all there was; False for a job without inputs."""
    tasks = inputs(replica, job)
    return bool(tasks) and all((job, task) in replica.exhausted for task in tasks)


def all_sealed(replica: Replica, job: JobId) -> bool:
    """Return whether every output task of a job has written its last segment.

    False for a job without outputs.
    """
    tasks = outputs(replica, job)
    return bool(tasks) and all((job, task) in replica.sealed for task in tasks)
