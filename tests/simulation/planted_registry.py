"""What a planted bug is, how it is planted, and those of the servers' simulation, which `tests.simulation.planted` fills in.

A plant replaces a few attributes of shipped classes or modules while it is in force. Each is one rule taken
back (docs/explanation/rules.md), or one mistake that a release could make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, TypeVar

from attrs import frozen

from tests.simulation.profile import Mode

M = TypeVar("M")

Patch = tuple[Any, str, Any]
"""Whose attribute is replaced, its name, and by what."""

Patches = Callable[[], Sequence[Patch]]


@frozen
class Plant(Generic[M]):
    """One planted bug: the rule it breaks, what it does, the class of faults in which it shows, and the replacements."""

    rule: str
    text: str
    mode: M | None
    patches: Patches


class Plants(dict[str, Plant[M]]):
    """Those of one simulation, by name. Some are too rare for its general mix of faults, and name a `mode`."""

    def plant(self, rule: str, text: str, mode: M | None = None) -> Callable[[Patches], Patches]:
        """Enters the decorated function under its name."""

        def register(patches: Patches) -> Patches:
            self[patches.__name__] = Plant(rule, text, mode, patches)
            return patches

        return register

    @contextmanager
    def planted(self, name: str | None) -> Iterator[None]:
        """Everything inside runs with the bug; None: as it ships."""
        with replaced(*(() if name is None else self[name].patches())):
            yield


@contextmanager
def replaced(*patches: Patch) -> Iterator[None]:
    old = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, new in patches:
        setattr(owner, attribute, new)
    try:
        yield
    finally:
        for owner, attribute, value in old:
            setattr(owner, attribute, value)


PLANTS: Final = Plants[Mode]()
plant = PLANTS.plant
planted = PLANTS.planted
