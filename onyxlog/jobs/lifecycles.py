"""Lifecycles: users' functions that are called at fixed points of a task's life, in the order of the job's list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from onyxlog.errors import WorkflowError
from onyxlog.ids import JobId, PeerId, TaskName
from onyxlog.jobs.functions import nearest, resolve
from onyxlog.jobs.segments import Segment

EVERY_TASK: Final = ":all"


class Hook(StrEnum):
    """The points in a task's life; each is the name of the function that is called there.

    Each point's text says what the function is given, and what its answer means. All are called with a
    `TaskContext` first and the lifecycle's params as keyword arguments last.
    """

    START_TASK = "start_task"
    """() -> bool: may the task start? If any says no, all are asked again after a back-off."""
    BEFORE_TASK_START = "before_task_start"
    """() -> mapping or None: it is added to the context's `resources`, for later hooks."""
    BEFORE_BATCH = "before_batch"
    """()"""
    AFTER_READ_BATCH = "after_read_batch"
    """(segments): what is about to be processed."""
    AFTER_APPLY = "after_apply"
    """(segments, results): what the task's function has made of them, before any of it is sent."""
    AFTER_BATCH = "after_batch"
    """(): all of the batch is sent, or written."""
    AFTER_TASK_STOP = "after_task_stop"
    """(why): called once for each task that was started, for whatever reason it stopped."""
    HANDLE_EXCEPTION = "handle_exception"
    """(hook or "apply", exception) -> "restart", "kill", or "defer" to the next lifecycle; all defer: kill."""
    AFTER_ACK = "after_ack"
    """(segments): those of an input that are processed everywhere, with all segments made of them."""
    AFTER_RETRY = "after_retry"
    """(segments): those of an input that are sent once more."""


class Verdict(StrEnum):
    """Actions after an exception."""

    RESTART = "restart"
    """The task starts again, from the last checkpoint or the segments that nobody acknowledged."""
    KILL = "kill"
    """The job is killed."""
    DEFER = "defer"
    """Let the next lifecycle decide."""


@frozen
class Lifecycle:
    """Functions for one task or all.

    `calls`: the import path of an object (a class, an instance) that has some of the functions of `Hook` as
    attributes. `task`: a name, or ":all".
    """

    task: TaskName
    calls: str
    params: Mapping[str, Any] = field(factory=dict, hash=False)
    doc: str = ""


@frozen
class TaskContext:
    """Context of a task for hooks.

    `resources` (connections and the like) are the task's own, from start to stop.
    """

    job: JobId
    task: TaskName
    peer: PeerId
    slot: int
    params: Mapping[str, Any]
    resources: dict[str, Any] = field(factory=dict, eq=False)


class Hooks:
    """Caller of one task's lifecycles."""

    def __init__(
        self, calls: Sequence[tuple[Mapping[Hook, Callable[..., Any]], Mapping[str, Any]]] = ()
    ) -> None:
        self._calls = {
            hook: tuple((functions[hook], dict(params)) for functions, params in calls if hook in functions)
            for hook in Hook
        }

    def has(self, hook: Hook) -> bool:
        """Return whether any lifecycle has this hook: the hot path asks once."""
        return bool(self._calls[hook])

    def may_start(self, context: TaskContext) -> bool:
        """Return whether all lifecycles let the task start."""
        return all(function(context, **params) for function, params in self._calls[Hook.START_TASK])

    def before_task_start(self, context: TaskContext) -> None:
        """Call `before_task_start`, and keep the resources that it returns."""
        for function, params in self._calls[Hook.BEFORE_TASK_START]:
            context.resources.update(function(context, **params) or {})

    def before_batch(self, context: TaskContext) -> None:
        """Call `before_batch`."""
        self._call(Hook.BEFORE_BATCH, context)

    def after_read_batch(self, context: TaskContext, segments: Sequence[Segment]) -> None:
        """Call `after_read_batch` with the segments that were read."""
        self._call(Hook.AFTER_READ_BATCH, context, segments)

    def after_apply(self, context: TaskContext, segments: Sequence[Segment], results: Sequence[Any]) -> None:
        """Call `after_apply` with the segments and the function's results."""
        self._call(Hook.AFTER_APPLY, context, segments, results)

    def after_batch(self, context: TaskContext) -> None:
        """Call `after_batch`."""
        self._call(Hook.AFTER_BATCH, context)

    def after_task_stop(self, context: TaskContext, why: str) -> None:
        """Call all hooks, also if some raise. The first exception is raised afterwards, with notes of the others.

        Raises:
            Exception: what the first hook that failed raised.
        """
        first: Exception | None = None
        for function, params in reversed(self._calls[Hook.AFTER_TASK_STOP]):
            try:
                function(context, why, **params)
            except Exception as error:
                if first is None:
                    first = error
                else:
                    first.add_note(f"also: {error!r}")
        if first is not None:
            raise first

    def after_ack(self, context: TaskContext, segments: Sequence[Segment]) -> None:
        """Call `after_ack` with the segments that are completely processed."""
        self._call(Hook.AFTER_ACK, context, segments)

    def after_retry(self, context: TaskContext, segments: Sequence[Segment]) -> None:
        """Call `after_retry` with the segments that are sent again."""
        self._call(Hook.AFTER_RETRY, context, segments)

    def verdict(self, context: TaskContext, at: str, exception: BaseException) -> Verdict:
        """Return RESTART or KILL for an exception in a hook, named by it, or in "apply"."""
        for function, params in self._calls[Hook.HANDLE_EXCEPTION]:
            answer = Verdict(function(context, at, exception, **params))
            if answer is not Verdict.DEFER:
                return answer
        return Verdict.KILL

    def _call(self, hook: Hook, context: TaskContext, *of: Any) -> None:
        for function, params in self._calls[hook]:
            function(context, *of, **params)


def hooks(task: TaskName, lifecycles: Sequence[Lifecycle], where: str = "lifecycles") -> Hooks:
    """Return the lifecycles of a task.

    Raises:
        WorkflowError: an import path cannot be found, or its object has none of the functions.
    """
    return Hooks(
        [
            (functions_of(lifecycle, f"{where}[{number}]"), lifecycle.params)
            for number, lifecycle in enumerate(lifecycles)
            if lifecycle.task in (task, EVERY_TASK)
        ]
    )


def functions_of(lifecycle: Lifecycle, where: str) -> dict[Hook, Callable[..., Any]]:
    """Return the hooks that the lifecycle's object has.

    Raises:
        WorkflowError: the import path is wrong, or its object has none of the functions.
    """
    if ":" in lifecycle.calls:
        calls = resolve(lifecycle.calls, f"{where}: calls")
    else:
        raise WorkflowError(f"{where}: calls: expected 'package.module:object', found {lifecycle.calls!r}")
    found = {hook: getattr(calls, hook) for hook in Hook if callable(getattr(calls, hook, None))}
    if not found:
        names = [name for name in dir(calls) if not name.startswith("_")]
        guess = next((text for hook in Hook if (text := nearest(hook, names))), "")
        raise WorkflowError(f"{where}: calls: {lifecycle.calls!r} has none of {', '.join(Hook)}{guess}")
    return found
