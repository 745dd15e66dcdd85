"""A dictionary's key as a sequential object, for the linearizability checker: a value with a version, or nothing.

Written values are unique. An operation that was not answered happened at any time after it was asked, or never.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from enum import Enum
from typing import Any, Final

from attrs import frozen

from zraft.checkers.linearizability import Broken, Call, check


class Kind(Enum):
    GET = "get"
    PUT = "put"
    DELETE = "delete"
    PUT_IF_ABSENT = "put if absent"
    REPLACE = "replace"


@frozen
class Absent:
    pass


@frozen
class Present:
    value: Any
    version: int


State = Absent | Present
ABSENT: Final = Absent()
ANY_VERSION: Final = -1
"""Of a read that shows only the value."""
ANONYMOUS: Final = "?"
"""Stands for all values that no read shows."""


@frozen
class Operation:
    """`seen`: what it was answered: of a get the entry, of a write the entry afterwards; None if it was refused."""

    key: Any
    kind: Kind
    value: Any = None
    expected: int = -1
    """The version that a replace was conditional on."""
    seen: State | None = None
    answered: bool = True


class Entry:
    """The model of one key."""

    def __init__(self, shown: frozenset[Any]) -> None:
        self._shown = shown

    def initial(self) -> State:
        return ABSENT

    def step(self, state: State, operation: Operation) -> State | None:
        after = self._after(state, operation)
        if not operation.answered:
            return None if operation.kind is Kind.GET else after
        if operation.seen is None:
            return state if after is None else None
        if operation.kind is Kind.GET:
            shown = self._as_shown(operation.seen)
            if isinstance(shown, Present) and shown.version == ANY_VERSION and isinstance(state, Present):
                return state if state.value == shown.value else None
            return state if shown == state else None
        return after if after == self._as_shown(operation.seen) else None

    def _as_shown(self, state: State) -> State:
        return Present(self._name(state.value), state.version) if isinstance(state, Present) else state

    def _name(self, value: Any) -> Any:
        return value if value in self._shown else ANONYMOUS

    def _after(self, state: State, operation: Operation) -> State | None:
        """The state after it succeeded, None if it is refused here."""
        version = state.version + 1 if isinstance(state, Present) else 0
        written = Present(self._name(operation.value), version)
        match operation.kind:
            case Kind.GET:
                return state
            case Kind.PUT:
                return written
            case Kind.DELETE:
                return ABSENT if isinstance(state, Present) else None
            case Kind.PUT_IF_ABSENT:
                return written if isinstance(state, Absent) else None
            case Kind.REPLACE:
                matches = isinstance(state, Present) and state.version == operation.expected
                return written if matches else None

    def token(self, operation: Operation) -> Hashable:
        return (operation.kind, self._name(operation.value), operation.expected)

    def hopeless(self, state: State, goal: Operation) -> bool:
        return False


def check_dictionary(calls: Iterable[Call[Operation]]) -> list[Broken[Operation]]:
    """The keys whose operations no order explains."""
    keys: dict[Any, list[Call[Operation]]] = {}
    for call in calls:
        keys.setdefault(call.operation.key, []).append(call)
    found: list[Broken[Operation]] = []
    for history in keys.values():
        shown = frozenset(
            one.operation.seen.value
            for one in history
            if one.operation.kind is Kind.GET and isinstance(one.operation.seen, Present)
        )
        broken = check(history, Entry(shown))
        if broken is not None:
            found.append(broken)
    return found
