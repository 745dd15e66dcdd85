"""What a program does with ZooKeeper in its first minute, with an unmodified client against three real servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import EventType, WatchedEvent

from tests.processes.clients import Sessions
from tests.processes.cluster import DEADLINE_S, Cluster, wait_until
from tests.processes.quiet import QuietClient
from zraft_core.znodes.txn import CREATE, FLAG_EPHEMERAL

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for this module: each test works below its own znode."""
    with Cluster(tmp_path_factory.mktemp("smoke")) as cluster:
        cluster.start_all()
        yield cluster


@pytest.fixture
def opened(running: Cluster) -> Iterator[Sessions]:
    sessions = Sessions(running)
    yield sessions
    sessions.close()


@pytest.fixture
def three(opened: Sessions) -> list[KazooClient]:
    """One client on each server."""
    return [opened.open(first=number) for number in (1, 2, 3)]


def test_a_write_through_one_server_is_read_through_every_other_after_sync(three: list[KazooClient]) -> None:
    for n, writer in enumerate(three):
        path = writer.create(f"/read-{n}", b"one")
        writer.set(path, b"two", version=0)
        for reader in three:
            reader.sync(path)
            data, stat = reader.get(path)
            assert (data, stat.version, stat.dataLength) == (b"two", 1, 3)
        writer.delete(path, version=1)
        for reader in three:
            reader.sync("/")
            assert reader.exists(path) is None


def test_errors_are_those_that_clients_know(three: list[KazooClient]) -> None:
    client = three[0]
    client.create("/errors/child", makepath=True)
    with pytest.raises(NodeExistsError):
        three[1].create("/errors")
    with pytest.raises(NoNodeError):
        client.get("/errors/none")
    with pytest.raises(BadVersionError):
        client.set("/errors", b"", version=7)
    with pytest.raises(NotEmptyError):
        client.delete("/errors")


def test_sequential_creates_through_three_servers_share_one_counter(three: list[KazooClient]) -> None:
    three[0].create("/sequence")
    made = [three[n % 3].create("/sequence/n-", sequence=True) for n in range(12)]
    assert made == [f"/sequence/n-{n:010d}" for n in range(12)]


def test_an_ephemeral_ends_with_its_session(three: list[KazooClient], opened: Sessions) -> None:
    owner = opened.open(first=1)
    owner.create("/ephemeral", ephemeral=True)
    for client in three:
        client.sync("/ephemeral")
        stat = client.exists("/ephemeral")
        assert stat is not None
        assert stat.ephemeralOwner == owner.client_id[0]
    opened.close_one(owner)
    for client in three:
        client.sync("/ephemeral")
        assert client.exists("/ephemeral") is None


def test_a_transaction_happens_as_a_whole_or_not_at_all(three: list[KazooClient]) -> None:
    first = three[0].transaction()
    first.create("/whole", b"")
    first.set_data("/whole", b"set")
    first.create("/whole/child", b"")
    assert [r for r in first.commit() if isinstance(r, Exception)] == []
    second = three[1].transaction()
    second.delete("/whole/child")
    second.check("/whole", 9)
    results = second.commit()
    assert isinstance(results[1], BadVersionError)
    three[2].sync("/whole")
    assert three[2].get_children("/whole") == ["child"]
    assert three[2].get("/whole")[0] == b"set"


def test_watches_fire_once_for_changes_made_through_another_server(three: list[KazooClient]) -> None:
    writer, watcher, _ = three
    writer.create("/watched")
    watcher.sync("/watched")
    seen: list[WatchedEvent] = []
    fired = threading.Event()

    def on_event(event: WatchedEvent) -> None:
        seen.append(event)
        if event.type == EventType.DELETED:
            fired.set()

    assert watcher.get("/watched", watch=on_event)[0] == b""
    assert watcher.get_children("/watched", watch=on_event) == []
    assert watcher.exists("/watched/later", watch=on_event) is None
    writer.create("/watched/later")
    writer.set("/watched", b"1")
    writer.set("/watched", b"2")
    watcher.sync("/watched")
    assert watcher.exists("/watched/later", watch=on_event) is not None
    writer.delete("/watched/later")
    assert fired.wait(DEADLINE_S)
    assert [(e.type, e.path) for e in seen] == [
        (EventType.CREATED, "/watched/later"),
        (EventType.CHILD, "/watched"),
        (EventType.CHANGED, "/watched"),
        (EventType.DELETED, "/watched/later"),
    ]


def test_a_lock_is_held_by_one_client_at_a_time(three: list[KazooClient]) -> None:
    holders: list[int] = []
    most: list[int] = []

    def work(n: int, client: KazooClient) -> None:
        lock = client.Lock("/lock", f"client {n}")
        for _ in range(5):
            with lock:
                holders.append(n)
                most.append(len(holders))
                client.sync("/lock")
                holders.remove(n)

    _in_threads(work, three)
    assert len(most) == 15
    assert max(most) == 1


def test_every_contestant_of_an_election_leads_once(three: list[KazooClient]) -> None:
    led: list[int] = []
    _in_threads(lambda n, client: client.Election("/election", str(n)).run(led.append, n), three)
    assert sorted(led) == [0, 1, 2]


def test_a_counter_counts_what_three_clients_add(three: list[KazooClient]) -> None:
    def work(_: int, client: KazooClient) -> None:
        counter = client.Counter("/counter")
        for _ in range(5):
            counter += 2

    _in_threads(work, three)
    three[0].sync("/counter")
    assert three[0].Counter("/counter").value == 30


def test_a_client_that_falls_silent_is_expired_and_no_other(running: Cluster, opened: Sessions) -> None:
    """The counterpart of every test that no session was lost: expiry works."""
    neighbour = opened.open(first=1, timeout_s=4.0, name="neighbour")
    neighbour.create("/neighbour", ephemeral=True)
    with QuietClient(running.servers[2].address, timeout_ms=4_000) as silent:
        silent.write((CREATE, "/silent", b"", None, FLAG_EPHEMERAL, 0))
        assert neighbour.sync("/") == "/"
        assert neighbour.exists("/silent") is not None
        # The connection stays open, but nobody sends pings: what a client looks like that hangs.
        wait_until(
            lambda: neighbour.sync("/") == "/" and neighbour.exists("/silent") is None,
            "the end of the silent session",
        )
    assert neighbour.exists("/neighbour") is not None
    assert opened.lost == []


def _in_threads(work: object, clients: list[KazooClient]) -> None:
    failures: list[BaseException] = []

    def guarded(n: int, client: KazooClient) -> None:
        try:
            work(n, client)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(n, c), daemon=True) for n, c in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive(), "a client's thread still waits"
    if failures:
        raise failures[0]
