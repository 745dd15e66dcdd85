"""Commands, answers and views as bytes: MessagePack arrays [FORMAT, kind, fields].

Layout and kinds: docs/CLAIMS.md, "Bytes". Whatever the bytes are, decoding gives a value or raises `ProtocolError`.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack
from attrs import fields, frozen

from zraft_core.claims import answers as a
from zraft_core.claims import commands as c
from zraft_core.claims.layout import built, plain_fields
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown, unpack

FORMAT: Final = 1
BYTES_MAX: Final = 1 << 20
"""More than a view with all its ranges."""


@frozen
class _Form:
    """A class and how many of its last fields are left out, which then have their defaults."""

    of: type[Any]
    left_out: int = 0


_COMMANDS: Final = tuple(
    map(
        _Form,
        (
            *(c.ClaimPartition, c.ClaimMessages, c.Heartbeat, c.Commit, c.CommitBatch, c.Release, c.Expire),
            *(c.Pause, c.Forget, c.Configure, c.CommitRanges, c.ClaimPartition, c.ClaimMessages),
        ),
        # The first forms of claims, from before owners chose an interval.
        (1, 1, *(0,) * 11),
    )
)
_NEWER: Final = 10
"""Kinds from here on are logged from feature level 5 on."""
_ANSWERS: Final = tuple(map(_Form, (a.Granted, a.Accepted, a.Refused)))
_VIEWS: Final = (_Form(a.View),)
"""The position in each is the kind: only ever add at the end."""


def is_newer(command: c.Command) -> bool:
    """Whether it is of a kind that releases do not know which know no feature level above 4."""
    return _kind(_COMMANDS, command) >= _NEWER


def encode_command(command: c.Command) -> bytes:
    """The bytes of the oldest form that says it all."""
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


def _by_class(kinds: tuple[_Form, ...]) -> dict[type[Any], tuple[int, ...]]:
    return {form.of: tuple(k for k, one in enumerate(kinds) if one.of is form.of) for form in kinds}


_KINDS: Final = {id(kinds): _by_class(kinds) for kinds in (_COMMANDS, _ANSWERS, _VIEWS)}


def _kind(kinds: tuple[_Form, ...], value: Any) -> int:
    """That of the oldest form whose fields say it all."""
    *older, newest = _KINDS[id(kinds)][type(value)]
    for kind in older:
        left_out = fields(type(value))[-kinds[kind].left_out :]
        if all(getattr(value, field.name) == field.default for field in left_out):
            return kind
    return newest


def _encoded(kinds: tuple[_Form, ...], value: Any) -> bytes:
    kind = _kind(kinds, value)
    said = plain_fields(value)
    packed: bytes = msgpack.packb((FORMAT, kind, said[: len(said) - kinds[kind].left_out]))
    return packed


def _decoded(kinds: tuple[_Form, ...], data: bytes, what: str) -> Any:
    values = unpacked(data, what)
    if len(values) != 3 or type(values[1]) is not int or not 0 <= values[1] < len(kinds):
        raise ProtocolError(
            f"{what}: expected [format, kind below {len(kinds)}, fields], found {shown(values)}"
        )
    form = kinds[values[1]]
    return built(form.of, values[2], form.left_out)
