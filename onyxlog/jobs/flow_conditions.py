"""Flow conditions: to which of the next tasks a segment goes.

A task without conditions sends all its segments to all next tasks. With some, a segment goes where any
condition that holds sends it, and nowhere if none holds. Conditions with `short_circuit` come first: the
first of them that holds decides alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final

from attrs import field, frozen

from onyxlog.ids import TaskName
from onyxlog.jobs.functions import bound
from onyxlog.jobs.predicates import Predicate, Test, decider
from onyxlog.jobs.segments import Segment

ALL: Final = ":all"
NONE: Final = ":none"


class Action(StrEnum):
    """Actions on a segment for which a condition holds."""

    SEND = "send"
    RETRY = "retry"
    """The segment goes nowhere, and the one at an input from which it came is sent once more."""


@frozen
class FlowCondition:
    """A flow condition.

    `source`: a task, or ":all" for every one. `to`: names of next tasks, or (":all",), or (":none",).

    The predicate is called with the segment that the task was given, one that its function made of it, and
    all of those. `exclude_keys` are removed from what is sent on. With `on_exception` the condition is for
    segments whose function raised: the predicate is called with the segment, the exception, and ();
    `transform`, a function of the segment and the exception, makes what is sent; such a condition is
    `short_circuit`.
    """

    source: TaskName
    to: tuple[TaskName, ...]
    predicate: Predicate
    short_circuit: bool = False
    exclude_keys: tuple[str, ...] = ()
    on_exception: bool = False
    transform: str | None = None
    action: Action = Action.SEND
    doc: str = ""


@frozen
class Route:
    """Destination of a segment, and the keys that are removed. With `retry` it goes nowhere."""

    to: tuple[TaskName, ...] = ()
    exclude_keys: tuple[str, ...] = ()
    retry: bool = False

    def stripped(self, segment: Segment) -> Segment:
        """Return the segment without the excluded keys."""
        if not self.exclude_keys:
            return segment
        return {name: value for name, value in segment.items() if name not in self.exclude_keys}


RETRY: Final = Route(retry=True)
NOWHERE: Final = Route()


@frozen
class _Compiled:
    test: Test
    route: Route
    short_circuit: bool
    transform: Callable[..., Any] | None = None


@frozen
class Router:
    """Router by the conditions of one task.

    `everywhere`: the route of all segments, if the task has no condition.
    """

    everywhere: Route | None
    _normal: tuple[_Compiled, ...] = ()
    _exceptional: tuple[_Compiled, ...] = ()
    _unions: dict[tuple[int, ...], Route] = field(factory=dict, eq=False, init=False)

    def route(self, old: Segment, new: Segment, all_new: Sequence[Segment]) -> Route:
        """Return the route of one new segment, by the conditions that hold."""
        if self.everywhere is not None:
            return self.everywhere
        holding = []
        for number, condition in enumerate(self._normal):
            if condition.test(old, new, all_new):
                if condition.short_circuit:
                    return condition.route
                holding.append(number)
        key = tuple(holding)
        union = self._unions.get(key)
        if union is None:
            union = self._unions[key] = _union([self._normal[number].route for number in key])
        return union

    def exceptional(self, old: Segment, exception: Exception) -> tuple[Route, Segment] | None:
        """Return the route of what is made of a segment's exception; None if no condition handles it."""
        for condition in self._exceptional:
            if condition.test(old, exception, ()):
                new = condition.transform(old, exception) if condition.transform else old
                return condition.route, new
        return None


def _union(routes: Sequence[Route]) -> Route:
    """Return the combined route: to all of their tasks, each once, in the order of the conditions."""
    if any(route.retry for route in routes):
        return RETRY
    return Route(
        tuple(dict.fromkeys(name for route in routes for name in route.to)),
        tuple(dict.fromkeys(name for route in routes for name in route.exclude_keys)),
    )


def router(
    task: TaskName,
    conditions: Sequence[FlowCondition],
    downstream: Sequence[TaskName],
    where: str = "flow_conditions",
) -> Router:
    """Return the router of a task, whose next tasks are `downstream`.

    Raises:
        WorkflowError: a function cannot be found.
    """
    normal: list[_Compiled] = []
    exceptional: list[_Compiled] = []
    for number, condition in enumerate(conditions):
        if condition.source not in (task, ALL):
            continue
        here = f"{where}[{number}]"
        compiled = _Compiled(
            test=decider(condition.predicate, f"{here}: predicate"),
            route=_route(condition, downstream),
            short_circuit=condition.short_circuit,
            transform=bound(condition.transform, {}, f"{here}: transform") if condition.transform else None,
        )
        (exceptional if condition.on_exception else normal).append(compiled)
    everywhere = None if normal else Route(tuple(downstream))
    return Router(everywhere, tuple(normal), tuple(exceptional))


def _route(condition: FlowCondition, downstream: Sequence[TaskName]) -> Route:
    if condition.action is Action.RETRY:
        return RETRY
    if condition.to == (NONE,):
        return NOWHERE
    # A condition of all tasks may name a task to which some of them have no edge: that task itself, for one.
    to = tuple(name for name in downstream if condition.to == (ALL,) or name in condition.to)
    return Route(to, condition.exclude_keys)
