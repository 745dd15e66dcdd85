"""Producers and consumers where ACLs forbid something: what they raise, and what goes on."""

from __future__ import annotations

import asyncio

import pytest

from tests.client.topics.cluster import TopicCluster
from tests.client.topics.test_claims_port import FAST
from tests.client.topics.test_consumer import filled, polled
from tests.client.topics.test_producer import running, values
from zraft_client import NoAuthError, UnknownOutcomeError
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import NoTopicError, Start, Topics
from zraft_core.topics.access import consumer_path, topic_path
from zraft_core.znodes.acl import ALL, CREATE, OPEN_ACL, READ, WRITE, Acl

READ_ONLY: Acl = ((READ, "world", "anyone"),)
WRITE_ONLY: Acl = ((WRITE, "world", "anyone"),)
HIDDEN: Acl = ((CREATE, "world", "anyone"),)


def topic_acl(cluster: TopicCluster, name: str, acl: Acl) -> None:
    cluster.acl(topic_path(name), acl)


async def test_a_record_for_a_topic_that_may_not_be_written_is_not_sent_and_the_producer_goes_on() -> None:
    async with running(orders=1, audit=1) as (cluster, topics):
        topic_acl(cluster, "audit", READ_ONLY)
        async with topics.producer() as producer:
            for to in ("audit", ("audit", 0), ["orders", "audit"]):
                with pytest.raises(NoAuthError, match="zraft topic acl add audit"):
                    await producer.send(to, b"no")
            await producer.send("orders", b"yes")
            topic_acl(cluster, "audit", OPEN_ACL)
            await producer.send(["orders", "audit"], b"both")
        assert values(cluster.group("orders")) == [b"yes", b"both"]
        assert values(cluster.group("audit")) == [b"both"]


async def test_a_producer_whose_right_is_taken_away_ends_and_says_which() -> None:
    async with running(orders=1, audit=1) as (cluster, topics):
        async with topics.producer() as producer:
            await producer.send(["orders", "audit"], b"before")
            topic_acl(cluster, "audit", READ_ONLY)
            with pytest.raises(UnknownOutcomeError, match="WRITE of topic 'audit' is missing"):
                await producer.send(["orders", "audit"], b"after")
            with pytest.raises(NoAuthError, match="WRITE of topic 'audit' is missing"):
                await producer.send("orders", b"later")
        assert values(cluster.group("orders")) == [b"before"]
        assert values(cluster.group("audit")) == [b"before"]


async def test_a_hidden_topic_is_missing_for_whoever_asks_for_it() -> None:
    async with running(orders=1, secret=1) as (cluster, topics):
        topic_acl(cluster, "secret", HIDDEN)
        assert [one.name for one in await topics.list()] == ["orders"]
        async with Topics(topics.directory.client) as fresh:
            for missing in (fresh.bounds("secret"), fresh.consumers("secret"), fresh.describe("secret")):
                with pytest.raises(NoTopicError):
                    await missing
            async with fresh.producer() as producer:
                with pytest.raises(NoTopicError):
                    await producer.send("secret", b"x")


async def test_a_consumer_raises_what_it_may_not_read_also_while_it_waits() -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.consumer("orders") as consumer:
            await filled(topics, 3)
            await polled(consumer, 3)
            waiting = asyncio.create_task(consumer.poll(20.0))
            await asyncio.sleep(0.05)
            topic_acl(cluster, "orders", WRITE_ONLY)
            await filled(topics, 1)
            with pytest.raises(NoAuthError, match="READ of topic 'orders' is missing"):
                await waiting
        with pytest.raises(NoAuthError, match="READ of topic 'orders'"):
            async with topics.consumer("orders") as another:
                await another.poll(5.0)


async def test_a_name_that_is_not_granted_stores_no_offset_and_others_go_on() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 2)
        cluster.acl(consumer_path(b"billing"), ((ALL & ~READ, "world", "anyone"),))
        async with topics.consumer("orders", name="billing", start=Start.EARLIEST) as consumer:
            await polled(consumer, 2)
            with pytest.raises(NoAuthError, match="READ of consumer 'billing' is missing"):
                await consumer.commit()
        async with topics.consumer("orders", name="other", start=Start.EARLIEST) as consumer:
            await polled(consumer, 2)
            await consumer.commit()
        with pytest.raises(NoAuthError):
            await topics.set_offset("orders", 0, b"billing", 1)
        await topics.set_offset("orders", 0, b"billing", None)


async def test_consumers_that_share_partitions_end_with_what_they_may_not() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 2)
        cluster.acl(consumer_path(b"billing"), ((ALL & ~READ, "world", "anyone"),))
        marshaler = Marshaler(topics.claims_port(), "a", "billing")

        async def consume() -> None:
            async with marshaler.consumer(["orders"], ConsumerOptions(**FAST)) as consumer:
                async for _ in consumer.consume():
                    raise AssertionError("it claimed")

        with pytest.raises(NoAuthError, match="READ of consumer 'billing' is missing"):
            await consume()
