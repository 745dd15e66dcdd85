"""Forms of the fields that several native requests and answers share, and a way to declare the fields of a request.

Source: docs/reference/protocol-native.md, "Fields".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import NOTHING

from zraft_core.layout import (
    NUMBER_MAX,
    Fields,
    Form,
    any_binary,
    anything,
    integer,
    optional,
    parameters,
    wrong,
)
from zraft_core.znodes.stat import INT32_MAX, INT32_MIN

T = TypeVar("T")

ID_MAX: Final = 2**32 - 1
INT64_MIN: Final = -(2**63)
PASSWORD_BYTES: Final = 16

int64: Final = integer(INT64_MIN, NUMBER_MAX)
data: Final = optional(any_binary)
expected_version: Final = optional(integer(INT32_MIN, INT32_MAX))
key: Final = anything("a key")
value: Final = anything("any value")
credit: Final = integer(0, INT32_MAX)

ABSENT: Final = object()
"""Stands for a field whose absence means something else than nil."""

ID: Final = anything("an integer from 0 to 2^32 - 1")
"""Is looked at before anything else of a message."""


def request(called: str, made: Callable[..., T], **own: Form) -> Fields[T]:
    """Return the fields of a request: these beside its id and its type."""
    return Fields(called, made, parameters(made, id=ID, **own), skips="type")


def part(called: str, made: Callable[..., T], **own: Form) -> Fields[T]:
    """Return the own fields of a write that may be an operation of a multi, where its type stands among them."""
    return Fields(called, made, parameters(made, **own), skips="type")


PASSWORD: Final = anything(f"{PASSWORD_BYTES} bytes")


def proof_of(called: str, password: Any) -> bytes:
    """Return the password that must stand beside a session; without one it may be anything.

    Raises:
        FieldError: it is no password.
    """
    if type(password) is bytes and len(password) == PASSWORD_BYTES:
        return password
    raise wrong(f"{called}.password", PASSWORD.expected, NOTHING if password is None else password)
