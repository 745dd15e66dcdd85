"""Servers of a test that are cut off from each other: no datagram, no stream and no new stream crosses the cut."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from zraft.testing.network import ServerNetwork
from zraft.transport.udp import SocketAddress, UdpEndpoint


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


class Place:
    """A server's endpoint, and what it heard."""

    def __init__(self) -> None:
        self.network = ServerNetwork()
        self.heard: list[bytes] = []
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        self.endpoint: UdpEndpoint = self.network.endpoint(sock, asyncio.get_running_loop(), self._hear)
        self.address: SocketAddress = sock.getsockname()

    def _hear(self, datagrams: list[tuple[bytes, SocketAddress]]) -> None:
        self.heard += [datagram for datagram, _ in datagrams]

    @property
    def port(self) -> int:
        return self.address[1]


async def test_datagrams_are_dropped_where_they_leave_and_where_they_arrive_and_pass_again_later() -> None:
    here, there, third = Place(), Place(), Place()
    try:
        here.network.cut(frozenset({there.port}))
        here.endpoint.send(there.address, b"not sent")
        there.endpoint.send(here.address, b"not heard")
        third.endpoint.send(here.address, b"of somebody else")
        third.endpoint.send(there.address, b"of somebody else")
        await until(lambda: here.heard and there.heard)
        assert (here.heard, there.heard) == ([b"of somebody else"], [b"of somebody else"])
        assert here.endpoint.statistics().datagrams_sent == 0
        here.network.cut(frozenset())
        here.endpoint.send(there.address, b"sent")
        there.endpoint.send(here.address, b"heard")
        await until(lambda: len(here.heard) + len(there.heard) == 4)
        assert (here.heard[1:], there.heard[1:]) == ([b"heard"], [b"sent"])
    finally:
        for place in (here, there, third):
            place.endpoint.close()


class Stream(asyncio.Protocol):
    """A stream that knows whether it stands."""

    stands = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.stands = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.stands = False


async def test_streams_end_at_a_cut_and_none_is_dialed_across_it() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[Stream] = []

    def accept() -> Stream:
        accepted.append(Stream())
        return accepted[-1]

    place, stream = Place(), Stream()
    try:
        async with await loop.create_server(accept, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            await place.network.dial(lambda: stream, "127.0.0.1", port)
            await until(lambda: accepted and accepted[0].stands)
            place.network.cut(frozenset({1}))
            place.network.cut(frozenset({port}))
            await until(lambda: not stream.stands and not accepted[0].stands)
            with pytest.raises(OSError, match="No route to host"):
                await place.network.dial(Stream, "127.0.0.1", port)
            assert len(accepted) == 1
            place.network.cut(frozenset())
            again = Stream()
            await place.network.dial(lambda: again, "127.0.0.1", port)
            assert again.stands
            place.network.cut(frozenset({port}))
            await until(lambda: not again.stands)
    finally:
        place.endpoint.close()
