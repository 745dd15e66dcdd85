"""Channels over real connections: who is let in, what comes too early or too late, and what large batches become."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from onyxlog.peer.gossip.link import open_udp
from onyxlog.tasks.channels import Inlet
from onyxlog.tasks.items import BarrierItem, Batch, ChannelEnd, ChannelError, Item, Purpose
from onyxlog.tasks.plane import BATCH_BYTES_MAX, Channel, DataPlane
from zraft.transport.bulk import ANY_SERVER, BulkConnection
from zraft.transport.keys import ClusterKey, key_ring
from zraft.transport.packing import MESSAGE_BYTES_MAX
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

LOOPBACK = Address("127.0.0.1", 0)
KEY, OTHER_KEY = ClusterKey(bytes(range(32))), ClusterKey(bytes(range(1, 33)))
HERE, THERE = ChannelEnd("job", 3, "a.1"), ChannelEnd("job", 3, "b.1")


class End:
    """A worker that takes everything at once."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.changed = asyncio.Event()

    def on_open(self, inlet: Inlet) -> None:
        pass

    def on_arrival(self, inlet: Inlet) -> None:
        while len(inlet):
            self.items.append(inlet.take())
        self.changed.set()

    def on_credit(self) -> None:
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


async def until(holds: Callable[[], bool]) -> None:
    """For what tells nobody."""
    async with asyncio.timeout(10):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def planes(*made: dict[str, Any]) -> AsyncIterator[tuple[DataPlane, DataPlane]]:
    """Two planes that listen, made with these options."""
    first, second = (DataPlane(**{"tenancy": "t", **options}) for options in (made or ({}, {})))
    try:
        for plane in (first, second):
            await plane.listen(LOOPBACK)
        yield first, second
    finally:
        await first.close()
        await second.close()


def connect(sender: DataPlane, receiver: DataPlane, purpose: Purpose = Purpose.DATA) -> Channel:
    return sender.connect(purpose, HERE, THERE, receiver.site)


@pytest.mark.parametrize("keys", [None, [KEY]])
async def test_items_travel_sealed_or_in_the_clear(keys: Any) -> None:
    async with planes({"keys": keys}, {"keys": keys}) as (a, b):
        end = End()
        a.register(HERE, End())
        b.register(THERE, end)
        channel = connect(a, b)
        sent: list[Item] = [Batch([{"n": n}]) for n in range(100)]
        for item in sent:
            channel.send(item)
        await end.until(lambda: len(end.items) == 100)
        assert end.items == sent


async def test_a_handshake_may_be_over_before_whoever_dialed_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with planes({"keys": [KEY]}, {"keys": [KEY]}) as (a, b):
        loop = asyncio.get_running_loop()
        create = loop.create_connection

        async def slowly(*args: Any, **kwargs: Any) -> Any:
            made = await create(*args, **kwargs)
            await asyncio.sleep(0.1)
            return made

        monkeypatch.setattr(loop, "create_connection", slowly)
        end = End()
        a.register(HERE, End())
        b.register(THERE, end)
        connect(a, b).send(BarrierItem(1))
        await end.until(lambda: end.items == [BarrierItem(1)])


@pytest.mark.parametrize("iterations", range(6))
async def test_a_connection_that_comes_while_its_plane_closes_is_closed(iterations: int) -> None:
    """However far its acceptance is: a transport that nobody closes would stay open as long as the process runs."""
    loop = asyncio.get_running_loop()
    plane = DataPlane("t")
    await plane.listen(LOOPBACK)
    address = parse_address(plane.site, "site")
    with socket.create_connection((address.host, address.port)) as other:
        other.setblocking(False)
        for _ in range(iterations):
            await asyncio.sleep(0)
        await plane.close()
        async with asyncio.timeout(10):
            with suppress(ConnectionResetError):
                while await loop.sock_recv(other, 4096):
                    pass


@pytest.mark.parametrize("other", [None, [OTHER_KEY]])
async def test_without_the_key_nothing_is_taken(other: Any) -> None:
    async with planes({"keys": other}, {"keys": [KEY]}) as (a, b):
        end = End()
        a.register(HERE, End())
        b.register(THERE, end)
        connect(a, b).send(BarrierItem(1))
        await until(lambda: b.statistics().rejected > 0)
        assert not end.items


async def test_the_key_of_groups_does_not_open_a_servers_stream() -> None:
    """Nor the other way round: what is proved here is a key derived from the cluster's."""
    async with planes({"keys": [KEY]}, {"keys": [KEY]}) as (a, _):
        _, opening = BulkConnection.dial(
            me=None, to=ANY_SERVER, ring=key_ring([KEY], insecure=False), entropy=bytes
        )
        site = parse_address(a.site, "site")
        reader, writer = await asyncio.open_connection(site.host, site.port)
        writer.write(opening)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        assert a.statistics().rejected == 1


async def test_a_group_of_another_tenancy_is_refused() -> None:
    async with planes({"tenancy": "mine"}, {"tenancy": "yours"}) as (a, b):
        end = End()
        a.register(HERE, End())
        b.register(THERE, end)
        connect(a, b).send(BarrierItem(1))
        await until(lambda: b.statistics().rejected > 0)
        assert not end.items


@pytest.mark.parametrize("local", [False, True])
async def test_what_is_opened_early_waits_for_the_attempt(local: bool) -> None:
    async with planes() as (a, b):
        b = a if local else b
        sender, end = End(), End()
        a.register(HERE, sender)
        b.register(ChannelEnd("job", 2, "b.1"), End())
        channel = connect(a, b)
        channel.send(BarrierItem(1))
        await asyncio.sleep(0.05)
        assert not channel.has_credit
        b.unregister(ChannelEnd("job", 2, "b.1"))
        b.register(THERE, end)
        await end.until(lambda: end.items == [BarrierItem(1)])
        await sender.until(lambda: channel.has_credit)


@pytest.mark.parametrize("local", [False, True])
async def test_what_is_opened_for_an_attempt_that_is_over_is_refused(local: bool) -> None:
    async with planes() as (a, b):
        b = a if local else b
        sender, end = End(), End()
        a.register(HERE, sender)
        b.register(ChannelEnd("job", 4, "b.1"), end)
        channel = connect(a, b)
        channel.send(BarrierItem(1))
        await sender.until(lambda: channel.outlet.refused)
        assert not end.items


async def test_a_batch_that_is_too_large_is_split_and_arrives_whole() -> None:
    segments = [{"n": n, "text": "x" * 1000} for n in range(1000)]

    async with planes() as (a, b):
        end = End()
        a.register(HERE, End())
        b.register(THERE, end)
        connect(a, b).send(Batch(segments, list(range(1000)), list(range(1000))))
        await end.until(
            lambda: sum(len(item.segments) for item in end.items if isinstance(item, Batch)) == 1000
        )
        batches = [item for item in end.items if isinstance(item, Batch)]
        assert len(batches) > 1000 * 1000 // BATCH_BYTES_MAX
        assert [segment for batch in batches for segment in batch.segments] == segments
        assert [root for batch in batches for root in batch.roots or ()] == list(range(1000))


async def test_a_segment_that_is_larger_than_a_message_is_an_error() -> None:
    async with planes() as (a, b):
        a.register(HERE, End())
        with pytest.raises(ChannelError, match=f"expected at most {MESSAGE_BYTES_MAX}"):
            connect(a, b).send(Batch([{"text": "x" * MESSAGE_BYTES_MAX}]))


async def test_a_sender_waits_while_its_receiver_takes_nothing() -> None:
    async with planes({"window": 8}, {"window": 8}) as (a, b):
        sender, end = End(), End()
        inlets: list[Inlet] = []
        end.on_open = inlets.append  # type: ignore[method-assign, assignment]
        end.on_arrival = lambda inlet: end.changed.set()  # type: ignore[method-assign]
        a.register(HERE, sender)
        b.register(THERE, end)
        channel = connect(a, b)
        await sender.until(lambda: channel.has_credit)
        sent = 0
        while channel.has_credit:
            channel.send(BarrierItem(sent))
            sent += 1
        assert sent == 8
        await end.until(lambda: bool(inlets) and len(inlets[0]) == 8)
        for _ in range(4):
            inlets[0].take()
        await sender.until(lambda: channel.has_credit)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1"])
async def test_without_a_key_only_loopback_is_listened_on(host: str) -> None:
    with pytest.raises(ConfigError, match="--insecure-peers"):
        await DataPlane("t").listen(Address(host, 0), advertise=Address("x", 1))


@pytest.mark.parametrize("what", ["segments", "gossip"])
async def test_an_address_of_another_machine_is_told_as_that(what: str) -> None:
    """192.0.2.0/24 is for documents: no machine has an address of it."""
    address = Address("192.0.2.1", 0)
    listening = DataPlane("t", [KEY]).listen(address) if what == "segments" else open_udp(address)(print)
    with pytest.raises(ConfigError, match=r"^--address: cannot listen at 192\.0\.2\.1:0 .*no such address"):
        await listening


async def test_every_interface_is_no_address_that_others_can_dial() -> None:
    with pytest.raises(ConfigError, match="--advertise"):
        await DataPlane("t", [KEY]).listen(Address("0.0.0.0", 0))


@pytest.mark.parametrize("host", ["127.0.0.9", "::1"])
async def test_a_host_that_is_advertised_without_a_port_gets_the_port_of_the_socket(host: str) -> None:
    plane = DataPlane("t", [KEY])
    await plane.listen(Address("127.0.0.1", 0), advertise=Address(host, 0))
    site = parse_address(plane.site, "site")
    assert site.host == host
    assert site.port > 0
    await plane.close()
