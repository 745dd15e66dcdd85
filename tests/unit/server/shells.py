"""The shell of client connections over transports that only remember, around one server without network or disk."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

from tests.unit.server.one_server import OneServer
from zraft.server.clients.settings import ClientSettings
from zraft.server.process.client_protocol import ClientProtocol
from zraft.server.process.security.client_tls import ClientTls


class Transport:
    """What asyncio would do, remembered; `room` is how many bytes more the client and its kernel take, None: any number."""

    def __init__(
        self, host: str = "127.0.0.1", room: int | None = None, accepted: socket.socket | None = None
    ) -> None:
        self.protocol: ClientProtocol | None = None
        self.host = host
        self.room = room
        self.parts: list[bytes] = []
        """What was sent, as it was written."""
        self._waiting: list[bytes] = []
        self._paused = False
        self._high = 64 * 1024
        self.reading = True
        self.ended: str | None = None
        self.socket = accepted

    @property
    def sent(self) -> bytes:
        return b"".join(self.parts)

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.host, 1), "socket": self.socket}.get(name)

    def set_write_buffer_limits(self, high: int) -> None:
        self._high = high

    def write(self, data: bytes) -> None:
        assert self.ended is None, "written after the end"
        self._waiting.append(data)
        self._move()
        if not self._paused and self.get_write_buffer_size() > self._high and self.protocol is not None:
            self._paused = True
            self.protocol.pause_writing()

    def _move(self) -> None:
        """As much as there is room for."""
        while self._waiting and self.room != 0:
            part = self._waiting.pop(0)
            if self.room is not None:
                if len(part) > self.room:
                    self._waiting.insert(0, part[self.room :])
                    part = part[: self.room]
                self.room -= len(part)
            self.parts.append(part)

    def take(self, room: int | None) -> None:
        """The client reads so much more."""
        self.room = None if room is None or self.room is None else self.room + room
        self._move()
        if self._paused and not self._waiting and self.protocol is not None:
            self._paused = False
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self._waiting))

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = self.ended or ("aborted" if self._waiting else "closed")
        self._waiting.clear()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


class Node:
    """The parts of a node that a protocol uses, around one server without network or disk."""

    def __init__(self, tls: ClientTls | None = None, settings: ClientSettings | None = None) -> None:
        self.server = OneServer(clients=settings)
        self.tls = tls
        clients = self.server.clients
        self.driver = SimpleNamespace(connect=clients.connect, clients=clients)
        self.waiting: set[ClientProtocol] = set()
        self.paused: set[ClientProtocol] = set()
        self.streams: list[tuple[Any, bytes]] = []

    def on_stream(self, transport: Any, data: bytes) -> None:
        self.streams.append((transport, data))

    def on_waiting(self, protocol: ClientProtocol) -> None:
        self.waiting.add(protocol)

    def on_protocol_lost(self, protocol: ClientProtocol) -> None:
        self.waiting.discard(protocol)
        self.paused.discard(protocol)

    def on_protocol_paused(self, protocol: ClientProtocol) -> None:
        self.paused.add(protocol)

    def on_protocol_closed(self, protocol: ClientProtocol) -> None:
        self.paused.discard(protocol)

    def turn(self) -> None:
        """As the node's: handshakes, then all else, then what is to be written."""
        if self.tls is not None:
            self.tls.handshakes.run()
        while True:
            self.server.propose()
            if not self.server.log:
                break
            self.server.apply()
        for connection, data, close in self.server.clients.flush(self.server.now):
            if connection.handle is not None:
                connection.handle.write(data, close=close)
        for protocol in list(self.paused):
            protocol.maybe_resume()

    @property
    def reasons(self) -> str:
        return " ".join(why for _, why in self.server.clients.refusals)


class End:
    """A protocol and its transport."""

    def __init__(
        self,
        node: Node,
        *,
        plain: bool = True,
        host: str = "127.0.0.1",
        room: int | None = None,
        accepted: socket.socket | None = None,
    ) -> None:
        self.node = node
        self.transport = Transport(host, room, accepted)
        self.protocol = ClientProtocol(node, lambda: None, node.tls, plain=plain)  # type: ignore[arg-type]
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)  # type: ignore[arg-type]

    @property
    def connection(self) -> Any:
        return self.protocol._connection

    def feed(self, data: bytes) -> None:
        """The socket brings `data`, in as many reads as it takes, as far as it is read at all."""
        while data and self.transport.reading and self.transport.ended is None:
            buffer = self.protocol.get_buffer(len(data))
            some, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(some)] = some
            self.protocol.buffer_updated(len(some))
        self.unread = data

    unread = b""
    """What the server did not read yet."""

    def arrive(self, data: bytes) -> None:
        self.feed(data)
        self.node.turn()

    def lose(self) -> None:
        """The loop tells that the socket is closed."""
        self.protocol.connection_lost(None)

    def take(self) -> bytes:
        sent = self.transport.sent
        self.transport.parts.clear()
        return sent
