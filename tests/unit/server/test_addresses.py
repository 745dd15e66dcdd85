"""Where peers are: as configured, as replicated, and what their own datagrams prove."""

from __future__ import annotations

import asyncio

import pytest

from zraft.server.process.addresses import PeerAddresses
from zraft_core.address import Address
from zraft_core.ids import ServerId

TWO = ServerId(2)
OLD, NEW = Address("127.0.0.2", 2181), Address("127.0.0.9", 2181)
OLD_SOURCE, NEW_SOURCE = ("127.0.0.2", 2181), ("127.0.0.9", 2181)


async def as_written(host: str, port: int) -> tuple[str, int]:
    """Looks nothing up: these tests use numeric addresses."""
    return host, port


async def addresses_of(*known: Address) -> PeerAddresses:
    addresses = PeerAddresses({TWO: known}, as_written)
    await addresses.refresh()
    return addresses


async def test_a_peer_with_one_address_is_there_whatever_its_source_is() -> None:
    """Behind another source may be a relay, to which nothing can be sent."""
    addresses = await addresses_of(OLD)
    addresses.heard(TWO, ("127.0.0.77", 5))
    assert addresses.known[TWO] == OLD_SOURCE


async def test_a_peer_behind_a_relay_is_reached_as_configured() -> None:
    addresses = await addresses_of(OLD, NEW)
    for _ in range(2):
        await addresses.refresh()
    addresses.heard(TWO, ("127.0.0.77", 5))
    for _ in range(6):
        assert addresses.known[TWO] == OLD_SOURCE
        await addresses.refresh()


async def test_both_addresses_are_tried_until_the_peer_is_heard_from_one() -> None:
    addresses = await addresses_of(OLD, NEW)
    seen = []
    for _ in range(6):
        seen.append(addresses.known[TWO])
        await addresses.refresh()
    assert set(seen) == {OLD_SOURCE, NEW_SOURCE}
    addresses.heard(TWO, NEW_SOURCE)
    for _ in range(4):
        await addresses.refresh()
        assert addresses.known[TWO] == NEW_SOURCE


async def test_a_machine_that_was_replaced_is_answered_where_it_asks_from() -> None:
    """Its old address was good for years, and is dead now."""
    addresses = await addresses_of(OLD, NEW)
    addresses.heard(TWO, OLD_SOURCE)
    assert addresses.answer_to(TWO, NEW_SOURCE) == NEW_SOURCE
    assert addresses.answer_to(TWO, ("127.0.0.77", 5)) == OLD_SOURCE
    assert addresses.known[TWO] == OLD_SOURCE, "a handshake may be a repetition; only its data prove it"
    addresses.heard(TWO, NEW_SOURCE)
    assert addresses.known[TWO] == NEW_SOURCE


@pytest.mark.parametrize("heard", [OLD_SOURCE, NEW_SOURCE])
async def test_an_address_that_is_no_longer_listed_is_not_used(heard: tuple[str, int]) -> None:
    addresses = await addresses_of(OLD, NEW)
    addresses.heard(TWO, heard)
    addresses.set_peers({TWO: (NEW,)})
    assert addresses.known[TWO] == NEW_SOURCE
    addresses.set_peers({})
    assert addresses.known == {}


async def test_new_members_are_looked_up_at_once() -> None:
    """Not after the quarter of a minute in which nothing else would change."""
    addresses = await addresses_of(OLD)
    keeper = asyncio.create_task(addresses.keep_fresh())
    await asyncio.sleep(0)
    addresses.set_peers({TWO: (OLD,), ServerId(3): (NEW,)})
    async with asyncio.timeout(10):
        while ServerId(3) not in addresses.known:  # noqa: ASYNC110 - another task's, and there is no event
            await asyncio.sleep(0.005)
    keeper.cancel()


async def test_members_that_change_at_the_end_do_not_keep_the_process_alive() -> None:
    """Python 3.11's `wait_for` swallows such a cancellation, and the server waited for its keepers for ever."""
    addresses = PeerAddresses({}, as_written)
    keeper = asyncio.create_task(addresses.keep_fresh())
    await asyncio.sleep(0.01)
    addresses.set_peers({})
    await asyncio.sleep(0)
    keeper.cancel()
    await asyncio.wait([keeper], timeout=1)
    assert keeper.cancelled()
