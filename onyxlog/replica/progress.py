"""What the replica tells of a running job: inputs and outputs that are done, workers that cannot keep up."""

from __future__ import annotations

from onyxlog.ids import JobId
from onyxlog.replica.replica import PeerState, Replica


def all_exhausted(replica: Replica, job: JobId) -> bool:
    """Every input task of a running job has said that it read all there was; False for a job without inputs."""
    inputs = [task.name for task in replica.jobs[job].requirements.tasks if task.input]
    return bool(inputs) and all((job, task) in replica.exhausted for task in inputs)


def all_sealed(replica: Replica, job: JobId) -> bool:
    """Every output task of a running job has written its last; False for a job without outputs."""
    outputs = [task.name for task in replica.jobs[job].requirements.tasks if task.output]
    return bool(outputs) and all((job, task) in replica.sealed for task in outputs)


def must_wait(replica: Replica, job: JobId) -> bool:
    """A worker of the job asked for backpressure: its inputs wait."""
    tasks = replica.jobs[job].requirements.tasks
    return any(
        replica.peer_states[worker] is PeerState.BACKPRESSURE
        for task in tasks
        for worker in replica.allocations.get((job, task.name), ())
    )


def is_running(replica: Replica, job: JobId) -> bool:
    """It has workers, and all of them have said that they run."""
    workers = [
        worker
        for task in replica.jobs[job].requirements.tasks
        for worker in replica.allocations.get((job, task.name), ())
    ]
    started = (PeerState.ACTIVE, PeerState.BACKPRESSURE)
    return bool(workers) and all(replica.peer_states[worker] in started for worker in workers)
