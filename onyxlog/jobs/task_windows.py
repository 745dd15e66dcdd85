"""All windows of a task on one worker: segments in, what triggers tell out, in one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from onyxlog.errors import EntryError
from onyxlog.ids import TaskName
from onyxlog.jobs.functions import bound
from onyxlog.jobs.grouping import Grouping, grouping
from onyxlog.jobs.plain import to_plain
from onyxlog.jobs.segments import Segment, canonical, decoded
from onyxlog.jobs.specification import Job
from onyxlog.jobs.state import WindowState
from onyxlog.jobs.transform import segments_of
from onyxlog.jobs.triggers import RESULT, Firing, Trigger, as_segment

FORMAT: Final = 1


class TaskWindows:
    """The windows of a task. Everything is in the order of the job: windows, and their triggers.

    How segments are cut into batches makes no difference to what fires, apart from the order between windows.
    """

    def __init__(self, job: Job, task: TaskName) -> None:
        """Begin with empty windows.

        Raises:
            WorkflowError: a function that is needed cannot be found.
        """
        here = f"job {job.id!r}"
        group_by = job.task(task).group_by
        self._group_by = to_plain(group_by)
        self.grouping: Grouping | None = (
            grouping(group_by, f"{here}: task {task!r}: group_by") if group_by is not None else None
        )
        self._states = tuple(
            WindowState(window, job.triggers_of(window.id), self.grouping, f"{here}: window {window.id!r}")
            for window in job.windows_of(task)
        )
        triggers = [trigger for state in self._states for trigger in state.triggers]
        self._emits = {trigger.id: _function(trigger, "emit", here) for trigger in triggers if trigger.emit}
        self._syncs = {trigger.id: _function(trigger, "sync", here) for trigger in triggers if trigger.sync}

    def __bool__(self) -> bool:
        """Return whether the task has any window."""
        return bool(self._states)

    def __len__(self) -> int:
        """Return how many extents the windows hold together."""
        return sum(map(len, self._states))

    def apply(self, segments: Sequence[Segment]) -> list[Firing]:
        """Apply segments to all windows, as `WindowState.apply` does, and raise what it raises."""
        return [firing for state in self._states for firing in state.apply(segments)]

    def tick(self, now_ms: int) -> list[Firing]:
        """Fire the timers that are due, and return what they tell."""
        return [firing for state in self._states for firing in state.tick(now_ms)]

    def complete(self) -> list[Firing]:
        """Fire the triggers for the end of the input, and return what they tell."""
        return [firing for state in self._states for firing in state.complete()]

    def emitted(self, firings: Iterable[Firing]) -> list[Segment]:
        """Return what flows on to the next tasks. What users' functions raise is raised."""
        out: list[Segment] = []
        for firing in firings:
            if (emit := self._emits.get(firing.trigger)) is not None:
                out += segments_of(emit(firing))
        return out

    def sync(self, firings: Iterable[Firing]) -> None:
        """Call users' `sync` functions. What they raise is raised."""
        for firing in firings:
            if (sync := self._syncs.get(firing.trigger)) is not None:
                sync(firing)

    def snapshot(self) -> bytes:
        """Return a snapshot of all windows; equal states have equal bytes."""
        return canonical(
            [FORMAT, self._group_by, {state.window.id: state.snapshot() for state in self._states}]
        )

    def restore(self, snapshots: Iterable[bytes], mine: Callable[[int], bool] = lambda _: True) -> None:
        """Begin from the snapshots of the task's workers, from which this one takes the buckets that are `mine`.

        A window that a snapshot does not know, as it is new, begins empty.

        Raises:
            EntryError: a snapshot is not of the task's windows.
        """
        parts = [self._parts(snapshot) for snapshot in snapshots]
        for state in self._states:
            state.restore([part[state.window.id] for part in parts if state.window.id in part], mine)

    def _parts(self, snapshot: bytes) -> Mapping[str, bytes]:
        try:
            version, group_by, parts = decoded(snapshot)
            if version != FORMAT or not isinstance(parts, dict):
                raise ValueError(f"expected format {FORMAT}, found {version!r}")
            if group_by != self._group_by:
                raise ValueError(f"it is grouped by {group_by}, now the task is by {self._group_by}")
        except (ValueError, TypeError) as error:
            raise EntryError(f"a checkpoint of a task's windows cannot be read: {error}") from error
        return parts


def _function(trigger: Trigger, kind: str, here: str) -> Callable[[Firing], Any]:
    path: str = getattr(trigger, kind)
    if path == RESULT and kind == "emit":
        return as_segment
    return bound(path, dict(trigger.params), f"{here}: trigger {trigger.id!r}: {kind}")
