"""Values that schedulers decide from: the existing workers, and what jobs ask for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from attrs import field, frozen

from onyxlog.ids import JobId, PeerId, Site, TaskName


class JobScheduler(StrEnum):
    """Ways to divide workers between jobs; the whole cluster has the same one, a parameter of the log."""

    GREEDY = "greedy"
    BALANCED = "balanced"
    PERCENTAGE = "percentage"


class TaskScheduler(StrEnum):
    """Ways to divide a job's workers between its tasks; each job names its own."""

    BALANCED = "balanced"
    PERCENTAGE = "percentage"
    COLOCATED = "colocated"


class FluxPolicy(StrEnum):
    """Policies for a grouped task that loses a worker, because its state depends on the number of workers."""

    KILL = "kill"
    """The job is killed."""
    CONTINUE = "continue"
    """The other workers continue; the task may get workers again."""
    RECOVER = "recover"
    """The task gets workers again up to its minimum, from any other job."""


@frozen(cache_hash=True)
class TaskRequirements:
    """A task as schedulers see it. `percentage`: only for the percentage task scheduler. `max_peers` None: no bound."""

    name: TaskName
    min_peers: int = 1
    max_peers: int | None = None
    percentage: int | None = None
    grouped: bool = False
    flux_policy: FluxPolicy = FluxPolicy.CONTINUE
    required_tags: tuple[str, ...] = ()
    input: bool = False
    output: bool = False


@frozen(cache_hash=True)
class JobRequirements:
    """A job as schedulers see it: what a submit-job entry carries. The rest of the job is in znodes of its own.

    `hash` is of the whole job, so that another job which uses an id again is told apart from a repetition.
    `edges` are (from, to) of the workflow. `percentage`: only for the percentage job scheduler.
    """

    id: JobId
    hash: bytes
    tasks: tuple[TaskRequirements, ...]
    edges: tuple[tuple[TaskName, TaskName], ...] = ()
    task_scheduler: TaskScheduler = TaskScheduler.BALANCED
    percentage: int | None = None


@frozen
class Worker:
    """A virtual peer as schedulers see it."""

    id: PeerId
    site: Site
    tags: frozenset[str] = frozenset()


Allocations = Mapping[tuple[JobId, TaskName], tuple[PeerId, ...]]
"""Workers of each task, sorted.

A task without any is absent; a job has either workers on each of its tasks or on none.
"""


Coordinators = Mapping[JobId, PeerId]
"""The worker that coordinates each job that has workers."""
Slots = Mapping[tuple[JobId, TaskName, PeerId], int]
"""A small number for each worker of a task, different from those of the others on it."""


@frozen
class Problem:
    """A problem to decide. `workers` are sorted by id; `jobs` are in the order in which they were submitted.

    `present`, `coordinators` and `slots` are what was decided last, of which as much stays as possible. They
    may name workers and jobs that are gone.
    """

    scheduler: JobScheduler
    workers: tuple[Worker, ...]
    jobs: tuple[JobRequirements, ...]
    present: Allocations = field(factory=dict)
    coordinators: Coordinators = field(factory=dict)
    slots: Slots = field(factory=dict)
