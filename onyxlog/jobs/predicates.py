"""Predicates: functions by import path, and their combinations with all, any and none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from attrs import field, frozen

from onyxlog.errors import WorkflowError
from onyxlog.jobs.functions import bound

Test = Callable[..., Any]


@frozen
class Predicate:
    """A predicate: exactly one of its fields is set.

    `function` is called with `params` as keyword arguments; the others are `all_of`, `any_of` and `none_of`.
    """

    SHORT: ClassVar = "function"
    function: str | None = None
    params: Mapping[str, Any] = field(factory=dict, hash=False)
    all_of: tuple[Predicate, ...] = ()
    any_of: tuple[Predicate, ...] = ()
    none_of: tuple[Predicate, ...] = ()

    def fault(self) -> str | None:
        """Return what is wrong with its form."""
        given = [name for name in ("function", "all_of", "any_of", "none_of") if getattr(self, name)]
        if len(given) != 1:
            return f"expected one of function, all_of, any_of, none_of, found {', '.join(given) or 'none'}"
        if self.params and not self.function:
            return "params belong to a function"
        return next((fault for part in self._parts() if (fault := part.fault())), None)

    def _parts(self) -> tuple[Predicate, ...]:
        return (*self.all_of, *self.any_of, *self.none_of)

    def functions(self) -> Iterator[str]:
        """Return all import paths in it."""
        if self.function:
            yield self.function
        for part in self._parts():
            yield from part.functions()


def decider(predicate: Predicate, where: str = "predicate") -> Test:
    """Return a function that evaluates the predicate. Parts are asked in order, and none more than is needed.

    Raises:
        WorkflowError: the predicate has a wrong form, or a function cannot be found.
    """
    if fault := predicate.fault():
        raise WorkflowError(f"{where}: {fault}")
    if predicate.function:
        return bound(predicate.function, dict(predicate.params), where)
    if predicate.all_of:
        every = [decider(part, where) for part in predicate.all_of]
        return lambda *of: all(test(*of) for test in every)
    if predicate.any_of:
        some = [decider(part, where) for part in predicate.any_of]
        return lambda *of: any(test(*of) for test in some)
    none = [decider(part, where) for part in predicate.none_of]
    return lambda *of: not any(test(*of) for test in none)
