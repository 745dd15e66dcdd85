"""Processing of a batch by a worker: the task's function, its windows, and where the results go.

No I/O and no clock. It runs in the worker's thread, as all functions here are users'. The loops over segments
are the hot path of a job: no object is made per segment unless trees of roots are tracked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any, Final, TypeVar

from attrs import define, field

from onyxlog.errors import OnyxlogError
from onyxlog.ids import TaskName
from onyxlog.jobs.acking import AckBatch, Lineage
from onyxlog.jobs.flow_conditions import Route, Router, router
from onyxlog.jobs.grouping import Grouping, grouping, table_of
from onyxlog.jobs.lifecycles import Hook, Hooks, TaskContext, Verdict
from onyxlog.jobs.specification import Delivery, Job, Task, TaskKind
from onyxlog.jobs.task_windows import TaskWindows
from onyxlog.jobs.transform import Answer, Failed, transform
from onyxlog.jobs.triggers import Firing, Timer
from onyxlog.tasks.items import Batch
from onyxlog.tasks.layout import JobLayout, Seat

T = TypeVar("T")
UNROOTED: Final = -1
"""The root of a segment that was made of no single one: what a trigger emits while trees are tracked."""
Destination = tuple[TaskName, int]
"""Task and slot."""


class TaskError(OnyxlogError):
    """A user's function raised, or returned something unusable; the message says where. `verdict` says what to do."""

    def __init__(self, text: str, verdict: Verdict) -> None:
        super().__init__(text)
        self.verdict = verdict


@define
class Outcome:
    """The outcome of a batch. `acks` are due once `written` is written and `sends` are sent."""

    sends: list[tuple[Destination, Batch]] = field(factory=list)
    written: list[Any] = field(factory=list)
    """Segments for the plugin of an output task."""
    acks: list[tuple[int, int]] = field(factory=list)
    retries: list[int] = field(factory=list)


_Fail = Callable[[Exception, Any, str], TaskError]
"""Handles an exception: takes it, the segment that is at fault, and what raised it."""


class _Target:
    """A next task: collects what goes to each of its workers."""

    __slots__ = ("_batches", "_failed", "_grouping", "_slots", "_table", "_turn", "task")

    def __init__(
        self, task: TaskName, slots: Sequence[int], grouped: Grouping | None, turn: int, failed: _Fail
    ) -> None:
        self.task = task
        self._failed = failed
        self._slots = tuple(slots)
        self._grouping = grouped
        self._table = table_of(slots) if grouped is not None else ()
        self._turn = turn
        self._batches: dict[int, Batch] = {}

    def begin(self) -> None:
        """Begin another batch: where there is no grouping, it goes to another worker."""
        self._turn = (self._turn + 1) % len(self._slots)

    def slot_of(self, segment: Any) -> int:
        if self._grouping is None:
            return self._slots[self._turn]
        try:
            return self._table[self._grouping.bucket(segment)]
        except Exception as error:
            raise self._fault(error, segment) from error

    def add_all(self, segments: list[Any]) -> None:
        """Add all segments of an untracked batch."""
        batches = self._batches
        if self._grouping is None:
            slot = self._slots[self._turn]
            batch = batches.get(slot)
            if batch is None:
                # This is a copy: more may be added, and others may have the list, too.
                batches[slot] = Batch(list(segments))
            else:
                batch.segments += segments
            return
        table, bucket = self._table, self._grouping.bucket
        for segment in segments:
            try:
                slot = table[bucket(segment)]
            except Exception as error:
                raise self._fault(error, segment) from error
            batch = batches.get(slot)
            if batch is None:
                batches[slot] = Batch([segment])
            else:
                batch.segments.append(segment)

    def add_tracked(self, segment: Any, slot: int, child: Lineage) -> None:
        batch = self._batches.get(slot)
        if batch is None:
            batch = self._batches[slot] = Batch([], [], [])
        batch.segments.append(segment)
        if batch.roots is not None and batch.values is not None:  # otherwise nothing is tracked
            batch.roots.append(child.root)
            batch.values.append(child.ack)

    def _fault(self, error: Exception, segment: Any) -> TaskError:
        return self._failed(error, segment, f"group_by of task {self.task}")

    def take(self) -> Iterable[tuple[Destination, Batch]]:
        batches, self._batches = self._batches, {}
        for slot, batch in batches.items():
            yield (self.task, slot), batch


class Processing:
    """One task on one worker, from the start to the stop of an attempt. Not for several threads at once."""

    def __init__(self, job: Job, seat: Seat, layout: JobLayout, hooks: Hooks, random: Random) -> None:
        """Prepare a task.

        Raises:
            WorkflowError: a function cannot be found here.
        """
        self.task: Task = job.task(seat.task)
        self._where = f"job {job.id}, task {self.task.name}"
        self.hooks = hooks
        self.context = TaskContext(job.id, seat.task, seat.peer, seat.slot, dict(self.task.params))
        self.tracked = job.delivery is Delivery.AT_LEAST_ONCE
        self._transform = transform(self.task, self._where, self.context.resources)
        self._router: Router = router(seat.task, job.flow_conditions, job.downstream(seat.task))
        index = layout.index_of(seat)
        self._targets = {
            name: _target(job.task(name), layout, index, self._error) for name in job.downstream(seat.task)
        }
        self.windows = TaskWindows(job, seat.task)
        triggers = [trigger for window in job.windows_of(seat.task) for trigger in job.triggers_of(window.id)]
        self.has_timers = any(isinstance(trigger.on, Timer) for trigger in triggers)
        self._acks = AckBatch(random)
        self._is_output = self.task.kind is TaskKind.OUTPUT
        self._passes = self.task.kind is not TaskKind.REDUCE
        self._is_plain = (
            not self.tracked and self._router.everywhere is not None and not hooks.has(Hook.AFTER_APPLY)
        )
        self.has_after_batch = hooks.has(Hook.AFTER_BATCH)
        self._calls_hooks = any(hooks.has(hook) for hook in _BATCH_HOOKS)

    def process(self, batch: Batch) -> Outcome:
        """Process a batch; return the outcome.

        Raises:
            TaskError: a user's function failed.
        """
        outcome = Outcome()
        for target in self._targets.values():
            target.begin()
        size = self.task.batch_size
        if len(batch.segments) <= size:
            self._process(batch, outcome)
        else:
            for begin in range(0, len(batch.segments), size):
                end = begin + size
                part = Batch(batch.segments[begin:end])
                if batch.roots is not None and batch.values is not None:
                    part = Batch(part.segments, batch.roots[begin:end], batch.values[begin:end])
                self._process(part, outcome)
        self._finish(outcome)
        return outcome

    def after_batch(self) -> None:
        """Note that all of the batch is sent, or written."""
        self.guarded(Hook.AFTER_BATCH, lambda: self.hooks.after_batch(self.context))

    def tick(self, now_ms: int) -> Outcome:
        """Return what timers fire."""
        return self._fired(lambda: self.windows.tick(now_ms))

    def complete(self) -> Outcome:
        """Note that there will be no more segments; return what windows have to tell about that."""
        return self._fired(self.windows.complete)

    # -- one batch

    def _process(self, batch: Batch, outcome: Outcome) -> None:
        segments = batch.segments
        if self._calls_hooks:
            self.guarded(Hook.BEFORE_BATCH, lambda: self.hooks.before_batch(self.context))
            self.guarded(Hook.AFTER_READ_BATCH, lambda: self.hooks.after_read_batch(self.context, segments))
        answers = None if self._transform is None else self._transform(segments)
        if self._is_plain and self._process_plainly(segments, answers, outcome):
            return
        results, routes = self._results(segments, answers)
        if self.hooks.has(Hook.AFTER_APPLY):
            self.guarded(Hook.AFTER_APPLY, lambda: self.hooks.after_apply(self.context, segments, results))
        flat = [new for made in results for new in made]
        self._put_into_windows(flat, outcome)
        if self._is_output:
            outcome.written += flat
        roots, values = batch.roots, batch.values
        for number, old in enumerate(segments):
            parent = (
                Lineage(roots[number], values[number]) if roots is not None and values is not None else None
            )
            self._route(old, results[number], routes.get(number), parent, outcome)

    def _process_plainly(self, segments: list[Any], answers: list[Answer] | None, outcome: Outcome) -> bool:
        """Send all results to all next tasks, as nothing is tracked and no condition applies.

        Return False if a function raised.
        """
        if answers is None:
            results = segments
        else:
            results = []
            for answer in answers:
                if type(answer) is not list:
                    return False
                results += answer
        self._put_into_windows(results, outcome)
        if self._is_output:
            outcome.written += results
        if self._passes and results:
            for target in self._targets.values():
                target.add_all(results)
        return True

    def _results(
        self, segments: list[Any], answers: list[Answer] | None
    ) -> tuple[list[list[Any]], dict[int, Route]]:
        """Return what the function made of each segment, and the routes of those for which it raised."""
        routes: dict[int, Route] = {}
        if answers is None:
            return [[segment] for segment in segments], routes
        results = []
        for number, answer in enumerate(answers):
            if isinstance(answer, Failed):
                segment, error = segments[number], answer.exception
                try:
                    handled = self._router.exceptional(segment, error)
                except Exception as another:
                    raise self._error(another, segment, _CONDITION) from another
                if handled is None:
                    raise self._error(error, segment) from error
                routes[number], new = handled
                results.append([new])
            else:
                results.append(answer)
        return results, routes

    def _route(
        self, old: Any, made: list[Any], route: Route | None, parent: Lineage | None, outcome: Outcome
    ) -> None:
        """Send what was made of one segment; return the acks of its tree."""
        places: list[tuple[_Target, int, Any]] = []
        everywhere = self._router.everywhere
        if self._passes:
            for new in made:
                to = route or everywhere or self._routed(old, new, made)
                if to.retry:
                    self._retry(parent, outcome)
                    return
                sent = to.stripped(new)
                for name in to.to:
                    target = self._targets[name]
                    places.append((target, target.slot_of(sent), sent))
        if not self.tracked:
            for target, slot, sent in places:
                target.add_tracked(sent, slot, _NOBODY)
            return
        if parent is None or parent.root == UNROOTED:
            children = [_NOBODY] * len(places)
        else:
            children = self._acks.settle(parent, len(places))
        for (target, slot, sent), child in zip(places, children, strict=True):
            target.add_tracked(sent, slot, child)

    def _routed(self, old: Any, new: Any, made: list[Any]) -> Route:
        try:
            return self._router.route(old, new, made)
        except Exception as error:
            raise self._error(error, new, _CONDITION) from error

    def _retry(self, parent: Lineage | None, outcome: Outcome) -> None:
        if not self.tracked or parent is None or parent.root == UNROOTED:
            raise TaskError(
                f"{self._where}: a flow condition says retry; expected delivery at-least-once and a segment that came of "
                f"an input's",
                Verdict.KILL,
            )
        outcome.retries.append(parent.root)

    def _put_into_windows(self, segments: list[Any], outcome: Outcome) -> None:
        if self.windows:
            self._emit(lambda: self.windows.apply(segments), outcome)

    def _fired(self, fire: Callable[[], list[Firing]]) -> Outcome:
        outcome = Outcome()
        for target in self._targets.values():
            target.begin()
        self._emit(fire, outcome)
        self._finish(outcome)
        return outcome

    def _emit(self, fire: Callable[[], list[Firing]], outcome: Outcome) -> None:
        """Send what triggers tell as if the task had made it; it has no single root."""
        try:
            firings = fire()
            self.windows.sync(firings)
            emitted = self.windows.emitted(firings)
        except Exception as error:
            raise self._error(error, None, "a window or trigger") from error
        if self._is_output:
            outcome.written += emitted
        for segment in emitted:
            route = self._router.everywhere or self._routed(segment, segment, emitted)
            if route.retry:
                self._retry(None, outcome)
            sent = route.stripped(segment)
            for name in route.to:
                target = self._targets[name]
                target.add_tracked(sent, target.slot_of(sent), _NOBODY)

    def _finish(self, outcome: Outcome) -> None:
        for target in self._targets.values():
            for destination, batch in target.take():
                if not self.tracked:
                    batch.roots = batch.values = None
                outcome.sends.append((destination, batch))
        outcome.acks = self._acks.take()

    # -- what fails

    def guarded(self, at: str, function: Callable[[], T]) -> T:
        """Call hooks, or anything else that is users'.

        Raises:
            TaskError: the call raised.
        """
        try:
            return function()
        except Exception as error:
            raise self._error(error, None, at) from error

    def _error(self, error: Exception, segment: Any, at: str = "apply") -> TaskError:
        what = self.task.function if at == "apply" else at
        on = "" if segment is None else f" on {str(segment)[:200]}"
        text = f"{self._where}: {what} raised {type(error).__name__}: {error}{on}"
        try:
            verdict = self.hooks.verdict(self.context, at, error)
        except Exception as another:
            text = f"{text}; and {Hook.HANDLE_EXCEPTION} raised {type(another).__name__}: {another}"
            verdict = Verdict.KILL
        return TaskError(text, verdict)


_NOBODY: Final = Lineage(UNROOTED, 0)
_CONDITION: Final = "a flow condition"
_BATCH_HOOKS: Final = (Hook.BEFORE_BATCH, Hook.AFTER_READ_BATCH)


def _target(task: Task, layout: JobLayout, turn: int, failed: _Fail) -> _Target:
    slots = [seat.slot for seat in layout.of(task.name)]
    grouped = grouping(task.group_by) if task.group_by else None
    return _Target(task.name, slots, grouped, turn % len(slots), failed)
