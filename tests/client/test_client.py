"""The asyncio client against a cluster that fails exactly where a test wants it to."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.client.conftest import ClusterThread
from tests.client.fake import FakeCluster, Fault, fake_cluster
from zraft_client import (
    AuthFailedError,
    BadVersionError,
    Check,
    Client,
    ClientError,
    ClosedError,
    ConnectionState,
    Consistency,
    DeadlineError,
    EncodingError,
    LogEntry,
    NodeExistsError,
    NoNodeError,
    NotSentError,
    Receipt,
    SessionExpiredError,
    UnknownOutcomeError,
    requests,
)

SHORT_S = 0.2
"""For calls that are to be given up."""


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """One server."""
    async with fake_cluster(1) as started:
        yield started


def client_of(cluster: FakeCluster, **options: Any) -> Client:
    return Client(cluster.hosts, rng=random.Random(1), **options)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - a fake has no events to wait for
            await asyncio.sleep(0.001)


async def test_every_call_of_a_dictionary_says_what_it_came_to(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        first = await client.put("k", [1, {"a": (2, 3)}])
        assert first == Receipt(first.zxid, first.position, 0, first.zxid)
        found = await client.get("k")
        assert found is not None
        assert (found.value, found.version) == ([1, {"a": [2, 3]}], 0)
        assert await client.get("missing") is None
        second = await client.put("k", None, version=0)
        assert second.version == 1
        assert second.position > first.position
        with pytest.raises(BadVersionError):
            await client.put("k", 1, version=0)
        with pytest.raises(NodeExistsError):
            await client.put("k", 1, version=-1)
        assert (await client.increment("n", 5)).value == 5
        assert (await client.increment("n", -7)).value == -2
        assert await client.snapshot() == {"k": None, "n": -2}
        assert await client.size() == 2
        await client.delete("k")
        with pytest.raises(NoNodeError) as missing:
            await client.delete("k")
        assert isinstance(missing.value, KeyError)
        await client.put((1, ("x",)), "tuple", dictionary="other")
        page = await client.items(dictionary="other")
        assert [(key, entry.value) for key, entry in page.items] == [((1, ("x",)), "tuple")]


async def test_every_call_of_znodes_and_logs_says_what_it_came_to(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        made = await client.create("/log", b"data")
        assert (made.path, made.stat.version, made.stat.ephemeral_owner) == ("/log", 0, 0)
        assert (await client.set("/log", b"new")).version == 1
        znode = await client.read("/log")
        assert (znode.data, znode.stat.version) == (b"new", 1)
        assert await client.exists("/none") is None
        for n in range(3):
            await client.create("/log/e-", b"%d" % n, sequential=True)
        assert (await client.children("/log")).names == ("e-0000000000", "e-0000000001", "e-0000000002")
        page = await client.log("/log", "e-", 1, limit=1)
        assert [(e.position, e.data) for e in page.entries] == [(1, b"1")]
        assert (page.next, page.end) == (2, 3)
        await client.truncate("/log", 2, origin_path="/origin", origin_data=b"o")
        assert (await client.log("/log", "e-")).first == 2
        assert (await client.read("/origin")).data == b"o"
        put, check = await client.multi([requests.set_data("/log", b"both", 1), Check("/origin", 0)])
        assert isinstance(put, Receipt)
        assert (put.version, check) == (2, None)
        with pytest.raises(BadVersionError):
            await client.multi([requests.put("default", "k", 1), Check("/origin", 9)])
        assert await client.get("k") is None
        with pytest.raises(EncodingError):
            await client.multi([requests.sync()])
        with pytest.raises(EncodingError):
            await client.create("/x", ephemeral=True, container=True)
        await client.remove("/origin")
        await client.sync()
        assert (await client.diagnostic())["status"] == "Leader"


@pytest.mark.parametrize("fault", [f for f in Fault if f is not Fault.SILENCE])
async def test_an_increment_happens_once_whatever_became_of_its_first_copies(fault: Fault) -> None:
    async with fake_cluster(2) as cluster, client_of(cluster) as client:
        cluster.fault("increment", fault, fault, fault)
        values = await asyncio.gather(*(client.increment("n") for _ in range(50)))
        assert sorted(one.value for one in values) == list(range(1, 51))
        kept = cluster.sessions[client.session.id]  # type: ignore[union-attr]
        assert len(kept.executed) == len(set(kept.executed)) == 50


async def test_exactly_two_thousand_increments_of_eight_clients_while_connections_are_cut() -> None:
    async with fake_cluster(3) as cluster:
        rng = random.Random(5)
        clients = [client_of(cluster) for _ in range(8)]

        async def work(client: Client) -> None:
            async def some() -> None:
                for _ in range(25):
                    await client.increment("n")

            await asyncio.gather(*(some() for _ in range(10)))

        async def cut() -> None:
            for done in range(100, 2_000, 100):
                await until(lambda done=done: cluster.position >= done)  # type: ignore[misc]
                rng.choice(sorted(cluster.connections, key=lambda one: one.session)).cut()
                cluster.fault("increment", rng.choice([Fault.CUT_AFTER, Fault.UNKNOWN, Fault.REFUSE]))

        cutting = asyncio.create_task(cut())
        for client in clients:
            await client.connect()
        await asyncio.gather(*(work(client) for client in clients))
        await cutting
        cluster.faults.clear()
        found = await clients[0].get("n")
        assert found is not None
        assert found.value == 2_000
        assert sum(kept.repeats for kept in cluster.sessions.values()) > 0, "no write was ever repeated"
        for client in clients:
            await client.close()


async def test_without_a_session_a_lost_connection_leaves_a_write_unknown_and_a_read_repeated(
    cluster: FakeCluster,
) -> None:
    async with client_of(cluster, session=False) as client:
        cluster.fault("put", Fault.CUT_AFTER)
        with pytest.raises(UnknownOutcomeError):
            await client.put("k", 1)
        cluster.fault("get", Fault.CUT_BEFORE)
        found = await client.get("k")
        assert found is not None
        assert found.value == 1
        assert all("seq" not in message for message in cluster.requests)
        cluster.fault("put", Fault.REFUSE)
        assert (await client.put("k", 2)).version == 1


async def test_many_refused_writes_are_asked_again_on_uvloop_too(fake: ClusterThread) -> None:
    """A timer that is due already is another kind of handle there: it once ended the connection, for every refusal."""
    fake.do(lambda cluster: cluster.fault("put", *[Fault.REFUSE] * 300))

    async with Client(fake.hosts, rng=random.Random(1)) as client:
        await asyncio.gather(*(client.put(key, key) for key in range(100)))
        assert client.statistics().connections == 1
        assert await client.size() == 100


async def test_a_call_ends_at_its_deadline_and_says_whether_it_may_have_happened(
    cluster: FakeCluster,
) -> None:
    async with client_of(cluster) as client:
        quick = client.within(SHORT_S)
        cluster.fault("put", Fault.SILENCE)
        with pytest.raises(UnknownOutcomeError):
            await quick.put("k", 1)
        cluster.fault("get", Fault.SILENCE)
        with pytest.raises(DeadlineError) as late:
            await quick.get("k")
        assert isinstance(late.value, TimeoutError)
        cluster.fault("put", *[Fault.REFUSE] * 1000)
        with pytest.raises(DeadlineError, match="did not happen"):
            await quick.put("k", 1)
        cluster.faults.clear()
        await cluster.stop_listening(0)
        cluster.cut()
        await client.wait_state(ConnectionState.SUSPENDED)
        with pytest.raises(NotSentError):
            await quick.put("k", 1)


async def test_a_write_that_was_given_up_is_refused_once_a_later_one_was_answered(
    cluster: FakeCluster,
) -> None:
    async with client_of(cluster) as client:
        cluster.fault("increment", Fault.SILENCE)
        with pytest.raises(UnknownOutcomeError):
            await client.within(SHORT_S).increment("n")
        late = next(m for m in cluster.requests if m["type"] == "increment")
        await client.put("k", 1)
        # the copy that was on its way all the while
        answer = cluster.write(late, client.session.id)  # type: ignore[union-attr]
        assert answer["code"] == "BAD_ARGUMENTS"
        assert await client.get("n") is None


async def test_a_cancelled_call_is_given_up_and_costs_nobody_else(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        cluster.fault("put", Fault.SILENCE)
        waiting = asyncio.create_task(client.put("k", 1))
        await until(lambda: any(m["type"] == "put" for m in cluster.requests))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert client.statistics().unsettled == 0
        assert (await client.put("k", 2)).version == 0


async def test_a_cancelled_call_gives_its_place_to_who_waits_for_room_at_once(cluster: FakeCluster) -> None:
    """Who waited for it went out with the next answer or ping only, seconds later on a quiet connection."""
    async with client_of(cluster, session_timeout_s=60) as client:
        cluster.fault("put", *[Fault.SILENCE] * 1_025)
        first, *others = [asyncio.create_task(client.put(n, n)) for n in range(1_025)]
        await until(lambda: [one["type"] for one in cluster.requests].count("put") == 1_024)
        first.cancel()
        await until(lambda: [one["type"] for one in cluster.requests].count("put") == 1_025)
        for one in others:
            one.cancel()
        await asyncio.gather(first, *others, return_exceptions=True)


async def test_the_session_moves_to_another_server_when_one_is_lost() -> None:
    async with fake_cluster(3) as cluster:
        states: list[ConnectionState] = []
        async with client_of(cluster) as client:
            client.add_listener(states.append)
            session = client.session
            await client.create("/mine", ephemeral=True)
            server = client.server
            assert server is not None
            await cluster.stop_listening(cluster.addresses.index((server.host, server.port)))
            cluster.cut()
            await client.wait_state(ConnectionState.SUSPENDED)
            await client.put("k", 1)
            assert client.session == session
            assert client.server != server
            assert await client.exists("/mine") is not None
            assert states == [ConnectionState.SUSPENDED, ConnectionState.CONNECTED]
            assert client.statistics().sessions == 1
        assert "/mine" not in cluster.nodes
        assert states[-1] is ConnectionState.CLOSED


async def test_an_expired_session_is_told_and_then_renewed(cluster: FakeCluster) -> None:
    states: list[ConnectionState] = []
    async with client_of(cluster) as client:
        client.add_listener(states.append)
        old = client.session
        assert old is not None
        cluster.fault("increment", Fault.CUT_AFTER)
        task = asyncio.create_task(client.increment("n"))
        await until(lambda: client.state is ConnectionState.SUSPENDED)
        cluster.expire(old.id)
        with pytest.raises(UnknownOutcomeError) as unknown:
            await task
        assert unknown.value.settled
        await client.wait_state(ConnectionState.CONNECTED)
        assert states == [
            ConnectionState.SUSPENDED,
            ConnectionState.EXPIRED,
            ConnectionState.CONNECTED,
        ]
        assert client.session is not None
        assert client.session.id != old.id
        assert (await client.increment("n")).value == 2


async def test_without_renewal_calls_fail_after_expiry_until_the_program_renews(cluster: FakeCluster) -> None:
    async with client_of(cluster, renew_session=False) as client:
        assert client.session is not None
        cluster.expire(client.session.id)
        await client.wait_state(ConnectionState.EXPIRED)
        with pytest.raises(SessionExpiredError, match="renew"):
            await client.put("k", 1)
        await client.renew()
        assert (await client.put("k", 1)).version == 0


async def test_a_server_that_answers_nothing_is_left_for_another() -> None:
    async with fake_cluster(2) as cluster, client_of(cluster, session_timeout_s=0.3) as client:
        cluster.fault("*", *[Fault.SILENCE] * 3)
        assert (await client.increment("n")).value == 1
        assert client.statistics().connections > 1


async def test_an_idle_client_pings_and_nothing_else(cluster: FakeCluster) -> None:
    async with client_of(cluster, session_timeout_s=1.5) as client:
        await client.put("k", 1)
        cluster.requests.clear()
        await until(lambda: len(cluster.requests) >= 3)
        assert {message["type"] for message in cluster.requests} == {"ping"}
        assert client.statistics().connections == 1


async def test_when_no_server_answers_connecting_ends_with_what_was_tried_and_why(
    cluster: FakeCluster,
) -> None:
    await cluster.stop_listening(0)
    client = client_of(cluster)
    with pytest.raises(NotSentError, match=r"127\.0\.0\.1:\d+ .* within 0\.2 s: 127\.0\.0\.1:\d+: .*Connect"):
        await client.connect(SHORT_S)
    await client.close()


async def test_auth_is_shown_on_every_connection_and_a_wrong_one_is_told(cluster: FakeCluster) -> None:
    async with client_of(cluster, auth=[("digest", b"user:right")]) as client:
        cluster.cut()
        await client.put("k", 1)
        shown = [m["credentials"] for m in cluster.requests if m["type"] == "auth"]
        assert shown == [b"user:right", b"user:right"]
    wrong = client_of(cluster, auth=[("digest", b"wrong")])
    with pytest.raises(AuthFailedError):
        await wrong.connect()
    await wrong.close()


async def test_a_local_read_asks_for_what_this_client_has_seen(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        receipt = await client.put("k", 1)
        await client.get("k", consistency=Consistency.LOCAL)
        assert cluster.requests[-1]["consistency"] == "local"
        assert cluster.requests[-1]["floor"] == receipt.zxid


async def test_the_other_servers_are_learned_from_the_first() -> None:
    async with fake_cluster(3) as cluster:
        cluster.members = [
            {"server": n, "address": f"{host}:{port}", "part": "voter", "leader": n == 1}
            for n, (host, port) in enumerate(cluster.addresses, 1)
        ]
        async with Client([cluster.addresses[0]]) as client:
            await until(lambda: len(client.hosts) == 3)
            await cluster.stop_listening(0)
            cluster.cut()
            assert (await client.put("k", 1)).version == 0
            assert len(await client.members()) == 3


async def test_a_request_that_servers_find_too_long_fails_alone(cluster: FakeCluster) -> None:
    cluster.limit = 1000
    async with client_of(cluster) as client:
        short, long = await asyncio.gather(
            client.put("short", 1), client.put("long", b"x" * 5000), return_exceptions=True
        )
        assert isinstance(short, Receipt)
        assert isinstance(long, EncodingError)
        assert (await client.put("short", 2)).version == 1


async def test_all_calls_of_one_turn_of_the_loop_are_one_write(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(cluster, discover=False) as client:
        written: list[bytes] = []
        connection = client._connection
        assert connection is not None
        write = connection.write

        def noted(data: bytes) -> None:
            written.append(data)
            write(data)

        monkeypatch.setattr(connection, "write", noted)
        await asyncio.gather(*(client.put(n, n) for n in range(100)))
        assert len(written) == 1


async def test_a_listener_that_fails_costs_nothing_but_a_complaint(cluster: FakeCluster) -> None:
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with client_of(cluster) as client:

        def fail(state: ConnectionState) -> None:
            raise ValueError(state)

        remove = client.add_listener(fail)
        cluster.cut()
        await client.wait_state(ConnectionState.SUSPENDED)
        await client.put("k", 1)
        remove()
        cluster.cut()
        await client.wait_state(ConnectionState.SUSPENDED)
        await client.put("k", 1)
    assert [one["exception"].args for one in complaints] == [
        (ConnectionState.SUSPENDED,),
        (ConnectionState.CONNECTED,),
    ]


async def test_closing_ends_calls_subscriptions_and_the_session(cluster: FakeCluster) -> None:
    client = client_of(cluster)
    await client.connect()
    cluster.fault("put", Fault.SILENCE)
    waiting = asyncio.create_task(client.put("k", 1))
    events = client.subscribe_path("/")
    await until(lambda: cluster.subscribed)
    await client.close()
    await client.close()
    with pytest.raises(ClientError):
        await waiting
    assert [event async for event in events] == []
    assert cluster.sessions == {}
    with pytest.raises(ClosedError):
        await client.put("k", 1)
    with pytest.raises(ClosedError):
        await client.connect()


async def test_a_will_is_carried_out_when_the_session_ends(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        await client.create("/wills")
        await client.will("/wills", "gone-", b"me")
    assert cluster.nodes["/wills/gone-0000000000"].data == b"me"


# -- subscriptions


async def test_a_dictionary_comes_whole_and_then_change_by_change_also_over_a_reconnect(
    cluster: FakeCluster,
) -> None:
    async with client_of(cluster) as client:
        for n in range(5):
            await client.put(n, n, dictionary="d")
        copy: dict[Any, Any] = {}
        async with client.subscribe_dictionary("d") as changes:

            async def follow(whole: dict[Any, Any]) -> None:
                while copy != whole:
                    push = await anext(changes)
                    if push.restarted:
                        copy.clear()
                    for change in push.changes:
                        if change.entry is None:
                            copy.pop(change.key, None)
                        else:
                            copy[change.key] = change.entry.value

            await follow({n: n for n in range(5)})
            await client.delete(0, dictionary="d")
            await follow({n: n for n in range(1, 5)})
            cluster.cut()
            cluster.command({"type": "put", "dictionary": "d", "key": 1, "value": "meanwhile"}, 0)
            await follow({1: "meanwhile", 2: 2, 3: 3, 4: 4})


async def test_a_log_is_told_once_each_in_order_over_reconnects(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client:
        await client.create("/log")
        found: list[LogEntry] = []
        async with client.subscribe_log("/log", "e-", 2) as tail:
            for n in range(10):
                await client.create("/log/e-", b"%d" % n, sequential=True)
                if n in (4, 7):
                    cluster.cut()
            while len(found) < 8:
                found += (await anext(tail)).entries
        assert [(entry.position, entry.data) for entry in found] == [(n, b"%d" % n) for n in range(2, 10)]


async def test_a_lasting_watch_says_when_something_may_have_been_missed(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client, client.subscribe_path("/a") as events:
        await client.create("/a")
        event = await anext(events)
        assert (event.kind, event.path) == ("created", "/a")
        cluster.cut()
        assert (await anext(events)).kind == "resubscribed"
        await client.remove("/a")
        assert (await anext(events)).kind == "deleted"


async def test_a_subscriber_that_does_not_read_is_sent_no_more_than_its_credit(cluster: FakeCluster) -> None:
    async with client_of(cluster) as client, client.subscribe_dictionary("d", credit=4096) as changes:
        for n in range(1000):
            await client.put("k", "x" * 100 + str(n), dictionary="d")
        pushed = len(changes._queue)
        assert pushed < 40
        last = None
        async with asyncio.timeout(10):
            while last is None or not last.value.endswith("x999"):
                for change in (await anext(changes)).changes:
                    last = change.entry
        assert last.version == 999


async def test_a_subscription_that_a_server_cannot_take_now_is_asked_again_on_the_same_connection(
    cluster: FakeCluster,
) -> None:
    """A server that lost its quorum refuses; a tail ended with that, and a lasting watch never told anything again."""
    async with client_of(cluster) as client:
        await client.create("/log")
        cluster.faults["subscribe"] = deque([Fault.REFUSE] * 3)
        async with client.subscribe_log("/log", "e-") as tail, asyncio.timeout(10):
            await client.create("/log/e-", b"one", sequential=True)
            found: list[LogEntry] = []
            while not found:
                found += (await anext(tail)).entries
            cluster.faults["subscribe"] = deque([Fault.REFUSE] * 2)
            cluster.cut()
            await client.create("/log/e-", b"two", sequential=True)
            while len(found) < 2:
                found += (await anext(tail)).entries
            assert [entry.data for entry in found] == [b"one", b"two"]
        cluster.faults["subscribe"] = deque([Fault.REFUSE])
        closed = client.subscribe_path("/log")
        await client.sync()
        closed.close()
        await asyncio.sleep(0.5)
        assert cluster.subscribed == []


async def test_a_subscription_that_is_refused_says_so_and_one_that_was_closed_is_told_to_the_server(
    cluster: FakeCluster,
) -> None:
    async with client_of(cluster) as client:
        with pytest.raises(NoNodeError):
            async with client.subscribe_log("/none", "e-"):
                pass
        async with client.subscribe_path("/"):
            assert len(cluster.subscribed) == 1
        await client.sync()
        assert cluster.subscribed == []
