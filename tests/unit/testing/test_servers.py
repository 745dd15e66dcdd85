"""Servers inside a test: what clients get from them, what faults do to clients, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NoNodeError

from zraft.testing import TestCluster, TestServer, ZraftTestError, logs
from zraft.testing.servers import ServerShare
from zraft_client import Client, DistributedDict
from zraft_client.topics import BlockingTopics
from zraft_core.errors import ConfigError

WITHIN_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with TestServer() as server:
        yield server


@pytest.fixture
def share(server: TestServer, request: pytest.FixtureRequest) -> Iterator[ServerShare[TestServer]]:
    with server.share(request.node.name) as share:
        yield share


@contextmanager
def kazoo(hosts: str, **options: Any) -> Iterator[KazooClient]:
    # kazoo would wait longer after each try, and for a third of the timeout until it leaves a server that says nothing.
    soon = {"max_tries": -1, "delay": 0.02, "backoff": 1, "max_jitter": 0}
    client = KazooClient(hosts=hosts, connection_retry=soon, timeout=1.5, **options)
    client.start(WITHIN_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def until(holds: Callable[[], object]) -> None:
    waited = threading.Event()
    for _ in range(int(WITHIN_S / 0.01)):
        if holds():
            return
        waited.wait(0.01)
    raise AssertionError("it never came")


class States:
    """Through which states a client of kazoo went."""

    def __init__(self, client: KazooClient) -> None:
        self.seen: list[str] = []
        client.add_listener(self.seen.append)


# -- what clients get


def test_clients_of_two_shares_do_not_see_each_other(server: TestServer) -> None:
    with server.share("one") as one, server.share("two") as two:
        with kazoo(one.hosts) as client, kazoo(two.hosts) as other:
            client.create("/a", b"1")
            assert client.get_children("/") == ["a"]
            assert other.get_children("/") == []
            other.create("/a", b"2")
            assert client.get("/a")[0] == b"1"
        assert one.path("/a") == f"{one.chroot}/a"
        assert one.path("/") == one.chroot


def test_nothing_is_left_of_a_share_at_its_end(server: TestServer) -> None:
    with kazoo(server.hosts) as watcher, server.client() as client:
        with server.share("left [behind]") as share, kazoo(share.hosts) as user:
            user.create("/a/b/c", makepath=True)
            user.create("/ephemeral", ephemeral=True)
            DistributedDict.over(client, f"{share.prefix}jobs")["key"] = 1
            topics = BlockingTopics(client)
            topics.create(f"{share.prefix}events", 1)
            assert watcher.exists(f"{share.chroot}/a/b/c")
            assert f"{share.prefix}jobs" in watcher.get_children("/zraft/dictionaries")
        assert not watcher.exists(share.chroot)
        assert watcher.get_children("/zraft/dictionaries") == []
        assert [one.name for one in topics.list()] == []


def test_a_share_of_a_server_that_a_test_has_killed_ends_without_an_error() -> None:
    with TestServer() as server, server.share() as share:
        assert share.hosts.startswith("127.0.0.1:")
        server.kill()


def test_settings_have_the_names_of_the_configuration() -> None:
    with TestServer(settings={"client.jute_maxbuffer": 5_000}) as server, kazoo(server.hosts) as client:
        client.create("/small", bytes(4_000))
        with pytest.raises(ConnectionLoss):
            client.create("/large", bytes(10_000))
    with pytest.raises(ConfigError, match="no_such"):
        TestServer(settings={"no_such": 1}).start()
    with pytest.raises(ConfigError, match=r"data \(in settings\): is chosen by"):
        TestServer(settings={"data": "/var/lib/zraft"})


def test_servers_that_do_not_run_say_what_to_do() -> None:
    server = TestServer()
    with pytest.raises(ZraftTestError, match="use `with`, or call start"):
        _ = server.hosts
    server.stop()
    with server:
        with pytest.raises(ZraftTestError, match="already"):
            server.start()
        server.kill()
        with pytest.raises(ZraftTestError, match="server 1 does not run"):
            server.pause()
    server.stop()


# -- faults of one server


def test_an_expired_session_has_lost_its_ephemerals_at_once_and_its_client_is_told(
    share: ServerShare[TestServer],
) -> None:
    with kazoo(share.hosts) as client, kazoo(share.hosts) as other:
        states = States(client)
        client.create("/mine", ephemeral=True)
        share.expire(client.client_id[0])
        assert not other.exists("/mine")
        until(lambda: KazooState.LOST in states.seen)
        until(lambda: states.seen[-1] == KazooState.CONNECTED)
        assert not client.exists("/mine")


def test_a_session_that_writes_all_the_time_expires_too(share: ServerShare[TestServer]) -> None:
    with kazoo(share.hosts) as client:
        client.create("/counter", b"")
        states = States(client)
        stopped = threading.Event()

        def write() -> None:
            while not stopped.is_set():
                client.set_async("/counter", b"x")
                stopped.wait(0.0005)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            share.expire(client.client_id[0])
            until(lambda: KazooState.LOST in states.seen)
        finally:
            stopped.set()
            writer.join()


def test_only_a_session_that_exists_can_expire(server: TestServer) -> None:
    with pytest.raises(ZraftTestError, match="session 0x7b does not exist"):
        server.expire(123)


def test_a_killed_server_refuses_connections_and_starts_again_with_its_data_at_its_port() -> None:
    with TestServer() as server, kazoo(server.hosts) as client:
        states, hosts = States(client), server.hosts
        client.create("/kept", b"1")
        client.create("/mine", ephemeral=True)
        server.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((server.host, server.port))
        until(lambda: states.seen == [KazooState.SUSPENDED])
        server.restart()
        assert server.hosts == hosts
        until(lambda: states.seen[-1] == KazooState.CONNECTED)
        assert client.get("/kept")[0] == b"1"
        assert client.exists("/mine"), "the session lived on"
        assert KazooState.LOST not in states.seen


def test_a_paused_server_accepts_connections_answers_nobody_and_goes_on_with_all_sessions() -> None:
    with TestServer() as server, kazoo(server.hosts) as client:
        states = States(client)
        server.pause()
        server.pause()
        with socket.create_connection((server.host, server.port)) as asker:
            asker.sendall(b"ruok")
            written = client.create_async("/late", b"")
            asker.settimeout(0.2)
            with pytest.raises(TimeoutError):
                asker.recv(4)
            assert not written.ready()
            server.resume()
            asker.settimeout(WITHIN_S)
            assert asker.recv(4) == b"imok"
        assert written.get(timeout=WITHIN_S) == "/late"
        assert KazooState.LOST not in states.seen


def test_a_paused_server_can_be_killed() -> None:
    with TestServer() as server:
        server.pause()
        server.kill()
        server.restart()
        server.pause()


# -- beside the program under test


async def test_servers_work_beside_asyncio_on_any_loop() -> None:
    async with TestServer() as server, Client(server.hosts) as client:
        await client.put("a", 1)
        assert (await client.increment("a")).value == 2
        session = client.session
        assert session is not None
        await asyncio.to_thread(server.expire, session.id)


def test_servers_of_several_threads_do_not_disturb_each_other() -> None:
    """Each reads into buffers of its own thread."""

    def use(number: int) -> set[bytes]:
        with TestServer() as server, kazoo(server.hosts) as client:
            client.create("/a", b"")
            data = b"%d" % number * 10_000
            for one in [client.set_async("/a", data) for _ in range(200)]:
                one.get(timeout=WITHIN_S)
            return {client.get("/a")[0]}

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(use, range(3))) == [{b"%d" % number * 10_000} for number in range(3)]


def test_the_process_is_as_it_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    gc.enable()  # servers of other tests, which have the process for themselves, disable it
    before = (
        gc.isenabled(),
        signal.getsignal(signal.SIGTERM),
        set(threading.enumerate()),
    )
    frozen = gc.get_freeze_count()
    with TestServer() as server:
        assert gc.isenabled()
        assert signal.getsignal(signal.SIGTERM) == before[1]
        assert len(list(tmp_path.iterdir())) == 1
        server.kill()
        server.restart()
    after = (
        gc.isenabled(),
        signal.getsignal(signal.SIGTERM),
        set(threading.enumerate()),
    )
    assert after == before
    assert gc.get_freeze_count() <= frozen  # what other tests froze may go
    assert list(tmp_path.iterdir()) == []


def test_lines_of_servers_go_to_the_programs_own_log_or_else_to_pythons(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_users", 0)  # the module's server is one
    caplog.set_level("INFO", "zraft.server")
    configured = structlog.get_config()
    with TestServer():
        assert structlog.get_config() == configured, "a program that has configured structlog keeps that"
    assert caplog.records == []
    structlog.reset_defaults()
    try:
        with TestServer():
            pass
        assert not structlog.is_configured()
        assert "event=listening server=1" in caplog.text
    finally:
        structlog.configure(**configured)


def test_a_forked_child_does_not_stop_the_servers_of_its_parent(
    server: TestServer, share: ServerShare[TestServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 1)
    server.stop()
    monkeypatch.undo()
    with kazoo(share.hosts) as client:
        assert client.get_children("/") == []


# -- several servers


def test_a_leader_that_is_cut_off_is_replaced_and_cannot_write_until_the_cut_heals() -> None:
    with TestCluster() as cluster:
        cut_off = cluster.leader
        majority = [number for number in cluster.servers if number != cut_off]
        with kazoo(cluster.hosts_of(cut_off)) as client, kazoo(cluster.hosts_of(*majority)) as other:
            client.create("/a", b"1")
            states = States(client)
            cluster.partition([cut_off], majority)
            written = client.set_async("/a", b"never", version=0)
            assert cluster.leader in majority
            other.set("/a", b"2")
            until(lambda: states.seen)
            assert states.seen == [KazooState.SUSPENDED], "its server serves nobody without a majority"
            cluster.heal()
            cluster.wait_ready()
            until(lambda: states.seen[-1] == KazooState.CONNECTED)
            client.sync("/a")
            assert client.get("/a")[0] == b"2"
            with pytest.raises(ConnectionLoss):
                written.get(timeout=WITHIN_S)


def test_the_next_server_leads_when_the_leader_is_killed_or_paused() -> None:
    with TestCluster() as cluster, kazoo(cluster.hosts) as client:
        client.create("/a", b"")
        first = cluster.leader
        cluster.kill(first)
        second = cluster.leader
        assert second != first
        cluster.restart(first)
        cluster.wait_ready()
        cluster.pause(second)
        third = cluster.leader
        assert third != second
        cluster.resume(second)
        cluster.wait_ready()
        assert cluster.serves
        until(lambda: client.connected)
        assert client.get("/a")[0] == b""
        cluster.kill(first)
        cluster.kill(second)
        with pytest.raises(ZraftTestError, match="no server leads"):
            cluster.wait_ready(within_s=0.05)


def test_a_session_ends_on_all_servers_whichever_its_client_uses() -> None:
    with TestCluster() as cluster, kazoo(cluster.hosts_of(1)) as one, kazoo(cluster.hosts_of(2)) as two:
        one.create("/one", ephemeral=True)
        two.create("/two", ephemeral=True)
        cluster.expire(one.client_id[0])
        with pytest.raises(NoNodeError):
            two.get("/one")
        assert two.exists("/two")


def test_servers_are_named_by_their_numbers() -> None:
    with pytest.raises(ValueError, match="servers: found 0, expected 1 to 9"):
        TestCluster(0)
    with TestCluster(2) as cluster:
        assert cluster.hosts == cluster.hosts_of(1, 2)
        with pytest.raises(ValueError, match="server: found 3, expected 1 to 2"):
            cluster.kill(3)
        with pytest.raises(ValueError, match="expected every server in one of them at most"):
            cluster.partition([1, 2], [2])
