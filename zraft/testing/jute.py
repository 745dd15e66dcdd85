"""Owns the simulated clients' own reading and writing of ZooKeeper's bytes.

Deliberately not `zraft.wire`: a client that shared its codec with the server would not notice a mistake
that both make. Source: ZooKeeper's `zookeeper.jute`. Only what the simulated clients use.
"""

from __future__ import annotations

import struct
from typing import Final

from attrs import frozen

XID_EVENT: Final = -1
XID_PING: Final = -2
XID_SET_WATCHES: Final = -8

CREATE: Final = 1
DELETE: Final = 2
EXISTS: Final = 3
GET_DATA: Final = 4
SET_DATA: Final = 5
GET_CHILDREN: Final = 8
SYNC: Final = 9
PING: Final = 11
GET_CHILDREN2: Final = 12
CHECK: Final = 13
MULTI: Final = 14
CREATE2: Final = 15
SET_WATCHES: Final = 101
CLOSE: Final = -11

WORLD_ALL: Final = struct.pack(">ii", 1, 31) + b"\0\0\0\5world\0\0\0\6anyone"
STAT: Final = struct.Struct(">qqqqiiiqiiq")

EVENT_CREATED: Final = 1
EVENT_DELETED: Final = 2
EVENT_CHANGED: Final = 3
EVENT_CHILDREN: Final = 4


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


def connect_request(last_zxid: int, timeout_ms: int, session: int, password: bytes) -> bytes:
    return frame(struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + blob(password) + b"\0")


def request(xid: int, opcode: int, body: bytes = b"") -> bytes:
    return frame(struct.pack(">ii", xid, opcode) + body)


def create_body(path: str, data: bytes | None, flags: int) -> bytes:
    return text(path) + blob(data) + WORLD_ALL + struct.pack(">i", flags)


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

    def connect_response(self) -> tuple[int, int, bytes]:
        """(timeout in ms, session id, password)."""
        _, timeout, session = self._take(_CONNECT)
        password = self.blob() or b""
        self._at += 1
        return timeout, session, password

    def finish(self) -> None:
        """Every frame must have been read to its last byte."""
        if self._at != len(self._data):
            raise ValueError(f"reply has {len(self._data) - self._at} bytes too many: {self._data!r}")


_INT = struct.Struct(">i")
_REPLY = struct.Struct(">iqi")
_MULTI = struct.Struct(">ibi")
_CONNECT = struct.Struct(">iiq")
