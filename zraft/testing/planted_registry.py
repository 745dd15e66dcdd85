"""What a planted bug is, and how it is planted; `zraft.testing.planted` has all of them.

A plant replaces a few attributes of shipped classes or modules while it is in force. Each is one rule taken
back (docs/RULES.md), or one mistake that a release could make. `mode` names the class of faults in which it
shows; some are too rare for the general mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from attrs import frozen

from zraft.testing.profile import Mode

Patch = tuple[Any, str, Any]
"""Whose attribute is replaced, its name, and by what."""


@frozen
class Plant:
    """One planted bug: the rule it breaks, what it does, where it shows, and the replacements."""

    rule: str
    text: str
    mode: Mode | None
    patches: Callable[[], Sequence[Patch]]


PLANTS: Final[dict[str, Plant]] = {}


def plant(
    rule: str, text: str, mode: Mode | None = None
) -> Callable[[Callable[[], Sequence[Patch]]], Callable[[], Sequence[Patch]]]:
    def register(patches: Callable[[], Sequence[Patch]]) -> Callable[[], Sequence[Patch]]:
        PLANTS[patches.__name__] = Plant(rule, text, mode, patches)
        return patches

    return register


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


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Everything inside runs with the bug."""
    with replaced(*PLANTS[name].patches()):
        yield
