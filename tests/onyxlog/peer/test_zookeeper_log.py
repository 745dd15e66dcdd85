"""What only the port over ZooKeeper's protocol has to do, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from onyxlog.errors import OvertakenError
from onyxlog.peer.log.port import LogBounds
from onyxlog.peer.log.zookeeper import RECORD_BYTES_MAX, zookeeper_ports
from onyxlog.replica.commands import Entry, KillJob, Record
from onyxlog.replica.replica import JoinMode
from tests.onyxlog.joining import measure
from tests.onyxlog.peer.places import Native, Zookeeper
from tests.onyxlog.peer.test_log_contract import PARAMETERS, begun, origin_at, record, take
from tests.processes.cluster import Cluster
from zraft_client import EncodingError, UnknownOutcomeError

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("zookeeper-log"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


@pytest.fixture
async def place(servers: Cluster) -> AsyncIterator[Zookeeper]:
    async with Zookeeper(servers.hosts()) as opened:
        yield opened


def lose_answers(port: Any, fates: str) -> None:
    """The next transactions: D is done and its answer lost, L is lost, O is answered, 2 is D, and a copy comes late."""
    answered = port._session.once
    waiting = iter(fates)

    async def once(begin: Callable[[], Any]) -> Any:
        fate = next(waiting, "O")
        if fate == "O":
            return await answered(begin)
        if fate in "D2":
            await answered(begin)
        if fate == "2":
            # a copy that a server took long ago: refused, whenever it comes
            results = await answered(begin)
            assert any(isinstance(result, Exception) for result in results)
        raise UnknownOutcomeError("lost")

    port._session.once = once


async def test_an_append_whose_answer_was_lost_is_looked_for_and_not_repeated(place: Zookeeper) -> None:
    port, other = await begun(place), await place.open()
    lose_answers(port, "DLLD2OLDO")
    positions = []
    for number in range(7):
        asked = [asyncio.ensure_future(port.append(record(2 * number + part))) for part in range(2)]
        await asyncio.sleep(0)
        await other.append(Record(KillJob("other", 0), "other"))
        positions += await asyncio.gather(*asked)
    entries = [entry for entry in await other.read(0, 100) if entry.record.author != "other"]
    assert [entry.record for entry in entries] == [record(number) for number in range(14)]
    assert [entry.position for entry in entries] == positions
    assert len(await other.read(0, 100)) == 21


async def test_an_append_that_was_truncated_before_its_answer_came_is_unknown(place: Zookeeper) -> None:
    port, other = await begun(place), await place.open()
    answered = port._session.once

    async def once(begin: Callable[[], Any]) -> Any:
        await answered(begin)
        await other.store_origin(origin_at(0))
        raise UnknownOutcomeError("lost")

    port._session.once = once
    with pytest.raises(UnknownOutcomeError, match="truncated already") as raised:
        await port.append(record(0))
    assert raised.value.settled
    port._session.once = answered
    assert await port.append(record(1)) == 1


async def test_a_truncation_that_stopped_midway_is_finished_by_the_next(place: Zookeeper) -> None:
    port, other = await begun(place), await place.open()
    for number in range(12):
        await port.append(record(number))

    async def nothing(first: int, end: int) -> None:
        await port._znodes.remove(port.layout.entry(first))

    removing, port._remove_entries = port._remove_entries, nothing
    assert await port.store_origin(origin_at(5))
    assert len(await port._znodes.children(port.layout.log)) == 11
    assert (await other.bounds()).first == 6
    port._remove_entries = removing
    assert await port.store_origin(origin_at(7))
    assert [port.layout.position(n) for n in await port._znodes.children(port.layout.log)] == [
        8,
        9,
        10,
        11,
    ]


async def test_a_record_that_no_server_takes_is_refused_here(place: Zookeeper) -> None:
    """A server would close the connection, and the client would send it again on the next one."""
    port = await begun(place)
    with pytest.raises(EncodingError, match=str(RECORD_BYTES_MAX)):
        await port.append(Record(KillJob("j", 0, "x" * RECORD_BYTES_MAX), "a"))
    assert await port.append(record(0)) == 0


async def test_native_and_zookeeper_ports_share_a_log(servers: Cluster, place: Zookeeper) -> None:
    native = Native(servers)
    native.tenancy = place.tenancy
    async with native:
        one, other = await begun(native), await place.open()
        await other.begin(PARAMETERS)
        tails = [asyncio.ensure_future(take(port, 0, 4)) for port in (one, other)]
        for number in range(4):
            assert await (one, other)[number % 2].append(record(number)) == number
        assert await asyncio.gather(*tails) == [[Entry(n, record(n)) for n in range(4)]] * 2
        assert await one.store_origin(origin_at(1, peers=100))
        assert await other.origin() == origin_at(1, peers=100)
        assert await other.store_origin(origin_at(2, peers=100))
        assert await one.origin() == origin_at(2, peers=100)
        for reading in (take(one, 2, 1), one.read(2, 4), take(other, 1, 1)):
            with pytest.raises(OvertakenError):
                await reading
        assert await one.bounds() == await other.bounds() == LogBounds(3, 4)
        assert await one.read(3, 4) == (Entry(3, record(3)),)
        await other.put_state("a/b", b"1" * 5_000)
        assert await one.state("a/b") == b"1" * 5_000
        await other.put_job("j", b"2" * 5_000)
        assert await one.job("j") == b"2" * 5_000


async def test_groups_over_zookeepers_protocol_close_their_ring(servers: Cluster) -> None:
    """With nothing that only zraft has: any ZooKeeper would do."""
    opener = zookeeper_ports(servers.hosts(), "fleet", poll_s=0.5)
    async with asyncio.timeout(50):
        first, one_more = await measure(opener, JoinMode.RING, 4, 1)
    assert first.entries["accept-join"] >= 3
    assert one_more.entries == {"prepare-join": 1, "notify-join": 1, "accept-join": 1}


async def test_nobody_lists_the_log_to_read_it_or_to_be_woken(place: Zookeeper) -> None:
    """In Onyx every peer watches the directory: an append makes each of them read the names of the whole log."""
    port, other = await begun(place), await place.open()
    listed: list[str] = []
    for one in (port, other):
        client = one._session.client
        answered = client.get_children_async

        def watched(path: str, *rest: Any, answered: Any = answered, **named: Any) -> Any:
            listed.append(path)
            return answered(path, *rest, **named)

        client.get_children_async = watched
    reading = asyncio.ensure_future(take(other, 0, 20))
    for number in range(20):
        await port.append(record(number))
    await reading
    await other.read(3, 20)
    await other.bounds()
    await port.store_origin(origin_at(9))
    assert port.layout.log not in listed
    assert await other.states("") == ()
    assert listed  # it would have been noticed
