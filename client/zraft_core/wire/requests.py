"""Decoding of a client's requests; writes become the command tuples of `zraft_core.znodes.txn` directly.

A frame begins with the request header, int xid and int opcode; all bodies begin at byte 8. Bytes after a body
are ignored, as ZooKeeper does. Writes and reads are decoded with `Struct.unpack_from` and slices of bytes,
which in CPython beats every reader object and memoryview by a factor of two to four.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from attrs import field, frozen

from zraft_core.errors import MarshallingError
from zraft_core.wire.jute import INT, LONG, NULL_LENGTH, JuteReader
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    MULTI,
    SET_ACL,
    SET_DATA,
    Command,
)

HEADER: Final = struct.Struct(">ii")
MULTI_HEADER: Final = struct.Struct(">iBi")
MULTI_END: Final = MULTI_HEADER.pack(-1, 1, -1)
BODY_OFFSET: Final = 8
NO_TTL: Final = 0

PERMS_ALL: Final = 31
WORLD_ANYONE_ALL: Final = struct.pack(">iii", 1, PERMS_ALL, 5) + b"world" + struct.pack(">i", 6) + b"anyone"
"""The ACL of nearly every create, a vector of one entry: compared as bytes instead of decoded."""

_ACL_ENTRY_BYTES_MIN: Final = 12

Acl = tuple[int, str, str]


@frozen
class SetWatches:
    """A client's watches after a reconnect, with the last zxid it saw (op 101; with the last two, op 105)."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


@frozen
class Credentials:
    """Credentials of a client (op 100); what `auth` means depends on the scheme.

    A client may leave out either: a scheme that is null is the empty one, which proves nothing.
    """

    scheme: str
    auth: bytes | None = field(repr=False)


def decode_header(frame: bytes) -> tuple[int, int]:
    """Return (xid, opcode).

    Raises:
        MarshallingError: the frame is shorter than a header; without an xid no reply is possible, so close.
    """
    if len(frame) < BODY_OFFSET:
        raise MarshallingError(f"request header: expected {BODY_OFFSET} bytes, found {len(frame)}")
    return HEADER.unpack_from(frame)


def decode_write(opcode: int, frame: bytes) -> Command:
    """Return the command that a write request means; `opcode` is one of `opcodes.WRITES`.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    try:
        return _WRITE_DECODERS[opcode](frame, BODY_OFFSET)[0]
    except struct.error as error:
        raise _truncated(opcode, frame) from error
    except UnicodeDecodeError as error:
        raise _not_utf8(opcode, error) from error


def decode_read(frame: bytes) -> tuple[str, bool]:
    """Return (path, watch) of exists, getData, getChildren and getChildren2.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    try:
        (length,) = INT.unpack_from(frame, BODY_OFFSET)
        if length < 0:
            raise _bad_length("path", BODY_OFFSET, length)
        end = 12 + length
        return frame[12:end].decode(), frame[end] != 0
    except (struct.error, IndexError) as error:
        raise _truncated(HEADER.unpack_from(frame)[1], frame) from error
    except UnicodeDecodeError as error:
        raise _not_utf8(HEADER.unpack_from(frame)[1], error) from error


def decode_path(frame: bytes) -> str:
    """Return the path of sync, getACL and getAllChildrenNumber.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    return JuteReader(frame, BODY_OFFSET).read_text()


def decode_prefix(frame: bytes) -> str:
    """Return the prefix of getEphemerals, "" for null.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    return JuteReader(frame, BODY_OFFSET).read_ustring() or ""


def decode_path_and_number(frame: bytes) -> tuple[str, int]:
    """Return (path, type or mode) of addWatch, checkWatches and removeWatches.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    return reader.read_text(), reader.read_int()


def decode_set_watches(frame: bytes) -> SetWatches:
    """Return the watches of setWatches.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    return SetWatches(reader.read_long(), reader.read_texts(), reader.read_texts(), reader.read_texts())


def decode_set_watches2(frame: bytes) -> SetWatches:
    """Return the watches of setWatches2.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    return SetWatches(reader.read_long(), *[reader.read_texts() for _ in range(5)])


def decode_auth(frame: bytes) -> Credentials:
    """Return the credentials of auth.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    reader.read_int()  # a type, which is always 0
    return Credentials(reader.read_ustring() or "", reader.read_buffer())


def decode_sasl(frame: bytes) -> bytes:
    """Return the token of sasl.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    return JuteReader(frame, BODY_OFFSET).read_buffer() or b""


def decode_multi_read(frame: bytes) -> list[tuple[int, str]]:
    """Return (opcode, path) of each part, getChildren or getData; they set no watches.

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    parts: list[tuple[int, str]] = []
    while True:
        opcode, done, _ = reader.read_struct(MULTI_HEADER)
        if done:
            return parts
        if opcode not in (Opcode.GET_CHILDREN, Opcode.GET_DATA):
            raise MarshallingError(f"operation {opcode} in a multiRead: expected getData or getChildren")
        parts.append((opcode, reader.read_text()))
        reader.read_bool()


def decode_reconfig(frame: bytes) -> tuple[str | None, str | None, str | None, int]:
    """Return (joining, leaving, new members, version of the present configuration).

    Raises:
        MarshallingError: the body does not follow the protocol.
    """
    reader = JuteReader(frame, BODY_OFFSET)
    return reader.read_ustring(), reader.read_ustring(), reader.read_ustring(), reader.read_long()


def _decode_create(opcode: int, frame: bytes, offset: int) -> tuple[Command, int]:
    unpack_from = INT.unpack_from
    (length,) = unpack_from(frame, offset)
    if length < 0:
        raise _bad_length("path", offset, length)
    start = offset + 4
    end = start + length
    path = frame[start:end].decode()
    (length,) = unpack_from(frame, end)
    start = end + 4
    if length >= 0:
        end = start + length
        data: bytes | None = frame[start:end]
    elif length == NULL_LENGTH:
        end = start
        data = None
    else:
        raise _bad_length("data", end, length)
    acl: tuple[Acl, ...] | None
    if frame.startswith(WORLD_ANYONE_ALL, end):
        acl = None
        end += len(WORLD_ANYONE_ALL)
    else:
        acl, end = _decode_acl(frame, end)
    (flags,) = unpack_from(frame, end)
    end += 4
    if opcode == CREATE_TTL:
        (ttl_ms,) = LONG.unpack_from(frame, end)
        return (opcode, path, data, acl, flags, ttl_ms), end + 8
    return (opcode, path, data, acl, flags, NO_TTL), end


def _decode_create1(frame: bytes, offset: int) -> tuple[Command, int]:
    return _decode_create(CREATE, frame, offset)


def _decode_create2(frame: bytes, offset: int) -> tuple[Command, int]:
    return _decode_create(CREATE2, frame, offset)


def _decode_create_container(frame: bytes, offset: int) -> tuple[Command, int]:
    return _decode_create(CREATE_CONTAINER, frame, offset)


def _decode_create_ttl(frame: bytes, offset: int) -> tuple[Command, int]:
    return _decode_create(CREATE_TTL, frame, offset)


def _decode_delete_container(frame: bytes, offset: int) -> tuple[Command, int]:
    reader = JuteReader(frame, offset)
    path = reader.read_text()
    return (DELETE_CONTAINER, path), len(frame) - reader.remaining


def _decode_set_acl(frame: bytes, offset: int) -> tuple[Command, int]:
    reader = JuteReader(frame, offset)
    path = reader.read_text()
    acl, end = _decode_acl(frame, len(frame) - reader.remaining)
    (version,) = INT.unpack_from(frame, end)
    return (SET_ACL, path, acl, version), end + 4


def _decode_acl(frame: bytes, offset: int) -> tuple[tuple[Acl, ...], int]:
    """Return an ACL, empty for a null list.

    In a command nil stands for world:anyone; apply refuses both.

    So does a null id: kazoo writes the empty one of `auth:` (its CREATOR_ALL_ACL) that way. And so does a null scheme,
    which makes an ACL that apply refuses in its turn, as ZooKeeper does.
    """
    reader = JuteReader(frame, offset)

    def entry() -> Acl:
        return reader.read_int(), reader.read_ustring() or "", reader.read_ustring() or ""

    entries = reader.read_vector(entry, _ACL_ENTRY_BYTES_MIN) or ()
    return entries, len(frame) - reader.remaining


def _decode_delete(frame: bytes, offset: int) -> tuple[Command, int]:
    path, version, end = _decode_path_and_version(frame, offset)
    return (DELETE, path, version), end


def _decode_check(frame: bytes, offset: int) -> tuple[Command, int]:
    path, version, end = _decode_path_and_version(frame, offset)
    return (CHECK, path, version), end


def _decode_path_and_version(frame: bytes, offset: int) -> tuple[str, int, int]:
    (length,) = INT.unpack_from(frame, offset)
    if length < 0:
        raise _bad_length("path", offset, length)
    start = offset + 4
    end = start + length
    (version,) = INT.unpack_from(frame, end)
    return frame[start:end].decode(), version, end + 4


def _decode_set_data(frame: bytes, offset: int) -> tuple[Command, int]:
    unpack_from = INT.unpack_from
    (length,) = unpack_from(frame, offset)
    if length < 0:
        raise _bad_length("path", offset, length)
    start = offset + 4
    end = start + length
    path = frame[start:end].decode()
    (length,) = unpack_from(frame, end)
    start = end + 4
    if length >= 0:
        end = start + length
        data: bytes | None = frame[start:end]
    elif length == NULL_LENGTH:
        end = start
        data = None
    else:
        raise _bad_length("data", end, length)
    return (SET_DATA, path, data, unpack_from(frame, end)[0]), end + 4


def _decode_multi(frame: bytes, offset: int) -> tuple[Command, int]:
    """Return a multi.

    The number of operations is bounded by the frame: each takes at least its 9-byte header.
    """
    operations: list[Command] = []
    while True:
        opcode, done, _ = MULTI_HEADER.unpack_from(frame, offset)
        offset += MULTI_HEADER.size
        if done:
            return (MULTI, tuple(operations)), offset
        decode = _MULTI_DECODERS.get(opcode)
        if decode is None:
            raise MarshallingError(
                f"operation {opcode} in a multi: expected one of {sorted(_MULTI_DECODERS)} "
                "(create, delete, setData, check, create2, createContainer, createTTL)"
            )
        operation, offset = decode(frame, offset)
        operations.append(operation)


def _decode_close_session(frame: bytes, offset: int) -> tuple[Command, int]:
    return (CLOSE_SESSION,), offset


_Decoder = Callable[[bytes, int], tuple[Command, int]]

_MULTI_DECODERS: Final[dict[int, _Decoder]] = {
    CREATE: _decode_create1,
    CREATE2: _decode_create2,
    CREATE_CONTAINER: _decode_create_container,
    CREATE_TTL: _decode_create_ttl,
    DELETE: _decode_delete,
    SET_DATA: _decode_set_data,
    CHECK: _decode_check,
}

_WRITE_DECODERS: Final[dict[int, _Decoder]] = {
    CREATE: _decode_create1,
    CREATE2: _decode_create2,
    CREATE_CONTAINER: _decode_create_container,
    CREATE_TTL: _decode_create_ttl,
    DELETE: _decode_delete,
    DELETE_CONTAINER: _decode_delete_container,
    SET_DATA: _decode_set_data,
    SET_ACL: _decode_set_acl,
    MULTI: _decode_multi,
    CLOSE_SESSION: _decode_close_session,
}


def _bad_length(what: str, offset: int, length: int) -> MarshallingError:
    return MarshallingError(f"{what} at byte {offset}: expected a length of 0 or more, found {length}")


def _truncated(opcode: int, frame: bytes) -> MarshallingError:
    return MarshallingError(
        f"operation {opcode}: the body of {len(frame) - BODY_OFFSET} bytes ends inside a field: "
        "it is truncated or a length in it is wrong"
    )


def _not_utf8(opcode: int, error: UnicodeDecodeError) -> MarshallingError:
    return MarshallingError(f"operation {opcode}: expected a UTF-8 path, found {error.reason}")
