"""Loopback with cuts: which servers of a test do not reach each other.

Datagrams between separated servers are dropped where they leave and where they arrive. Streams between them are closed, and
dialing one fails, as if a firewall refused it. Clients reach every server all the time.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import Final

from zraft.transport.udp import OnDatagrams, SocketAddress, UdpEndpoint


class ServerNetwork:
    """One server's way to the others, which it knows by their ports on 127.0.0.1.

    `cut` may be called in any thread, all else belongs to the server's loop.
    """

    def __init__(self) -> None:
        self.unreachable: frozenset[int] = frozenset()
        """The ports of the servers that this one neither hears nor reaches."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._dialed: list[tuple[int, asyncio.BaseTransport]] = []

    def cut(self, ports: frozenset[int]) -> None:
        """Neither hear nor reach the servers at these ports from now on, and all others again."""
        self.unreachable = ports
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._close_streams)
            except RuntimeError:
                pass  # the server has ended, and its streams with it

    def endpoint(
        self, bound: socket.socket, loop: asyncio.AbstractEventLoop, on_datagrams: OnDatagrams
    ) -> UdpEndpoint:
        """Return an endpoint that drops what goes to, or comes from, a server that is cut off."""
        self._loop = loop
        self._dialed = []
        return _CutEndpoint(self, bound, loop, on_datagrams)

    async def dial(self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> None:
        """Make a TCP connection to another server.

        Raises:
            OSError: the other server is cut off, or does not listen.
        """
        if port not in self.unreachable:
            transport, _ = await asyncio.get_running_loop().create_connection(protocol, host, port)
            self._dialed = [one for one in self._dialed if not one[1].is_closing()]
            self._dialed.append((port, transport))
            self._close_streams()
        if port in self.unreachable:
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))

    def _close_streams(self) -> None:
        for port, transport in self._dialed:
            if port in self.unreachable:
                assert isinstance(transport, asyncio.Transport) or hasattr(transport, "abort")
                transport.abort()


class _CutEndpoint(UdpEndpoint):
    """Endpoint of a server that may be cut off from others."""

    def __init__(
        self,
        network: ServerNetwork,
        bound: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_datagrams: OnDatagrams,
    ) -> None:
        def on_all(datagrams: list[tuple[bytes, SocketAddress]]) -> None:
            if network.unreachable:
                datagrams = [one for one in datagrams if one[1][1] not in network.unreachable]
            if datagrams:
                on_datagrams(datagrams)

        super().__init__(bound, loop, on_all)
        self._network: Final = network

    def send(self, address: SocketAddress, datagram: bytes) -> None:
        """Send unless the address is that of a server that is cut off."""
        if address[1] not in self._network.unreachable:
            super().send(address, datagram)
