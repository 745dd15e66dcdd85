"""Gossip's UDP sockets: where others are told to send, and where what is sent arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from onyxlog.peer.gossip.link import open_udp
from tests.ipv6 import has_ipv6
from zraft_core.address import Address

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


async def test_a_group_may_be_told_by_name() -> None:
    """uvloop raises for what asyncio would look up, and the group would end."""
    heard = Heard()
    named = await open_udp(ANYWHERE, Address("localhost", 0))(heard)
    other = await open_udp(ANYWHERE)(Heard())
    assert named.address.host == "localhost"
    assert await heard.once_sent(lambda: other.send(named.address, b"x")) == (b"x", other.address)
    other.send(Address("nowhere.invalid", 5), b"lost")
    named.close()
    other.close()
    other.send(named.address, b"after the end")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
async def test_a_group_that_listens_everywhere_is_in_touch_with_both_families() -> None:
    """A source is where an answer goes, so it has the form in which the address was told."""
    for host in ("127.0.0.1", "::1"):
        heard, answered = Heard(), Heard()
        everywhere = await open_udp(Address("::", 0), Address(host, 0))(heard)
        other = await open_udp(Address(host, 0))(answered)
        found = await heard.once_sent(partial(other.send, everywhere.address, b"x"))
        assert found == (b"x", other.address)
        found = await answered.once_sent(partial(everywhere.send, other.address, b"y"))
        assert found == (b"y", everywhere.address)
        everywhere.close()
        other.close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no address ::1")
async def test_an_address_of_another_family_costs_a_datagram_and_nothing_else() -> None:
    heard = Heard()
    one = await open_udp(ANYWHERE)(Heard())
    other = await open_udp(ANYWHERE)(heard)
    one.send(Address("::1", other.address.port), b"lost")
    assert await heard.once_sent(lambda: one.send(other.address, b"x")) == (b"x", one.address)
    one.close()
    other.close()
