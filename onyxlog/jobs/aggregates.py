"""Aggregates: what a window makes of the segments in an extent.

This module has the built-in ones; users name their own by import path.

The state of an aggregate is a plain value, as it is stored in checkpoints. It belongs to one extent: `add`
and `merge` may change the one that they are given, and return it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Protocol

from attrs import field, frozen

from onyxlog.errors import WorkflowError
from onyxlog.jobs.functions import nearest, resolve_callable
from onyxlog.jobs.segments import Segment


class Aggregate(Protocol):
    """An aggregate. A user's own is a class with these methods; it is called with the aggregation's parameters.

    `merge` must not depend on order, and merging the results of two parts of the segments must give the
    result of all of them: sessions that meet are merged, and so are parts when a task has fewer workers than
    before.
    """

    def initial(self) -> Any:
        """Return the state of an empty extent."""

    def add(self, state: Any, segment: Segment) -> Any:
        """Return the state with one more segment."""

    def merge(self, state: Any, other: Any) -> Any:
        """Return the state of two merged extents."""

    def result(self, state: Any) -> Any:
        """Return what triggers emit. It must not share anything with the state that `add` changes."""
        ...


@frozen
class Aggregation:
    """Choice of an aggregate: its name, or "package.module:Class".

    `key`: of the segment, for sum, min, max, average, conj (absent: whole segments) and by-key. `of`: the
    aggregate that by-key applies to the segments of each value; count by default.
    """

    SHORT: ClassVar = "name"
    name: str
    key: str | None = None
    of: Aggregation | None = None
    params: Mapping[str, Any] = field(factory=dict, hash=False)


class Count:
    """Number of segments."""

    def initial(self) -> int:
        """Return 0."""
        return 0

    def add(self, state: int, segment: Segment) -> int:
        """Count one more."""
        return state + 1

    def merge(self, state: int, other: int) -> int:
        """Return the sum of both counts."""
        return state + other

    def result(self, state: int) -> int:
        """Return the count."""
        return state


@frozen
class Sum:
    """Sums the values at a key. It is exact for integers, and as precise as floats are for floats."""

    key: str

    def initial(self) -> int | float:
        """Return 0."""
        return 0

    def add(self, state: Any, segment: Segment) -> Any:
        """Add the segment's value."""
        return state + segment[self.key]

    def merge(self, state: Any, other: Any) -> Any:
        """Return the sum of both."""
        return state + other

    def result(self, state: Any) -> Any:
        """Return the sum."""
        return state


@frozen
class Extreme:
    """Smallest or largest value at a key; None as long as there is none."""

    key: str
    better: Callable[[Any, Any], Any]

    def initial(self) -> None:
        """Return None: there is no value yet."""

    def add(self, state: Any, segment: Segment) -> Any:
        """Return the better one of the state and the segment's value."""
        value = segment[self.key]
        return value if state is None else self.better(state, value)

    def merge(self, state: Any, other: Any) -> Any:
        """Return the better one of both."""
        if state is None or other is None:
            return other if state is None else state
        return self.better(state, other)

    def result(self, state: Any) -> Any:
        """Return the value."""
        return state


@frozen
class Average:
    """Mean of the values at a key; the state is [count, sum]."""

    key: str

    def initial(self) -> list[Any]:
        """Return a count and a sum of 0."""
        return [0, 0]

    def add(self, state: list[Any], segment: Segment) -> list[Any]:
        """Add the segment's value, and count it."""
        state[0] += 1
        state[1] += segment[self.key]
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        """Return the sums of both counts and of both sums."""
        return [state[0] + other[0], state[1] + other[1]]

    def result(self, state: list[Any]) -> Any:
        """Return the mean, or None if there was no segment."""
        count, total = state
        return total / count if count else None


@frozen
class Conj:
    """List of all segments, or of their values at a key, in the order in which they came.

    Merged parts follow each other.
    """

    key: str | None = None

    def initial(self) -> list[Any]:
        """Return an empty list."""
        return []

    def add(self, state: list[Any], segment: Segment) -> list[Any]:
        """Append the segment, or its value."""
        state.append(segment if self.key is None else segment[self.key])
        return state

    def merge(self, state: list[Any], other: list[Any]) -> list[Any]:
        """Return both lists, one after the other."""
        return state + other

    def result(self, state: list[Any]) -> list[Any]:
        """Return a copy of the list."""
        return list(state)


@frozen
class ByKey:
    """Another aggregate for each value that segments have at a key: a string, integer, boolean or None."""

    key: str
    inner: Aggregate

    def initial(self) -> dict[Any, Any]:
        """Return no parts."""
        return {}

    def add(self, state: dict[Any, Any], segment: Segment) -> dict[Any, Any]:
        """Add the segment to the part of its value."""
        value = segment.get(self.key)
        part = state[value] if value in state else self.inner.initial()
        state[value] = self.inner.add(part, segment)
        return state

    def merge(self, state: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
        """Merge the parts of equal values."""
        for value, part in other.items():
            state[value] = self.inner.merge(state[value], part) if value in state else part
        return state

    def result(self, state: dict[Any, Any]) -> dict[Any, Any]:
        """Return each value's result."""
        return {value: self.inner.result(part) for value, part in state.items()}


NAMES: Final = ("count", "sum", "min", "max", "average", "conj", "by-key")
KEYED: Final = ("sum", "min", "max", "average", "by-key")
"""Aggregates that need a key."""


def aggregate(aggregation: Aggregation, where: str = "aggregation") -> Aggregate:
    """Return what carries out the aggregation.

    Raises:
        WorkflowError: there is no such aggregate; the message begins with `where`.
    """
    if fault := fault_of(aggregation):
        raise WorkflowError(f"{where}: {fault}")
    key = aggregation.key or ""
    match aggregation.name:
        case "count":
            return Count()
        case "sum":
            return Sum(key)
        case "min":
            return Extreme(key, min)
        case "max":
            return Extreme(key, max)
        case "average":
            return Average(key)
        case "conj":
            return Conj(aggregation.key)
        case "by-key":
            return ByKey(key, aggregate(aggregation.of or Aggregation("count"), f"{where}: of"))
    return _users_own(aggregation, where)


def fault_of(aggregation: Aggregation) -> str | None:
    """Return what is wrong with the aggregation, as far as that can be seen without importing anything."""
    name = aggregation.name
    if ":" not in name and name not in NAMES:
        known = ", ".join(NAMES)
        return f"no aggregate {name!r}{nearest(name, list(NAMES))}: expected {known}, or package.module:Class"
    if name in KEYED and not aggregation.key:
        return f"{name} needs `key`: of which values of the segments"
    if name == "count" and aggregation.key:
        return f"count takes no key, found {aggregation.key!r}"
    if aggregation.of is not None and name != "by-key":
        return f"`of` is for by-key only, found it at {name}"
    if aggregation.params and ":" not in name:
        return f"`params` are for classes by import path only, found them at {name}"
    return f"of: {fault}" if aggregation.of and (fault := fault_of(aggregation.of)) else None


def _users_own(aggregation: Aggregation, where: str) -> Aggregate:
    made = resolve_callable(aggregation.name, where)(**aggregation.params)
    missing = [
        name for name in ("initial", "add", "merge", "result") if not callable(getattr(made, name, None))
    ]
    if missing:
        raise WorkflowError(
            f"{where}: {aggregation.name!r} lacks the methods {', '.join(missing)} of an aggregate"
        )
    own: Aggregate = made
    return own
