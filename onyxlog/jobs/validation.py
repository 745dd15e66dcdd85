"""Validation of jobs: finds all that is wrong with one at once, each with its place and what was expected."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from onyxlog.errors import WorkflowError
from onyxlog.ids import TaskName
from onyxlog.jobs import workflow
from onyxlog.jobs.aggregates import aggregate, fault_of
from onyxlog.jobs.flow_conditions import ALL, NONE, Action, FlowCondition
from onyxlog.jobs.functions import nearest, resolve_callable
from onyxlog.jobs.grouping import BUCKETS
from onyxlog.jobs.lifecycles import EVERY_TASK, Lifecycle, functions_of
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.specification import Delivery, Job, Task, TaskKind
from onyxlog.jobs.triggers import RESULT, Complete, Punctuation, Segments, Timer, Trigger, Watermark
from onyxlog.jobs.windows import Fixed, Global, Session, Sliding, Window
from onyxlog.scheduling.requirements import TaskScheduler

EXTENTS_PER_SEGMENT_MAX: Final = 1_000
"""The most extents that a segment is in, for sliding windows: range / slide."""


def check(
    job: Job,
    *,
    importing: bool = True,
    inputs: Collection[str] | None = None,
    outputs: Collection[str] | None = None,
) -> None:
    """Check that a job can run.

    Args:
        job: the job.
        importing: import what functions are in, as peers will; False where they are not installed.
        inputs: the names of input plugins that peers know; None: any name will do.
        outputs: the names of output plugins, likewise.

    Raises:
        WorkflowError: the job cannot run; the message has a line for each problem.
    """
    found = [*problems(job), *_of_plugins(job, inputs, outputs)]
    if importing:
        found += import_problems(job)
    if found:
        raise WorkflowError("\n".join(dict.fromkeys(found)))


def problems(job: Job) -> Iterator[str]:
    """Return the problems that can be seen without importing anything."""
    for problem in (
        *_of_job(job),
        *_of_each("catalog", [(task.name, _of_task(job, task)) for task in job.catalog]),
        *workflow.problems(job),
        *_of_flow_conditions(job),
        *_of_lifecycles(job),
        *_of_each("windows", [(window.id, _of_window(job, window)) for window in job.windows]),
        *_of_each("triggers", [(trigger.id, _of_trigger(job, trigger)) for trigger in job.triggers]),
    ):
        yield f"job {job.id!r}: {problem}"


def import_problems(job: Job) -> Iterator[str]:
    """Return the functions that cannot be found here, or cannot be called."""
    for where, attempt in _imports(job):
        try:
            attempt(f"job {job.id!r}: {where}")
        except WorkflowError as error:
            yield str(error)
        except Exception as error:
            # an instance of a user's class, made with the parameters of the job
            yield f"job {job.id!r}: {where}: {type(error).__name__}: {error}"


def _imports(job: Job) -> Iterator[tuple[str, Callable[[str], Any]]]:
    def function(path: str) -> Callable[[str], Any]:
        return lambda where: resolve_callable(path, where)

    for number, task in enumerate(job.catalog):
        here = _place("catalog", number, task.name)
        if task.function:
            yield f"{here}: function", function(task.function)
        if task.group_by and task.group_by.function and not task.group_by.keys:
            yield f"{here}: group_by", function(task.group_by.function)
        if task.plugin and ":" in task.plugin.name:
            yield f"{here}: plugin", function(task.plugin.name)
    for number, condition in enumerate(job.flow_conditions):
        for path in _functions_of(condition.predicate):
            yield f"flow_conditions[{number}]: predicate", function(path)
        if condition.transform:
            yield f"flow_conditions[{number}]: transform", function(condition.transform)
    for number, lifecycle in enumerate(job.lifecycles):

        def hooks(where: str, lifecycle: Lifecycle = lifecycle) -> object:
            return functions_of(lifecycle, where)

        yield f"lifecycles[{number}]", hooks
    for number, window in enumerate(job.windows):

        def made(where: str, window: Window = window) -> object:
            return aggregate(window.aggregation, where)

        yield f"{_place('windows', number, window.id)}: aggregation", made
    for number, trigger in enumerate(job.triggers):
        here = _place("triggers", number, trigger.id)
        if isinstance(trigger.on, Punctuation):
            for path in _functions_of(trigger.on.predicate):
                yield f"{here}: on: predicate", function(path)
        if trigger.emit and ":" in trigger.emit:
            yield f"{here}: emit", function(trigger.emit)
        if trigger.sync:
            yield f"{here}: sync", function(trigger.sync)


def _functions_of(predicate: Predicate) -> Iterable[str]:
    """Return the functions; None if the form is wrong, as that is reported already and their meaning is not known."""
    return () if predicate.fault() else predicate.functions()


def _at_least(where: str, what: str, value: int | None, least: int) -> Iterator[str]:
    if value is not None and value < least:
        yield f"{where}{what}: expected at least {least}, found {value}"


def _percentage(where: str, value: int | None) -> Iterator[str]:
    if value is not None and not 1 <= value <= 100:
        yield f"{where}percentage: expected 1 to 100, found {value}"


def name_fault(name: str) -> str | None:
    """Return why a name cannot be a job's or task's: names are parts of paths of znodes, and ':' begins a special name."""
    if not name or name in (".", ".."):
        return f"expected a name, found {name!r}"
    if "/" in name or name.startswith(":") or not name.isprintable():
        return (
            f"expected a name without '/' and control characters that does not begin with ':', found {name!r}"
        )
    return None


def _place(field: str, number: int, name: str) -> str:
    return f"{field}[{number}] ({name!r})"


def _of_each(field: str, found: Sequence[tuple[str, Iterable[str]]]) -> Iterator[str]:
    """Return what is wrong with each of a list of named things, with its place, and names that occur twice."""
    seen: set[str] = set()
    for number, (name, _) in enumerate(found):
        if name in seen:
            yield f"{field}[{number}]: {name!r} is there already"
        seen.add(name)
    for number, (name, wrong) in enumerate(found):
        for problem in wrong:
            yield f"{_place(field, number, name)}: {problem}"


def _known(where: str, what: str, name: str, known: list[str]) -> Iterator[str]:
    if name not in known:
        yield f"{where}: no {what} {name!r}{nearest(name, known)}; there are {', '.join(sorted(known)) or 'none'}"


def _of_job(job: Job) -> Iterator[str]:
    if fault := name_fault(job.id):
        yield f"id: {fault}"
    yield from _percentage("", job.percentage)
    for name in ("pending_max", "pending_timeout_ms", "checkpoint_interval_ms", "checkpoint_timeout_ms"):
        yield from _at_least("", name, getattr(job, name), 1)
    if job.resume_from is not None:
        if job.resume_from == job.id:
            yield "resume_from: a job cannot begin from itself: a job that goes on keeps its id and needs no submission"
        if job.delivery is not Delivery.EXACTLY_ONCE_STATE:
            yield (
                f"resume_from: only jobs with delivery {Delivery.EXACTLY_ONCE_STATE.value!r} have checkpoints, "
                f"this one has {job.delivery.value!r}"
            )


def _of_task(job: Job, task: Task) -> Iterator[str]:
    if fault := name_fault(task.name):
        yield f"name: {fault}"
    outside = task.kind in (TaskKind.INPUT, TaskKind.OUTPUT)
    if outside and task.plugin is None:
        yield f"plugin: an {task.kind.value} needs one: what it reads or writes"
    if not outside and task.plugin is not None:
        yield f"plugin: only inputs and outputs have one, this is a {task.kind.value} task"
    if task.function is None:
        for name in ("bulk", "params", "resources"):
            if getattr(task, name):
                yield f"{name}: is for the task's function, and there is none"
    if twice := set(task.resources) & set(task.params):
        yield f"resources: {', '.join(sorted(map(repr, twice)))} is in params too; the function has one argument of a name"
    if task.resources and not any(each.task in (task.name, EVERY_TASK) for each in job.lifecycles):
        yield "resources: are made by lifecycles, and this task has none"
    yield from _at_least("", "batch_size", task.batch_size, 1)
    yield from _at_least("", "batch_timeout_ms", task.batch_timeout_ms, 0)
    yield from _at_least("", "min_peers", task.min_peers, 1)
    if task.max_peers is not None and task.max_peers < task.min_peers:
        yield f"max_peers: expected at least min_peers, {task.min_peers}, found {task.max_peers}"
    yield from _percentage("", task.percentage)
    by_percentage = job.task_scheduler is TaskScheduler.PERCENTAGE
    if by_percentage and task.percentage is None:
        yield "percentage: the job's task_scheduler is 'percentage', so that each task needs one"
    if not by_percentage and task.percentage is not None:
        yield f"percentage: the job's task_scheduler is {job.task_scheduler.value!r}, which does not look at it"
    if not all(task.tags):
        yield "tags: a tag is not empty"
    yield from _of_grouping(task)
    if task.kind is TaskKind.REDUCE and not job.windows_of(task.name):
        yield "kind: a reduce task sends what triggers of its windows emit, and it has no window"


def _of_plugins(job: Job, inputs: Collection[str] | None, outputs: Collection[str] | None) -> Iterator[str]:
    for number, task in enumerate(job.catalog):
        known = {TaskKind.INPUT: inputs, TaskKind.OUTPUT: outputs}.get(task.kind)
        if task.plugin is not None and known is not None and ":" not in task.plugin.name:
            here = f"job {job.id!r}: {_place('catalog', number, task.name)}: plugin"
            for problem in _known(here, task.kind.value, task.plugin.name, [*known]):
                yield f"{problem}, or package.module:Class"


def _of_grouping(task: Task) -> Iterator[str]:
    group_by = task.group_by
    if group_by is None:
        if task.flux is not None:
            yield "flux: is for tasks with group_by, whose state hangs on their workers; this has none"
        return
    if task.kind is TaskKind.INPUT:
        yield "group_by: nothing is sent to an input; group the task after it"
    if bool(group_by.keys) == (group_by.function is not None):
        yield "group_by: expected one of keys and function"
    for what, value in (("min_peers", task.min_peers), ("max_peers", task.max_peers)):
        if value is not None and value > BUCKETS:
            yield f"{what}: a task with group_by has at most {BUCKETS} workers, found {value}"


def _of_flow_conditions(job: Job) -> Iterator[str]:
    plain_seen: set[TaskName] = set()
    for number, condition in enumerate(job.flow_conditions):
        for problem in _of_flow_condition(job, condition):
            yield f"flow_conditions[{number}]: {problem}"
        if condition.on_exception:
            continue
        if not condition.short_circuit:
            plain_seen.add(condition.source)
        elif plain_seen and (condition.source == ALL or plain_seen & {condition.source, ALL}):
            yield (
                f"flow_conditions[{number}]: short_circuit: those that decide alone come before all others of "
                f"{condition.source!r}"
            )


def _of_flow_condition(job: Job, condition: FlowCondition) -> Iterator[str]:
    names = [task.name for task in job.catalog]
    if fault := condition.predicate.fault():
        yield f"predicate: {fault}"
    if condition.source == ALL:
        sources = [name for name in names if job.downstream(name)]
    elif condition.source in names:
        sources = [condition.source]
        if not job.downstream(condition.source):
            yield f"source: nothing comes after {condition.source!r}, so that there is nothing to decide"
    else:
        yield from _known("source", "task", condition.source, [*names, ALL])
        sources = []
    yield from _of_targets(job, condition, sources)
    if condition.on_exception and not condition.short_circuit:
        yield "on_exception: such a condition decides alone: set short_circuit"
    if condition.transform is not None and not condition.on_exception:
        yield "transform: is for what an exception becomes: set on_exception, or do it in the task's function"
    if condition.action is Action.RETRY:
        if condition.to != (NONE,) or not condition.short_circuit:
            yield f'action: retry sends nothing on and decides alone: expected to = ["{NONE}"] and short_circuit'
        if job.delivery is not Delivery.AT_LEAST_ONCE:
            yield f"action: retry needs delivery 'at-least-once', this job has {job.delivery.value!r}"


def _of_targets(job: Job, condition: FlowCondition, sources: list[TaskName]) -> Iterator[str]:
    if not condition.to:
        yield f"to: expected names of tasks, {ALL!r} or {NONE!r}, found none"
    if len(condition.to) > 1 and {ALL, NONE} & set(condition.to):
        yield f"to: {ALL!r} and {NONE!r} stand alone, found {', '.join(map(repr, condition.to))}"
        return
    if condition.to == (NONE,) and not condition.short_circuit:
        yield f"to: {NONE!r} means something only where it decides alone: set short_circuit"
    for target in condition.to:
        if target in (ALL, NONE):
            continue
        for source in sources:
            after = job.downstream(source)
            if target not in after and not (condition.source == ALL and target == source):
                yield (
                    f"to: no edge of the workflow from {source!r} to {target!r}{nearest(target, list(after))}; "
                    f"there are to {', '.join(map(repr, after)) or 'none'}"
                )


def _of_lifecycles(job: Job) -> Iterator[str]:
    names = [task.name for task in job.catalog]
    for number, lifecycle in enumerate(job.lifecycles):
        if lifecycle.task != EVERY_TASK:
            yield from _known(f"lifecycles[{number}]: task", "task", lifecycle.task, names)


def _of_window(job: Job, window: Window) -> Iterator[str]:
    tasks = {task.name: task for task in job.catalog}
    yield from _known("task", "task", window.task, list(tasks))
    if window.task in tasks and (kind := tasks[window.task].kind) not in (TaskKind.FUNCTION, TaskKind.REDUCE):
        yield f"task: windows are for function and reduce tasks, {window.task!r} is an {kind.value}"
    yield from _at_least("", "extents_max", window.extents_max, 1)
    match window.over:
        case Fixed(range=length):
            yield from _at_least("over: ", "range", length, 1)
        case Sliding(range=length, slide=slide):
            yield from _at_least("over: ", "range", length, 1)
            if not 1 <= slide <= length:
                yield f"over: slide: expected 1 to the range, {length}, found {slide}"
            elif length / slide > EXTENTS_PER_SEGMENT_MAX:
                yield (
                    f"over: slide: each segment would be in {length // slide} extents, "
                    f"at most {EXTENTS_PER_SEGMENT_MAX} are allowed: use a larger slide"
                )
        case Session(gap=gap):
            yield from _at_least("over: ", "gap", gap, 1)
        case Global():
            pass
    if window.time_key is None and not isinstance(window.over, Global):
        yield f"time_key: a {window.over.TYPE} window needs it: where segments have their time"
    if fault := fault_of(window.aggregation):
        yield f"aggregation: {fault}"
    if not job.triggers_of(window.id):
        yield "no trigger tells what it holds"


def _of_trigger(job: Job, trigger: Trigger) -> Iterator[str]:
    windows = {window.id: window for window in job.windows}
    yield from _known("window", "window", trigger.window, list(windows))
    window = windows.get(trigger.window)
    match trigger.on:
        case Segments(count=count):
            yield from _at_least("on: ", "count", count, 1)
        case Timer(period_ms=period_ms):
            yield from _at_least("on: ", "period_ms", period_ms, 1)
        case Punctuation(predicate=predicate):
            if fault := predicate.fault():
                yield f"on: predicate: {fault}"
        case Watermark(percent=percent, delay_ms=delay_ms):
            if not 1 <= percent <= 100:
                yield f"on: percent: expected 1 to 100, found {percent}"
            yield from _at_least("on: ", "delay_ms", delay_ms, 0)
            if window is not None and isinstance(window.over, Global):
                yield "on: a global window never ends: a watermark cannot pass its end"
        case Complete():
            if not trigger.on_complete:
                yield "on_complete: false, but there is nothing else on which it fires"
    if trigger.emit is None and trigger.sync is None:
        yield "expected emit or sync: without them it tells nobody"
    if trigger.emit is not None and trigger.emit != RESULT and ":" not in trigger.emit:
        yield f"emit: expected {RESULT!r} or package.module:function, found {trigger.emit!r}"
    if trigger.emit is not None and window is not None and not job.downstream(window.task):
        yield f"emit: nothing comes after {window.task!r}; use sync, or add an output to the workflow"
    if trigger.params and trigger.sync is None and trigger.emit in (None, RESULT):
        yield "params: are for functions of emit and sync, and there is none"
