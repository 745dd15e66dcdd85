"""Owns the simulated TCP connections of clients: two ordered byte streams that either end may lose alone.

A connection is two FIFO channels. Bytes arrive in order, in arbitrary pieces and after arbitrary delays;
the end of one side becomes visible to the other later, or, on a half-open connection, never.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from tests.simulation.schedule import Schedule


class ClientEnd(Protocol):
    """What a client does with its socket."""

    def received(self, socket: Socket, data: bytes) -> None: ...
    def closed(self, socket: Socket) -> None: ...


class ServerEnd(Protocol):
    """What a server process does with its side of the socket."""

    def accept(self, socket: Socket) -> None: ...
    def received(self, socket: Socket, data: bytes) -> None: ...
    def closed(self, socket: Socket) -> None: ...


class Socket:
    """One TCP connection. `connection` is the driver's object for it once accepted."""

    __slots__ = (
        "_due",
        "_fragment",
        "_rng",
        "_schedule",
        "client",
        "client_open",
        "connection",
        "greeted",
        "half_open",
        "number",
        "server",
        "server_open",
        "session",
        "slow_ms",
    )

    def __init__(
        self,
        schedule: Schedule,
        rng: random.Random,
        number: int,
        client: ClientEnd,
        server: ServerEnd,
        *,
        slow_ms: int,
        fragment: bool,
    ) -> None:
        self._schedule = schedule
        self._rng = rng
        self._fragment = fragment
        self._due = [0, 0]
        self.number = number
        self.client = client
        self.server = server
        self.slow_ms = slow_ms
        self.client_open = True
        self.server_open = False
        self.half_open = False
        self.greeted = False
        self.connection: Any = None
        self.session = 0

    def _when(self, side: int) -> int:
        delay = 1 + self._rng.randint(0, self.slow_ms or 2)
        self._due[side] = max(self._due[side], self._schedule.now_ms + delay)
        return self._due[side]

    def _pieces(self, data: bytes) -> list[bytes]:
        if not self._fragment or len(data) < 2 or self._rng.random() < 0.5:
            return [data]
        cut = self._rng.randint(1, len(data) - 1)
        return [data[:cut], data[cut:]]

    # -- the client's side
    def open(self) -> None:
        self._schedule.at(self._when(0), self._accept)

    def to_server(self, data: bytes) -> None:
        for piece in self._pieces(data):
            self._schedule.at(self._when(0), self._server_receives, piece)

    def close_from_client(self, *, silently: bool) -> None:
        """The client gives the connection up; `silently`: its machine is gone or a firewall forgot it."""
        self.client_open = False
        if silently:
            self.half_open = True
        else:
            self._schedule.at(self._when(0), self._server_sees_end)

    # -- the server's side
    def to_client(self, data: bytes) -> None:
        if self.half_open:
            return
        for piece in self._pieces(data):
            self._schedule.at(self._when(1), self._client_receives, piece)

    def close_from_server(self, *, silently: bool = False) -> None:
        self.server_open = False
        if silently:
            self.half_open = True
        elif not self.half_open:
            self._schedule.at(self._when(1), self._client_sees_end)

    # -- arrivals
    def _accept(self) -> None:
        self.server_open = True
        self.server.accept(self)

    def _server_receives(self, data: bytes) -> None:
        if self.server_open:
            self.server.received(self, data)

    def _server_sees_end(self) -> None:
        if self.server_open:
            self.server_open = False
            self.server.closed(self)

    def _client_receives(self, data: bytes) -> None:
        if self.client_open:
            self.client.received(self, data)

    def _client_sees_end(self) -> None:
        if self.client_open:
            self.client_open = False
            self.client.closed(self)
