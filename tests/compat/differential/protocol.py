"""ZooKeeper's records as the differential run writes and reads them; shares no codec with the product.

A request is an `Op`: its opcode and the fields that `REQUESTS` names. What comes back is decoded into plain tuples in
which the values that two systems cannot have in common are marked by type: `Zxid`, `SessionId`, `Time`.
Source: ZooKeeper's `zookeeper.jute`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import groupby
from typing import Any, Final

from attrs import field, frozen

from tests.simulation.jute import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CHECK_WATCHES,
    CLOSE,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    DELETE_CONTAINER,
    EXISTS,
    GET_ACL,
    GET_ALL_CHILDREN_NUMBER,
    GET_CHILDREN,
    GET_CHILDREN2,
    GET_DATA,
    GET_EPHEMERALS,
    MULTI,
    MULTI_READ,
    PING,
    REMOVE_WATCHES,
    SET_ACL,
    SET_DATA,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    WHO_AM_I,
)

NAMES: Final = {
    value: name.lower()
    for name, value in list(globals().items())
    if name.isupper() and isinstance(value, int)
}
WRITES: Final = frozenset(
    (CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL, DELETE, DELETE_CONTAINER, SET_DATA, SET_ACL, MULTI, CLOSE)
)
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
NO_AUTH: Final = -102
AUTH_FAILED: Final = -115
SHOWN_BYTES: Final = 40
RESERVED_XIDS: Final = {PING: -2, AUTH: -4, SET_WATCHES: -8, SET_WATCHES2: -8}

_CREATE_FIELDS: Final = ("path", "buffer", "acl", "int")
REQUESTS: Final[dict[int, tuple[str, ...]]] = {
    CREATE: _CREATE_FIELDS,
    CREATE2: _CREATE_FIELDS,
    CREATE_CONTAINER: _CREATE_FIELDS,
    CREATE_TTL: (*_CREATE_FIELDS, "long"),
    DELETE: ("path", "int"),
    DELETE_CONTAINER: ("path",),
    EXISTS: ("path", "bool"),
    GET_DATA: ("path", "bool"),
    SET_DATA: ("path", "buffer", "int"),
    GET_ACL: ("path",),
    SET_ACL: ("path", "acl", "int"),
    GET_CHILDREN: ("path", "bool"),
    GET_CHILDREN2: ("path", "bool"),
    SYNC: ("path",),
    PING: (),
    CHECK: ("path", "int"),
    MULTI: ("operations",),
    MULTI_READ: ("operations",),
    CHECK_WATCHES: ("path", "int"),
    REMOVE_WATCHES: ("path", "int"),
    AUTH: ("int", "text", "buffer"),
    SET_WATCHES: ("zxid", "paths", "paths", "paths"),
    SET_WATCHES2: ("zxid", "paths", "paths", "paths", "paths", "paths"),
    GET_EPHEMERALS: ("path",),
    GET_ALL_CHILDREN_NUMBER: ("path",),
    ADD_WATCH: ("path", "int"),
    WHO_AM_I: (),
    CLOSE: (),
}
"""Fields by opcode. An opcode that is not here is sent with whatever bytes its one field is."""


class Zxid(int):
    """A transaction id: only the order of two of them means anything."""


class LastZxid(int):
    """The last transaction that a server had applied when it answered; there may be none whose id anybody saw."""


class SessionId(int):
    """A session's id, or 0 for none."""


class Time(int):
    """Wall clock in milliseconds."""


@frozen
class Made:
    """Stands for the path that step `step` made, such as a sequential one; `instead` if it made none."""

    step: int
    instead: str

    def __str__(self) -> str:
        return f"<path made by step {self.step}, or {self.instead}>"


@frozen
class ZxidOf:
    """Stands for the zxid in the reply to step `step`; 0 if there was none."""

    step: int


@frozen
class Op:
    """One request."""

    opcode: int
    fields: tuple[Any, ...]

    def __str__(self) -> str:
        shown = [f"[{', '.join(map(str, f))}]" if _are_ops(f) else _shown(f) for f in self.fields]
        return f"{NAMES.get(self.opcode, self.opcode)}({', '.join(shown)})"


def _are_ops(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Op)


def _shown(value: Any) -> str:
    if isinstance(value, bytes) and len(value) > SHOWN_BYTES:
        return f"<{len(value)} bytes>"
    return str(value) if isinstance(value, Made) else repr(value)


@frozen
class Reply:
    """What answered a request. `body` is None if `err` is not 0, and raw bytes if nobody knows its form."""

    step: int
    xid: int
    zxid: Zxid | LastZxid
    err: int
    body: Any


@frozen
class Event:
    """A watch fired."""

    zxid: Zxid
    type: int
    state: int
    path: str


@frozen
class Connected:
    """The answer to a connect request."""

    timeout_ms: int
    session: SessionId
    password_bytes: int
    read_only: bool
    password: bytes = field(eq=False, repr=False)


@frozen
class Closed:
    """The server ended the connection."""


@frozen
class Silent:
    """The server did not answer these steps in time, and said nothing else; the connection is given up."""

    steps: tuple[int, ...]


Observed = Reply | Event | Connected | Closed | Silent


# -- writing


def encode_request(op: Op, xid: int, resolve: Callable[[Any], Any]) -> bytes:
    return framed(struct.pack(">ii", xid, op.opcode) + _encode_fields(op, resolve))


def encode_connect(timeout_ms: int, session: int, password: bytes, last_zxid: int) -> bytes:
    return framed(struct.pack(">iqiq", 0, last_zxid, timeout_ms, session) + _buffer(password) + b"\0")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _encode_fields(op: Op, resolve: Callable[[Any], Any]) -> bytes:
    schema = REQUESTS.get(op.opcode)
    if schema is None or (len(op.fields) == 1 and isinstance(op.fields[0], bytes)):
        return bytes(op.fields[0])  # a body on purpose
    return b"".join(_encode(kind, value, resolve) for kind, value in zip(schema, op.fields, strict=True))


def _encode(kind: str, value: Any, resolve: Callable[[Any], Any]) -> bytes:
    match kind:
        case "int":
            return struct.pack(">i", value)
        case "long" | "zxid":
            return struct.pack(">q", resolve(value))
        case "bool":
            return b"\x01" if value else b"\0"
        case "path":
            return _buffer(resolve(value).encode())
        case "text":
            return _text(value)
        case "buffer":
            return _buffer(value)
        case "paths":
            return struct.pack(">i", len(value)) + b"".join(_buffer(resolve(one).encode()) for one in value)
        case "acl":
            if value is None:
                return struct.pack(">i", -1)
            entries = (struct.pack(">i", p) + _text(scheme) + _text(name) for p, scheme, name in value)
            return struct.pack(">i", len(value)) + b"".join(entries)
        case "operations":
            parts = (struct.pack(">iBi", one.opcode, 0, -1) + _encode_fields(one, resolve) for one in value)
            return b"".join(parts) + struct.pack(">iBi", -1, 1, -1)
    raise AssertionError(f"no field is of kind {kind}")


def _text(value: str | None) -> bytes:
    return _buffer(None if value is None else value.encode())


def _buffer(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


# -- reading


class Reader:
    """A cursor over one frame."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, layout: str) -> Any:
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values[0] if len(values) == 1 else values

    def buffer(self) -> bytes | None:
        size = self.take(">i")
        if size < 0:
            return None
        self.at += size
        assert self.at <= len(self.data), "a length beyond the frame"
        return self.data[self.at - size : self.at]

    def text(self) -> str | None:
        raw = self.buffer()
        return None if raw is None else raw.decode()

    def texts(self) -> tuple[str | None, ...] | None:
        count = self.take(">i")
        return None if count < 0 else tuple(self.text() for _ in range(count))

    def names(self) -> tuple[str, ...] | None:
        """Names whose order means nothing: sorted."""
        found = self.texts()
        return None if found is None else tuple(sorted(str(one) for one in found))

    def stat(self) -> tuple[Any, ...]:
        czxid, mzxid, ctime, mtime, version, cversion, aversion, owner, length, children, pzxid = self.take(
            ">qqqqiiiqiiq"
        )
        return (
            *(Zxid(czxid), Zxid(mzxid), Time(ctime), Time(mtime), version, cversion, aversion),
            *(SessionId(owner), length, children, Zxid(pzxid)),
        )

    def acl(self) -> tuple[tuple[Any, ...], ...]:
        """Neighbours that differ only in their names come sorted: the ids that `auth` stands for have no order."""
        entries = [(self.take(">i"), self.text(), self.text()) for _ in range(self.take(">i"))]
        runs = groupby(entries, key=lambda entry: entry[:2])
        return tuple(entry for _, run in runs for entry in sorted(run, key=lambda entry: entry[2] or ""))


def _multi(reader: Reader) -> tuple[Any, ...]:
    results: list[Any] = []
    while True:
        kind, done, err = reader.take(">iBi")
        if done:
            return (*results, ("end", kind, err))
        if kind == -1:
            results.append((kind, err, reader.take(">i")))
        else:
            decode = RESULTS.get(kind)
            assert decode is not None, f"result of type {kind} in a multi"
            results.append((kind, err, decode(reader)))


RESULTS: Final[dict[int, Callable[[Reader], Any]]] = {
    CREATE: Reader.text,
    CREATE2: lambda r: (r.text(), r.stat()),
    CREATE_CONTAINER: lambda r: (r.text(), r.stat()),
    CREATE_TTL: lambda r: (r.text(), r.stat()),
    DELETE: lambda _: None,
    CHECK: lambda _: None,
    EXISTS: Reader.stat,
    SET_DATA: Reader.stat,
    SET_ACL: Reader.stat,
    GET_DATA: lambda r: (r.buffer(), r.stat()),
    GET_ACL: lambda r: (r.acl(), r.stat()),
    GET_CHILDREN: Reader.names,
    GET_CHILDREN2: lambda r: (r.names(), r.stat()),
    SYNC: Reader.text,
    MULTI: _multi,
    MULTI_READ: _multi,
    GET_EPHEMERALS: Reader.names,
    GET_ALL_CHILDREN_NUMBER: lambda r: r.take(">i"),
    WHO_AM_I: lambda r: tuple(sorted((r.text(), r.text()) for _ in range(r.take(">i")))),
}


def decode_body(opcode: int, reader: Reader) -> Any:
    """The body as `RESULTS` knows it, with any bytes that are left over; raw bytes if it is not of that form."""
    start = reader.at
    decode = RESULTS.get(opcode)
    if decode is None:
        return reader.data[start:]
    try:
        value = decode(reader)
    except (struct.error, AssertionError, UnicodeDecodeError, TypeError):
        return ("not of the form of this operation's reply", reader.data[start:])
    rest = reader.data[reader.at :]
    return ("followed by", value, rest) if rest else value
