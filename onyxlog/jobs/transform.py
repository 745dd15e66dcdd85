"""A task's function over a batch of segments: called for each or for all, its answers in one form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import frozen

from onyxlog.errors import OnyxlogError
from onyxlog.jobs.functions import bound
from onyxlog.jobs.segments import Segment
from onyxlog.jobs.specification import Task


class AnswerError(OnyxlogError, TypeError):
    """A user's function answered something that is neither a segment, nor a list of them, nor None."""


class ResourceError(OnyxlogError, LookupError):
    """A task's function needs a resource that no lifecycle has made."""


@frozen
class Failed:
    """The function raised for this segment."""

    exception: Exception


Answer = list[Segment] | Failed
"""The outcome of one segment."""
Transform = Callable[[Sequence[Segment]], list[Answer]]
"""Returns an answer for each segment of a batch, in order. It never raises what users' functions raise."""


def segments_of(answer: Any) -> list[Segment]:
    """Return the segments in a function's answer: none for None, one for a map.

    Raises:
        AnswerError: the answer is anything else.
    """
    if type(answer) is dict:
        return [answer]
    if answer is None:
        return []
    if isinstance(answer, (list, tuple)):
        for item in answer:
            if type(item) is not dict and not isinstance(item, Mapping):
                raise AnswerError(f"expected a list of segments, found one with {item!r:.200}")
        return answer if type(answer) is list else list(answer)
    if isinstance(answer, Mapping):
        return [answer]
    raise AnswerError(f"expected a segment, a list of segments or None, found {answer!r:.200}")


def transform(
    task: Task, where: str = "task", resources: Mapping[str, Any] | None = None
) -> Transform | None:
    """Return the task's function over a batch; None if segments pass unchanged.

    `resources`: where the resources are that the task names. They are looked up with the first batch, when
    lifecycles have made them.

    Raises:
        WorkflowError: the function cannot be found.
    """
    if task.function is None:
        return None
    function = bound(task.function, dict(task.params), f"{where}: function")
    if task.resources:
        function = _with_resources(function, task.resources, {} if resources is None else resources)
    return _for_all(function) if task.bulk else _for_each(function)


def _with_resources(
    function: Callable[..., Any], names: Sequence[str], resources: Mapping[str, Any]
) -> Callable[..., Any]:
    given: dict[str, Any] = {}

    def call(of: Any) -> Any:
        if not given:
            if missing := [name for name in names if name not in resources]:
                raise ResourceError(
                    f"no lifecycle has made {', '.join(map(repr, missing))}: expected before_task_start to return a map "
                    f"with it; there are {', '.join(map(repr, resources)) or 'none'}"
                )
            given.update((name, resources[name]) for name in names)
        return function(of, **given)

    return call


def _for_each(function: Callable[..., Any]) -> Transform:
    def apply(batch: Sequence[Segment]) -> list[Answer]:
        answers: list[Answer] = []
        for segment in batch:
            try:
                answers.append(segments_of(function(segment)))
            except Exception as error:
                answers.append(Failed(error))
        return answers

    return apply


def _for_all(function: Callable[..., Any]) -> Transform:
    """Call a bulk function. If it raises, or answers wrongly, all segments fail, as the one at fault cannot be known."""

    def apply(batch: Sequence[Segment]) -> list[Answer]:
        try:
            found = function(list(batch))
            if not isinstance(found, (list, tuple)) or len(found) != len(batch):
                count = f"{len(found)} items" if isinstance(found, (list, tuple)) else repr(found)[:200]
                raise AnswerError(
                    f"a function with `bulk` answers a list with an item for each of {len(batch)} segments, found {count}"
                )
            return [segments_of(item) for item in found]
        except Exception as error:
            return [Failed(error) for _ in batch]

    return apply
