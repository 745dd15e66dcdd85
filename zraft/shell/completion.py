"""Completion of the end of a line: commands, options, fixed words, or children of a znode. Pure."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.shell.catalogue import ALIASES, SPECS
from zraft.shell.errors import UsageError
from zraft.shell.grammar import Spec
from zraft.shell.paths import child_of
from zraft.shell.words import quoted, split
from zraft_core.znodes.events import AddWatchMode

CANDIDATES_MAX: Final = 1000
"""A directory may have a million children; nobody chooses from more than this."""


@frozen
class Words:
    """Words, each of which may replace the last `replaced` characters of the line."""

    candidates: tuple[str, ...]
    replaced: int


@frozen
class Children:
    """Children of `parent` whose names begin with `prefix`; ask a server which exist."""

    parent: str
    prefix: str
    replaced: int

    def candidates(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the children as paths, quoted where a line needs it."""
        found = sorted(name for name in names if name.startswith(self.prefix))[:CANDIDATES_MAX]
        return tuple(quoted(child_of(self.parent, name)) for name in found)


NOTHING: Final = Words((), 0)


def complete(line: str) -> Words | Children:
    """Return what can complete `line`, which ends at the cursor."""
    start = _start_of_last_word(line)
    last = line[start:]
    before = split(line[:start])
    if not before:
        return _matching((*SPECS, *ALIASES), last)
    spec = SPECS.get(ALIASES.get(before[0], before[0]))
    if spec is None:
        return NOTHING
    if spec.name == "help":
        return _matching(tuple(SPECS), last) if len(before) == 1 else NOTHING
    if before[-1] == "-m" and spec.name == "addWatch":
        return _matching(tuple(AddWatchMode.__members__), last)
    if last.startswith("-"):
        return _matching(tuple(f"-{option.name}" for option in spec.options), last)
    index = _arguments_in(spec, before[1:])
    if index is None or index >= len(spec.arguments):
        return NOTHING
    argument = spec.arguments[index]
    if argument.choices:
        return _matching(argument.choices, last)
    if not argument.is_path:
        return NOTHING
    path = last.lstrip("\"'")
    if not path.startswith("/"):
        return _matching(("/",), path)
    parent, _, prefix = path.rpartition("/")
    return Children(parent or "/", prefix, len(last))


def _start_of_last_word(line: str) -> int:
    """Return where the word at the cursor begins: the whole line up to there can be split, and the rest is one word."""
    start = len(line)
    for position in range(len(line) - 1, -1, -1):
        if line[position].isspace():
            try:
                split(line[: position + 1])
            except UsageError:  # inside quotes
                continue
            return start
        start = position
    return 0


def _matching(candidates: tuple[str, ...], prefix: str) -> Words:
    found = [candidate for candidate in candidates if candidate.lower().startswith(prefix.lower())]
    return Words(tuple(sorted(found, key=str.lower)), len(prefix))


def _arguments_in(spec: Spec, words: tuple[str, ...]) -> int | None:
    """Return how many arguments precede the cursor; None if an option's value is being typed."""
    count = 0
    value_of_option = False
    for word in words:
        if value_of_option:
            value_of_option = False
        elif len(word) > 1 and word.startswith("-"):
            option = spec.option(word[1:]) or spec.option(word[-1])
            value_of_option = option is not None and bool(option.value)
        else:
            count += 1
    return None if value_of_option else count
