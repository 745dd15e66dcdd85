"""Typed values from their plain forms (`onyxlog.replica.canonical`), with errors that say where.

What may stand in a place is read from the annotations of the frozen classes, so that a new field cannot be
forgotten here. A field at the end that has a default may be absent: an older writer of an entry did not know it (an
origin that lacks one is refused later, by its digest). A field too many is an error: a newer writer meant something by
it that must not be passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from itertools import pairwise
from reprlib import Repr
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin

import attrs

from onyxlog.errors import EntryError
from onyxlog.replica.table import Table

T = TypeVar("T")
Read = Callable[[Any, str], Any]
"""From the plain form, and where it stands."""


def wrong(where: str, found: Any, expected: str) -> EntryError:
    return EntryError(f"{where}: found {_shown(found)}, expected {expected}")


def read(kind: type[T], found: Any, where: str) -> T:
    """Raises EntryError."""
    value: T = reader(cast(Any, kind))(found, where)
    return value


@cache
def reader(kind: Any) -> Read:
    """Of any type that the canonical form knows. Raises TypeError for another: a mistake in the class that uses it."""
    if kind in (str, bytes, bool, int):
        return _atom(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        inner = reader(next(each for each in arguments if each is not NoneType))
        return lambda found, where: None if found is None else inner(found, where)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _many(reader(arguments[0]))
    if origin is tuple:
        return _few([reader(each) for each in arguments])
    if origin is Table:
        return _table(reader(arguments[0]), reader(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _one_of(kind)
    if isinstance(kind, type) and attrs.has(kind):
        return _frozen(kind)
    raise TypeError(f"{kind!r} has no canonical form")


_short = Repr()
_short.maxstring = _short.maxother = _short.maxlong = 80


def _shown(found: Any) -> str:
    text = _short.repr(found)  # `repr` fails for what is nested as deeply as its writer liked
    return text if len(text) <= 80 else f"{text[:77]}..."


def _atom(kind: type[Any]) -> Read:
    def read_atom(found: Any, where: str) -> Any:
        # by identity of the type: True is an int to isinstance
        if type(found) is not kind:
            raise wrong(
                where, found, {str: "text", bytes: "bytes", bool: "a boolean", int: "an integer"}[kind]
            )
        return found

    return read_atom


def _list(found: Any, where: str, expected: str) -> list[Any]:
    if type(found) is not list:
        raise wrong(where, found, expected)
    return found


def _many(inner: Read) -> Read:
    def read_many(found: Any, where: str) -> tuple[Any, ...]:
        return tuple(
            inner(each, f"{where}[{number}]") for number, each in enumerate(_list(found, where, "a list"))
        )

    return read_many


def _few(inner: list[Read]) -> Read:
    def read_few(found: Any, where: str) -> tuple[Any, ...]:
        expected = f"a list of {len(inner)}"
        if len(_list(found, where, expected)) != len(inner):
            raise wrong(where, found, expected)
        return tuple(
            one(each, f"{where}[{number}]")
            for number, (one, each) in enumerate(zip(inner, found, strict=True))
        )

    return read_few


def _table(read_key: Read, read_value: Read) -> Read:
    pair = _few([read_key, read_value])

    def read_table(found: Any, where: str) -> Table[Any, Any]:
        items = [pair(each, where) for each in _list(found, where, "a list of items")]
        for (before, _), (key, _) in pairwise(items):
            if not before < key:
                raise wrong(where, key, f"a key after {before!r}: each once, in order")
        return Table(items)

    return read_table


def _one_of(kind: type[Enum]) -> Read:
    values = {each.value: each for each in kind}

    def read_one_of(found: Any, where: str) -> Enum:
        if not isinstance(found, str) or found not in values:
            raise wrong(where, found, f"one of {', '.join(values)}")
        return values[found]

    return read_one_of


def _frozen(kind: type[Any]) -> Read:
    attrs.resolve_types(kind)
    fields = attrs.fields(kind)
    readers = [(each.name, reader(each.type)) for each in fields]
    needed = sum(each.default is attrs.NOTHING for each in fields)
    expected = f"the fields of {kind.__name__}: {', '.join(name for name, _ in readers)}"

    def read_frozen(found: Any, where: str) -> Any:
        if not needed <= len(_list(found, where, expected)) <= len(readers):
            raise wrong(where, found, expected)
        return kind(
            *(one(each, f"{where}.{name}") for (name, one), each in zip(readers, found, strict=False))
        )

    return read_frozen
