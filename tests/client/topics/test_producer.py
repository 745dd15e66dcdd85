"""The producer over a cluster of shipped partitions: delivered once and everywhere, whatever breaks on the way."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import evolve

from tests.client.topics.cluster import Fault, Group, TopicCluster, topic_cluster
from zraft.config.features import FEATURE_LEVEL_MAX, LEVEL_OF_RECORDS
from zraft_client import (
    BadArgumentsError,
    Client,
    EncodingError,
    NodeExistsError,
    NoNodeError,
    UnknownOutcomeError,
)
from zraft_client.topics import (
    Acknowledge,
    ConditionFailedError,
    Consumed,
    NeverDeliveredError,
    NoTopicError,
    Order,
    Producer,
    ProducerEndedError,
    Topics,
)
from zraft_client.topics.records import records_of
from zraft_core.topics.commands import ViewChanged
from zraft_core.topics.producer import Reach

MESSAGES_ONLY = LEVEL_OF_RECORDS - 1
"""The feature level of servers that know no batches."""


@asynccontextmanager
async def running(
    servers: int = 3, *, timeout_s: float = 20, features: int = FEATURE_LEVEL_MAX, **topics_of: int
) -> AsyncIterator[tuple[TopicCluster, Topics]]:
    """A cluster of a feature level with these topics (name=partitions), and a client of it."""
    async with (
        topic_cluster(servers) as cluster,
        Client(cluster.hosts, timeout_s=timeout_s) as client,
        Topics(client) as topics,
    ):
        cluster.features = features
        for name, partitions in topics_of.items():
            await topics.create(name, partitions)
        yield cluster, topics


def values(group: Group) -> list[bytes]:
    return [record.value for one in group.deliveries for record in records_of(one, "", 0)]


async def test_a_message_is_delivered_where_its_key_says_and_its_receipt_tells_the_offset() -> None:
    async with running(orders=3) as (cluster, topics), topics.producer() as producer:
        first = await producer.send("orders", b"a", key=b"k")
        second = await producer.send("orders", b"b", key=b"k")
        ((place, offset),) = first.offsets.items()
        assert second.offsets == {place: offset + 1}
        assert values(cluster.group(*place)) == [b"a", b"b"]


async def test_messages_without_a_key_go_round_the_partitions() -> None:
    async with running(orders=3) as (cluster, topics), topics.producer() as producer:
        for number in range(6):
            await producer.send("orders", b"%d" % number)
        assert [len(values(cluster.group("orders", n))) for n in range(3)] == [2, 2, 2]


async def test_a_message_to_several_partitions_of_two_topics_is_at_all_of_them_with_one_stamp() -> None:
    async with running(orders=2, audit=1) as (cluster, topics), topics.producer() as producer:
        await producer.send([("orders", 0), ("orders", 1), "audit"], b"all")
        groups = list(cluster.groups.values())
        assert [values(group) for group in groups] == [[b"all"]] * 3
        assert len({group.deliveries[0].stamp for group in groups}) == 1


async def test_destinations_may_come_from_an_iterator() -> None:
    async with running(orders=2) as (cluster, topics), topics.producer() as producer:
        await producer.send(iter([("orders", 0), ("orders", 1)]), b"both")
        assert [values(group) for group in cluster.groups.values()] == [[b"both"]] * 2


@pytest.mark.parametrize("reach", list(Reach))
async def test_messages_survive_that_every_server_is_stopped_in_turn_exactly_once(reach: Reach) -> None:
    async with running(orders=3) as (cluster, topics), topics.producer(reach=reach) as producer:
        sent = []
        for victim in (1, 2, 3):
            for number in range(40):
                to: Any = "orders" if number % 4 else [("orders", 0), ("orders", 2)]
                sent.append(await producer.send_soon(to, b"%d/%d" % (victim, number)))
            await cluster.stop(victim)
            await producer.flush()
            await cluster.start(victim)
        for one in sent:
            await one
        found = [value for group in cluster.groups.values() for value in values(group)]
        assert len(found) == 3 * (40 + 10)
        assert len(set(found)) == 3 * 40


@pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.SILENCE])
async def test_what_was_not_answered_is_said_again_and_delivered_once(fault: Fault) -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send("orders", b"before")
        cluster.fault("produce", fault)
        await asyncio.gather(*[producer.send("orders", b"%d" % n) for n in range(5)])
        assert values(cluster.group("orders")) == [b"before", *(b"%d" % n for n in range(5))]


async def test_a_leader_that_changes_without_a_server_going_down_is_followed() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        for round_ in range(4):
            cluster.group("orders").lead(1 + round_ % 3)
            await producer.send("orders", b"%d" % round_)
        assert values(cluster.group("orders")) == [b"0", b"1", b"2", b"3"]


async def test_with_no_leader_at_all_messages_wait_and_are_accepted_when_there_is_one() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send("orders", b"0")
        cluster.group("orders").lead(None)
        sent = await producer.send_soon("orders", b"1")
        await asyncio.sleep(0.2)
        assert not sent.done()
        cluster.group("orders").lead(2)
        await sent
        assert values(cluster.group("orders")) == [b"0", b"1"]


async def test_a_record_that_waits_says_for_which_partition_and_what_its_server_answered() -> None:
    async with running(orders=2) as (cluster, topics), topics.producer() as producer:
        cluster.group("orders", 1).lead(None)
        alone = await producer.send_soon(("orders", 1), b"alone")
        both = await producer.send_soon([("orders", 0), ("orders", 1)], b"both")
        await both.accepted()
        await asyncio.sleep(0.2)
        assert re.fullmatch(r"orders/1: server \d: not_leader", producer.why_waiting(alone))
        why = producer.why_waiting(both)
        assert why.startswith("orders/0: has not delivered it; orders/1: server ")
        assert "it is accepted, and is delivered when all these work" in why
        cluster.group("orders", 1).lead(2)
        await both
        await alone
        assert producer.why_waiting(both) == producer.why_waiting(alone) == ""


async def test_accepted_is_said_before_a_destination_without_a_quorum_has_it() -> None:
    async with (
        running(orders=2) as (cluster, topics),
        topics.producer(acknowledge=Acknowledge.ACCEPTED) as producer,
    ):
        cluster.group("orders", 1).silent = True
        sent = await producer.send_soon([("orders", 0), ("orders", 1)], b"both")
        await sent.accepted()
        await sent
        assert values(cluster.group("orders", 0)) == []
        assert producer.pending == 1
        cluster.group("orders", 1).silent = False
        await producer.flush()
        assert values(cluster.group("orders", 0)) == values(cluster.group("orders", 1)) == [b"both"]


async def test_in_fifo_order_a_message_comes_behind_the_one_before_also_by_the_bypass() -> None:
    async with running(orders=2) as (cluster, topics), topics.producer(order=Order.FIFO) as producer:
        for number in range(30):
            to: Any = [("orders", 0), ("orders", 1)] if number % 2 else ("orders", 0)
            await producer.send_soon(to, b"%d" % number)
        await producer.flush()
        assert values(cluster.group("orders", 0)) == [b"%d" % number for number in range(30)]


async def test_without_a_common_destination_a_later_message_waits_in_the_library() -> None:
    """D-17a."""
    async with running(orders=2) as (cluster, topics), topics.producer(repeat_s=0.1) as producer:
        cluster.group("orders", 0).silent = True
        first = await producer.send_soon(("orders", 0), b"first")
        second = await producer.send_soon(("orders", 1), b"second", after=first)
        await asyncio.sleep(0.1)
        assert values(cluster.group("orders", 1)) == []
        cluster.group("orders", 0).silent = False
        await second
        assert first.done()


async def test_in_causal_order_a_stamp_is_above_that_of_what_was_seen() -> None:
    async with (
        running(a=1, b=1, c=1) as (cluster, topics),
        topics.producer() as other,
        topics.producer(order=Order.CAUSAL) as producer,
    ):
        for _ in range(5):
            await other.send([("a", 0), ("c", 0)], b"moves the clock of a")
        seen = cluster.group("a").deliveries[-1].stamp
        assert seen.time > 1
        producer.saw(seen)
        await producer.send(("b", 0), b"answer")
        assert cluster.group("b").deliveries[-1].stamp.time > seen.time


async def test_of_messages_that_claim_one_step_of_a_consumer_one_is_delivered() -> None:
    """D-9d."""
    async with running(orders=1, out=1) as (cluster, topics), topics.producer() as producer:
        step = Consumed("orders", 0, b"worker", 0, 10)
        await producer.send([("orders", 0), ("out", 0)], b"first", consumed=step)
        with pytest.raises(ConditionFailedError):
            await producer.send([("orders", 0), ("out", 0)], b"second", consumed=step)
        assert values(cluster.group("out")) == [b"first"]


async def test_the_window_bounds_what_is_under_way_and_waiting_for_room_ends() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=4) as producer,
    ):
        cluster.group("orders").silent = True
        sent = [await producer.send_soon("orders", b"%d" % number) for number in range(4)]
        fifth = asyncio.create_task(producer.send("orders", b"4"))
        await asyncio.sleep(0.05)
        assert producer.pending == 4
        assert not fifth.done()
        cluster.group("orders").silent = False
        await fifth
        assert all(one.done() for one in sent)


async def test_the_buffer_bounds_payloads_under_way_but_takes_a_single_one_of_any_size() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer(buffer_bytes_max=100) as producer:
        cluster.group("orders").silent = True
        await producer.send_soon("orders", bytes(5_000))
        second = asyncio.create_task(producer.send("orders", b"x"))
        await asyncio.sleep(0.05)
        assert producer.pending == 1
        cluster.group("orders").silent = False
        await second


async def test_a_topic_that_does_not_exist_and_a_partition_too_many_are_refused_before_anything_is_sent() -> (
    None
):
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        with pytest.raises(NoTopicError, match="none of this name"):
            await producer.send("nothing", b"")
        with pytest.raises(NoTopicError, match="1 partitions"):
            await producer.send(("orders", 1), b"")
        with pytest.raises(NoTopicError):
            await producer.send([], b"")
        with pytest.raises(EncodingError):
            await producer.send("orders", "text")  # type: ignore[arg-type]
        assert cluster.starts == 0


async def test_what_never_arrived_before_its_topic_was_deleted_ends_as_never() -> None:
    """D-9c."""
    async with running(orders=1, audit=1) as (cluster, topics), topics.producer() as producer:
        cluster.group("orders").lead(None)
        sent = await producer.send_soon("orders", b"x")
        await topics.delete("orders")
        group = next(group for group in cluster.groups.values() if group.leads is None)
        group.log((ViewChanged(cluster.registry.view()),))
        group.lead(1)
        with pytest.raises((NeverDeliveredError, UnknownOutcomeError)):
            await sent
        assert values(group) == []
        await producer.send("audit", b"goes on")


async def test_new_partitions_are_used_once_they_are_known() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send("orders", b"0")
        await topics.alter("orders", 3)
        for _ in range(6):
            await producer.send("orders", b"x")
        assert all(values(cluster.group("orders", number)) for number in range(3))


async def test_an_expired_session_ends_its_producer_and_says_that_the_rest_is_unknown() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send("orders", b"0")
        cluster.group("orders").silent = True
        sent = await producer.send_soon("orders", b"1")
        (session,) = cluster.sessions
        cluster.expire(session)
        with pytest.raises(UnknownOutcomeError):
            await sent
        with pytest.raises(ProducerEndedError):
            await producer.send("orders", b"2")
        await topics.metadata()  # by the next session
        async with topics.producer() as another:
            cluster.group("orders").silent = False
            await another.send("orders", b"3")


async def test_a_closed_producer_is_closed_in_the_registry_too() -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.producer() as producer:
            await producer.send("orders", b"0")
            assert producer.id in cluster.registry.producers
        assert producer.id not in cluster.registry.producers
        with pytest.raises(Exception, match="closed"):
            await producer.send("orders", b"1")


async def test_a_producer_that_was_never_opened_says_so() -> None:
    async with running() as (_, topics):
        with pytest.raises(Exception, match="async with"):
            await topics.producer().send("orders", b"")


async def test_a_stream_is_refused_to_who_cannot_prove_the_session() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        (kept,) = cluster.sessions.values()
        kept.password = bytes(16)
        with pytest.raises(UnknownOutcomeError, match="session"):
            await producer.send("orders", b"0")
        assert values(cluster.group("orders")) == []


async def test_topics_are_listed_described_and_created_once() -> None:
    async with running(b=2, a=1) as (_, topics):
        assert [topic.name for topic in await topics.list()] == ["a", "b"]
        assert len((await topics.describe("b")).partitions) == 2
        with pytest.raises(NodeExistsError):
            await topics.create("a")
        assert (await topics.ensure("a")).name == "a"
        await topics.delete("a")
        with pytest.raises(NoTopicError):
            await topics.describe("a")


async def test_retention_is_said_at_the_creation_and_afterwards() -> None:
    async with running() as (_, topics):
        topic = await topics.create("a", retention_bytes=1_000)
        assert (topic.retention_bytes, topic.retention_age_ms) == (1_000, None)
        await topics.retain("a", retention_age_ms=60_000)
        topic = await topics.describe("a")
        assert (topic.retention_bytes, topic.retention_age_ms) == (None, 60_000)
        with pytest.raises(NoNodeError):
            await topics.retain("b")


async def test_metadata_that_has_not_changed_is_not_sent_again() -> None:
    async with running(a=1) as (cluster, topics):
        first = await topics.metadata()
        again = await topics.metadata()
        assert cluster.requests[-1]["digest"] == first.digest
        assert again.topics is first.topics
        await topics.create("b")
        assert set((await topics.metadata()).topics) == {"a", "b"}


async def _send_all(producer: Producer, count: int) -> None:
    for number in range(count):
        await producer.send_soon("orders", b"%d" % number)
    await producer.flush()


async def test_messages_of_one_moment_travel_together() -> None:
    async with running(1, orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send("orders", b"first")
        cluster.requests.clear()
        await _send_all(producer, 500)
        assert len([one for one in cluster.requests if one["type"] == "produce"]) < 10


async def test_a_message_to_too_many_partitions_is_refused_before_it_has_a_number_and_the_producer_goes_on() -> (
    None
):
    async with running(orders=4) as (cluster, topics), topics.producer() as producer:
        registry = cluster.registry
        registry.settings = evolve(registry.settings, destinations_max=3)
        everywhere = [("orders", number) for number in range(4)]
        await topics.metadata()
        with pytest.raises(BadArgumentsError, match=r"found 4 partitions, expected at most 3 .*topics_dest"):
            await producer.send(everywhere, b"x")
        assert (await producer.send([*everywhere[:3], everywhere[0]], b"three")).id.seq == 1
        registry.settings = evolve(registry.settings, destinations_max=4)
        assert (await producer.send(everywhere, b"four")).id.seq == 2, "a higher limit is noticed at once"
