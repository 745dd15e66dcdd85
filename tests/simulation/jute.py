"""Owns the simulated clients' own reading and writing of ZooKeeper's bytes.

Deliberately not `zraft_core.wire`: a client that shared its codec with the server would not notice a mistake
that both make. Source: ZooKeeper's `zookeeper.jute`. Only what the simulated clients use.
"""

from __future__ import annotations

import struct
from typing import Final

from attrs import frozen

from tests.simulation.rights import Acl

XID_EVENT: Final = -1
XID_PING: Final = -2
XID_AUTH: Final = -4
XID_SET_WATCHES: Final = -8

CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_ACL: Final = 6
SET_ACL: Final = 7
GET_CHILDREN: Final = 8
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
CHECK_WATCHES: Final = 17
REMOVE_WATCHES: Final = 18
CREATE_CONTAINER: Final = 19
DELETE_CONTAINER: Final = 20
CREATE_TTL: Final = 21
MULTI_READ: Final = 22
AUTH: Final = 100
SET_WATCHES: Final = 101
GET_EPHEMERALS: Final = 103
GET_ALL_CHILDREN_NUMBER: Final = 104
SET_WATCHES2: Final = 105
ADD_WATCH: Final = 106
WHO_AM_I: Final = 107
CLOSE: Final = -11

WORLD_ALL: Final = struct.pack(">ii", 1, 31) + b"\0\0\0\5world\0\0\0\6anyone"
STAT: Final = struct.Struct(">qqqqiiiqiiq")

EVENT_CREATED: Final = 1
EVENT_DELETED: Final = 2
EVENT_CHANGED: Final = 3
EVENT_CHILDREN: Final = 4

FLAG_CONTAINER: Final = 4
FLAG_TTL: Final = 5
FLAG_TTL_SEQUENTIAL: Final = 6

PERSISTENT: Final = 0
RECURSIVE: Final = 1
"""Modes of addWatch."""

OF_CHILDREN: Final = 1
OF_DATA: Final = 2
OF_ANY: Final = 3
OF_PERSISTENT: Final = 4
OF_RECURSIVE: Final = 5
"""What checkWatches and removeWatches look for."""


@frozen
class Stat:
    """A znode's stat as it is on the wire; times are milliseconds of the leader's wall clock."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">i", len(raw)) + raw


def blob(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def texts(values: list[str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def acl_list(acl: Acl | None) -> bytes:
    """None is world:anyone with all rights."""
    if acl is None:
        return WORLD_ALL
    entries = [struct.pack(">i", bits) + text(scheme) + text(who) for bits, scheme, who in acl]
    return struct.pack(">i", len(entries)) + b"".join(entries)


def connect_request(
    last_zxid: int, timeout_ms: int, session: int, password: bytes, *, read_only: bool = False
) -> bytes:
    head = struct.pack(">iqiq", 0, last_zxid, timeout_ms, session)
    return frame(head + blob(password) + (b"\1" if read_only else b"\0"))


def request(xid: int, opcode: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">ii", xid, opcode) + body)


def create_body(
    path: str, data: bytes | None, flags: int, acl: Acl | None = None, ttl_ms: int | None = None
) -> bytes:
    """`ttl_ms` is what createTTL alone carries."""
    body = text(path) + blob(data) + acl_list(acl) + struct.pack(">i", flags)
    return body if ttl_ms is None else body + struct.pack(">q", ttl_ms)


def set_acl_body(path: str, acl: Acl, version: int) -> bytes:
    return text(path) + acl_list(acl) + struct.pack(">i", version)


def path_and_number(path: str, number: int) -> bytes:
    """addWatch, checkWatches and removeWatches."""
    return text(path) + struct.pack(">i", number)


def auth_body(scheme: str, auth: bytes) -> bytes:
    return struct.pack(">i", 0) + text(scheme) + blob(auth)


def delete_body(path: str, version: int) -> bytes:
    return text(path) + struct.pack(">i", version)


def set_body(path: str, data: bytes | None, version: int) -> bytes:
    return text(path) + blob(data) + struct.pack(">i", version)


def watch_body(path: str, watch: bool) -> bytes:
    return text(path) + (b"\1" if watch else b"\0")


def multi_body(operations: list[tuple[int, bytes]]) -> bytes:
    parts = [struct.pack(">ibi", opcode, 0, -1) + body for opcode, body in operations]
    return b"".join(parts) + struct.pack(">ibi", -1, 1, -1)


def set_watches_body(relative_zxid: int, data: list[str], exist: list[str], child: list[str]) -> bytes:
    return struct.pack(">q", relative_zxid) + texts(data) + texts(exist) + texts(child)


def multi_read_body(parts: list[tuple[int, str]]) -> bytes:
    return multi_body([(opcode, watch_body(path, False)) for opcode, path in parts])


class Reader:
    """Reads one frame's fields in order; running past its end is an error of the server."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return values

    def integer(self) -> int:
        return self._take(_INT)[0]

    def header(self) -> tuple[int, int, int]:
        xid, zxid, err = self._take(_REPLY)
        return xid, zxid, err

    def multi_header(self) -> tuple[int, bool, int]:
        kind, done, err = self._take(_MULTI)
        return kind, bool(done), err

    def stat(self) -> Stat:
        return Stat(*self._take(STAT))

    def blob(self) -> bytes | None:
        length = self.integer()
        if length < 0:
            return None
        value = self._data[self._at : self._at + length]
        self._at += length
        return value

    def text(self) -> str:
        return (self.blob() or b"").decode()

    def texts(self) -> list[str]:
        return [self.text() for _ in range(self.integer())]

    def acl(self) -> Acl:
        return tuple((self.integer(), self.text(), self.text()) for _ in range(self.integer()))

    def pairs(self) -> list[tuple[str, str]]:
        return [(self.text(), self.text()) for _ in range(self.integer())]

    def connect_response(self) -> tuple[int, int, bytes, bool]:
        """(timeout in ms, session id, password, whether the server only reads).

        Clients before ZooKeeper 3.4 do not ask for the last one, and are not told.
        """
        _, timeout, session = self._take(_CONNECT)
        password = self.blob() or b""
        if self._at == len(self._data):
            return timeout, session, password, False
        self._at += 1
        return timeout, session, password, self._data[self._at - 1] != 0

    def finish(self) -> None:
        """Every frame must have been read to its last byte."""
        if self._at != len(self._data):
            raise ValueError(f"reply has {len(self._data) - self._at} bytes too many: {self._data!r}")


_INT = struct.Struct(">i")
_REPLY = struct.Struct(">iqi")
_MULTI = struct.Struct(">ibi")
_CONNECT = struct.Struct(">iiq")
