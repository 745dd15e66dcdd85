"""Rows of `entries` from ENTRY records, as tuples in column order. Pure."""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Any, Final

import msgpack

from zraft.raft.messages import EntryKind
from zraft.storage.records import EntryFields

DIGEST_BYTES: Final = 16
KINDS: Final = tuple(kind.name.lower() for kind in EntryKind)
COMMANDS: Final = int(EntryKind.COMMANDS)
_HEAD: Final = Struct(">BQQ")
_TIMES_BYTES: Final = 64
"""Format and both times stand in the first bytes of an entry of group 0."""


def entry_digest(kind: int, position: int, count: int, payload: bytes) -> bytes:
    """Return what tells entries apart, beside index and term."""
    return blake2b(_HEAD.pack(kind, position, count) + payload, digest_size=DIGEST_BYTES).digest()


def entry_values(
    head: tuple[Any, ...],
    fields: EntryFields,
    *,
    previous_term: int,
    durable_term: int,
    standing: str,
    frame: int,
    record: int,
    payloads: bool,
) -> tuple[Any, ...]:
    """Return one row; `head`: server, instance, file and offset."""
    _, group, index, term, kind, position, count, payload = fields
    times = _times(payload) if kind == COMMANDS and group == 0 else (None, None)
    return (
        *(*head, group, index, term, KINDS[kind], previous_term, position, count, len(payload)),
        *(entry_digest(kind, position, count, payload), standing, durable_term, frame, record, *times),
        payload if payloads else None,
    )


def _times(payload: bytes) -> tuple[int | None, int | None]:
    """Return log time and wall time, without unpacking the commands; None for another payload."""
    unpacker: Any = msgpack.Unpacker()
    unpacker.feed(payload[:_TIMES_BYTES])
    try:
        if unpacker.read_array_header() < 3:
            return None, None
        _, log_time, wall_time = unpacker.unpack(), unpacker.unpack(), unpacker.unpack()
    except (ValueError, TypeError, msgpack.UnpackException):
        return None, None
    if type(log_time) is not int or type(wall_time) is not int:
        return None, None
    return log_time, wall_time
