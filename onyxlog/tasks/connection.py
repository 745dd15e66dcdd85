"""One TCP connection between two groups: `zraft.transport.bulk` over asyncio. Sealed if there is a key."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from zraft.ids import Instance, ServerId
from zraft.transport.bulk import ANY_SERVER, BulkConnection, Ring
from zraft.transport.keys import KEY_BYTES, ClusterKey, key_ring
from zraft.transport.messages import Sender
from zraft.transport.sealing import RejectedError, hkdf

HANDSHAKE_S: Final = 10.0
RECEIVE_BYTES: Final = 256 * 1024
USER_TIMEOUT_MS: Final = 20_000
"""After which unacknowledged bytes end a connection: the other machine is gone, or the way to it."""

_ACCEPTOR: Final = Sender(ServerId(1), Instance(bytes(16)), 0)
"""Groups have names, not numbers: who is at the other end says so in its first message. The key is what is proved."""

# One for all connections of a process: asyncio fills it and hands it over before it fills it again.
_buffer: Final = memoryview(bytearray(RECEIVE_BYTES))


def ring_of(keys: Sequence[ClusterKey] | None) -> Ring:
    """The keys that groups prove to each other: derived, so that nothing that is said here opens a server's streams.

    Raises:
        ConfigError: none or more than two.
    """
    if keys is None:
        return key_ring(None, insecure=True)
    derived = [ClusterKey(hkdf(key.secret, b"", b"onyxlog groups 1")[:KEY_BYTES]) for key in keys]
    return key_ring(derived, insecure=False)


class Owner(Protocol):
    """Who is told what becomes of a connection; of each that was established, `on_lost` is the last."""

    def on_established(self, connection: Connection) -> None: ...

    def on_message(self, connection: Connection, message: bytes) -> None: ...

    def on_rejected(self, connection: Connection, error: RejectedError) -> None: ...

    def on_lost(self, connection: Connection) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """Either end. What is sent before it is established waits."""

    def __init__(self, owner: Owner, stream: BulkConnection, greeting: bytes) -> None:
        self._owner = owner
        self._stream = stream
        self._greeting = greeting
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._lost = False
        self.address = "unknown"

    @classmethod
    def dial(cls, owner: Owner, ring: Ring, entropy: Callable[[int], bytes]) -> Connection:
        stream, greeting = BulkConnection.dial(me=None, to=ANY_SERVER, ring=ring, entropy=entropy)
        return cls(owner, stream, greeting)

    @classmethod
    def accept(cls, owner: Owner, ring: Ring, entropy: Callable[[int], bytes]) -> Connection:
        stream = BulkConnection.accept(me=_ACCEPTOR, peers=(), ring=ring, entropy=entropy)
        return cls(owner, stream, b"")

    @property
    def closed(self) -> bool:
        return self._lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are no subclasses
        peer = transport.get_extra_info("peername")
        if peer:
            self.address = f"{peer[0]}:{peer[1]}"
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        self._timer = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._on_handshake_timeout)
        if self._greeting:
            self._write(self._greeting)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._lost:
            return
        before = self._stream.established
        try:
            arrived = self._stream.receive(bytes(_buffer[:nbytes]))
        except RejectedError as error:
            self._owner.on_rejected(self, error)
            self.abort()
            return
        if arrived.output:
            self._write(arrived.output)
        if not before and self._stream.established:
            self._end_timer()
            self._owner.on_established(self)
            self._flush()
        for message in arrived.messages:
            if self.closed:
                return  # what was before it ended the connection
            self._owner.on_message(self, message)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def send(self, message: bytes) -> None:
        """After what was sent before. How much may wait here is bounded by the credit of channels."""
        self._stream.enqueue(message)
        self._flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def close(self) -> None:
        """End it once what was sent is written."""
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        while not self._lost and (frame := self._stream.next_frame()) is not None:
            self._write(frame)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _end_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._end_timer()
        self._transport = None
        if not self._lost:
            self._lost = True
            self._owner.on_lost(self)

    def _on_handshake_timeout(self) -> None:
        self._timer = None
        self.abort()
