"""Check that each znode was one register with versions: linearizability per key.

Plain reads are not in it: a server may answer them from its past (`zraft.checkers.reads` holds them to that).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from zraft.checkers.history import (
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)
from zraft.checkers.linearizability import Call, UndecidedError, check
from zraft_core.errors import Code

CHECKER: Final = "linearizable"
ANONYMOUS: Final = "?"
"""Stands for every value that no read shows; what wrote one of them might as well have written another."""

_NUMBERED: Final = re.compile(r"-([0-9]{10})?\Z")
"""Sequential znodes, also without their number; they and ephemerals, which go by themselves, have other checkers."""

_KINDS: Final = frozenset({Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET, Kind.SYNC_GET})


@frozen
class Absent:
    """State of a znode that does not exist."""


@frozen
class Present:
    """A znode with its data and the version of it."""

    value: str | None
    version: int


State = Absent | Present


class Register:
    """The model: a znode's data, written, compared by version, created and deleted.

    Values are unique, so what wrote a value that a read shows with a version happened at that version or never.
    """

    def __init__(self, history: Sequence[Operation], start: State) -> None:
        self._start = start
        # Without deletes versions only grow, which bounds the search; a delete that was not answered counts,
        # too.
        self._grows = all(one.kind is not Kind.DELETE for one in history)
        self._shown = {
            one.value: one.version
            for one in history
            if one.kind is Kind.SYNC_GET and one.outcome is Outcome.OK and one.version is not None
        }

    def initial(self) -> State:
        """Return the state before any operation."""
        return self._start

    def step(self, state: State, operation: Operation) -> State | None:
        """Return the state after an operation, or None if the operation could not have had its outcome."""
        match operation.outcome:
            case Outcome.OK:
                after = self._changed(state, operation)
                if after is None or operation.version is None or operation.kind is Kind.DELETE:
                    return after
                return after if isinstance(after, Present) and after.version == operation.version else None
            case Outcome.FAIL:
                return state if self._fails(state, operation) else None
            case Outcome.UNKNOWN:
                after = self._changed(state, operation)
                shown = self._shown.get(operation.value)
                if shown is not None and isinstance(after, Present) and after.version != shown:
                    return None
                return after

    def _changed(self, state: State, operation: Operation) -> State | None:
        """Return the state after `operation` succeeded, None if it cannot succeed here."""
        value = operation.value if operation.value in self._shown else ANONYMOUS
        if operation.kind is Kind.CREATE:
            return Present(value, 0) if isinstance(state, Absent) else None
        if isinstance(state, Absent):
            return None
        if operation.kind is Kind.SYNC_GET:
            return state if state == Present(operation.value, operation.version or 0) else None
        if operation.expected not in (-1, state.version):
            return None
        return Absent() if operation.kind is Kind.DELETE else Present(value, state.version + 1)

    def _fails(self, state: State, operation: Operation) -> bool:
        match operation.code:
            case Code.NO_NODE:
                return isinstance(state, Absent)
            case Code.NODE_EXISTS:
                return operation.kind is Kind.CREATE and isinstance(state, Present)
            case Code.BAD_VERSION:
                return isinstance(state, Present) and operation.expected not in (-1, state.version)
        return True  # the register knows nothing of other refusals, such as SESSION_EXPIRED

    def token(self, operation: Operation) -> Hashable:
        """Return a value that is equal for operations whose order does not matter to the state."""
        if operation.value in self._shown and operation.kind is not Kind.DELETE:
            return operation.value
        kind = Kind.SET if operation.kind is Kind.MULTI_SET else operation.kind
        return (kind, operation.expected)

    def hopeless(self, state: State, goal: Operation) -> bool:
        """Return whether `goal` certainly cannot be reached from this state by any operations."""
        if not self._grows or not isinstance(state, Present) or goal.outcome is not Outcome.OK:
            return False
        if goal.kind is Kind.SYNC_GET:
            return goal.version is not None and state.version > goal.version
        if goal.expected != -1:
            return state.version > goal.expected
        return goal.version is not None and state.version >= goal.version


def check_registers(
    histories: Iterable[Iterable[Record]],
    *,
    start: Mapping[str, State] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> list[Violation]:
    """Look at every key that was written or read with sync.

    Args:
        start: what keys held before the first operation; Absent unless given.
        progress: called with each key before it is searched.
    """
    keys: dict[str, list[Operation]] = defaultdict(list)
    ephemeral = {one.path for one in operations(histories) if one.ephemeral}
    for operation in operations(histories):
        for one in _per_key(operation):
            if one.path not in ephemeral and not _NUMBERED.search(one.path):
                keys[one.path].append(one)
    found: list[Violation] = []
    for path, history in sorted(keys.items()):
        progress(path)
        written = [one.value for one in history if one.kind is not Kind.SYNC_GET and one.value is not None]
        if len(written) != len(set(written)):
            found.append(
                Violation(CHECKER, f"{path}: values written are not unique: the history cannot be judged")
            )
            continue
        model = Register(history, (start or {}).get(path, Absent()))
        try:
            broken = check([Call(one, one.invoked_us, one.returned_us) for one in history], model)
        except UndecidedError as error:
            found.append(Violation(CHECKER, f"{path}: {error}"))
            continue
        if broken is not None:
            near = [
                one
                for one in history
                if one.invoked_us <= (broken.operation.returned_us or 0)
                and (one.returned_us is None or one.returned_us >= broken.operation.invoked_us - 1_000_000)
            ]
            beside = "\n  ".join(describe(one) for one in near[-20:])
            found.append(
                Violation(
                    CHECKER,
                    f"{path}: no order explains {describe(broken.operation)}; possible before it: "
                    f"{broken.states}; around it:\n  {beside}",
                )
            )
    return found


def _per_key(operation: Operation) -> Iterator[Operation]:
    """Yield what one operation did to each znode."""
    if operation.kind not in _KINDS:
        return
    yield operation
    if operation.outcome is not Outcome.FAIL:
        for path in operation.further:
            # Its condition was on another znode: here it happened or not, at whatever version.
            yield evolve(operation, path=path, expected=-1, version=None, further=())
