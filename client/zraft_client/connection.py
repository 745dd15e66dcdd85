"""One TCP or TLS connection as an asyncio protocol: bytes in, bytes out, nothing else."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

BUFFER_BYTES: Final = 65_536


class Owner(Protocol):
    """User of the connection. All of it is called in the loop's thread."""

    def received(self, data: memoryview) -> None:
        """Take bytes, which are valid only during the call."""

    def lost(self, connection: Connection, why: Exception | None) -> None:
        """Take note that the connection ended; `why` is None if the server closed it in order."""

    def pause(self) -> None:
        """Stop writing, because the socket's buffer is full."""

    def resume(self) -> None:
        """Write again, because the socket's buffer has room."""


class Connection(asyncio.BufferedProtocol):
    """A connection that reads into one buffer again and again.

    asyncio would allocate one of 256 KiB per read.
    """

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio calls this once."""
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer that asyncio reads into."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Give the owner the bytes that arrived, as a view that is valid during the call."""
        self._owner.received(self._view[:nbytes])

    def eof_received(self) -> bool:
        """Close the connection when the server closes its side."""
        return False

    def pause_writing(self) -> None:
        """Tell the owner that the socket's buffer is full."""
        self._owner.pause()

    def resume_writing(self) -> None:
        """Tell the owner that the socket's buffer has room."""
        self._owner.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner that the connection ended."""
        self._transport = None
        self._owner.lost(self, exc)

    def write(self, data: bytes) -> None:
        """Send bytes; drop them if the connection has ended."""
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """Close without sending what is still unsent."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def descriptor(self) -> int:
        """The socket's file descriptor, -1 if it is closed."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if found is None else int(found.fileno())
