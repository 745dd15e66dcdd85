"""Claims' values as plain ones, for MessagePack, and back. A value of another shape is refused, whatever it is.

A frozen class becomes the array of its fields in order; an enum its number. New fields go to the end, with a new format.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, TypeVar

from attrs import fields, has

from zraft_core.claims.answers import Reason
from zraft_core.claims.group import Group
from zraft_core.claims.progress import Progress
from zraft_core.claims.values import Claim, Mode, Owner
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown

INTEGER_MAX: Final = 2**63 - 1
TEXT_BYTES_MAX: Final = 1_024
"""Longer names than any that is accepted, so that a name that is too long gets a good answer."""
SEQUENCE_MAX: Final = 4_096

T = TypeVar("T")


def plain(value: Any) -> Any:
    """What MessagePack can hold."""
    if isinstance(value, IntEnum):
        return int(value)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if has(type(value)):
        return plain_fields(value)
    return value


def plain_fields(value: Any) -> tuple[Any, ...]:
    return tuple(plain(getattr(value, field.name)) for field in fields(type(value)))


def plain_group(group: Group) -> tuple[Any, ...]:
    return plain_fields(group)


def built(cls: type[T], values: object, left_out: int = 0) -> T:
    """An instance of a frozen class of the array of its fields; so many of the last ones have their defaults.

    Raises:
        ProtocolError: these are not its fields.
    """
    shape = fields(cls)  # type: ignore[arg-type]
    shape = shape[: len(shape) - left_out]
    if not isinstance(values, tuple | list) or len(values) != len(shape):
        raise ProtocolError(
            f"{cls.__name__}: expected an array of {len(shape)} fields, found {shown(values)}"
        )
    found = []
    for field, value in zip(shape, values, strict=True):
        try:
            found.append(_READ[field.type](value))
        except TypeError:
            raise ProtocolError(
                f"{cls.__name__}.{field.name}: expected {field.type}, found {shown(value)}"
            ) from None
    try:
        return cls(*found)
    except AssertionError as error:
        raise ProtocolError(f"{cls.__name__}: impossible: {error}") from None


def _integer(value: object) -> object:
    if type(value) is not int or not 0 <= value <= INTEGER_MAX:
        raise TypeError
    return value


def _boolean(value: object) -> object:
    if type(value) is not bool:
        raise TypeError
    return value


def _text(value: object) -> object:
    if type(value) is not str or len(value) > TEXT_BYTES_MAX:
        raise TypeError
    return value


def _enum(cls: type[IntEnum]) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not int or value not in cls._value2member_map_:
            raise TypeError
        return cls(value)

    return read


def _optional(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


def _one(cls: type[Any]) -> Callable[[object], object]:
    return lambda value: built(cls, value)


def _many(read: Callable[[object], object]) -> Callable[[object], object]:
    def read_all(value: object) -> object:
        if not isinstance(value, tuple | list) or len(value) > SEQUENCE_MAX:
            raise TypeError
        return tuple(map(read, value))

    return read_all


def _range(value: object) -> object:
    pair = _many(_integer)(value)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError
    return pair


_READ: Final[dict[Any, Callable[[object], object]]] = {
    # as the annotations read
    "int": _integer,
    "int | None": _optional(_integer),
    "bool": _boolean,
    "str": _text,
    "Mode": _enum(Mode),
    "Reason": _enum(Reason),
    "Owner": _one(Owner),
    "Claim": _one(Claim),
    "Claim | None": _optional(_one(Claim)),
    "tuple[Claim, ...]": _many(_one(Claim)),
    "Progress": _one(Progress),
    "tuple[Range, ...]": _many(_range),
}
