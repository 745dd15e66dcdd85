"""Valid requests of every kind that clients send, to be spoiled: each frame stands behind its length."""

from __future__ import annotations

import random
import struct
from typing import Final

from tests.simulation import jute


def names_below(root: str) -> tuple[str, ...]:
    """Paths that requests are about: some of znodes below `root`, some that no znode can have."""
    return (
        "/",
        f"{root}/a",
        f"{root}/a/b",
        f"{root}/c",
        f"{root}/ä",
        "/zookeeper",
        f"{root}/never",
        f"{root}/a/b/c",
        "a",
        f"{root}/a//b",
        f"{root}/" + "x" * 300,
    )


NAMES: Final = names_below("")
UNKNOWN: Final = (13, 10, -10, -1, 0, 99, 23, 108, *(1 << bit for bit in range(10, 31)), 2**31 - 1, -(2**31))
_GET_ACL, _SET_ACL, _RECONFIG, _CHECK_WATCHES, _REMOVE_WATCHES = 6, 7, 16, 17, 18
_CREATE_CONTAINER, _DELETE_CONTAINER, _CREATE_TTL, _MULTI_READ = 19, 20, 21, 22
_AUTH, _SASL, _GET_EPHEMERALS, _COUNT, _SET_WATCHES2, _ADD_WATCH, _WHO_AM_I = (
    100,
    102,
    103,
    104,
    105,
    106,
    107,
)
_OTHER_ACLS: Final = (
    struct.pack(">i", 0),
    struct.pack(">i", -1),
    struct.pack(">ii", 1, 31) + jute.text("ip") + jute.text("10.0.0.0/8"),
    struct.pack(">ii", 1, 1) + jute.text("digest") + jute.text("bob:x"),
    jute.WORLD_ALL,
)


def valid_request(xid: int, rng: random.Random, names: tuple[str, ...] = NAMES) -> bytes:
    """One frame; all operations of the protocol come up, those that end the connection less often."""
    path = rng.choice(names)
    match rng.randrange(32):
        case 0 | 1 | 2:
            body = jute.create_body(path, _data(rng), rng.randrange(4))
            return jute.request(xid, rng.choice((jute.CREATE, jute.CREATE2)), body)
        case 3:
            body = jute.text(path) + jute.blob(_data(rng)) + rng.choice(_OTHER_ACLS)
            return jute.request(xid, jute.CREATE, body + struct.pack(">i", rng.randrange(-2, 9)))
        case 4 | 5:
            return jute.request(xid, jute.DELETE, jute.delete_body(path, rng.choice((-1, 0, 1))))
        case 6 | 7 | 8:
            return jute.request(xid, jute.SET_DATA, jute.set_body(path, _data(rng), rng.choice((-1, 0, 1))))
        case 9 | 10:
            return jute.request(xid, jute.MULTI, _multi(rng, names))
        case 11 | 12 | 13 | 14 | 15 | 16:
            opcode = rng.choice((jute.EXISTS, jute.GET_DATA, jute.GET_CHILDREN, jute.GET_CHILDREN2))
            return jute.request(xid, opcode, jute.watch_body(path, rng.random() < 0.5))
        case 17 | 18:
            return jute.request(xid, jute.SYNC, jute.text(path))
        case 19 | 20:
            return jute.request(jute.XID_PING, jute.PING)
        case 21:
            paths = [rng.choice(names) for _ in range(3)]
            return jute.request(
                xid, jute.SET_WATCHES, jute.set_watches_body(0, paths[:1], paths[1:2], paths[2:])
            )
        case 22 if rng.random() < 0.2:
            return jute.request(xid, jute.CLOSE)
        case 23 if rng.random() < 0.1:
            return jute.request(xid, rng.choice(UNKNOWN), jute.text(path))
        case 24 | 25 | 26 | 27 | 28 | 29 | 30:
            return _rarer_request(xid, path, rng, names)
        case _:
            return jute.request(xid, jute.SET_DATA, jute.set_body(names[1], _data(rng), -1))


def _rarer_request(xid: int, path: str, rng: random.Random, names: tuple[str, ...]) -> bytes:
    number = struct.pack(">i", rng.randrange(-1, 7))
    opcode = rng.choice(
        (
            _GET_ACL, _SET_ACL, _RECONFIG, _CHECK_WATCHES, _REMOVE_WATCHES, _CREATE_CONTAINER, _DELETE_CONTAINER,
            _CREATE_TTL, _MULTI_READ, _AUTH, _GET_EPHEMERALS, _COUNT, _SET_WATCHES2, _ADD_WATCH, _WHO_AM_I,
        )
        if rng.random() < 0.97
        else (_SASL,)
    )  # fmt: skip
    if opcode == _SET_ACL:
        if path == "/":
            # It would be obeyed, and from then on nobody may do anything.
            path = names[1]
        return jute.request(xid, opcode, jute.text(path) + rng.choice(_OTHER_ACLS) + number)
    if opcode == _RECONFIG:
        return jute.request(xid, opcode, jute.text("server.1=a:1:2") + jute.blob(None) * 2 + bytes(8))
    if opcode in (_CHECK_WATCHES, _REMOVE_WATCHES, _ADD_WATCH):
        return jute.request(xid, opcode, jute.text(path) + number)
    if opcode == _CREATE_CONTAINER:
        return jute.request(xid, opcode, jute.create_body(path, _data(rng), 4))
    if opcode == _CREATE_TTL:
        ttl_ms = struct.pack(">q", rng.choice((1, 60_000, 2**40 - 1, 2**40, 0, -1)))
        return jute.request(xid, opcode, jute.create_body(path, _data(rng), rng.choice((5, 6, 0))) + ttl_ms)
    if opcode == _MULTI_READ:
        parts = [(rng.choice((jute.GET_DATA, jute.GET_CHILDREN)), jute.watch_body(rng.choice(names), False))]
        return jute.request(xid, opcode, jute.multi_body(parts * rng.randrange(4)))
    if opcode == _AUTH:
        # A scheme that fails ends the connection, and what comes behind it is never looked at.
        scheme = "digest" if rng.random() < 0.97 else rng.choice(("ip", "x509", "no"))
        return jute.request(xid, opcode, bytes(4) + jute.text(scheme) + jute.blob(b"bob:secret"))
    if opcode == _SASL:
        return jute.request(xid, opcode, jute.blob(_data(rng)))
    if opcode == _SET_WATCHES2:
        paths = struct.pack(">i", 1) + jute.text(path)
        return jute.request(xid, opcode, bytes(8) + paths * 5)
    return jute.request(xid, opcode, b"" if opcode == _WHO_AM_I else jute.text(path))


def _data(rng: random.Random) -> bytes | None:
    return rng.choice((None, b"", b"data", rng.randbytes(rng.randrange(64)), b"z" * 700))


def _multi(rng: random.Random, names: tuple[str, ...]) -> bytes:
    operations = []
    for _ in range(rng.randrange(5)):
        path = rng.choice(names)
        operations.append(
            rng.choice(
                (
                    (jute.CREATE, jute.create_body(path, b"m", 0)),
                    (jute.CREATE2, jute.create_body(path, None, 2)),
                    (jute.DELETE, jute.delete_body(path, -1)),
                    (jute.SET_DATA, jute.set_body(path, b"m", -1)),
                    (jute.CHECK, jute.delete_body(path, 0)),
                    (_CREATE_CONTAINER, jute.create_body(path, b"", 4)),
                    (_CREATE_TTL, jute.create_body(path, b"", 5) + struct.pack(">q", 60_000)),
                )
            )
        )
    return jute.multi_body(operations)
