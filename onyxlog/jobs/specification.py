"""A job: what to do with the segments of some inputs, as a value that every peer reads the same.

It is written to a znode as MessagePack, and in files as JSON or TOML, all of one form (`onyxlog.jobs.plain`).
Whether it can run is checked in `onyxlog.jobs.validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from attrs import field, frozen

from onyxlog.errors import EntryError, WorkflowError
from onyxlog.ids import JobId, TaskName
from onyxlog.jobs.flow_conditions import FlowCondition
from onyxlog.jobs.grouping import GroupBy
from onyxlog.jobs.lifecycles import Lifecycle
from onyxlog.jobs.plain import PlainError, from_plain, to_plain
from onyxlog.jobs.segments import canonical, decoded
from onyxlog.jobs.triggers import Trigger
from onyxlog.jobs.windows import Window
from onyxlog.scheduling.requirements import FluxPolicy, JobRequirements, TaskRequirements, TaskScheduler

__all__ = [
    "Delivery",
    "Job",
    "Plugin",
    "Task",
    "TaskKind",
]

FORMAT: Final = 1


class TaskKind(StrEnum):
    """Kinds of tasks."""

    INPUT = "input"
    """The task reads segments from outside, by its plugin; its function, if any, is applied to them."""
    FUNCTION = "function"
    """The task makes segments of segments."""
    REDUCE = "reduce"
    """The task puts segments into windows, and sends only what triggers emit; it may be the last task of a workflow.
    """
    OUTPUT = "output"
    """The task writes segments, by its plugin; its function, if any, is applied to them before."""


class Delivery(StrEnum):
    """Guarantees of a job for when workers fail."""

    AT_LEAST_ONCE = "at-least-once"
    """Each segment of an input is acknowledged by all tasks or sent again; state of windows is lost with its worker.
    """
    EXACTLY_ONCE_STATE = "exactly-once-state"
    """Barriers and checkpoints keep the state of windows as if no worker had failed.

    Outputs that are not idempotent may get again what was written after the last checkpoint.
    """
    BEST_EFFORT = "best-effort"
    """Nothing is sent again: segments that were under way at a failure are lost."""


@frozen
class Plugin:
    """Choice of an input's or output's plugin, by a known name or "package.module:Class", and its options."""

    name: str
    options: Mapping[str, Any] = field(factory=dict, hash=False)


@frozen
class Task:
    """An entry of a job's catalog.

    `function`: "package.module:function", called with a segment and `params` as keyword arguments; it returns
    a segment, a list of them, or None. With `bulk` it is called with the list of all segments of a batch, and
    returns a list of such answers, one for each. Without a function, segments pass unchanged. `resources`:
    names of what lifecycles have made before the task started (connections and the like), which the function
    is given as keyword arguments too.

    `batch_size`: the most segments that it processes at a time; `batch_timeout_ms`: how long a batch that is
    not full waits. `group_by`: segments with equal keys come to the same worker. `flux`: for such tasks, what
    happens when a worker leaves. `percentage`: of the job's workers, for the percentage task scheduler.
    `tags`: workers need all of them.
    """

    name: TaskName
    kind: TaskKind = TaskKind.FUNCTION
    function: str | None = None
    params: Mapping[str, Any] = field(factory=dict, hash=False)
    resources: tuple[str, ...] = ()
    bulk: bool = False
    plugin: Plugin | None = None
    group_by: GroupBy | None = None
    batch_size: int = 500
    batch_timeout_ms: int = 50
    min_peers: int = 1
    max_peers: int | None = None
    flux: FluxPolicy | None = None
    tags: tuple[str, ...] = ()
    percentage: int | None = None
    doc: str = ""


@frozen
class Job:
    """A job. `workflow`: the edges (from, to) of an acyclic graph over the names in `catalog`.

    `pending_max`: roots under way for each worker of an input; `pending_timeout_ms`: until one is sent again
    (both: at-least-once). `checkpoint_interval_ms`, `checkpoint_timeout_ms`: of barriers
    (exactly-once-state). `percentage`: of all workers, for the percentage job scheduler. `resume_from`: a job
    whose last checkpoint this one begins from. `metadata`: for people and programs; nothing is decided by it.
    """

    id: JobId
    workflow: tuple[tuple[TaskName, TaskName], ...]
    catalog: tuple[Task, ...]
    flow_conditions: tuple[FlowCondition, ...] = ()
    lifecycles: tuple[Lifecycle, ...] = ()
    windows: tuple[Window, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    task_scheduler: TaskScheduler = TaskScheduler.BALANCED
    percentage: int | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    pending_max: int = 10_000
    pending_timeout_ms: int = 60_000
    checkpoint_interval_ms: int = 2_000
    checkpoint_timeout_ms: int = 60_000
    resume_from: JobId | None = None
    metadata: Mapping[str, Any] = field(factory=dict, hash=False)

    def task(self, name: TaskName) -> Task:
        """Return the task of this name.

        Raises:
            KeyError: there is none.
        """
        for task in self.catalog:
            if task.name == name:
                return task
        raise KeyError(name)

    def downstream(self, name: TaskName) -> tuple[TaskName, ...]:
        """Return the tasks that a task sends to, in the order of the workflow."""
        return tuple(dict.fromkeys(to for source, to in self.workflow if source == name))

    def upstream(self, name: TaskName) -> tuple[TaskName, ...]:
        """Return the tasks that send segments to this one, each once."""
        return tuple(dict.fromkeys(source for source, to in self.workflow if to == name))

    def windows_of(self, name: TaskName) -> tuple[Window, ...]:
        """Return the windows of a task."""
        return tuple(window for window in self.windows if window.task == name)

    def triggers_of(self, window: str) -> tuple[Trigger, ...]:
        """Return the triggers of a window."""
        return tuple(trigger for trigger in self.triggers if trigger.window == window)

    def requirements(self) -> JobRequirements:
        """Return what goes into the submit-job entry."""
        return JobRequirements(
            id=self.id,
            hash=job_hash(self),
            tasks=tuple(_requirements(task) for task in self.catalog),
            edges=self.workflow,
            task_scheduler=self.task_scheduler,
            percentage=self.percentage,
        )


def _requirements(task: Task) -> TaskRequirements:
    return TaskRequirements(
        name=task.name,
        min_peers=task.min_peers,
        max_peers=task.max_peers,
        percentage=task.percentage,
        grouped=task.group_by is not None,
        flux_policy=task.flux or FluxPolicy.CONTINUE,
        required_tags=tuple(sorted(set(task.tags))),
        input=task.kind is TaskKind.INPUT,
        output=task.kind is TaskKind.OUTPUT,
    )


def job_hash(job: Job) -> bytes:
    """Return 32 bytes of hash over the whole job: equal jobs, however they were written down, have equal ones."""
    return blake2b(encode_job(job), digest_size=32).digest()


def encode_job(job: Job) -> bytes:
    """Return the canonical bytes for the job's znode."""
    return canonical([FORMAT, to_plain(job)])


def decode_job(data: bytes, where: str) -> Job:
    """Decode a job's znode.

    Raises:
        EntryError: the bytes are no job of this version; the message begins with `where`, the znode's
            path.
    """
    try:
        content = decoded(data)
        if not isinstance(content, list) or len(content) != 2:
            raise EntryError(f"{where}: not a job: expected [format, job]")
        if content[0] != FORMAT:
            raise EntryError(f"{where}: a job of format {content[0]!r}, this version reads {FORMAT}")
        return from_plain(Job, content[1], where)
    except ValueError as error:
        if isinstance(error, EntryError):
            raise
        raise EntryError(str(error) if isinstance(error, PlainError) else f"{where}: {error}") from error


def job_from_plain(value: Any, where: str = "job") -> Job:
    """Return the job that a file of JSON or TOML holds.

    Raises:
        WorkflowError: the value is no job; the message begins with `where`.
    """
    try:
        return from_plain(Job, value, where)
    except PlainError as error:
        raise WorkflowError(str(error)) from error
