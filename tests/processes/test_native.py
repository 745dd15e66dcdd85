"""The native protocol against three real servers: Zatt's messages, exactly once over a killed leader, subscriptions."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kazoo.client import KazooClient

from tests.certificates import Authority
from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.native import ConnectionEndedError, Map, RawClient, zatt
from zraft.config.features import LEVEL_OF_NATIVE
from zraft_core.wire.dictionary import decode_entry, entry_path

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def at_level(cluster: Cluster) -> None:
    """Wait until native writes are taken."""
    for number in cluster.running():

        def risen(number: int = number) -> bool:
            found = cluster.mntr(number)
            return found is not None and int(found["feature_level"]) >= LEVEL_OF_NATIVE

        wait_until(risen, f"feature level {LEVEL_OF_NATIVE} at server {number}")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the tests that harm nobody: each uses a dictionary of its own."""
    with Cluster(tmp_path_factory.mktemp("native")) as cluster:
        cluster.start_all()
        at_level(cluster)
        yield cluster


def leader_of(cluster: Cluster) -> int:
    return wait_until(cluster.leader, "a leader")


def another_leads(cluster: Cluster, was: int) -> bool:
    return cluster.leader() not in (None, was)


def followers_of(cluster: Cluster) -> list[int]:
    leader = leader_of(cluster)
    return [number for number in cluster.servers if number != leader]


def test_zatts_client_follows_the_redirect_and_reads_from_any_server(running: Cluster) -> None:
    leader = running.servers[leader_of(running)].address
    change = {"type": "append", "data": {"action": "change", "key": "zatt", "value": {"x": [1, 2]}}}
    for number in followers_of(running):
        answer = zatt(running, number, change)
        assert answer == {"type": "redirect", "leader": [leader.host, leader.port]}
    assert zatt(running, leader_of(running), change) == {"type": "result", "success": True}
    for number in running.servers:
        assert zatt(running, number, {"type": "get"})["zatt"] == {"x": [1, 2]}
    delete = {"type": "append", "data": {"action": "delete", "key": "zatt"}, "forward": True}
    assert zatt(running, followers_of(running)[0], delete) == {"type": "result", "success": True}
    for number in running.servers:
        assert "zatt" not in zatt(running, number, {"type": "get"})


def test_z14_every_server_gives_its_diagnostic(running: Cluster) -> None:
    leader = leader_of(running)
    addresses = [[one.address.host, one.address.port] for one in running.servers.values()]
    for number in running.servers:
        found = zatt(running, number, {"type": "diagnostic"})
        assert found["status"] == ("Leader" if number == leader else "Follower")
        assert found["persist"]["currentTerm"] >= 1
        assert sorted(found["volatile"]["cluster"]) == sorted(addresses)
        assert found["volatile"]["leaderId"] == addresses[leader - 1]
        assert found["volatile"]["address"] == addresses[number - 1]
        assert found["log"]["commitIndex"] >= 1
        assert ("leaderStatus" in found) == (number == leader)
        if number == leader:
            followers = {one for one in running.servers if one != leader}
            assert set(found["leaderStatus"]["matchIndex"]) == followers
            assert set(found["leaderStatus"]["nextIndex"]) == followers


def test_z15_members_are_not_changed_by_strangers(running: Cluster) -> None:
    message = {"type": "config", "action": "delete", "address": "127.0.0.1", "port": 1}
    answer = zatt(running, leader_of(running), message)
    assert answer["success"] is False
    assert "client.reconfig_enabled" in answer["error"]


def test_a_linearizable_read_sees_what_was_acknowledged_elsewhere(running: Cluster) -> None:
    with RawClient(running, 1) as one, RawClient(running, 2) as two, RawClient(running, 3) as three:
        clients = [one, two, three]
        for n in range(60):
            writer, reader = clients[n % 3], clients[(n + 1) % 3]
            assert writer.ask("put", dictionary="lin", key="k", value=n)["success"]
            assert reader.ask("get", dictionary="lin", key="k")["value"] == n


def test_a_local_read_with_a_floor_sees_what_its_client_has_seen(running: Cluster) -> None:
    with RawClient(running, 1) as one, RawClient(running, 2) as two:
        for n in range(60):
            zxid = one.ask("put", dictionary="floor", key="k", value=n)["zxid"]
            got = two.ask("get", dictionary="floor", key="k", consistency="local", floor=zxid)
            assert (got["value"], got["zxid"] >= zxid) == (n, True)


def test_zookeepers_clients_and_native_ones_see_the_same_znodes(running: Cluster) -> None:
    sessions = Sessions(running)
    try:
        kazoo: KazooClient = sessions.open(first=1)
        with RawClient(running, 2) as native:
            native.ask("put", dictionary="both", key="k", value=[1, None])
            kazoo.sync("/")
            data, stat = kazoo.get(entry_path("both", "k"))
            assert decode_entry(data) == ("k", (1, None))
            assert stat.version == 0
            kazoo.create("/from-kazoo", b"hello")
            assert native.ask("read", path="/from-kazoo")["data"] == b"hello"
            native.ask("create", path="/from-native", data=b"x")
            kazoo.sync("/")
            acl, _ = kazoo.get_acls("/from-native")
            assert [(one.perms, one.id.scheme, one.id.id) for one in acl] == [(31, "world", "anyone")]
    finally:
        sessions.close()


def test_large_values_pass_and_larger_ones_name_the_knob(running: Cluster) -> None:
    with RawClient(running, followers_of(running)[0]) as client:
        for size in (1_400, 70_000, 1_000_000):
            value = bytes([size % 251]) * size
            assert client.ask("put", dictionary="large", key=size, value=value)["success"]
            assert client.ask("get", dictionary="large", key=size)["value"] == value
        client.send({"type": "put", "id": 99, "key": "k", "value": b"x" * 1_100_000})
        refused = client.receive()
        assert "client.jute_maxbuffer" in refused["error"]
        with pytest.raises(ConnectionEndedError):
            client.receive()


def test_native_connections_show_in_the_words_and_metrics_that_operators_read(running: Cluster) -> None:
    with RawClient(running, 1) as session, RawClient(running, 1) as without:
        hello = session.ask("hello", timeout_ms=30_000)
        session.ask("subscribe", dictionary="words", credit=1)
        while session.receive()["type"] != "changes":
            pass
        without.ask("ping")
        cons = running.ask(1, "cons")
        assert cons is not None
        lines = [line for line in cons.splitlines() if line.strip()]
        assert any(f"sid=0x{hello['session']:x}" in line and "lop=subscribe" in line for line in lines)
        found = running.mntr(1)
        assert found is not None
        assert int(found["native_subscriptions"]) == 1
        assert int(found["native_connections_total"]) >= 2
        assert int(found["num_alive_connections"]) >= 2


class Incrementer(threading.Thread):
    """Increments a counter exactly once each, whatever happens to servers: repeats under the same seq elsewhere."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._count = count
        self._session: Map = {}
        self._next = 0
        self.answers: dict[int, Map] = {}
        self.repeats = 0
        self.connections = 0
        self.done = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            while len(self.answers) < self._count:
                try:
                    self._work()
                except OSError:
                    continue
        except BaseException as error:
            self.problem = error
        finally:
            self.done.set()

    def _work(self) -> None:
        numbers = list(self._cluster.servers)
        self._next += 1
        with RawClient(self._cluster, numbers[self._next % len(numbers)]) as client:
            hello = client.ask("hello", timeout_ms=30_000, **self._session)
            if not hello["success"]:
                assert hello["retriable"], hello
                return
            self._session = {"session": hello["session"], "password": hello["password"]}
            self.connections += 1
            while len(self.answers) < self._count:
                floor = 0
                while floor + 1 in self.answers:
                    floor += 1
                due = [n for n in range(floor + 1, min(floor + 51, self._count + 1)) if n not in self.answers]
                for n in due:
                    client.send(
                        {
                            "type": "increment",
                            "id": n,
                            "dictionary": "once",
                            "key": "n",
                            "seq": n,
                            "floor": floor,
                        }
                    )
                for _ in due:
                    answer = client.receive()
                    if answer["success"]:
                        self.answers[answer["id"]] = answer
                    else:
                        assert answer["retriable"], answer
                        self.repeats += 1
                        if answer["code"] == "CONNECTION_LOSS":
                            return


def test_increments_happen_exactly_once_while_leaders_are_killed(start_cluster: Any) -> None:
    cluster: Cluster = start_cluster()
    at_level(cluster)
    workers = [Incrementer(cluster, 1_500) for _ in range(3)]
    for worker in workers:
        worker.start()

    def went_on(before: int) -> bool:
        answered = sum(len(worker.answers) for worker in workers)
        return answered > before + 200 or all(worker.done.is_set() for worker in workers)

    for _ in range(3):
        before = sum(len(worker.answers) for worker in workers)
        wait_until(partial(went_on, before), "progress")
        leader = leader_of(cluster)
        cluster.kill(leader)
        wait_until(partial(another_leads, cluster, leader), "another leader")
        cluster.start(leader)
    for worker in workers:
        wait_until(worker.done.is_set, "the end of the work", 120)
        if worker.problem is not None:
            raise worker.problem
    assert max(worker.connections for worker in workers) > 1, "nobody had to reconnect"
    values = sorted(answer["value"] for worker in workers for answer in worker.answers.values())
    assert values == list(range(1, 4_501)), "each increment once, and each answer its own"
    positions = [answer["position"] for worker in workers for answer in worker.answers.values()]
    assert len(set(positions)) == 4_500
    with RawClient(cluster, leader_of(cluster)) as client:
        assert client.ask("get", dictionary="once", key="n")["value"] == 4_500


def test_a_repeat_on_another_server_after_the_leader_was_killed_gives_the_first_answer(
    start_cluster: Any,
) -> None:
    cluster: Cluster = start_cluster()
    at_level(cluster)
    leader = leader_of(cluster)
    with RawClient(cluster, leader) as client:
        hello = client.ask("hello", timeout_ms=30_000)
        first = client.ask("increment", key="n", amount=5, seq=1, floor=0)
    cluster.kill(leader)
    other = next(number for number in cluster.servers if number != leader)
    fields = {"session": hello["session"], "password": hello["password"], "last_zxid": first["zxid"]}

    def repeated() -> Map | None:
        try:
            with RawClient(cluster, other) as client:
                if not client.ask("hello", timeout_ms=30_000, **fields)["success"]:
                    return None
                return client.ask("increment", key="n", amount=5, seq=1, floor=0)
        except ConnectionEndedError:
            return None

    again = wait_until(repeated, "the session at another server")
    names = ("success", "zxid", "position", "value", "version", "mzxid")
    assert {name: again[name] for name in names} == {name: first[name] for name in names}
    with RawClient(cluster, other) as client:
        assert client.ask("get", key="n")["value"] == 5


def test_a_will_is_written_when_its_session_expires(start_cluster: Any) -> None:
    cluster: Cluster = start_cluster(ZRAFT_SESSION_TIMEOUT_MS_MIN="1000")
    at_level(cluster)
    with RawClient(cluster, 1) as client, RawClient(cluster, 2) as watcher:
        client.ask("hello", timeout_ms=1_000)
        client.ask("create", path="/wills", data=b"")
        client.ask("create", path="/wills/alive", data=b"", flags=1)
        assert client.ask("will", parent="/wills", prefix="gone-", data=b"me")["success"]
        watcher.ask("subscribe", log="/wills", prefix="gone-", first=0, credit=100_000)
        while (message := watcher.receive())["type"] != "entries" or not message["entries"]:
            pass
        assert [entry[1] for entry in message["entries"]] == [b"me"]
        assert watcher.ask("exists", path="/wills/alive")["stat"] is None


def test_a_subscription_ends_with_its_server_and_a_new_one_has_the_state(start_cluster: Any) -> None:
    cluster: Cluster = start_cluster()
    at_level(cluster)
    leader = leader_of(cluster)
    with RawClient(cluster, leader) as subscriber:
        subscriber.ask("put", key="a", value=1)
        subscriber.send({"type": "subscribe", "id": 100, "dictionary": "default", "credit": 1_000_000})
        assert subscriber.receive()["success"]
        assert subscriber.receive()["changes"][0][:2] == ["a", 1]
        cluster.kill(leader)
        with pytest.raises(ConnectionEndedError):
            subscriber.receive()
    wait_until(partial(another_leads, cluster, leader), "another leader")
    other = leader_of(cluster)
    with RawClient(cluster, other) as again, RawClient(cluster, other) as writer:
        again.send({"type": "subscribe", "id": 1, "dictionary": "default", "credit": 1_000_000})
        assert again.receive()["success"]
        assert again.receive()["changes"][0][:2] == ["a", 1]
        assert writer.ask("put", key="a", value=2)["success"]
        assert again.receive()["changes"][0][:2] == ["a", 2]


def _read_to_the_end(subscriber: RawClient) -> NoReturn:
    """The members of a young cluster may be written down yet, and that is an event."""
    while True:
        subscriber.receive()


def test_a_server_without_a_quorum_takes_nothing_and_gives_diagnostics(start_cluster: Any) -> None:
    cluster: Cluster = start_cluster()
    at_level(cluster)
    leader = leader_of(cluster)
    with RawClient(cluster, leader) as client, RawClient(cluster, leader) as subscriber:
        client.ask("put", key="a", value=1)
        subscriber.ask("subscribe", path="/", recursive=True)
        for number in cluster.servers:
            if number != leader:
                cluster.kill(number)
        with pytest.raises(ConnectionEndedError):
            _read_to_the_end(subscriber)  # silence would mean that nothing changed
        answer = client.ask("put", key="a", value=2)
        assert (answer["code"], answer["retriable"]) == ("CONNECTION_LOSS", True)
        assert client.ask("get", key="a", consistency="local")["value"] == 1
        assert zatt(cluster, leader, {"type": "diagnostic"})["log"]["commitIndex"] >= 1
        assert zatt(cluster, leader, {"type": "get"}) is None


def test_native_clients_speak_through_tls(start_cluster: Any, tmp_path: Path) -> None:
    authority = Authority()
    certificate, key = authority.issue().write(tmp_path, "server")
    cluster: Cluster = start_cluster(ZRAFT_TLS__CERTIFICATE=str(certificate), ZRAFT_TLS__KEY=str(key))
    context = ssl.create_default_context(cafile=str(authority.write(tmp_path)))

    def put() -> bool:
        with RawClient(cluster, 1, context) as client:
            return bool(client.ask("put", key="a", value=1)["success"])

    wait_until(put, "the feature level")
    with RawClient(cluster, 2, context) as client:
        assert client.ask("get", key="a")["value"] == 1
        hello = client.ask("hello", timeout_ms=10_000)
        assert "first request" in hello["error"]
