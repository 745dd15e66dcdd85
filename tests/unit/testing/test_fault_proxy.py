"""The fault proxy: what passes, what does not, and that each direction is alone."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from tests.chaos.servers import free_ports
from tests.simulation.fault_proxy import CLEAR, HOST, FaultProxy, LinkQuality

QUIET_S = 0.15
COUNT = 400


# -- the decision


def fates(quality: LinkQuality) -> list[tuple[float, ...]]:
    rng = random.Random(1)
    return [quality.fate(rng) for _ in range(COUNT)]


def test_a_clear_link_passes_everything_at_once() -> None:
    assert set(fates(CLEAR)) == {(0.0,)}


def test_a_cut_link_passes_nothing() -> None:
    assert set(fates(LinkQuality(cut=True, duplicate=1.0))) == {()}


def test_loss_and_duplicates_come_in_their_share() -> None:
    lost = fates(LinkQuality(loss=0.25)).count(())
    assert 0.15 * COUNT < lost < 0.35 * COUNT
    doubled = Counter(len(fate) for fate in fates(LinkQuality(duplicate=0.25)))[2]
    assert 0.15 * COUNT < doubled < 0.35 * COUNT


def test_delays_are_within_their_bounds_and_reordering_holds_back_a_share() -> None:
    delays = [fate[0] for fate in fates(LinkQuality(delay_s=1.0, jitter_s=0.5))]
    assert 1.0 <= min(delays) < max(delays) <= 1.5
    held = fates(LinkQuality(reorder=0.25, reorder_s=3.0)).count((3.0,))
    assert 0.15 * COUNT < held < 0.35 * COUNT


def test_equal_seeds_decide_equally() -> None:
    quality = LinkQuality(loss=0.3, duplicate=0.3, jitter_s=1.0, reorder=0.3)
    assert fates(quality) == fates(quality)


# -- sockets


class Ends:
    """Servers 1 and 2 behind a proxy: what each received, and how each speaks to the other."""

    def __init__(self) -> None:
        self.received: dict[int, list[bytes]] = {1: [], 2: []}
        self.sockets = {n: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for n in (1, 2)}
        self.listeners: list[asyncio.Server] = []
        self.proxy: FaultProxy

    def _receive(self, number: int) -> None:
        self.received[number].append(self.sockets[number].recv(65_535))

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        a, b, ab, ba = free_ports(4, random.Random())
        for number, port in ((1, a), (2, b)):
            one = self.sockets[number]
            one.setblocking(False)
            one.bind((HOST, port))
            loop.add_reader(one.fileno(), self._receive, number)
            self.listeners.append(await asyncio.start_server(self._echo, HOST, port))
        self.proxy = FaultProxy({1: (HOST, a), 2: (HOST, b)}, random.Random(1))
        await self.proxy.open({(1, 2): ab, (2, 1): ba})

    async def _echo(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65_536):
            writer.write(chunk)
        writer.close()

    def send(self, sender: int, data: bytes) -> None:
        self.sockets[sender].sendto(data, (HOST, self.proxy.port(sender, 3 - sender)))

    async def close(self) -> None:
        await self.proxy.close()
        for one in self.sockets.values():
            asyncio.get_running_loop().remove_reader(one.fileno())
            one.close()
        for listener in self.listeners:
            listener.close()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    opened = Ends()
    await opened.open()
    yield opened
    await opened.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_datagrams_pass_in_both_directions(ends: Ends) -> None:
    ends.send(1, b"to two")
    ends.send(2, b"to one")
    await until(lambda: ends.received == {1: [b"to one"], 2: [b"to two"]})


async def test_a_one_way_cut_stops_one_direction_only_and_heals(ends: Ends) -> None:
    ends.proxy.set_quality([(1, 2)], LinkQuality(cut=True))
    ends.send(1, b"lost")
    ends.send(2, b"passes")
    await until(lambda: ends.received[1] == [b"passes"])
    await until(lambda: ends.proxy.statistics()[1, 2].lost == 1)
    assert ends.received[2] == []
    ends.proxy.set_quality([(1, 2)], CLEAR)
    ends.send(1, b"again")
    await until(lambda: ends.received[2] == [b"again"])


async def test_a_held_back_datagram_is_overtaken(ends: Ends) -> None:
    ends.proxy.set_quality([(1, 2)], LinkQuality(delay_s=QUIET_S))
    ends.send(1, b"first")
    await until(lambda: ends.proxy.statistics()[1, 2].delayed == 1)
    ends.proxy.set_quality([(1, 2)], CLEAR)
    ends.send(1, b"second")
    await until(lambda: ends.received[2] == [b"second", b"first"])


async def test_bandwidth_spreads_a_burst_over_time(ends: Ends) -> None:
    ends.proxy.set_quality([(1, 2)], LinkQuality(bytes_per_second=10_000))
    began = asyncio.get_running_loop().time()
    for _ in range(4):
        ends.send(1, bytes(500))
    await until(lambda: len(ends.received[2]) == 4)
    assert asyncio.get_running_loop().time() - began >= 0.19


async def test_streams_are_carried_through_and_wait_while_one_direction_is_cut(ends: Ends) -> None:
    reader, writer = await asyncio.open_connection(HOST, ends.proxy.port(1, 2))
    writer.write(b"hello")
    assert await reader.readexactly(5) == b"hello"
    ends.proxy.set_quality([(2, 1)], LinkQuality(cut=True))
    writer.write(b"again")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(QUIET_S):
            await reader.readexactly(5)
    ends.proxy.set_quality([(2, 1)], CLEAR)
    assert await reader.readexactly(5) == b"again"
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def test_a_server_that_does_not_listen_costs_its_datagrams_only(ends: Ends) -> None:
    asyncio.get_running_loop().remove_reader(ends.sockets[2].fileno())
    ends.sockets[2].close()
    for number in range(3):
        ends.send(1, bytes([number]))
        await asyncio.sleep(0.01)
    ends.sockets[2] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ends.sockets[2].sendto(b"back", (HOST, ends.proxy.port(2, 1)))
    await until(lambda: ends.received[1] == [b"back"])
