"""Check whether operations on one object could have happened one at a time, each between its call and its answer.

The search is Wing and Gong's in the just-in-time form of Lowe ("Testing for linearizability", 2017): calls and answers
are walked through in order of time, with all configurations that are still possible. A configuration is the object's
state and which of the open operations it has already let happen. At an answer, each configuration must let that
operation happen, after whichever other open ones; what cannot is dropped, and when none is left, the history is not
linearizable. Equal configurations are kept once, which is what makes it quick: between calls that do not overlap there
is one. Nothing is taken from zxids.

Operations without an answer stay open for ever. Those that differ in nothing an answer shows are interchangeable:
the model names their class, and a configuration remembers how many of each class have happened, not which.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import frozen

from zraft_core.errors import ZraftError

CONFIGURATIONS_MAX: Final = 200_000
"""At one answer; with more the history is undecided, which is said and never taken for a pass."""

T = TypeVar("T")
Asked = TypeVar("Asked", contravariant=True)
S = TypeVar("S", bound=Hashable)


class UndecidedError(ZraftError):
    """The search outgrew its bound."""


@frozen
class Call(Generic[T]):
    """An operation's interval; `returned` None for one without an answer. Any ordered unit of time."""

    operation: T
    invoked: int
    returned: int | None


class Model(Protocol[Asked, S]):
    """A sequential object. States are hashable values."""

    def initial(self) -> S:
        """Return the state before any operation."""

    def step(self, state: S, operation: Asked) -> S | None:
        """Return the state after the operation if what it was answered fits this state, else None.

        Of an operation without an answer: the state after it, or None if it would change nothing.
        """

    def token(self, operation: Asked) -> Hashable:
        """Return the class of an operation without an answer."""

    def hopeless(self, state: S, goal: Asked) -> bool:
        """Return whether `goal` certainly cannot be reached from this state by any operations."""


@frozen
class Broken(Generic[T]):
    """No order explains the answer to `operation`; `states` were possible before it."""

    operation: T
    states: tuple[Any, ...]


_Configuration = tuple[Any, frozenset[int], frozenset[tuple[Hashable, int]]]


def check(calls: Sequence[Call[T]], model: Model[T, Any]) -> Broken[T] | None:
    """Return None if the calls are linearizable, else the first answer that nothing explains.

    Raises:
        UndecidedError: more than CONFIGURATIONS_MAX possibilities.
    """
    # At equal times calls come before answers: overlapping is the weaker assumption.
    moments = sorted(
        [(call.invoked, 0, number) for number, call in enumerate(calls)]
        + [(call.returned, 1, number) for number, call in enumerate(calls) if call.returned is not None]
    )
    open_calls: dict[int, T] = {}
    tokens: dict[Hashable, tuple[T, int]] = {}
    configurations: set[_Configuration] = {(model.initial(), frozenset(), frozenset())}
    for _, is_answer, number in moments:
        call = calls[number]
        if not is_answer:
            if call.returned is None:
                token = model.token(call.operation)
                known = tokens.get(token)
                tokens[token] = (call.operation, known[1] + 1 if known else 1)
            else:
                open_calls[number] = call.operation
            continue
        reached: set[_Configuration] = set()
        for configuration in configurations:
            _let_happen(configuration, number, open_calls, tokens, model, reached)
        if not reached:
            return Broken(call.operation, tuple(state for state, _, _ in configurations)[:5])
        del open_calls[number]
        configurations = _without_dominated(reached)
    return None


def _let_happen(
    start: _Configuration,
    number: int,
    open_calls: dict[int, T],
    tokens: dict[Hashable, tuple[T, int]],
    model: Model[T, Any],
    reached: set[_Configuration],
) -> None:
    """Return every configuration in which call `number` has happened, reached from `start`.

    `number` is forgotten in it.
    """
    goal = open_calls[number]
    begun = _with_all_that_change_nothing(start, open_calls, model)
    seen = {begun}
    stack = [begun]
    while stack:
        state, happened, used = stack.pop()
        if number in happened:
            reached.add((state, happened - {number}, used))
            continue
        if model.hopeless(state, goal):
            continue
        following: list[_Configuration] = []
        for other, operation in open_calls.items():
            if other not in happened and (after := model.step(state, operation)) is not None:
                following.append((after, happened | {other}, used))
        counts = dict(used)
        for token, (operation, available) in tokens.items():
            count = counts.get(token, 0)
            if count < available and (after := model.step(state, operation)) is not None:
                following.append((after, happened, (used - {(token, count)}) | {(token, count + 1)}))
        for one in following:
            whole = _with_all_that_change_nothing(one, open_calls, model)
            if whole not in seen:
                seen.add(whole)
                stack.append(whole)
        if len(seen) + len(reached) > CONFIGURATIONS_MAX:
            raise UndecidedError(
                f"more than {CONFIGURATIONS_MAX} possible orders at {goal}; the history is undecided"
            )


def _with_all_that_change_nothing(
    configuration: _Configuration, open_calls: dict[int, T], model: Model[T, Any]
) -> _Configuration:
    """Let open operations happen at once that fit the state and leave it as it is.

    Nothing is lost by that: whatever could follow without them can follow after them.
    """
    state, happened, used = configuration
    more = [
        number
        for number, operation in open_calls.items()
        if number not in happened and model.step(state, operation) == state
    ]
    return (state, happened.union(more), used) if more else configuration


def _without_dominated(configurations: set[_Configuration]) -> set[_Configuration]:
    """Return, of equal configurations, those that used up the fewest unanswered operations."""
    groups: dict[tuple[Any, frozenset[int]], list[frozenset[tuple[Hashable, int]]]] = {}
    for state, happened, used in configurations:
        groups.setdefault((state, happened), []).append(used)
    if len(groups) == len(configurations):
        return configurations
    kept: set[_Configuration] = set()
    for (state, happened), alternatives in groups.items():
        alternatives.sort(key=lambda used: sum(count for _, count in used))
        least: list[dict[Hashable, int]] = []
        for used in alternatives:
            counts = dict(used)
            if not any(all(counts.get(t, 0) >= n for t, n in other.items()) for other in least):
                least.append(counts)
                kept.add((state, happened, used))
    return kept
