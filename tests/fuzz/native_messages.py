"""Requests of native clients, valid ones of every kind and with every field that is declared, and how they are spoiled."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgpack
from attrs import NOTHING

from tests.fuzz.mutation import INTEGERS
from zraft_core.claims.codec import encode_command
from zraft_core.claims.commands import Heartbeat
from zraft_core.layout import Fields
from zraft_core.wire.native.requests import REQUESTS, SUBSCRIBE

_PATHS: Final = ("/a", "/a/b", "/", "/never", "a", "/zraft/dictionaries/default/=k0", "/x\0")
_HOPES: Final = (None, -1, 0, 1)

Draw = Callable[[random.Random], Any]


def _one_of(*values: Any) -> Draw:
    return lambda rng: rng.choice(values)


def _messages(rng: random.Random, producer: int = 1) -> list[Any]:
    """A message to one partition, a few times."""
    mid = [producer, rng.randrange(1, 5)]
    multicast = [mid, [1], rng.randbytes(rng.randrange(30)), 1, None, None, 0, None]
    return [multicast] * rng.randrange(1, 4)


STREAM: Final = 1_000
"""The id of a producer's stream, which no other request has."""


def stream_of(producer: int, rng: random.Random) -> list[dict[str, Any]]:
    """The beginning of a stream of a producer that the connection's session owns, and messages of it."""
    begin = {"id": STREAM, "type": "subscribe", "producer": producer, "times": rng.random() < 0.5}
    produce = {"id": STREAM, "type": "produce", "group": 1, "floor": 0, "epoch": 0}
    return [begin, *({**produce, "messages": _messages(rng, producer)} for _ in range(rng.randrange(1, 4)))]


_path: Final = _one_of(*_PATHS)
_data: Final[Draw] = lambda rng: rng.choice((None, b"", b"data", rng.randbytes(40)))  # noqa: E731
_boolean: Final = _one_of(False, True)
_limit: Final = _one_of(None, 1, 2**62)

_DRAWN: Final[Mapping[str, Draw]] = {
    "acl": _one_of(None, [[31, "world", "anyone"]], [[1, "ip", "10.0.0.0/8"]]),
    "action": _one_of("add", "delete"),
    "address": _one_of("10.0.0.1", "::1"),
    "after": _one_of(None, "=k1"),
    "amount": _one_of(1, -1, 2**63 - 1),
    "bytes": _one_of(1, 100, 2**31 - 1),
    "command": _one_of(encode_command(Heartbeat("g", 1, 2, 3))),
    "consistency": _one_of("linearizable", "local"),
    "consumer": _one_of(b"c", b"\0" * 255),
    "credentials": _one_of(b"bob:x"),
    "credit": _one_of(0, 50, 10**6),
    "data": _data,
    "dictionary": _one_of("default", "d", "\u00e4/."),
    "digest": _one_of(None, bytes(16)),
    "directory": _path,
    "epoch": _one_of(0, 1),
    "first": lambda rng: rng.randrange(3),
    "flags": lambda rng: rng.randrange(5),
    "floor": lambda rng: rng.randrange(3),
    "forward": _boolean,
    "group": _one_of(1, 2, 2**63 - 1),
    "key": lambda rng: rng.choice((f"k{rng.randrange(5)}", 1, 1.5, b"b", None, (1, "x"), "long" * 90)),
    "last_zxid": _one_of(0, 1),
    "limit": lambda rng: rng.randrange(1, 5),
    "log": _path,
    "messages": _messages,
    "name": _one_of("g", "\u00e4"),
    "offset": _one_of(None, 7),
    "operations": lambda rng: [_part(rng) for _ in range(rng.randrange(4))],
    "origin_data": _data,
    "origin_path": _one_of(None, "/o"),
    "parent": _one_of(None, *_PATHS),
    "partitions": lambda rng: rng.randrange(1, 6),
    "password": _one_of(bytes(16)),
    "path": _path,
    "port": _one_of(2, 65_535),
    "prefix": _one_of("", "w"),
    "producer": _one_of(1, 2**40),
    "recursive": _boolean,
    "relayed": _boolean,
    "retention_age_ms": _limit,
    "retention_bytes": _limit,
    "scheme": _one_of("digest"),
    "seq": lambda rng: rng.randrange(1, 40),
    "server": _one_of(None, 3),
    "session": _one_of(None, 1),
    "staged": _boolean,
    "subscription": lambda rng: rng.randrange(30),
    "time_ms": _one_of(0, 10**12, 2**63 - 1),
    "timeout_ms": _one_of(0, 50),
    "times": _boolean,
    "topic": _one_of("a", "b", "no/name"),
    "ttl": _one_of(None, 1_000),
    "value": lambda rng: rng.choice(
        (None, 1, "text", b"bytes", [1, [2]], {"a": {"b": 1}}, rng.randbytes(rng.randrange(3_000)))
    ),
    "version": _one_of(*_HOPES),
    "wait_ms": _one_of(0, 50),
}
"""By the name of a field."""
_DRAWN_OF: Final[Mapping[tuple[str, str], Draw]] = {
    ("append", "data"): lambda rng: {
        "action": rng.choice(("change", "delete")),
        "key": _DRAWN["key"](rng),
        "value": 1,
    },
    ("fetch", "partitions"): _one_of([[1, 0, 100], [2, 5, 0]], [[1, 0, 0]]),
    ("need", "partitions"): _one_of([[1, 5]], [[1, 5], [2, 0]]),
}
"""Where a name stands for something else in one type of request."""

_ENDING: Final = frozenset({"close", "auth", "hello"})
"""What ends a connection, or may only begin one."""
KINDS: Final[tuple[Fields[Any], ...]] = (*REQUESTS.values(), *SUBSCRIBE.values())
"""The fields of all requests."""
_USUAL: Final = tuple(fields for fields in KINDS if fields.called not in _ENDING)
_NAMES: Final = (*sorted({"type", *(name for fields in KINDS for name in fields.fields)} - {"id"}), "x")


def drawn(fields: Fields[Any], rng: random.Random) -> dict[str, Any]:
    """A request with these fields, without an id."""
    kind = fields.called
    message = {"type": kind}
    for name, field in fields.fields.items():
        if name != "id" and (field.default is NOTHING or rng.random() < 0.3):
            draw = _DRAWN_OF.get((kind, name)) or _DRAWN[name]
            message[name] = draw(rng)
    return message


def _part(rng: random.Random) -> dict[str, Any]:
    """What a multi may do, and now and then something that it may not."""
    return drawn(REQUESTS[rng.choice(("put", "delete", "create", "set", "remove", "increment"))], rng)


def valid_message(number: int, rng: random.Random) -> dict[str, Any]:
    """One request of any kind."""
    return {"id": number, **drawn(rng.choice(_USUAL if rng.random() < 0.99 else KINDS), rng)}


def spoiled_message(message: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same with a field of another kind, one less, or one more; its id stays, so that its answer can be told."""
    spoiled = dict(message)
    name = rng.choice([*(name for name in message if name != "id"), *_NAMES])
    match rng.randrange(3):
        case 0:
            spoiled.pop(name, None)
        case _:
            spoiled[name] = rng.choice(
                (
                    None, True, -1, 0, 1.5, float("nan"), "text", "", b"", b"x" * 16, [], [1], [[1]], {}, {"a": 1},
                    msgpack.Timestamp(1), msgpack.ExtType(7, b""), rng.choice(INTEGERS) % 2**64, "x" * 500, "\0",
                )
            )  # fmt: skip
    return spoiled
