"""Requests of one kind that came together, and their replies: each step in one loop for all of them.

Only what is written as nearly every client writes it is decoded here. The first other request ends a loop, and is for
`requests`; so is whatever is malformed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from zraft_core.wire.jute import INT
from zraft_core.wire.replies import (
    HEADER_BYTES,
    STAT_BYTES,
    encode_create2_reply,
    encode_create_reply,
    pack_header_and_stat,
)
from zraft_core.wire.requests import NO_TTL, WORLD_ANYONE_ALL
from zraft_core.znodes.txn import CREATE, CREATE2, SET_DATA, Command

Write = tuple[int, int, Command]
"""(opcode, xid, command)."""

_HEADER_AND_LENGTH: Final = struct.Struct(">iii").unpack_from
_INT: Final = INT.unpack_from
_MALFORMED: Final = (struct.error, UnicodeDecodeError)
_ACL_BYTES: Final = len(WORLD_ANYONE_ALL)


def _set_data(frames: Sequence[bytes]) -> list[Write]:
    writes: list[Write] = []
    for frame in frames:
        try:
            xid, opcode, length = _HEADER_AND_LENGTH(frame)
            if opcode != SET_DATA or length < 0:
                break
            at = 12 + length
            (size,) = _INT(frame, at)
            if size < 0:
                break
            path = frame[12:at].decode()
            at += 4
            (version,) = _INT(frame, at + size)
        except _MALFORMED:
            break
        writes.append((SET_DATA, xid, (SET_DATA, path, frame[at : at + size], version)))
    return writes


def _creates(frames: Sequence[bytes]) -> list[Write]:
    writes: list[Write] = []
    raw_path, path = b"", ""
    for frame in frames:
        try:
            xid, opcode, length = _HEADER_AND_LENGTH(frame)
            if (opcode != CREATE and opcode != CREATE2) or length < 0:
                break
            at = 12 + length
            (size,) = _INT(frame, at)
            if size < 0:
                break
            if frame[12:at] != raw_path:  # many sequential znodes differ by nothing
                raw_path = frame[12:at]
                path = raw_path.decode()
            at += 4
            end = at + size
            if frame[end : end + _ACL_BYTES] != WORLD_ANYONE_ALL:
                break
            (flags,) = _INT(frame, end + _ACL_BYTES)
        except _MALFORMED:
            break
        writes.append((opcode, xid, (opcode, path, frame[at:end], None, flags, NO_TTL)))
    return writes


OPCODE: Final = slice(4, 8)
"""Where a frame has its opcode."""

DECODERS: Final[Mapping[bytes, Callable[[Sequence[bytes]], list[Write]]]] = {
    INT.pack(SET_DATA): _set_data,
    INT.pack(CREATE): _creates,
    INT.pack(CREATE2): _creates,
}
"""By the packed opcode of the first frame: what decodes it, and the writes of its kind that follow at once."""


def encode_replies(writes: Sequence[Write], results: Sequence[Any], zxid: int) -> list[bytes]:
    """Return the replies to writes of one kind that were executed one behind the other, the first of them at `zxid`.

    Args:
        writes: at least as many as there are results.
        results: of SET_DATA the fields of a `Stat`, of creates (path, znode). None of them is a failure.
    """
    numbered = zip(results, count(zxid), writes)  # the results end it
    if writes[0][0] == SET_DATA:
        return [
            pack_header_and_stat(HEADER_BYTES + STAT_BYTES, xid, zxid, 0, *stat)
            for stat, zxid, (_, xid, _) in numbered
        ]
    return [
        encode_create_reply(xid, zxid, path)
        if opcode == CREATE
        else encode_create2_reply(xid, zxid, path, node)
        for (path, node), zxid, (opcode, xid, _) in numbered
    ]
