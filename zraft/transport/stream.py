"""One TCP connection that speaks `zraft.transport.bulk`, on asyncio: reads, seals, writes, and shares the loop fairly.

Who dials whom, what messages mean, and what a lost connection does, is its owner's business.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final, Protocol

from zraft.program.reading import read_buffer
from zraft.transport.bulk import BulkConnection
from zraft.transport.sealing import RejectedError

RECEIVE_BYTES: Final = 256 * 1024
"""Read, opened and taken in one go: half a millisecond. Then everybody else gets a turn (libuv would read on, up to 32
times, before it looks at anything else)."""

PUMP_BYTES: Final = 256 * 1024
"""Sealed and written before everybody else gets a turn."""

WRITE_BUFFER_BYTES: Final = 512 * 1024
"""Sealed and not yet taken by the kernel; what waits behind it can still be dropped with its peer."""

USER_TIMEOUT_MS: Final = 10_000
"""A stream whose bytes are not acknowledged this long is dead: its peer was cut off without a word."""


class Owner(Protocol):
    """Interface of a stream's owner, which is told what happens to it."""

    def on_established(self, stream: Stream) -> None:
        """Take note that the other end has proved that it has the key."""

    def on_message(self, stream: Stream, message: bytes) -> None:
        """Take a message."""

    def on_rejected(self, stream: Stream, error: RejectedError) -> None:
        """Take note that the other end proved nothing, or sent what is not allowed."""

    def on_lost(self, stream: Stream) -> None:
        """Take note that the connection ended."""


class Stream(asyncio.BufferedProtocol):
    """One TCP connection that speaks `zraft.transport.bulk`.

    A buffered protocol, like `ClientProtocol`: the transport of a connection that was accepted as a client's goes on
    with it as if nothing had happened.
    """

    def __init__(
        self, connection: BulkConnection, owner: Owner, *, greeting: bytes = b"", timeout_s: float
    ) -> None:
        self.connection = connection
        self.address = "unknown"
        self.is_local = False
        self.bytes_sent = 0
        self.bytes_received = 0
        self._owner = owner
        self._greeting = greeting
        self._timeout_s = timeout_s
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = True
        self._pumping = False
        self._lost = False
        self._read_now = 0
        self._buffer = read_buffer("streams", RECEIVE_BYTES)

    @property
    def closed(self) -> bool:
        """True if nothing more will come or go."""
        return self._lost or self._transport is None

    @property
    def queued_bytes(self) -> int:
        """Waiting to be sealed."""
        return self.connection.queued_bytes

    def adopt(self, transport: asyncio.Transport, data: bytes) -> None:
        """Take over an accepted connection, of which `data` was read already."""
        transport.set_protocol(self)
        self.connection_made(transport)
        self.on_bytes(data)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and bound what it buffers; end it if the stream was ended before."""
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        assert self._transport is not None
        if self._lost:
            self._transport.abort()  # it was ended between its acceptance and now
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        if peer:
            self.is_local = peer[0] in ("::1", "::ffff:127.0.0.1") or peer[0].startswith("127.")
            self.address = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_timeout)
        if self._greeting:
            self._write(self._greeting)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that asyncio reads into; it is shared by all streams of this loop."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Open the bytes that arrived, and pause reading after a share of them, so that others get their turn."""
        self.on_bytes(bytes(self._buffer[:nbytes]))
        self._read_now += nbytes
        transport = self._transport
        if self._read_now >= RECEIVE_BYTES and transport is not None and not self._lost:
            transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._read_on)
            self._read_now = 0

    def _read_on(self) -> None:
        if self._transport is not None and not self._lost:
            self._transport.resume_reading()

    def on_bytes(self, data: bytes) -> None:
        """Take bytes that arrived."""
        if self._lost:
            return
        self.bytes_received += len(data)
        before = self.connection.established
        try:
            arrived = self.connection.receive(data)
        except RejectedError as error:
            self._owner.on_rejected(self, error)
            self.abort()
            return
        if arrived.output:
            self._write(arrived.output)
        if not before and self.connection.established:
            if self._timer is not None:
                self._timer.cancel()
            self._owner.on_established(self)
            self._pump()
        for message in arrived.messages:
            if self.closed:
                return  # the bytes before it ended the stream
            self._owner.on_message(self, message)

    def eof_received(self) -> bool:
        """Close the connection when the other end closes its side."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner that the connection ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if not self._lost:
            self._lost = True
            self._owner.on_lost(self)

    def pause_writing(self) -> None:
        """Stop sending, because the socket's buffer is full."""
        self._writable = False

    def resume_writing(self) -> None:
        """Send what waited while the socket's buffer was full."""
        self._writable = True
        self._pump()

    def send(self, message: bytes) -> None:
        """Send after what waits already."""
        self.connection.enqueue(message)
        self._pump()

    def close(self) -> None:
        """End it once what was sealed is written; what waits to be sealed is lost."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it now. What was not sent is lost."""
        transport = self._transport
        if transport is not None:
            transport.abort()
        if not self._lost:
            self._lost = True
            self._owner.on_lost(self)

    def _pump(self) -> None:
        """Seal and write a piece of what waits; the rest in the loop's next iterations."""
        self._pumping = False
        budget = PUMP_BYTES
        while budget > 0 and self._writable and not self._lost:
            frame = self.connection.next_frame()
            if frame is None:
                return
            self._write(frame)
            budget -= len(frame)
        if self._writable and not self._lost and not self._pumping and self.connection.queued_bytes:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self.bytes_sent += len(data)
            self._transport.write(data)

    def _on_timeout(self) -> None:
        if not self.connection.established:
            self.abort()
