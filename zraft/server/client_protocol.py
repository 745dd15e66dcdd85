"""The TCP side of one client: bytes between asyncio and a sans-I/O `Connection`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from zraft.server.connection import Connection

if TYPE_CHECKING:
    from zraft.server.node import Node

RECEIVE_BYTES: Final = 256 * 1024
"""One buffer for all connections: the loop is single-threaded, and allocating one per read costs more than the read."""

receive_buffer: Final = memoryview(bytearray(RECEIVE_BYTES))


class ClientProtocol(asyncio.BufferedProtocol):
    """Feeds its connection and writes what the turn hands out."""

    def __init__(self, node: Node, schedule: Callable[[], None]) -> None:
        self._node = node
        self._schedule = schedule
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._writable = True
        self._reading = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        peer = transport.get_extra_info("peername")
        host, port = (peer[0], peer[1]) if peer else ("unknown", 0)
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection = self._node.driver.connect(address, (("ip", host),))
        if connection is None:
            self._node.on_too_many_connections(address)
            transport.abort()  # type: ignore[attr-defined]
            return
        self._connection = connection
        connection.handle = self

    def get_buffer(self, sizehint: int) -> memoryview:
        return receive_buffer

    def buffer_updated(self, nbytes: int) -> None:
        connection = self._connection
        if connection is None:
            return
        connection.data_received(bytes(receive_buffer[:nbytes]))
        if not connection.wants_read:
            self._pause()
        self._schedule()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        connection, self._connection = self._connection, None
        self._node.on_protocol_closed(self)
        if connection is not None:
            connection.handle = None
            connection.connection_lost()
            self._schedule()
        self._transport = None

    def pause_writing(self) -> None:
        # A client that does not read its replies gets no more of its requests read: memory stays bounded.
        self._writable = False
        self._pause()

    def resume_writing(self) -> None:
        self._writable = True
        self.maybe_resume()

    def write(self, data: bytes, *, close: bool) -> None:
        """Send what the turn handed out."""
        transport = self._transport
        if transport is None:
            return
        if data:
            transport.write(data)
            if not self._writable and transport.get_write_buffer_size() > self._node.output_bytes_max:
                self._node.on_output_overflow(self._connection)
                transport.abort()
                return
        if close:
            transport.close()

    def maybe_resume(self) -> None:
        """Read again once both reasons to pause are gone."""
        if (
            not self._reading
            and self._writable
            and self._transport is not None
            and (self._connection is None or self._connection.wants_read)
        ):
            self._reading = True
            self._transport.resume_reading()
            self._node.on_protocol_closed(self)

    def _pause(self) -> None:
        if self._reading and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()
            self._node.on_protocol_paused(self)
