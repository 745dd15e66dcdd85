"""What every `LogPort` promises, asked of all of them: in memory, native over a fake cluster, and both over real servers;
marked `compat`, also over ZooKeeper itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from onyxlog.errors import EntryError, OvertakenError, ParametersError, UnsupportedError
from onyxlog.peer.log.port import LogBounds, LogPort, Origin
from onyxlog.replica.commands import Entry, GroupLeave, JoinDirect, KillJob, Record
from onyxlog.replica.digests import CHAIN_BYTES, CHAIN_START
from onyxlog.replica.replica import JoinMode, Parameters, Replica, VirtualPeer
from onyxlog.replica.table import Table
from onyxlog.scheduling.requirements import JobScheduler
from tests.compat.install import MissingError, java_jars, program
from tests.compat.zookeeper import ZooKeepers
from tests.onyxlog.peer.places import Fake, Memory, Native, Place, Zookeeper
from tests.processes.cluster import Cluster
from zraft_client import ClosedError, NodeExistsError, NoNodeError, SessionExpiredError

Test = Callable[[Place], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]
PATIENCE_S = 30.0
PARAMETERS = Parameters(job_scheduler=JobScheduler.GREEDY)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One server: what is asked here harms none."""
    with Cluster(tmp_path_factory.mktemp("log"), servers=1) as cluster:
        cluster.start_all()
        yield cluster


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a ZooKeeper server listens."""
    try:
        program("java", "default-jre-headless")
        java_jars()
    except MissingError as error:
        pytest.skip(str(error))
    with ZooKeepers(tmp_path_factory.mktemp("zookeeper"), "3.9.3", count=1) as servers:
        hosts = ",".join(f"{host}:{port}" for host, port in servers.addresses)
        client = KazooClient(hosts=hosts, timeout=20)
        client.start(timeout=90)
        client.stop()
        client.close()
        yield hosts


@pytest.fixture(
    params=[
        "memory",
        "fake",
        pytest.param("native", marks=pytest.mark.processes),
        pytest.param("zookeeper", marks=pytest.mark.processes),
        pytest.param(
            "ZooKeeper itself", marks=[pytest.mark.processes, pytest.mark.compat, pytest.mark.timeout(300)]
        ),
    ]
)
def closed(request: pytest.FixtureRequest) -> Place:
    """Before its loop runs, because servers are started here."""
    match request.param:
        case "memory":
            return Memory()
        case "fake":
            return Fake()
        case "native":
            return Native(request.getfixturevalue("servers"))
        case "zookeeper":
            return Zookeeper(request.getfixturevalue("servers").hosts())
        case _:
            return Zookeeper(request.getfixturevalue("ensemble"))


@pytest.fixture
async def place(closed: Place) -> AsyncIterator[Place]:
    async with closed:
        yield closed


@pytest.fixture
def stored(place: Place) -> Place:
    """Where there are bytes that could be wrong."""
    if isinstance(place, Memory):
        pytest.skip("the log in memory holds values")
    return place


def record(number: int, cause: int | None = None) -> Record:
    return Record(KillJob(f"job-{number}", 0, "because"), f"author-{number}", cause, 1_700_000_000_000)


def replica_at(position: int, peers: int = 0) -> Replica:
    found = {
        f"peer-{number:04d}": VirtualPeer(f"group-{number:04d}", "127.0.0.1:1") for number in range(peers)
    }
    return Replica(parameters=PARAMETERS, version=position, peers=Table(found))


def origin_at(position: int, peers: int = 0) -> Origin:
    return Origin(position, replica_at(position, peers), bytes([position % 256]) * CHAIN_BYTES)


async def begun(place: Place) -> Any:
    port = await place.open()
    await port.begin(PARAMETERS)
    return port


async def take(port: LogPort, first: int, count: int) -> list[Entry]:
    """The next `count` entries of a tail."""
    found: list[Entry] = []
    tail = port.tail(first)
    try:
        async for batch in tail:
            assert batch, "a tail gives no empty batches"
            found += batch
            if len(found) >= count:
                break
    finally:
        await tail.aclose()  # type: ignore[attr-defined]
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - servers have no events to wait for
        await asyncio.sleep(0.005)


# -- beginning


async def test_a_log_is_begun_once_and_by_all_alike(place: Place) -> None:
    ports = [await place.open() for _ in range(3)]
    origins = await asyncio.gather(*(port.begin(PARAMETERS) for port in ports))
    assert origins == [Origin(-1, Replica(parameters=PARAMETERS), CHAIN_START)] * 3
    assert await ports[1].origin() == origins[0]
    assert await ports[0].bounds() == LogBounds(0, 0)


async def test_other_parameters_are_refused_and_named(place: Place) -> None:
    await begun(place)
    other = await place.open()
    with pytest.raises(ParametersError, match="job_scheduler greedy, not balanced; join direct, not ring"):
        await other.begin(Parameters(join=JoinMode.RING))


async def test_what_was_not_begun_is_not_there(place: Place) -> None:
    port = await place.open()
    with pytest.raises(NoNodeError):
        await port.origin()
    with pytest.raises(NoNodeError):
        await port.append(record(0))


# -- entries


async def test_entries_are_numbered_from_zero_without_gaps(place: Place) -> None:
    """O-7."""
    port, other = await begun(place), await place.open()
    assert await port.append(record(0)) == 0
    assert await other.append(record(1, cause=0)) == 1
    assert await port.append(record(2)) == 2
    assert await other.bounds() == LogBounds(0, 3)
    assert await other.read(0, 3) == tuple(
        Entry(position, record(position, 0 if position == 1 else None)) for position in range(3)
    )
    assert await other.read(1, 2) == (Entry(1, record(1, cause=0)),)
    assert await other.read(2, 9) == (Entry(2, record(2)),)
    assert await other.read(3, 9) == ()


async def test_appends_of_one_port_keep_their_order(place: Place) -> None:
    port = await begun(place)
    asked = [asyncio.ensure_future(port.append(record(number))) for number in range(40)]
    assert await asyncio.gather(*asked) == list(range(40))
    assert [entry.record.author for entry in await port.read(0, 40)] == [f"author-{n}" for n in range(40)]


async def test_appends_happen_once_and_in_order_though_connections_are_cut(place: Place) -> None:
    port, other = await begun(place), await place.open()
    positions = []
    for start in range(0, 60, 20):
        asked = [asyncio.ensure_future(port.append(record(n))) for n in range(start, start + 20)]
        await asyncio.sleep(0)
        await asyncio.sleep(0.002)
        await place.cut(port)
        positions += await asyncio.gather(*asked)
    assert positions == list(range(60))
    entries = await other.read(0, 100)
    assert [entry.record for entry in entries] == [record(number) for number in range(60)]


async def test_a_tail_brings_what_is_there_and_what_comes(place: Place) -> None:
    port, other = await begun(place), await place.open()
    for number in range(5):
        await port.append(record(number))
    reading = asyncio.ensure_future(take(other, 2, 6))
    await asyncio.sleep(0.02)
    for number in range(5, 8):
        await port.append(record(number))
    assert await reading == [Entry(number, record(number)) for number in range(2, 8)]


async def test_a_tail_goes_on_after_its_connection_was_cut(place: Place) -> None:
    port, other = await begun(place), await place.open()
    reading = asyncio.ensure_future(take(other, 0, 12))
    for number in range(12):
        await port.append(record(number))
        if number % 4 == 1:
            await place.cut(other)
    assert await reading == [Entry(number, record(number)) for number in range(12)]


async def test_what_cannot_be_decoded_is_an_error_that_names_the_znode(stored: Place) -> None:
    port = await begun(stored)
    await port.append(record(0))
    await stored.spoil(port, b"\xc1nonsense")
    for reading in (take(port, 0, 2), port.read(0, 2)):
        with pytest.raises(EntryError, match=f"/onyx/{stored.tenancy}/log/entry-0000000001"):
            await reading


async def test_a_removed_entry_is_an_error_and_not_passed_over(stored: Place) -> None:
    """Else peers that have read it and peers that have not would go on with different replicas."""
    port = await begun(stored)
    for number in range(3):
        await port.append(record(number))
    await stored.remove_entry(port, 1)
    for reading in (take(port, 0, 3), port.read(1, 3)):
        with pytest.raises(EntryError, match="entry-0000000001: missing"):
            await reading


# -- origins


@pytest.mark.parametrize("peers", [0, 200])
async def test_an_origin_replaces_the_entries_up_to_it(peers: int, place: Place) -> None:
    """O-8, D-20. 200 peers are more than one znode holds, here."""
    port, other = await begun(place), await place.open()
    for number in range(10):
        await port.append(record(number))
    origin = origin_at(6, peers)
    assert await port.store_origin(origin)
    assert await other.origin() == origin
    assert await other.bounds() == LogBounds(7, 10)
    assert await take(other, 7, 3) == [Entry(number, record(number)) for number in range(7, 10)]
    assert await other.append(record(10)) == 10
    assert await other.begin(PARAMETERS) == origin


async def test_a_log_that_is_truncated_to_its_end_goes_on(place: Place) -> None:
    port = await begun(place)
    for number in range(3):
        await port.append(record(number))
    assert await port.store_origin(origin_at(2))
    assert await port.bounds() == LogBounds(3, 3)
    assert await port.read(3, 5) == ()
    reading = asyncio.ensure_future(take(port, 3, 1))
    await asyncio.sleep(0.01)
    assert await port.append(record(3)) == 3
    assert await reading == [Entry(3, record(3))]


async def test_who_is_behind_the_origin_is_told(place: Place) -> None:
    port, other = await begun(place), await place.open()
    for number in range(10):
        await port.append(record(number))
    await port.store_origin(origin_at(6))
    with pytest.raises(OvertakenError):
        await take(other, 4, 1)
    with pytest.raises(OvertakenError):
        await other.read(6, 9)
    with pytest.raises(OvertakenError):
        await take(other, 0, 100)


@pytest.mark.parametrize("peers", [0, 200])
async def test_an_older_origin_is_refused(peers: int, place: Place) -> None:
    port, other = await begun(place), await place.open()
    for number in range(10):
        await port.append(record(number))
    assert await port.store_origin(origin_at(6, peers))
    assert not await other.store_origin(origin_at(6, peers))
    assert not await other.store_origin(origin_at(3, peers))
    assert await other.origin() == origin_at(6, peers)
    assert await other.store_origin(origin_at(7, peers))
    assert await port.origin() == origin_at(7, peers)


@pytest.mark.parametrize("peers", [0, 200])
async def test_of_origins_stored_at_the_same_time_the_newest_stands(peers: int, place: Place) -> None:
    port = await begun(place)
    others = [await place.open() for _ in range(4)]
    for number in range(20):
        await port.append(record(number))
    stored = await asyncio.gather(
        *(other.store_origin(origin_at(10 + n, peers)) for n, other in enumerate(others))
    )
    assert stored[-1]
    assert await port.origin() == origin_at(13, peers)
    assert await port.bounds() == LogBounds(14, 20)


# -- pulses and sessions


async def test_a_pulse_stands_as_long_as_its_session(place: Place) -> None:
    port, other = await begun(place), await place.open()
    assert not await other.is_alive("a")
    await port.show_pulse("a")
    await port.show_pulse("a")
    assert await other.is_alive("a")
    with pytest.raises(NodeExistsError):
        await other.show_pulse("a")
    await port.close()
    assert not await other.is_alive("a")


async def test_how_long_a_group_is_silent_is_told_as_long_as_its_pulse_stands(place: Place) -> None:
    """Where the service knows: a ZooKeeper does not tell, and then nothing is known of anybody."""
    observer = await place.open()
    assert await observer.silences() == {}, "not even the directory is there"
    shown, other = await begun(place), await place.open()
    await shown.show_pulse("a")
    await other.show_pulse("b")
    found = await observer.silences()
    if isinstance(place, Zookeeper):
        assert found == {}
        return
    assert found.keys() == {"a", "b"}
    for silence in found.values():
        assert silence.silent_s is not None
        assert 0 <= silence.silent_s < PATIENCE_S
        assert silence.timeout_s > 0
    await shown.close()
    assert (await observer.silences()).keys() == {"b"}


async def test_who_watches_a_pulse_is_called_once(place: Place) -> None:
    port, other, third = await begun(place), await place.open(), await place.open()
    called: list[str] = []
    await port.show_pulse("a")
    await third.show_pulse("b")
    await other.watch_pulse("a", lambda: called.append("a"))
    await other.watch_pulse("b", lambda: called.append("b"))
    stop = await other.watch_pulse("a", lambda: called.append("stopped"))
    await other.watch_pulse("nobody", lambda: called.append("nobody"))
    await until(lambda: called == ["nobody"])
    stop()
    await place.expire(port)
    await until(lambda: called == ["nobody", "a"])
    await third.close()
    await until(lambda: called == ["nobody", "a", "b"])


async def test_a_watch_outlives_its_connection(place: Place) -> None:
    port, other = await begun(place), await place.open()
    called: list[str] = []
    await port.show_pulse("a")
    await other.watch_pulse("a", lambda: called.append("a"))
    await place.cut(other)
    await port.close()
    await until(lambda: called == ["a"])


@pytest.mark.parametrize("how", ["close", "expire"])
async def test_a_will_is_appended_when_the_session_ends(how: str, place: Place) -> None:
    """D-19."""
    port, other = await begun(place), await place.open()
    will = Record(GroupLeave("a"), "a")
    if not place.has_wills:
        with pytest.raises(UnsupportedError, match="ring"):
            await port.set_will(will)
        await port.set_will(None)
        return
    await port.set_will(Record(GroupLeave("earlier"), "a"))
    await port.set_will(will)
    await other.set_will(Record(GroupLeave("b"), "b"))
    await other.set_will(None)
    await port.append(Record(JoinDirect("a"), "a"))
    await (port.close() if how == "close" else place.expire(port))
    third = await place.open()
    await other.close()
    assert await take(third, 0, 2) == [Entry(0, Record(JoinDirect("a"), "a")), Entry(1, will)]
    assert await third.bounds() == LogBounds(0, 2)


async def test_after_its_session_a_port_does_nothing_any_more(place: Place) -> None:
    port, other = await begun(place), await place.open()
    called: list[str] = []
    await other.show_pulse("a")
    await port.watch_pulse("a", lambda: called.append("a"))
    reading = asyncio.ensure_future(take(port, 0, 1))
    await asyncio.sleep(0.02)
    await place.expire(port)
    with pytest.raises(SessionExpiredError):
        await reading
    with pytest.raises(SessionExpiredError):
        await port.append(record(0))
    with pytest.raises(SessionExpiredError):
        await take(port, 0, 1)
    with pytest.raises(SessionExpiredError):
        await port.is_alive("a")
    with pytest.raises(SessionExpiredError):
        await port.watch_pulse("a", lambda: called.append("a"))
    await other.close()
    third = await place.open()
    assert not await third.is_alive("a")
    assert await third.bounds() == LogBounds(0, 0)
    assert called == []


async def test_a_closed_port_tells_who_still_waits(place: Place) -> None:
    port = await begun(place)
    reading = asyncio.ensure_future(take(port, 0, 1))
    await asyncio.sleep(0.02)
    await port.close()
    with pytest.raises(ClosedError):
        await reading
    with pytest.raises(ClosedError):
        await port.append(record(0))
    await port.close()


# -- jobs and state


@pytest.mark.parametrize("size", [0, 10, 30_000])
async def test_a_job_is_stored_once(size: int, place: Place) -> None:
    port, other = await begun(place), await place.open()
    with pytest.raises(NoNodeError):
        await port.job("j")
    parts = bytes(range(10)) * (size // 10)
    await asyncio.gather(port.put_job("j", parts), other.put_job("j", parts))
    assert await other.job("j") == parts
    await other.put_job("j", parts)
    with pytest.raises(EntryError, match="j: another job"):
        await other.put_job("j", parts + b"!")
    assert await port.job("j") == parts
    await port.forget_job("j")
    await port.forget_job("j")
    with pytest.raises(NoNodeError):
        await other.job("j")
    await other.put_job("j", parts + b"!")
    assert await port.job("j") == parts + b"!"


async def test_state_is_replaced_whatever_its_size(place: Place) -> None:
    port, other = await begun(place), await place.open()
    assert await port.state("checkpoints/j/1") is None
    for data in (b"", b"small", b"large" * 2_000, b"larger" * 2_000, b"small again"):
        await port.put_state("checkpoints/j/1", data)
        assert await other.state("checkpoints/j/1") == data
    await other.put_state("checkpoints/j/2", b"x" * 9_000)
    await other.put_state("digests/a", b"1")
    assert await port.states("checkpoints/j") == ("1", "2")
    assert await port.states("") == ("checkpoints", "digests")
    assert await port.states("checkpoints/j/2") == ()
    assert await port.states("nothing") == ()
    await port.remove_state("checkpoints")
    await port.remove_state("checkpoints")
    assert await port.states("") == ("digests",)
    assert await port.state("checkpoints/j/2") is None
    assert await other.state("digests/a") == b"1"


@pytest.mark.parametrize("size", [1, 900])
async def test_of_states_written_at_the_same_time_one_stands(size: int, place: Place) -> None:
    ports = [await begun(place) for _ in range(4)]
    written = [f"{number}{'.' * 9}".encode() * size for number in range(4)]
    for _ in range(3):
        await asyncio.gather(*(port.put_state("s", data) for port, data in zip(ports, written, strict=True)))
        assert await ports[0].state("s") in written


async def test_what_was_asked_is_counted(place: Place) -> None:
    """O-12."""
    port, other = await begun(place), await place.open()
    before = other.statistics()
    for number in range(3):
        await port.append(record(number))
    assert port.statistics().appends == 3
    await take(other, 0, 3)
    await port.show_pulse("a")
    await other.watch_pulse("a", lambda: None)
    await until(lambda: other.statistics().watches >= 1)
    found = other.statistics()
    assert found.appends == 0
    assert found.pushes + found.reads > before.pushes + before.reads
