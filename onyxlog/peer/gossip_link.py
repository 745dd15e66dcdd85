"""What carries gossip's datagrams: a UDP socket for each group, or something else that a test puts in its place."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from zraft.address import Address

BUFFER_BYTES: Final = 4 * 1024 * 1024
Received = Callable[[bytes, Address], None]


class Link(Protocol):
    """Datagrams to and from addresses; they may be lost, doubled, late, and come in any order."""

    @property
    def address(self) -> Address:
        """Where others reach this end."""
        ...

    def send(self, to: Address, datagram: bytes) -> None:
        """Never waits."""
        ...

    def close(self) -> None: ...


OpenLink = Callable[[Received], Awaitable[Link]]
"""Opens an end of one's own; what arrives is handed to the function, on the event loop."""


class UdpLink(asyncio.DatagramProtocol):
    """`open_udp` makes it."""

    def __init__(self, received: Received, advertise: Address) -> None:
        self._received = received
        self._advertise = advertise
        self._transport: asyncio.DatagramTransport | None = None

    @property
    def address(self) -> Address:
        return self._advertise

    def send(self, to: Address, datagram: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(datagram, (to.host, to.port))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        raw = transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            with suppress(OSError):  # the system's own bound holds then
                raw.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
        if not self._advertise.port:
            self._advertise = Address(self._advertise.host, raw.getsockname()[1])

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._received(data, Address(addr[0], addr[1]))

    def error_received(self, exc: Exception) -> None:
        """A group that is gone answers so; what it misses is of no interest any more."""


def open_udp(address: Address, advertise: Address | None = None) -> OpenLink:
    """Sockets at `address`; port 0 takes a free one for each. `advertise`: what others are told, port 0 for the socket's."""

    async def opened(received: Received) -> Link:
        loop = asyncio.get_running_loop()
        _, link = await loop.create_datagram_endpoint(
            lambda: UdpLink(received, advertise or address), local_addr=(address.host, address.port)
        )
        return link

    return opened
