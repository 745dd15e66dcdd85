"""Gossip's UDP sockets: where others are told to send, and where what is sent arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from onyxlog.peer.gossip_link import open_udp
from tests.ipv6 import has_ipv6
from zraft.address import Address

LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
NewLoop = Callable[[], asyncio.AbstractEventLoop]
ANYWHERE = Address("127.0.0.1", 0)


class Heard:
    """What arrived at one end, and from where."""

    def __init__(self) -> None:
        self.all: list[tuple[bytes, Address]] = []
        self._arrived = asyncio.Event()

    def __call__(self, datagram: bytes, source: Address) -> None:
        self.all.append((datagram, source))
        self._arrived.set()

    async def once_sent(self, send: Callable[[], None]) -> tuple[bytes, Address]:
        """The first that arrived, of as many as it takes: what is sent before a name is looked up is lost."""
        async with asyncio.timeout(10):
            while not self.all:
                send()
                try:
                    async with asyncio.timeout(0.05):
                        await self._arrived.wait()
                except TimeoutError:
                    continue
        return self.all[0]


@LOOPS
def test_a_group_may_be_told_by_name(new_loop: NewLoop) -> None:
    """uvloop raises for what asyncio would look up, and the group would end."""

    async def test() -> None:
        heard = Heard()
        named = await open_udp(ANYWHERE, Address("localhost", 0))(heard)
        other = await open_udp(ANYWHERE)(Heard())
        assert named.address.host == "localhost"
        assert await heard.once_sent(lambda: other.send(named.address, b"x")) == (b"x", other.address)
        other.send(Address("nowhere.invalid", 5), b"lost")
        named.close()
        other.close()
        other.send(named.address, b"after the end")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
@LOOPS
def test_a_group_that_listens_everywhere_is_in_touch_with_both_families(new_loop: NewLoop) -> None:
    """A source is where an answer goes, so it has the form in which the address was told."""

    async def test() -> None:
        for host in ("127.0.0.1", "::1"):
            heard, answered = Heard(), Heard()
            everywhere = await open_udp(Address("::", 0), Address(host, 0))(heard)
            other = await open_udp(Address(host, 0))(answered)
            found = await heard.once_sent(lambda here=other, to=everywhere: here.send(to.address, b"x"))
            assert found == (b"x", other.address)
            found = await answered.once_sent(lambda here=everywhere, to=other: here.send(to.address, b"y"))
            assert found == (b"y", everywhere.address)
            everywhere.close()
            other.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
@LOOPS
def test_an_address_of_another_family_costs_a_datagram_and_nothing_else(new_loop: NewLoop) -> None:
    async def test() -> None:
        heard = Heard()
        one = await open_udp(ANYWHERE)(Heard())
        other = await open_udp(ANYWHERE)(heard)
        one.send(Address("::1", other.address.port), b"lost")
        assert await heard.once_sent(lambda: one.send(other.address, b"x")) == (b"x", one.address)
        one.close()
        other.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test())
