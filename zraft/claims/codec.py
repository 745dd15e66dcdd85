"""Commands, answers and views as bytes: MessagePack arrays [FORMAT, kind, fields].

Layout and kinds: docs/CLAIMS.md, "Bytes". Whatever the bytes are, decoding gives a value or raises `ProtocolError`.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from zraft.claims import answers as a
from zraft.claims import commands as c
from zraft.claims.layout import built, plain_fields
from zraft.errors import ProtocolError
from zraft.messagepack import shown, unpack

FORMAT: Final = 1
BYTES_MAX: Final = 1 << 20
"""More than a view with all its ranges."""

_COMMANDS: Final[tuple[type[Any], ...]] = (
    *(c.ClaimPartition, c.ClaimMessages, c.Heartbeat, c.Commit, c.CommitBatch, c.Release, c.Expire),
    *(c.Pause, c.Forget, c.Configure),
)
_ANSWERS: Final[tuple[type[Any], ...]] = (a.Granted, a.Accepted, a.Refused)
_VIEWS: Final[tuple[type[Any], ...]] = (a.View,)
"""The position in each is the kind: only ever add at the end."""


def encode_command(command: c.Command) -> bytes:
    return _encoded(_COMMANDS, command)


def decode_command(data: bytes) -> c.Command:
    found: c.Command = _decoded(_COMMANDS, data, "a command of claims")
    return found


def encode_answer(answer: a.Answer) -> bytes:
    return _encoded(_ANSWERS, answer)


def decode_answer(data: bytes) -> a.Answer:
    found: a.Answer = _decoded(_ANSWERS, data, "an answer about claims")
    return found


def encode_view(view: a.View) -> bytes:
    return _encoded(_VIEWS, view)


def decode_view(data: bytes) -> a.View:
    found: a.View = _decoded(_VIEWS, data, "a view of claims")
    return found


def unpacked(data: bytes, what: str) -> tuple[Any, ...]:
    """The array in the bytes.

    Raises:
        ProtocolError: they hold none, of this format.
    """
    if len(data) > BYTES_MAX:
        raise ProtocolError(f"{what}: {len(data)} bytes, at most {BYTES_MAX} expected")
    return unpacked_unbounded(data, what)


def unpacked_unbounded(data: bytes, what: str) -> tuple[Any, ...]:
    try:
        values = unpack(data)
    except ProtocolError as error:
        raise ProtocolError(f"{what}: {error}") from error
    if not isinstance(values, tuple) or not values or type(values[0]) is not int:
        raise ProtocolError(f"{what}: expected an array that begins with its format, found {shown(values)}")
    if values[0] != FORMAT:
        raise ProtocolError(f"{what}: format {values[0]}, this release knows {FORMAT}; upgrade it")
    return values


def _encoded(kinds: tuple[type[Any], ...], value: object) -> bytes:
    packed: bytes = msgpack.packb((FORMAT, kinds.index(type(value)), plain_fields(value)))
    return packed


def _decoded(kinds: tuple[type[Any], ...], data: bytes, what: str) -> Any:
    values = unpacked(data, what)
    if len(values) != 3 or type(values[1]) is not int or not 0 <= values[1] < len(kinds):
        raise ProtocolError(
            f"{what}: expected [format, kind below {len(kinds)}, fields], found {shown(values)}"
        )
    return built(kinds[values[1]], values[2])
