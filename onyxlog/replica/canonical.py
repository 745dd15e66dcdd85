"""The one plain form of each value, from which its bytes and its hash are made.

A frozen class becomes the list of its fields in the order of their definition, an enumeration its value, a tuple
a list, a table the list of its items in order; text, bytes, integers, booleans and None stay. Nothing else has a
form: no floats, whose arithmetic two machines may do differently, and nothing whose order is not its own (sets,
dictionaries). The way back is in `onyxlog.replica.forms`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any

import attrs
import msgpack

_pack = msgpack.Packer(use_bin_type=True).pack


class Ordered:
    """A mapping whose items have an order that follows from them alone; its form is the list of [key, value]."""

    __slots__ = ()


def _itself(value: Any) -> Any:
    return value


def _listed(value: tuple[Any, ...]) -> list[Any]:
    return [plain(item) for item in value]


@cache
def _form(kind: Any) -> Callable[[Any], Any]:
    if kind in (str, bytes, int, bool, type(None)):
        return _itself
    if kind is tuple:
        return _listed
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, Ordered):
        return lambda value: [[plain(key), plain(item)] for key, item in value.items()]
    if attrs.has(kind):
        names = [each.name for each in attrs.fields(kind)]
        if len(names) == 1:
            only = attrgetter(names[0])
            return lambda value: [plain(only(value))]
        several = attrgetter(*names) if names else lambda _: ()
        return lambda value: [plain(item) for item in several(value)]
    raise TypeError(
        f"{kind.__name__} has no canonical form: use text, bytes, integers, tuples, frozen classes"
    )


def plain(value: Any) -> Any:
    """Return `value` as what MessagePack knows.

    Raises:
        TypeError: it, or something in it, has no canonical form.
    """
    kind: Any = type(value)
    return _form(kind)(value)


def pack(value: Any) -> bytes:
    """Return the canonical bytes: MessagePack of the plain form.

    Raises:
        OverflowError: an integer is beyond 64 bits.
    """
    packed: bytes = _pack(plain(value))
    return packed
