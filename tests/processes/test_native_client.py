"""`zraft_client` against real servers that are killed and connections that are cut: exactly once, linearizable, pushed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.client.dictionary_model import (
    ABSENT,
    ANY_VERSION,
    Kind,
    Operation,
    Present,
    State,
    check_dictionary,
)
from tests.processes.cluster import Cluster, wait_until
from tests.processes.conftest import StartCluster
from zraft.checkers.linearizability import Call
from zraft_client import (
    AuthFailedError,
    BadVersionError,
    BlockingClient,
    Client,
    ConnectionState,
    Consistency,
    DistributedDict,
    EncodingError,
    FailedError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    RefreshPolicy,
    RefreshPolicyAlways,
    RefreshPolicyCount,
    RefreshPolicyLock,
    RefreshPolicyTime,
    RefreshPolicyWatch,
    UnknownOutcomeError,
)
from zraft_client.recipes import Barrier, Counter, Election, Lock, Queue

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

PATIENT_S = 120.0
"""Deadline of calls that must survive elections on a busy machine."""
KEYS = ("a", "b", "c")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for what harms no server."""
    with Cluster(tmp_path_factory.mktemp("native")) as cluster:
        cluster.start_all()
        yield cluster


# -- what harms no server


async def test_calls_of_znodes_and_dictionaries_mean_what_the_fake_says_they_do(running: Cluster) -> None:
    async with Client(running.hosts(), timeout_s=PATIENT_S) as client:
        first = await client.put("k", [1, {"a": (2, 3)}])
        assert first.version == 0
        found = await client.get("k")
        assert found is not None
        assert (found.value, found.version, found.mzxid) == ([1, {"a": [2, 3]}], 0, first.mzxid)
        with pytest.raises(BadVersionError):
            await client.put("k", 1, version=5)
        with pytest.raises(NodeExistsError):
            await client.put("k", 1, version=-1)
        with pytest.raises(NoNodeError):
            await client.delete("none")
        assert (await client.increment("n", 5)).value == 5
        assert await client.snapshot() == {"k": [1, {"a": [2, 3]}], "n": 5}
        assert await client.size() == 2
        d = client.dictionary("paged")
        await asyncio.gather(*(d.put((n, "x"), n) for n in range(25)))
        assert sorted([(key, e.value) async for key, e in d.items(limit=10)]) == [
            ((n, "x"), n) for n in range(25)
        ]
        assert await d.pop((3, "x")) == 3
        assert (await d.update((4, "x"), lambda value: value * 10)).version == 1
        assert await d.setdefault("new", 1) == 1
        made = await client.create("/made", b"data", ephemeral=True)
        assert made.stat.ephemeral_owner == (client.session.id if client.session else 0)
        assert (await client.set("/made", b"new", version=0)).version == 1
        assert (await client.read("/made", consistency=Consistency.LOCAL)).data == b"new"
        assert "made" in (await client.children("/")).names
        await client.remove("/made")
        assert await client.exists("/made") is None
        assert len(await client.members()) == 3


async def test_large_values_travel_and_one_beyond_the_limit_is_refused_by_name(running: Cluster) -> None:
    async with Client(running.hosts(), timeout_s=PATIENT_S) as client:
        value = random.Random(1).randbytes(1_000_000)
        await client.put("large", value, dictionary="large")
        found = await client.get("large", dictionary="large")
        assert found is not None
        assert found.value == value
        with pytest.raises(EncodingError, match=r"client\.jute_maxbuffer"):
            await client.put("larger", value + bytes(100_000), dictionary="large")
    # a client that is told a larger limit than the servers have learns it from them
    async with Client(running.hosts(), timeout_s=PATIENT_S, request_bytes_max=10_000_000) as client:
        with pytest.raises(EncodingError, match=r"client\.jute_maxbuffer"):
            await client.put("larger", bytes(2_000_000))
        assert await client.get("larger") is None


@pytest.mark.parametrize(
    "policy",
    [
        RefreshPolicyAlways(),
        RefreshPolicyLock(),
        RefreshPolicyCount(3),
        RefreshPolicyTime(timedelta(hours=1)),
        RefreshPolicyWatch(),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_distributed_dict_is_a_dictionary_under_every_policy(running: Cluster, policy: RefreshPolicy) -> None:
    name = type(policy).__name__
    with DistributedDict.connect(
        running.hosts(), name=name, refresh_policy=policy, timeout_s=PATIENT_S
    ) as mine:
        model: dict[Any, Any] = {}
        for target in (mine, model):
            target["a"] = 1
            target[2.0] = [None, {"x": b"y"}]
            target.update({n: n * n for n in range(20)})
            del target[7]
            assert target.setdefault("a", 2) == 1
            assert target.pop(8) == 64
            with pytest.raises(KeyError):
                del target[8]
        assert mine == model
        assert len(mine) == len(model)
        assert mine[True] == 1
        mine.refresh(force=True)
        assert mine == model
        assert mine.diagnostic()["status"] in ("Leader", "Follower")
        refused = mine.config_cluster("add", "127.0.0.1", 5254)
        assert (refused["success"], refused["code"]) == (False, "RECONFIG_DISABLED")
        mine.clear()
        assert not mine


def test_a_watching_reader_sees_a_change_within_one_round_trip_and_asks_nothing_while_nothing_changes(
    running: Cluster,
) -> None:
    """The change is there before the reader's next answer, whoever wrote it; and servers count no request but pings."""
    hosts = running.hosts()
    with (
        BlockingClient(hosts, timeout_s=PATIENT_S) as reader,
        BlockingClient(hosts, timeout_s=PATIENT_S) as writer,
        DistributedDict.over(reader, "watched", refresh_policy=RefreshPolicyWatch()) as mine,
    ):
        for n in range(20):
            writer.put("k", n, dictionary="watched")
            # one round trip of the reader's connection: what was acknowledged before it was pushed before its answer
            reader.sync()
            assert mine["k"] == n
        before = reader.run_soon(lambda client: client._calls._next_id)
        for _ in range(10_000):
            assert mine["k"] == 19
            assert len(mine) == 1
        after = reader.run_soon(lambda client: client._calls._next_id)
        assert after - before <= 3, "pings of ten seconds at most"


async def test_recipes_on_real_servers(running: Cluster) -> None:
    async with (
        Client(running.hosts(), timeout_s=PATIENT_S) as client,
        Client(running.hosts(), timeout_s=PATIENT_S) as other,
    ):
        tokens: list[int] = []
        inside = 0

        async def locked(one: Client) -> None:
            nonlocal inside
            for _ in range(3):
                async with Lock(one, "/recipes/lock") as lock:
                    inside += 1
                    assert inside == 1
                    tokens.append(lock.token)
                    inside -= 1

        await asyncio.gather(*(locked(one) for one in (client, other, other)))
        assert tokens == sorted(set(tokens))
        async with Election(client, "/recipes/election", b"me") as election:
            leader = await Election(other, "/recipes/election", b"you").leader()
            assert leader is not None
            assert (leader.data, election.token > tokens[-1]) == (b"me", True)
        barriers = [Barrier(one, "/recipes/barrier", 2) for one in (client, other)]
        for _ in range(2):
            first, second = await asyncio.gather(*(barrier.enter() for barrier in barriers))
            assert first == second
            await asyncio.gather(*(barrier.leave() for barrier in barriers))
        assert await Counter(client, "counted").next() == 1
        mine, theirs = Queue(client, "/recipes/queue"), Queue(other, "/recipes/queue")
        taking = asyncio.create_task(theirs.take())
        await mine.put(b"one")
        assert await taking == b"one"
        await mine.put(b"two")
        claim = await theirs.claim()
        assert claim.data == b"two"
        await theirs.finish(claim)
        assert await mine.size() == 0


async def test_a_log_is_followed_and_truncated_and_a_will_is_left(running: Cluster) -> None:
    async with Client(running.hosts(), timeout_s=PATIENT_S) as client:
        await client.create("/log")
        found: list[int] = []
        async with client.subscribe_log("/log", "e-") as tail:
            for n in range(30):
                await client.create("/log/e-", b"%d" % n, sequential=True)
            while len(found) < 30:
                found += [int(entry.data) for entry in (await anext(tail)).entries]
        assert found == list(range(30))
        await client.truncate("/log", 20, origin_path="/origin", origin_data=b"up to 20")
        page = await client.log("/log", "e-", limit=100)
        assert ([entry.position for entry in page.entries], page.first, page.end) == (
            list(range(20, 30)),
            20,
            30,
        )
        assert (await client.read("/origin")).data == b"up to 20"
        async with Client(running.hosts(), timeout_s=PATIENT_S) as leaving:
            await leaving.will("/log", "will-", b"left")
        assert [n for n in (await client.children("/log")).names if n.startswith("will-")]


# -- exactly once


async def increment(clients: list[Client], total: int, workers: int = 25) -> None:
    """`total` increments of one counter, shared among the clients, many at a time each."""
    left = iter(range(total))

    async def work(client: Client) -> None:
        for _ in left:
            await client.increment("n")

    await asyncio.gather(*(work(client) for client in clients for _ in range(workers)))


async def exactly_once(cluster: Cluster, total: int, kills: int, cuts: int, seed: int) -> dict[str, int]:
    """Eight clients count to `total` while leaders are killed and connections cut; what it took."""
    rng = random.Random(seed)
    clients = [Client(cluster.hosts(), timeout_s=PATIENT_S, session_timeout_s=60) for _ in range(8)]
    await asyncio.gather(*(client.connect() for client in clients))

    async def reached() -> int:
        """The counter now, by whoever is connected."""
        with contextlib.suppress(FailedError):
            found = await clients[0].get("n")
            return 0 if found is None else int(found.value)
        return 0

    async def harm() -> int:
        done = 0
        marks = [(total * (n + 1) // (kills + 1), "kill") for n in range(kills)]
        marks = sorted(marks + [(total * (n + 1) // (cuts + 1), "cut") for n in range(cuts)])
        for mark, what in marks:
            while await reached() < mark:  # noqa: ASYNC110 - the counter is on a server
                await asyncio.sleep(0.02)
            if what == "cut":
                while not (connected := [c for c in clients if c.state is ConnectionState.CONNECTED]):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                victim = rng.choice(connected)
                victim._give_up_connection("cut by the test")
                done += 1
                continue
            leader = await asyncio.to_thread(wait_until, cluster.leader, "a leader")
            await asyncio.to_thread(cluster.kill, leader)
            await asyncio.to_thread(cluster.start, leader)
            await asyncio.to_thread(cluster.wait_ready)
            done += 1
        return done

    harming = asyncio.create_task(harm())
    began = time.monotonic()
    await increment(clients, total)
    seconds = time.monotonic() - began
    harmed = await harming
    found = await clients[3].get("n")
    assert found is not None
    assert found.value == total
    assert found.version == total - 1
    statistics = [client.statistics() for client in clients]
    for client in clients:
        await client.close()
    return {
        "harmed": harmed,
        "repeats": sum(one.repeats for one in statistics),
        "connections": sum(one.connections for one in statistics),
        "sessions": sum(one.sessions for one in statistics),
        "per second": round(total / seconds),
    }


async def test_two_thousand_increments_of_eight_clients_count_exactly(cluster: Cluster, seed: int) -> None:
    """Z-33: one leader is killed and ten connections are cut meanwhile."""
    took = await exactly_once(cluster, total=2_000, kills=1, cuts=10, seed=seed)
    print(took)
    assert took["harmed"] == 11
    assert took["repeats"] > 0, "no write was ever repeated: the test showed nothing"
    assert took["sessions"] == 8


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_a_hundred_thousand_increments_of_eight_clients_count_exactly(
    cluster: Cluster, seed: int
) -> None:
    """Z-33: ten leaders are killed and two hundred connections are cut meanwhile."""
    took = await exactly_once(cluster, total=100_000, kills=10, cuts=200, seed=seed)
    print(took)
    assert took["harmed"] == 210
    assert took["repeats"] > 200
    assert took["sessions"] == 8


# -- linearizable


class Recorder:
    """One thread that uses a dictionary and writes down what it asked and saw."""

    def __init__(self, cluster: Cluster, number: int, seed: int) -> None:
        self._dict = DistributedDict.connect(
            cluster.hosts(number % 3 + 1), name="shared", timeout_s=PATIENT_S, session_timeout_s=60
        )
        self._number = number
        self._rng = random.Random(seed * 100 + number)
        self._versions: dict[str, int] = {}
        self.calls: list[Call[Operation]] = []
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"recorder {number}")

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._step()
        except BaseException as error:
            self.failure = error
        finally:
            self._dict.close()

    def stop(self) -> None:
        self._stop.set()
        self.thread.join(PATIENT_S * 2)
        assert not self.thread.is_alive()
        if self.failure is not None:
            raise AssertionError(f"{self.thread.name}: {self.failure!r}") from self.failure

    def _step(self) -> None:
        key = self._rng.choice(KEYS)
        kind = self._rng.choices(list(Kind), [5, 4, 1, 1, 2])[0]
        value = f"{self._number}-{len(self.calls)}"
        expected = self._versions.get(key, 0)
        invoked = time.monotonic_ns()
        seen, answered = None, True
        try:
            seen = self._do(kind, key, value, expected)
        except (KeyError, NodeExistsError, BadVersionError):
            pass
        except UnknownOutcomeError:
            answered = False
        returned = time.monotonic_ns() if answered else None
        if isinstance(seen, Present) and seen.version != ANY_VERSION:
            self._versions[key] = seen.version
        self.calls.append(Call(Operation(key, kind, value, expected, seen, answered), invoked, returned))

    def _do(self, kind: Kind, key: str, value: Any, expected: int) -> State:
        mine = self._dict
        match kind:
            case Kind.GET:
                if self._rng.random() < 0.5:
                    value = mine.get(key, ABSENT)
                    return value if value is ABSENT else Present(value, ANY_VERSION)
                found = mine.get_versioned(key)
                return ABSENT if found is None else Present(found.value, found.version)
            case Kind.PUT:
                return Present(value, _version(mine.put(key, value)))
            case Kind.PUT_IF_ABSENT:
                return Present(value, _version(mine.put_if_absent(key, value)))
            case Kind.REPLACE:
                return Present(value, _version(mine.replace(key, value, expected)))
            case Kind.DELETE:
                mine.delete(key)
                return ABSENT


def _version(receipt: Any) -> int:
    assert receipt.version is not None
    return int(receipt.version)


def record(cluster: Cluster, operations: int, kills: int, seed: int) -> list[Call[Operation]]:
    recorders = [Recorder(cluster, number, seed) for number in range(6)]
    for one in recorders:
        one.thread.start()

    def count() -> int:
        return sum(len(one.calls) for one in recorders)

    try:
        for n in range(kills):
            mark = operations * (n + 1) // (kills + 1)
            wait_until(lambda mark=mark: count() >= mark, f"{mark} operations", 600)  # type: ignore[misc]
            leader = wait_until(cluster.leader, "a leader")
            cluster.kill(leader)
            cluster.start(leader)
            cluster.wait_ready()
        wait_until(lambda: count() >= operations, f"{operations} operations", 1_200)
    finally:
        for one in recorders:
            one.stop()
    return [call for one in recorders for call in one.calls]


def judge(calls: list[Call[Operation]]) -> None:
    """Linearizable, and the history had something to judge: reads of others' values, conflicts, overlaps."""
    assert check_dictionary(calls) == []
    reads = [c.operation for c in calls if c.operation.kind is Kind.GET]
    assert sum(isinstance(one.seen, Present) for one in reads) > len(calls) // 10
    refused = sum(c.operation.seen is None and c.operation.answered for c in calls)
    assert refused > 0, "no condition ever failed"
    spans = sorted((c.invoked, c.returned) for c in calls if c.returned is not None)
    assert any(a[1] > b[0] for a, b in itertools.pairwise(spans)), "nothing overlapped"


def test_histories_of_distributed_dict_under_always_are_linearizable(cluster: Cluster, seed: int) -> None:
    judge(record(cluster, operations=1_000, kills=1, seed=seed))


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_long_histories_of_distributed_dict_under_always_are_linearizable(
    cluster: Cluster, seed: int
) -> None:
    calls = record(cluster, operations=30_000, kills=8, seed=seed)
    print(len(calls), "operations,", sum(not c.operation.answered for c in calls), "unanswered")
    judge(calls)


# -- sessions and faults


def test_a_session_survives_the_loss_of_its_server_and_a_copy_follows(start_cluster: StartCluster) -> None:
    cluster = start_cluster()
    states: list[ConnectionState] = []
    policy = RefreshPolicyWatch()
    with DistributedDict.connect(
        cluster.hosts(), refresh_policy=policy, timeout_s=PATIENT_S, session_timeout_s=60
    ) as mine:
        mine.client.add_listener(states.append)
        mine["before"] = 1
        mine.client.create("/mine", ephemeral=True)
        session = mine.client.session
        assert session is not None
        at = mine.client.run_soon(lambda client: client.server)
        number = next(n for n, server in cluster.servers.items() if server.address == at)
        cluster.kill(number)
        mine["after"] = 2
        assert mine == {"before": 1, "after": 2}
        assert mine.client.session == session
        stat = mine.client.exists("/mine")
        assert stat is not None
        assert stat.ephemeral_owner == session.id
        assert states[:2] == [ConnectionState.SUSPENDED, ConnectionState.CONNECTED]
        with DistributedDict.connect(cluster.hosts(), timeout_s=PATIENT_S) as other:
            other["theirs"] = 3
        mine.client.sync()
        assert mine == {"before": 1, "after": 2, "theirs": 3}


def test_over_tls_and_with_a_user_whose_acl_others_do_not_pass(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    authority = Authority()
    certificate, key = authority.issue().write(tmp_path, "server")
    cluster = start_cluster(servers=1, ZRAFT_TLS__CERTIFICATE=str(certificate), ZRAFT_TLS__KEY=str(key))
    trusting = ssl.create_default_context(cafile=str(authority.write(tmp_path)))
    user = [("digest", b"user:secret")]
    with BlockingClient(cluster.hosts(), tls=trusting, auth=user, timeout_s=PATIENT_S) as mine:
        mine.create("/mine", b"data", acl=[(31, "auth", "")])
        assert mine.read("/mine").data == b"data"
        mine.put("large", bytes(500_000))
        assert len(mine.snapshot()["large"]) == 500_000
        with BlockingClient(cluster.hosts(), tls=trusting, timeout_s=PATIENT_S) as stranger:
            with pytest.raises(NoAuthError):
                stranger.read("/mine")
            assert stranger.get("large") is not None
    with pytest.raises(NotSentError, match="certificate"):
        BlockingClient(cluster.hosts(), tls=ssl.create_default_context(), timeout_s=2)
    with pytest.raises(AuthFailedError):
        BlockingClient(cluster.hosts(), tls=trusting, auth=[("nonsense", b"")], timeout_s=PATIENT_S)
