"""A consistent copy of topics while they are written to, changed and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from attrs import evolve

from tests.client.test_client import until
from tests.client.topics.cluster import TopicCluster
from tests.client.topics.test_producer import running
from zraft_client import DeadlineError
from zraft_client.topics import NoTopicError, Topics
from zraft_client.topics.cutting import TopicsCut, cut_topics, deliveries_below, first_offset
from zraft_client.topics.values import Metadata
from zraft_core.claims.commands import ClaimPartition
from zraft_core.claims.values import Mode
from zraft_core.ids import GroupId
from zraft_core.topics.message import Delivery

TIMEOUT_S = 20.0


async def copied(topics: Topics, cut: TopicsCut) -> dict[GroupId, list[Delivery]]:
    found: dict[GroupId, list[Delivery]] = {}
    for topic in cut.topics:
        for group in (*topic.partitions, *topic.adding):
            first = await first_offset(topics.directory, group, "", TIMEOUT_S)
            parts = deliveries_below(topics.directory, cut.cut, group, "", TIMEOUT_S, first)
            found[group] = [one async for part in parts for one in part]
    return found


def meanwhile(topics: Topics, do: Callable[[], Awaitable[Any]], after: int = 1) -> None:
    """Let something happen once the table was looked at so often: the next look sees it."""
    refresh, looks = topics.directory.refresh, 0

    async def looked() -> Metadata:
        nonlocal looks
        found = await refresh()
        looks += 1
        if looks == after:
            await do()
        return found

    topics.directory.refresh = looked  # type: ignore[method-assign]


async def test_what_is_copied_while_producers_send_has_every_message_everywhere_or_nowhere() -> None:
    async with running(orders=2, audit=1) as (cluster, topics):
        places = [("orders", 0), ("orders", 1), ("audit", 0)]
        stop = asyncio.Event()

        async def produce(number: int) -> None:
            async with topics.producer() as producer:
                sent = 0
                while not stop.is_set():
                    to: Any = places[sent % 3] if (sent + number) % 2 else places
                    await producer.send(to, b"%d of %d" % (sent, number))
                    sent += 1

        producers = [asyncio.create_task(produce(number)) for number in range(3)]
        before = 0
        for _ in range(4):
            await asyncio.sleep(0.05)
            delivered = {group: len(found.deliveries) for group, found in cluster.groups.items()}
            cut = await cut_topics(topics.directory, TIMEOUT_S)
            found = await copied(topics, cut)
            assert cut.cut.time > before
            before = cut.cut.time
            for group, deliveries in found.items():
                assert len(deliveries) >= delivered[group], "what was delivered before is in it"
                # Clients are not told positions.
                assert deliveries == [
                    evolve(one, position=0)
                    for one in cluster.groups[group].deliveries
                    if one.stamp.time <= cut.cut.time
                ]
            there = {group: {one.message.mid for one in deliveries} for group, deliveries in found.items()}
            for deliveries in found.values():
                for one in deliveries:
                    assert all(one.message.mid in there[group] for group in one.message.destinations)
        stop.set()
        await asyncio.gather(*producers)
        assert sum(len(one) for one in found.values()) > 20


async def test_an_idle_partition_is_asked_to_pass_and_an_idle_cluster_is_cut_at_once() -> None:
    async with running(orders=2) as (cluster, topics):
        async with topics.producer() as producer:
            await producer.send([("orders", 0), ("orders", 1)], b"both")
            await producer.send(("orders", 0), b"one")
        cut = await cut_topics(topics.directory, TIMEOUT_S)
        assert cluster.needs > 0
        found = await copied(topics, cut)
        assert sorted(len(one) for one in found.values()) == [1, 2]


async def test_consumers_are_told_as_they_were_before_the_cut() -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.producer() as producer:
            for _ in range(5):
                await producer.send("orders", b"x")
        await topics.set_offset("orders", 0, b"billing", 3)
        group = cluster.group("orders", 0)
        group.claim(ClaimPartition("readers", "c", "i", 1, 0, Mode.AT_LEAST_ONCE, 2))
        cut = await cut_topics(topics.directory, TIMEOUT_S)
        (found,) = cut.consumption.values()
        assert found.offsets == {b"billing": 3}
        assert [(view.group, view.start) for view in found.groups] == [("readers", 2)]
        assert found.end == 5


async def test_a_topic_that_is_created_meanwhile_is_in_it() -> None:
    async with running(orders=1) as (_, topics):
        meanwhile(topics, lambda: topics.create("later", 1))
        cut = await cut_topics(topics.directory, TIMEOUT_S)
        assert [topic.name for topic in cut.topics] == ["later", "orders"]


async def test_a_topic_that_grows_meanwhile_is_cut_behind_the_change_or_before_it() -> None:
    async with running(orders=1) as (_, topics):
        meanwhile(topics, lambda: topics.alter("orders", 3))
        cut = await cut_topics(topics.directory, TIMEOUT_S)
        (topic,) = cut.topics
        found = await copied(topics, cut)
        assert len(topic.partitions) == 3
        changes = [[one.message.partitions for one in found[group]] for group in topic.partitions]
        assert changes == [[topic.partitions]] * 3, "all have the change, as they have any message"


async def test_a_topic_that_is_deleted_meanwhile_is_not_in_it() -> None:
    async with running(orders=1, audit=1) as (_, topics):
        meanwhile(topics, lambda: topics.delete("audit"))
        cut = await cut_topics(topics.directory, TIMEOUT_S)
        assert [topic.name for topic in cut.topics] == ["orders"]


async def test_a_topic_that_is_deleted_while_it_is_read_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zraft_client.topics.cutting.LOOK_S", 0.2)
    async with running(orders=1, audit=1) as (cluster, topics):
        group = cluster.group("audit", 0).group
        await topics.delete("audit")
        await until(lambda: group not in cluster.groups)
        with pytest.raises(NoTopicError, match="was deleted"):
            await first_offset(topics.directory, group, "audit/0", TIMEOUT_S)


async def test_a_partition_without_a_leader_is_named_when_the_time_is_over() -> None:
    def silence(cluster: TopicCluster) -> None:
        cluster.group("orders", 1).silent = True

    async with running(orders=2) as (cluster, topics):
        async with topics.producer() as producer:
            await producer.send(("orders", 0), b"x")
        silence(cluster)
        with pytest.raises(DeadlineError, match=r"group|orders/1"):
            await cut_topics(topics.directory, 1.0)
