"""Fields of native requests: each is checked where it is read, and an error says what was found and what was expected.

Source: docs/PROTOCOL-NATIVE.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zraft_core.errors import MarshallingError
from zraft_core.messagepack import SHOWN_CHARACTERS_MAX, shown
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN

Message = Mapping[Any, Any]

ID_MAX: Final = 2**32 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)


def id_of(message: Any) -> int | None:
    """The id of a message, None if it carries none. For errors, too, so it is looked for in anything.

    Raises:
        MarshallingError: it is no id.
    """
    if message.__class__ is not dict or "id" not in message:
        return None
    number = message["id"]
    if number.__class__ is int and 0 <= number <= ID_MAX:
        return number
    raise MarshallingError(f"id: found {shown(number)}, expected an integer from 0 to 2^32 - 1")


def text(message: Message, name: str, default: str | None = None) -> str:
    value = message.get(name, default)
    if value.__class__ is not str:
        raise wrong(message, name, "a string")
    return value


def binary(message: Message, name: str) -> bytes:
    value = message.get(name)
    if value.__class__ is not bytes:
        raise wrong(message, name, "bin")
    return value


def data_of(message: Message, name: str) -> bytes | None:
    value = message.get(name)
    if value is not None and value.__class__ is not bytes:
        raise wrong(message, name, "bin or nil")
    return value


def integer(message: Message, name: str, default: int | None, low: int, high: int) -> int:
    value = message.get(name, default)
    if value.__class__ is not int or not low <= value <= high:
        raise wrong(message, name, f"an integer from {low} to {high}")
    return value


def boolean(message: Message, name: str, default: bool) -> bool:
    value = message.get(name, default)
    if value.__class__ is not bool:
        raise wrong(message, name, "true or false")
    return value


def version_of(message: Message) -> int:
    """Of a condition: nil and -1 are any."""
    value = message.get("version")
    if value is None:
        return -1
    return integer(message, "version", None, INT32_MIN, INT32_MAX)


def wrong(message: Message, name: str, expected: str) -> MarshallingError:
    found = shown(message[name]) if name in message else "nothing"
    return MarshallingError(f"{shown_type(message)}: {name}: found {found}, expected {expected}")


def shown_type(message: Message) -> str:
    """The type of a message, for errors."""
    kind = message.get("type")
    return kind[:SHOWN_CHARACTERS_MAX] if isinstance(kind, str) else "message"


def unknown(message: Message, fields: frozenset[str]) -> MarshallingError:
    """A field that the request does not know."""
    strange = next(name for name in message if name not in fields)
    known = ", ".join(sorted(fields - {"type", "id"}))
    return MarshallingError(f"{shown_type(message)}: an unknown field {shown(strange)}, known are {known}")
