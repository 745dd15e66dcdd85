"""Requests as bytes and answers as values, written from ZooKeeper's record formats and nothing of `zraft_core.wire`.

What the server's own codec gets wrong these tests must not get wrong with it. Source: docs/reference/protocol-zookeeper.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from tests.simulation import jute
from tests.simulation.jute import (
    ADD_WATCH,
    AUTH,
    CHECK,
    CREATE,
    CREATE2,
    CREATE_CONTAINER,
    CREATE_TTL,
    DELETE,
    EXISTS,
    GET_ACL,
    GET_ALL_CHILDREN_NUMBER,
    GET_CHILDREN,
    GET_DATA,
    GET_EPHEMERALS,
    MULTI,
    PING,
    REMOVE_WATCHES,
    SET_ACL,
    SET_DATA,
    SET_WATCHES,
    SET_WATCHES2,
    SYNC,
    XID_AUTH,
    XID_EVENT,
    XID_PING,
    XID_SET_WATCHES,
    Reader,
    Stat,
    blob,
    text,
    texts,
)

RECONFIG: Final = 16
CLOSE_SESSION: Final = -11


OK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
BAD_ARGUMENTS: Final = -8
NO_NODE: Final = -101
NO_AUTH: Final = -102
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
INVALID_ACL: Final = -114
AUTH_FAILED: Final = -115

EPHEMERAL: Final = 1
SEQUENTIAL: Final = 2
CONTAINER: Final = 4
TTL: Final = 5

R: Final = 1
W: Final = 2
C: Final = 4
D: Final = 8
A: Final = 16

CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3
CHILDREN: Final = 4

ANY_WATCH: Final = 3

Acl = Sequence[tuple[int, str | None, str | None]]
WORLD: Final = ((R | W | C | D | A, "world", "anyone"),)


@frozen
class Ask:
    """One request: its operation, its body, and the xid if it is a reserved one."""

    opcode: int
    body: bytes = b""
    xid: int | None = None


@frozen
class Event:
    """A watch event as it was on the wire."""

    zxid: int
    kind: int
    state: int
    path: str


@frozen
class Answer:
    """A reply, its body not looked at yet."""

    xid: int
    zxid: int
    err: int
    body: bytes

    def reader(self) -> Reader:
        return Reader(self.body)

    def stat(self) -> Stat:
        """Of an answer that is a Stat alone."""
        reader = self.reader()
        stat = reader.stat()
        reader.finish()
        return stat

    def data(self) -> tuple[bytes | None, Stat]:
        """Of getData."""
        reader = self.reader()
        found = reader.blob(), reader.stat()
        reader.finish()
        return found

    def path(self) -> str:
        """Of create and sync."""
        reader = self.reader()
        path = reader.text()
        reader.finish()
        return path

    def path_and_stat(self) -> tuple[str, Stat]:
        """Of create2, createContainer and createTTL."""
        reader = self.reader()
        found = reader.text(), reader.stat()
        reader.finish()
        return found

    def names(self) -> list[str]:
        """Of getChildren and getEphemerals, sorted: no order is promised."""
        reader = self.reader()
        names = reader.texts()
        reader.finish()
        return sorted(names)

    def acl(self) -> list[tuple[int, str, str]]:
        """Of getACL."""
        reader = self.reader()
        entries = [(reader.integer(), reader.text(), reader.text()) for _ in range(reader.integer())]
        reader.stat()
        reader.finish()
        return entries

    def number(self) -> int:
        """Of getAllChildrenNumber."""
        reader = self.reader()
        number = reader.integer()
        reader.finish()
        return number


Heard = Answer | Event


def parsed(frame: bytes) -> Heard:
    """One frame of a server, but the first."""
    reader = Reader(frame)
    xid, zxid, err = reader.header()
    if xid != XID_EVENT:
        return Answer(xid, zxid, err, frame[16:])
    assert err == 0, f"an event with error {err}"
    event = Event(zxid, reader.integer(), reader.integer(), reader.text())
    reader.finish()
    return event


def text_or_null(value: str | None) -> bytes:
    return blob(None) if value is None else text(value)


def acl_vector(acl: Acl) -> bytes:
    return struct.pack(">i", len(acl)) + b"".join(
        [struct.pack(">i", bits) + text_or_null(scheme) + text_or_null(who) for bits, scheme, who in acl]
    )


def create(
    path: str, data: bytes | None = b"", *, flags: int = 0, acl: Acl = WORLD, opcode: int = CREATE
) -> Ask:
    return Ask(opcode, text(path) + blob(data) + acl_vector(acl) + struct.pack(">i", flags))


def create_container(path: str) -> Ask:
    return create(path, flags=CONTAINER, opcode=CREATE_CONTAINER)


def create_ttl(path: str, ttl_ms: int) -> Ask:
    return Ask(CREATE_TTL, create(path, flags=TTL).body + struct.pack(">q", ttl_ms))


def delete(path: str, version: int = -1) -> Ask:
    return Ask(DELETE, text(path) + struct.pack(">i", version))


def set_data(path: str, data: bytes | None = b"", version: int = -1) -> Ask:
    return Ask(SET_DATA, text(path) + blob(data) + struct.pack(">i", version))


def set_acl(path: str, acl: Acl, version: int = -1) -> Ask:
    return Ask(SET_ACL, text(path) + acl_vector(acl) + struct.pack(">i", version))


def get_acl(path: str) -> Ask:
    return Ask(GET_ACL, text(path))


def check(path: str, version: int) -> Ask:
    return Ask(CHECK, text(path) + struct.pack(">i", version))


def multi(*parts: Ask) -> Ask:
    return Ask(MULTI, jute.multi_body([(part.opcode, part.body) for part in parts]))


def exists(path: str, *, watch: bool = False) -> Ask:
    return Ask(EXISTS, jute.watch_body(path, watch))


def get_data(path: str, *, watch: bool = False) -> Ask:
    return Ask(GET_DATA, jute.watch_body(path, watch))


def get_children(path: str, *, watch: bool = False) -> Ask:
    return Ask(GET_CHILDREN, jute.watch_body(path, watch))


def sync(path: str) -> Ask:
    return Ask(SYNC, text(path))


def auth(scheme: str | None, credentials: bytes | None) -> Ask:
    return Ask(AUTH, struct.pack(">i", 0) + text_or_null(scheme) + blob(credentials), XID_AUTH)


def set_watches(
    relative_zxid: int,
    *,
    data: Sequence[str] = (),
    exist: Sequence[str] = (),
    child: Sequence[str] = (),
) -> Ask:
    body = jute.set_watches_body(relative_zxid, list(data), list(exist), list(child))
    return Ask(SET_WATCHES, body, XID_SET_WATCHES)


def set_watches2(
    relative_zxid: int,
    *,
    data: Sequence[str] = (),
    persistent: Sequence[str] = (),
    recursive: Sequence[str] = (),
) -> Ask:
    body = jute.set_watches_body(relative_zxid, list(data), [], [])
    return Ask(SET_WATCHES2, body + texts(list(persistent)) + texts(list(recursive)), XID_SET_WATCHES)


def add_watch(path: str, mode: int) -> Ask:
    return Ask(ADD_WATCH, text(path) + struct.pack(">i", mode))


def remove_watches(path: str, kind: int) -> Ask:
    return Ask(REMOVE_WATCHES, text(path) + struct.pack(">i", kind))


def get_ephemerals(prefix: str) -> Ask:
    return Ask(GET_EPHEMERALS, text(prefix))


def get_all_children_number(path: str) -> Ask:
    return Ask(GET_ALL_CHILDREN_NUMBER, text(path))


PING_REQUEST: Final = Ask(PING, xid=XID_PING)
CLOSE: Final = Ask(CLOSE_SESSION)


def multi_results(answer: Answer) -> list[tuple[int, int, Any]]:
    """(type, err of its header, body) per part; the body of an error is its int, of a check or delete None."""
    reader = answer.reader()
    results: list[tuple[int, int, Any]] = []
    while True:
        kind, done, err = reader.multi_header()
        if done:
            assert (kind, err) == (-1, -1), f"a multi that ends with type {kind} and err {err}"
            reader.finish()
            return results
        body: object = None
        if kind == -1:
            body = reader.integer()
        elif kind == CREATE:
            body = reader.text()
        elif kind == CREATE2:
            body = reader.text(), reader.stat()
        elif kind == SET_DATA:
            body = reader.stat()
        else:
            assert kind in (DELETE, CHECK), f"a result of type {kind} in a multi"
        results.append((kind, err, body))
