"""A native client of one server in memory: maps in, maps out, and turns that are taken by hand."""

from __future__ import annotations

import random
from typing import Any

import msgpack

from tests.fuzz.one_server import OneServer
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.server.clients.connection import Phase
from zraft.server.clients.native.connection import NativeConnection

TURNS_MAX = 5_000
Map = dict[Any, Any]


def started(seed: int = 1, **options: int) -> OneServer:
    """One server that serves at the newest feature level; `options` are those of `OneServer`."""
    server = OneServer(random.Random(seed), **options)
    for _ in range(TURNS_MAX):
        machine = server.driver.machine
        if machine.feature_level == FEATURE_LEVEL_MAX and machine.members:
            return server
        server.turn()
    raise AssertionError("the feature level does not rise")


class NativeClient:
    """The far end of one connection, which has said nothing yet."""

    def __init__(self, server: OneServer, number: int = 1, *, use_list: bool = True) -> None:
        self.server = server
        self._far = server.connect(number)
        self._far.connection = self.connection = server.driver.clients.native(self._far.connection)  # type: ignore[assignment]
        assert isinstance(self.connection, NativeConnection)
        self._unpacker = msgpack.Unpacker(strict_map_key=False, use_list=use_list)
        self._next_id = 0

    @property
    def closed(self) -> bool:
        return self._far.closed

    def raw(self, data: bytes) -> None:
        """One read of the socket brings `data`."""
        self.connection.data_received(data)

    def send(self, *messages: Map) -> None:
        """One read of the socket brings them all; those without id get one (-1: none)."""
        self.raw(b"".join(map(self._packed, messages)))

    def _packed(self, message: Map) -> bytes:
        if message.get("id") == -1:
            message = {name: value for name, value in message.items() if name != "id"}
        elif "id" not in message:
            self._next_id += 1
            message = {"id": self._next_id, **message}
        packed: bytes = msgpack.packb(message)
        return packed

    def taken(self) -> list[Map]:
        """What was received since the last call."""
        self._unpacker.feed(bytes(self._far.received))
        self._far.received.clear()
        return list(self._unpacker)

    def settle(self) -> list[Map]:
        """Turns until nothing is left to do; what was received."""
        for _ in range(TURNS_MAX):
            self.server.turn()
            waits = self.connection.phase is not Phase.CLOSED and self.connection.outstanding
            pushes = self.server.driver.clients.feeds.pending
            if self.server.idle and not waits and not pushes:
                self.server.turn()
                return self.taken()
        raise AssertionError("not settled")

    def ask(self, *messages: Map) -> list[Map]:
        """Send, settle, and what came; of pushed messages, too."""
        self.send(*messages)
        return self.settle()

    def one(self, message: Map) -> Map:
        """The only answer to one request."""
        (answer,) = self.ask(message)
        return answer

    def hello(self, **fields: Any) -> Map:
        return self.one({"type": "hello", "timeout_ms": 30_000, **fields})

    def put(self, key: Any, value: Any, **fields: Any) -> Map:
        return self.one({"type": "put", "key": key, "value": value, **fields})

    def get(self, key: Any, **fields: Any) -> Map:
        return self.one({"type": "get", "key": key, **fields})

    def hang_up(self) -> None:
        self.connection.connection_lost()
