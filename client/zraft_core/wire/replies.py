"""Encoding of replies, each as one bytes object with its length in front, ready for the socket.

A reply is int length, int xid, long zxid, int err, and a body only if err is 0. The encoders read a znode at
once: call them right after the command was applied, before the next one changes the same znode.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct
from typing import Any, Final, Protocol

from zraft_core.wire.jute import INT, NULL_LENGTH, encode_buffer, encode_texts, encode_ustring
from zraft_core.wire.opcodes import Opcode
from zraft_core.wire.requests import MULTI_END, MULTI_HEADER
from zraft_core.wire.stat import STAT, STAT_FIELDS, Znode, encode_stat
from zraft_core.znodes.acl import Acl, Ids
from zraft_core.znodes.txn import (
    CHECK,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    MULTI,
    SET_ACL,
    SET_DATA,
    Command,
)

HEADER_BYTES: Final = 16
STAT_BYTES: Final = 68

_HEADER: Final = Struct(">iiqi")
_HEADER_AND_LENGTH: Final = Struct(">iiqii")
_HEADER_AND_STAT: Final = Struct(">iiqi" + STAT_FIELDS)

_pack_header: Final = _HEADER.pack
pack_header_and_length: Final = _HEADER_AND_LENGTH.pack
pack_header_and_stat: Final = _HEADER_AND_STAT.pack


CREATES_WITH_STAT: Final = frozenset({CREATE2, CREATE_CONTAINER, CREATE_TTL})
"""The operations that are answered with path and Stat; inside a multi all three say that they are create2
(trap 12).
"""


class MultiFailure(Protocol):
    """Codes of a multi that changed nothing: OK before the culprit, its error, -2 after it."""

    @property
    def results(self) -> Sequence[int]:
        """One code for each operation."""


def encode_reply_header(xid: int, zxid: int, err: int) -> bytes:
    """Return a reply without a body: every error, and the success of what has nothing to say."""
    return _pack_header(HEADER_BYTES, xid, zxid, err)


encode_error_reply = encode_reply_header


def encode_empty_reply(xid: int, zxid: int) -> bytes:
    """Return the reply to a successful ping, delete, setWatches or closeSession."""
    return _pack_header(HEADER_BYTES, xid, zxid, 0)


def encode_set_data_reply(xid: int, zxid: int, node: Znode) -> bytes:
    """Return the Stat: of setData, and of exists on a znode that is there."""
    data = node.data
    children = node.children
    return pack_header_and_stat(
        HEADER_BYTES + STAT_BYTES,
        xid,
        zxid,
        0,
        node.czxid,
        node.mzxid,
        node.ctime,
        node.mtime,
        node.version,
        node.cversion,
        node.aversion,
        node.ephemeral_owner,
        0 if data is None else len(data),
        0 if children is None else len(children),
        node.pzxid,
    )


encode_exists_reply = encode_set_data_reply


def encode_get_data_reply(xid: int, zxid: int, node: Znode) -> bytes:
    """Return the reply to getData. Null data and empty data are different answers."""
    data = node.data
    if data is None:
        return pack_header_and_length(HEADER_BYTES + 4 + STAT_BYTES, xid, zxid, 0, NULL_LENGTH) + encode_stat(
            node
        )
    size = len(data)
    return (
        pack_header_and_length(HEADER_BYTES + 4 + size + STAT_BYTES, xid, zxid, 0, size)
        + data
        + encode_stat(node)
    )


def encode_get_data_parts(xid: int, zxid: int, node: Znode) -> tuple[bytes, bytes, bytes]:
    """Return the reply to getData in three parts, for data that are too large to be copied."""
    data = node.data
    assert data is not None, "null data are small"
    size = len(data)
    head = pack_header_and_length(HEADER_BYTES + 4 + size + STAT_BYTES, xid, zxid, 0, size)
    return head, data, encode_stat(node)


def encode_create_reply(xid: int, zxid: int, path: str) -> bytes:
    """Return the path as created, with the number of a sequential znode."""
    raw = path.encode()
    size = len(raw)
    return pack_header_and_length(HEADER_BYTES + 4 + size, xid, zxid, 0, size) + raw


encode_sync_reply = encode_create_reply


def encode_create2_reply(xid: int, zxid: int, path: str, node: Znode) -> bytes:
    """Return the reply to create2: the path and the stat."""
    raw = path.encode()
    size = len(raw)
    return (
        pack_header_and_length(HEADER_BYTES + 4 + size + STAT_BYTES, xid, zxid, 0, size)
        + raw
        + encode_stat(node)
    )


def encode_children_reply(xid: int, zxid: int, names: Collection[str]) -> bytes:
    """Return the reply to getChildren."""
    body = encode_texts(names)
    return _pack_header(HEADER_BYTES + len(body), xid, zxid, 0) + body


def encode_children2_reply(xid: int, zxid: int, names: Collection[str], node: Znode) -> bytes:
    """Return the reply to getChildren2: the names and the stat."""
    body = encode_texts(names)
    return _pack_header(HEADER_BYTES + len(body) + STAT_BYTES, xid, zxid, 0) + body + encode_stat(node)


def encode_multi_reply(
    xid: int, zxid: int, ops: Sequence[Command], results: Sequence[Any] | MultiFailure
) -> bytes:
    """Return the reply to a multi.

    The header's err is 0 even if the multi failed.

    `results` is a tuple with one result per operation: for creates (path, stat), for SET_DATA a
    stat, as tuples in wire order, since later operations may have changed the same znode; else anything. Or
    it is a `MultiFailure`.
    """
    parts: list[bytes] = []
    if isinstance(results, tuple):
        assert len(results) == len(ops), f"{len(results)} results for {len(ops)} operations"
        for op, result in zip(ops, results, strict=True):
            opcode = op[0]
            parts.append(MULTI_HEADER.pack(CREATE2 if opcode in CREATES_WITH_STAT else opcode, 0, 0))
            if opcode == SET_DATA:
                parts.append(STAT.pack(*result))
            elif opcode == CREATE:
                raw = result[0].encode()
                parts.append(INT.pack(len(raw)) + raw)
            elif opcode in CREATES_WITH_STAT:
                raw = result[0].encode()
                parts.append(INT.pack(len(raw)) + raw + STAT.pack(*result[1]))
            else:
                assert opcode in (DELETE, CHECK), f"{opcode=} cannot stand in a multi"
    else:
        codes = results.results  # type: ignore[union-attr]
        assert len(codes) == len(ops), f"{len(codes)} codes for {len(ops)} operations"
        parts += map(_multi_error, codes)
    parts.append(MULTI_END)
    body = b"".join(parts)
    return _pack_header(HEADER_BYTES + len(body), xid, zxid, 0) + body


def _multi_error(code: int) -> bytes:
    return MULTI_HEADER.pack(Opcode.ERROR, 0, code) + INT.pack(code)


def encode_multi_read_reply(xid: int, zxid: int, results: Sequence[Znode | list[str] | int]) -> bytes:
    """Return the reply to a multi read, with one part per result.

    A result is the znode of a getData, the names of a getChildren, or the code of the part that failed alone.
    """
    parts: list[bytes] = []
    for result in results:
        if isinstance(result, int):
            parts.append(_multi_error(result))
        elif isinstance(result, list):
            parts.append(MULTI_HEADER.pack(Opcode.GET_CHILDREN, 0, 0) + encode_texts(result))
        else:
            parts.append(MULTI_HEADER.pack(Opcode.GET_DATA, 0, 0))
            parts.append(encode_buffer(result.data) + encode_stat(result))
    parts.append(MULTI_END)
    return encode_body_reply(xid, zxid, b"".join(parts))


def encode_acl_reply(xid: int, zxid: int, acl: Acl, node: Znode) -> bytes:
    """Return the answer to getACL."""
    entries = [INT.pack(bits) + encode_ustring(scheme) + encode_ustring(who) for bits, scheme, who in acl]
    return encode_body_reply(xid, zxid, INT.pack(len(entries)) + b"".join(entries) + encode_stat(node))


def encode_who_am_i_reply(xid: int, zxid: int, users: Ids) -> bytes:
    """Return (scheme, user) pairs."""
    entries = [encode_ustring(scheme) + encode_ustring(user) for scheme, user in users]
    return encode_body_reply(xid, zxid, INT.pack(len(entries)) + b"".join(entries))


def encode_int_reply(xid: int, zxid: int, number: int) -> bytes:
    """Return the answer to getAllChildrenNumber; and to addWatch, whose body is an error code of 0 (trap 13)."""
    return encode_body_reply(xid, zxid, INT.pack(number))


def encode_token_reply(xid: int, zxid: int, token: bytes) -> bytes:
    """Return the next step of a SASL exchange."""
    return encode_body_reply(xid, zxid, encode_buffer(token))


def encode_body_reply(xid: int, zxid: int, body: bytes) -> bytes:
    """Return a successful reply with a body that is encoded already."""
    return _pack_header(HEADER_BYTES + len(body), xid, zxid, 0) + body


def encode_write_reply(opcode: int, xid: int, zxid: int, command: Command | None, result: Any) -> bytes:
    """Return the reply to a write, from what apply returned for it.

    `result` is a `Code` (an error, or OK where there is nothing more to say), or by opcode: SET_DATA,
    SET_ACL and RECONFIG a znode, creates (path, znode), MULTI as for `encode_multi_reply`. `command` is needed
    for MULTI only, whose reply repeats the types of its operations.
    """
    if isinstance(result, int):
        return _pack_header(HEADER_BYTES, xid, zxid, result)
    if opcode == SET_DATA:
        return encode_set_data_reply(xid, zxid, result)
    if opcode == CREATE:
        return encode_create_reply(xid, zxid, result[0])
    if opcode in CREATES_WITH_STAT:
        return encode_create2_reply(xid, zxid, result[0], result[1])
    if opcode == SET_ACL:
        return encode_set_data_reply(xid, zxid, result)
    if opcode == Opcode.RECONFIG:
        return encode_get_data_reply(xid, zxid, result)
    assert opcode == MULTI, f"no reply is known for {opcode=} with {result=}"
    assert command is not None, "the reply to a multi repeats the types of its operations"
    return encode_multi_reply(xid, zxid, command[1], result)
