"""Frozen attrs values as plain ones (maps, lists, numbers, texts) and back: for JSON files, pipes and the board.

Pure.

One reader serves all three, so that what one process writes another one checks. Unknown fields are left out
when read, so that an older program reads a newer one's files; missing ones take their default.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from zraft_bench.load.histogram import Histogram
from zraft_core.errors import ZraftError

T = TypeVar("T")

_SCALARS: Final = (str, int, float, bool)
_KNOWN: Final[dict[Any, dict[str, Any]]] = {}
"""Fields and their types, by class: a handful of classes, each read once."""


class RecordError(ZraftError):
    """Error of a record with unexpected contents; the message says where."""


def to_plain(value: Any) -> Any:
    """Return `value` in plain values only."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Histogram):
        return value.to_plain()
    if attrs.has(type(value)):
        return {name: to_plain(getattr(value, name)) for name in _fields(type(value))}
    if isinstance(value, Mapping):
        return {name: to_plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(one) for one in value]
    assert value is None or isinstance(value, _SCALARS), f"{type(value).__name__} has no plain form"
    return value


def from_plain(cls: type[T], plain: Any, where: str = "") -> T:
    """Return the `cls` of which `to_plain` made `plain`.

    Raises:
        RecordError: a field is missing, of another type, or out of its bounds.
    """
    return _read(cls, plain, where or cls.__name__)  # type: ignore[no-any-return]


def _fields(cls: Any) -> dict[str, Any]:
    found = _KNOWN.get(cls)
    if found is None:
        hints = get_type_hints(cls)
        found = _KNOWN[cls] = {one.name: hints[one.name] for one in attrs.fields(cls)}
    return found


def _read(kind: Any, plain: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        choices = get_args(kind)
        if plain is None and type(None) in choices:
            return None
        (chosen,) = (one for one in choices if one is not type(None))
        return _read(chosen, plain, where)
    if origin is tuple:
        item = get_args(kind)[0]
        return tuple(_read(item, one, f"{where}[{n}]") for n, one in enumerate(_expect(list, plain, where)))
    if origin is dict:
        item = get_args(kind)[1]
        return {str(k): _read(item, one, f"{where}.{k}") for k, one in _expect(dict, plain, where).items()}
    if kind is Histogram:
        try:
            return Histogram.from_plain(_expect(dict, plain, where))
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(f"{where}: no histogram: {error}") from error
    if attrs.has(kind):
        return _read_record(kind, _expect(dict, plain, where), where)
    if issubclass(kind, Enum):
        try:
            return kind(plain)
        except ValueError as error:
            known = ", ".join(str(one.value) for one in kind)
            raise RecordError(f"{where}: found {plain!r}, expected one of {known}") from error
    if kind is float and isinstance(plain, int) and not isinstance(plain, bool):
        return float(plain)
    return _expect(kind, plain, where)


def _read_record(kind: Any, plain: dict[str, Any], where: str) -> Any:
    given = {}
    for name, hint in _fields(kind).items():
        if name in plain:
            given[name] = _read(hint, plain[name], f"{where}.{name}")
    try:
        return kind(**given)
    except (TypeError, ValueError) as error:  # a field without default is missing, or a validator refuses
        raise RecordError(f"{where}: {error}") from error


def _expect(kind: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, kind) or (kind is int and isinstance(plain, bool)):
        raise RecordError(f"{where}: found {type(plain).__name__}, expected {kind.__name__}")
    return plain
