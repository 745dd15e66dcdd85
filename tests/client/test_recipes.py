"""Recipes: their decisions alone, and their loops against a cluster that fails on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.fake import FakeCluster, Fault, fake_cluster
from zraft_client import Client, ConnectionState, LockLostError
from zraft_client.recipes import Barrier, Counter, Election, Lock, Queue
from zraft_client.recipes.contenders import Gone, Holds, WaitsFor, in_order, standing


@asynccontextmanager
async def two_clients() -> AsyncIterator[tuple[FakeCluster, Client, Client]]:
    async with fake_cluster(2) as cluster, Client(cluster.hosts) as a, Client(cluster.hosts) as b:
        async with asyncio.timeout(20):
            yield cluster, a, b


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - a fake has no events to wait for
        await asyncio.sleep(0.001)


def contenders(cluster: FakeCluster, path: str) -> list[str]:
    return in_order(cluster.nodes[path].children) if path in cluster.nodes else []


def test_the_first_in_line_holds_and_each_other_waits_for_the_one_before() -> None:
    names = ["b-0000000007", "a-0000000012", "c-0000000009"]
    assert standing(names, "b-0000000007") == Holds()
    assert standing(names, "c-0000000009") == WaitsFor("b-0000000007")
    assert standing(names, "a-0000000012") == WaitsFor("c-0000000009")
    assert standing(names, "d-0000000001") == Gone()
    assert standing(["notes", *names], "b-0000000007") == Holds(), "what is no contender is not in line"


@given(st.sets(st.integers(0, 10**10 - 1), min_size=1))
def test_exactly_one_contender_holds_and_the_others_form_one_chain(numbers: set[int]) -> None:
    names = [f"{hash(n)}-{n:010d}" for n in numbers]
    found = [standing(names, name) for name in names]
    assert found.count(Holds()) == 1
    waited_for = [one.name for one in found if isinstance(one, WaitsFor)]
    assert len(waited_for) == len(set(waited_for)) == len(names) - 1


async def test_a_lock_goes_from_holder_to_holder_with_growing_tokens() -> None:
    async with two_clients() as (cluster, a, b):
        inside = 0
        tokens: list[int] = []

        async def work(client: Client) -> None:
            nonlocal inside
            for _ in range(5):
                async with Lock(client, "/locks/one") as lock:
                    inside += 1
                    assert inside == 1
                    tokens.append(lock.token)
                    await client.put("k", lock.token)
                    inside -= 1

        await asyncio.gather(*(work(client) for client in (a, b) for _ in range(3)))
        assert len(tokens) == 30
        assert tokens == sorted(set(tokens))
        assert contenders(cluster, "/locks/one") == []


async def test_a_lock_is_taken_once_although_its_creation_was_not_answered() -> None:
    async with two_clients() as (cluster, a, _):
        await a.create("/locks")
        await a.create("/locks/one")
        cluster.fault("create", Fault.CUT_AFTER)
        async with Lock(a, "/locks/one"):
            assert len(contenders(cluster, "/locks/one")) == 1
        assert contenders(cluster, "/locks/one") == []


async def test_who_stops_waiting_for_a_lock_leaves_no_place_in_the_line() -> None:
    async with two_clients() as (cluster, a, b):
        async with Lock(a, "/lock"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await Lock(b, "/lock").acquire()
            await until(lambda: len(contenders(cluster, "/lock")) == 1)
        async with Lock(b, "/lock"):
            pass


async def test_a_holder_whose_session_expired_is_told_and_the_next_one_holds() -> None:
    async with two_clients() as (cluster, a, b):
        first, second = Lock(a, "/lock"), Lock(b, "/lock")
        old = await first.acquire()
        waiting = asyncio.create_task(second.acquire())
        await until(lambda: len(contenders(cluster, "/lock")) == 2)
        assert a.session is not None
        cluster.expire(a.session.id)
        assert await waiting > old
        await first.lost.wait()
        with pytest.raises(LockLostError):
            _ = first.token
        await second.release()
        async with first:
            assert first.token > old


async def test_one_who_waits_for_a_lock_and_expires_is_told() -> None:
    async with two_clients() as (cluster, a, b), Lock(a, "/lock"):
        waiting = asyncio.create_task(Lock(b, "/lock").acquire())
        await until(lambda: len(contenders(cluster, "/lock")) == 2)
        assert b.session is not None
        cluster.expire(b.session.id)
        with pytest.raises(LockLostError):
            await waiting


async def test_waiting_for_a_lock_survives_lost_connections() -> None:
    async with two_clients() as (cluster, a, b):
        first = Lock(a, "/lock")
        await first.acquire()
        waiting = asyncio.create_task(Lock(b, "/lock").acquire())
        await until(lambda: len(contenders(cluster, "/lock")) == 2)
        cluster.cut()
        await a.wait_state(ConnectionState.SUSPENDED)
        await first.release()
        await waiting


async def test_an_election_has_one_leader_whom_everybody_can_name() -> None:
    async with two_clients() as (cluster, a, b):
        ours, theirs = Election(a, "/election", b"a"), Election(b, "/election", b"b")
        assert await theirs.leader() is None
        await ours.acquire()
        waiting = asyncio.create_task(theirs.acquire())
        await until(lambda: len(contenders(cluster, "/election")) == 2)
        first = await theirs.leader()
        assert first is not None
        assert first.data == b"a"
        assert not waiting.done()
        token = ours.token
        await ours.release()
        assert await waiting > token
        second = await ours.leader()
        assert second is not None
        assert second.data == b"b"
        assert second.czxid > first.czxid


async def test_a_barrier_opens_when_all_are_there_and_closes_when_all_left_generation_after_generation() -> (
    None
):
    async with two_clients() as (cluster, a, b):
        inside = 0

        def all_inside() -> bool:
            return inside % 3 == 0

        async def party(client: Client) -> list[int]:
            nonlocal inside
            seen = []
            barrier = Barrier(client, "/barrier", parties=3)
            for _ in range(4):
                seen.append(await barrier.enter())
                inside += 1
                await until(all_inside)
                await barrier.leave()
            return seen

        first, *others = await asyncio.gather(*(party(client) for client in (a, b, b)))
        assert others == [first, first]
        assert first == sorted(set(first))
        assert "/barrier/ready" not in cluster.nodes


async def test_a_barrier_left_open_by_parties_that_died_is_closed_before_it_is_used() -> None:
    async with two_clients() as (cluster, a, b):
        for path in ("/barrier", "/barrier/members", "/barrier/ready"):
            await a.create(path)
        entering = asyncio.create_task(Barrier(a, "/barrier", parties=2).enter())
        await until(lambda: cluster.nodes["/barrier/members"].children)
        assert not entering.done()
        assert await Barrier(b, "/barrier", parties=2).enter() == await entering


async def test_a_counter_gives_each_number_once() -> None:
    async with two_clients() as (cluster, a, b):
        cluster.fault("increment", Fault.CUT_AFTER, Fault.UNKNOWN)
        counters = [Counter(client, "ids") for client in (a, b)]
        assert await counters[0].value() == 0
        found = await asyncio.gather(*(counter.next() for counter in counters for _ in range(20)))
        assert sorted(found) == list(range(1, 41))
        assert (await counters[0].increment(-40)).value == 0


async def test_a_queue_gives_each_item_to_one_consumer_in_order() -> None:
    async with two_clients() as (cluster, a, b):
        taken: list[bytes] = []

        async def consume(client: Client) -> None:
            queue = Queue(client, "/queue")
            while len(taken) < 40:
                taken.append(await queue.take())

        consumers = [asyncio.create_task(consume(client)) for client in (a, b)]
        producer = Queue(a, "/queue")
        cluster.fault("create", Fault.CUT_AFTER)
        cluster.fault("remove", Fault.CUT_AFTER, Fault.UNKNOWN)
        for n in range(40):
            assert await producer.put(b"%d" % n) == n
        await until(lambda: len(taken) >= 40)
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        assert sorted(taken, key=int) == [b"%d" % n for n in range(40)]
        assert await producer.size() == 0


async def test_a_claimed_item_comes_back_when_its_consumer_dies_and_its_late_finish_is_refused() -> None:
    async with two_clients() as (cluster, a, b):
        mine, theirs = Queue(a, "/queue"), Queue(b, "/queue")
        await mine.put(b"first")
        await mine.put(b"second")
        lost = await mine.claim()
        other = await theirs.claim()
        assert (lost.data, other.data) == (b"first", b"second")
        await theirs.finish(other)
        waiting = asyncio.create_task(theirs.claim())
        assert a.session is not None
        cluster.expire(a.session.id)
        again = await waiting
        assert again.data == b"first"
        assert again.token > lost.token
        with pytest.raises(LockLostError):
            await mine.finish(lost)
        await theirs.release(again)
        final = await mine.claim()
        await mine.finish(final)
        assert await mine.size() == 0
        assert cluster.nodes["/queue/claims"].children == set()
