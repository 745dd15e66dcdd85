"""Commands, answers and views as bytes: MessagePack arrays [FORMAT, kind, fields].

Layout and kinds: docs/explanation/claims.md, "Bytes". Whatever the bytes are, decoding gives a value or raises
`ProtocolError`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from zraft_core.claims import answers as a
from zraft_core.claims import commands as c
from zraft_core.claims.layout import FORMS
from zraft_core.errors import ProtocolError
from zraft_core.layout import Kinds, to_bytes, wrong
from zraft_core.messagepack import shown, unpack

T = TypeVar("T")

FORMAT: Final = 1
BYTES_MAX: Final = 1 << 20
"""More than a view with all its ranges."""


_COMMANDS: Final = Kinds[c.ClaimCommand](
    "a command of claims",
    {
        # The first forms of claims, from before owners chose an interval.
        0: FORMS.record(c.ClaimPartition, unsaid=1),
        1: FORMS.record(c.ClaimMessages, unsaid=1),
        2: FORMS.record(c.Heartbeat),
        3: FORMS.record(c.Commit),
        4: FORMS.record(c.CommitBatch),
        5: FORMS.record(c.Release),
        6: FORMS.record(c.Expire),
        7: FORMS.record(c.Pause),
        8: FORMS.record(c.Forget),
        9: FORMS.record(c.Configure),
        10: FORMS.record(c.CommitRanges),
        11: FORMS.record(c.ClaimPartition),
        12: FORMS.record(c.ClaimMessages),
    },
)
_NEWER: Final = 10
"""Kinds from here on are logged from feature level 5 on."""
_ANSWERS: Final = Kinds[a.ClaimAnswer](
    "an answer about claims",
    {0: FORMS.record(a.Granted), 1: FORMS.record(a.Accepted), 2: FORMS.record(a.Refused)},
)
_VIEWS: Final = Kinds[a.ClaimsView]("a view of claims", {0: FORMS.record(a.ClaimsView)})


def is_newer(command: c.ClaimCommand) -> bool:
    """Return whether the command needs a feature level above 4."""
    kind, _ = _COMMANDS.of(command)
    return bool(kind >= _NEWER)


def encode_command(command: c.ClaimCommand) -> bytes:
    """Return the bytes of the oldest form that says it all."""
    return _encoded(_COMMANDS, command)


def decode_command(data: bytes) -> c.ClaimCommand:
    """Return the command in these bytes.

    Raises:
        ProtocolError: they hold none.
    """
    return _decoded(_COMMANDS, data)


def encode_answer(answer: a.ClaimAnswer) -> bytes:
    """Return the bytes of an answer."""
    return _encoded(_ANSWERS, answer)


def decode_answer(data: bytes) -> a.ClaimAnswer:
    """Return the answer in these bytes.

    Raises:
        ProtocolError: they hold none.
    """
    return _decoded(_ANSWERS, data)


def encode_view(view: a.ClaimsView) -> bytes:
    """Return the bytes of a view."""
    return _encoded(_VIEWS, view)


def decode_view(data: bytes) -> a.ClaimsView:
    """Return the view in these bytes.

    Raises:
        ProtocolError: they hold none.
    """
    return _decoded(_VIEWS, data)


def unpacked(data: bytes, what: str) -> tuple[Any, ...]:
    """Return the array in the bytes.

    Raises:
        ProtocolError: they hold none, of this format.
    """
    if len(data) > BYTES_MAX:
        raise ProtocolError(f"{what}: {len(data)} bytes, at most {BYTES_MAX} expected")
    return unpacked_unbounded(data, what)


def unpacked_unbounded(data: bytes, what: str) -> tuple[Any, ...]:
    """Return the values of an array that begins with `FORMAT`, without a bound on its size.

    Raises:
        ProtocolError: the bytes are no such array, or have another format.
    """
    try:
        values = unpack(data)
    except ProtocolError as error:
        raise ProtocolError(f"{what}: {error}") from error
    if not isinstance(values, tuple) or not values or type(values[0]) is not int:
        raise ProtocolError(f"{what}: expected an array that begins with its format, found {shown(values)}")
    if values[0] != FORMAT:
        raise ProtocolError(f"{what}: format {values[0]}, this release knows {FORMAT}; upgrade it")
    return values


def _encoded(kinds: Kinds[T], value: T) -> bytes:
    kind, record = kinds.of(value)
    return to_bytes((FORMAT, kind, record.pack(value)))


def _decoded(kinds: Kinds[T], data: bytes) -> T:
    values = unpacked(data, kinds.what)
    if len(values) != 3:
        raise wrong(kinds.what, "[format, kind, fields]", values)
    record = kinds.record(values[1])
    read: T = record.form.unpack(values[2], record.called)
    return read
