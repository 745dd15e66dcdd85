"""Conversion of frozen classes to plain values and back: one form for MessagePack, JSON and TOML.

A class is a map of its fields without those that have their defaults, so that a field which a later version
adds does not change hashes. A class with `TYPE` is told apart from others by "type"; one without further
fields may be its type alone. A class with `SHORT` may be the value of that field alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from onyxlog.jobs.functions import nearest
from onyxlog.jobs.segments import plain_fault

A = TypeVar("A")
NAMES: Final[dict[Any, str]] = {str: "a string", int: "an integer", bool: "true or false", bytes: "bytes"}

DEPTH_MAX: Final = 64
"""The greatest depth of nesting. Reading is recursive, so the writer must not choose the depth."""


class PlainError(ValueError):
    """A value is not as expected. The message begins with where it is."""


def to_plain(value: Any) -> Any:
    """Return the plain value of an instance of a frozen class, or of what its fields hold."""
    if attrs.has(type(value)):
        return _class_to_plain(value)
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def _class_to_plain(value: Any) -> Any:
    cls = type(value)
    given = {
        field.name: to_plain(getattr(value, field.name))
        for field in attrs.fields(cls)
        if getattr(value, field.name) != _default(field)
    }
    if (short := getattr(cls, "SHORT", None)) and given.keys() == {short}:
        return given[short]
    if tag := getattr(cls, "TYPE", None):
        return {"type": tag, **given} if given else tag
    return given


def _default(field: attrs.Attribute[Any]) -> Any:
    if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]
        return field.default.factory()  # type: ignore[union-attr]
    return field.default


def from_plain(cls: type[A], value: Any, where: str) -> A:
    """Return an instance of a frozen class, from a value that is not nested deeper than `DEPTH_MAX`.

    Raises:
        PlainError: a field is unknown, missing or of another type; the message says where, and what was
            found and expected.
    """
    if not _is_shallow(value):
        raise PlainError(f"{where}: nested deeper than {DEPTH_MAX} lists and maps")
    return _from_plain(cls, value, where)


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [
            item
            for container in level
            if isinstance(container, (list, tuple, Mapping))
            for item in (container.values() if isinstance(container, Mapping) else container)
        ]
        if not level:
            return True
    return False


def _from_plain(cls: type[A], value: Any, where: str) -> A:
    kind: Any = cls
    hints, known = _hints(kind), _names(kind)
    if not isinstance(value, Mapping):
        if (short := getattr(cls, "SHORT", None)) is None:
            raise PlainError(f"{where}: expected a map with {', '.join(known)}, found {value!r}")
        value = {short: value}
    for name in value:
        if name not in known:
            guess = nearest(str(name), list(known))
            raise PlainError(f"{where}: unknown {name!r}{guess}; known are {', '.join(known)}")
    given = {}
    for field in attrs.fields(kind):
        if field.name in value:
            given[field.name] = _read(hints[field.name], value[field.name], f"{where}: {field.name}")
        elif field.default is attrs.NOTHING:
            raise PlainError(f"{where}: {field.name!r} is missing")
    return cls(**given)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _names(cls: Any) -> tuple[str, ...]:
    return tuple(field.name for field in attrs.fields(cls))


def _read(kind: Any, value: Any, where: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _read_union(get_args(kind), value, where)
    if origin is tuple:
        return _read_tuple(get_args(kind), value, where)
    if kind is Any or origin is not None:
        if origin is not None and not isinstance(value, Mapping):
            raise PlainError(f"{where}: expected a map, found {value!r}")
        if fault := plain_fault(value):
            raise PlainError(f"{where}: {fault}")
        return value
    if attrs.has(kind):
        return _from_plain(kind, value, where)
    if issubclass(kind, StrEnum):
        values = [member.value for member in kind]
        if value not in values:
            guess = nearest(value, values) if isinstance(value, str) else ""
            raise PlainError(f"{where}: expected one of {', '.join(values)}, found {value!r}{guess}")
        return kind(value)
    if type(value) is not kind:
        raise PlainError(f"{where}: expected {NAMES[kind]}, found {value!r}")
    return value


def _read_tuple(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise PlainError(f"{where}: expected a list, found {value!r}")
    if kinds[-1] is Ellipsis:
        return tuple(_read(kinds[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if len(value) != len(kinds):
        raise PlainError(f"{where}: expected {len(kinds)} items, found {len(value)}: {value!r}")
    return tuple(
        _read(kind, item, f"{where}[{number}]")
        for number, (kind, item) in enumerate(zip(kinds, value, strict=True))
    )


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if NoneType in kinds:
        if value is None:
            return None
        kinds = tuple(kind for kind in kinds if kind is not NoneType)
    if len(kinds) == 1:
        return _read(kinds[0], value, where)
    tagged = {kind.TYPE: kind for kind in kinds}
    fields: Mapping[str, Any] = {}
    tag = value
    if isinstance(value, Mapping):
        fields = {name: item for name, item in value.items() if name != "type"}
        tag = value.get("type")
    if not isinstance(tag, str) or tag not in tagged:
        guess = nearest(tag, list(tagged)) if isinstance(tag, str) else ""
        raise PlainError(f"{where}: type: expected one of {', '.join(tagged)}, found {tag!r}{guess}")
    return _from_plain(tagged[tag], fields, where)
