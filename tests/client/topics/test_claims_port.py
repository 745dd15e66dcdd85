"""Marshal's consumers over partitions and claims as they ship (M-5 to M-9)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.client.topics.test_consumer import filled
from tests.client.topics.test_producer import running
from zraft_client import BadArgumentsError
from zraft_client.claims import ConsumerOptions, Marshaler, PortError
from zraft_core.claims.values import Mode

FAST: dict[str, Any] = {"claim_interval_ms": 50, "poll_ms": 20, "request_timeout_ms": 2_000}


@pytest.mark.parametrize("mode", list(Mode))
async def test_two_consumers_share_the_partitions_and_process_every_message_once(mode: Mode) -> None:
    async with running(orders=4) as (_, topics):
        await filled(topics, 40)
        seen: list[tuple[int, int]] = []
        done = asyncio.Event()
        options = ConsumerOptions(mode=mode, maximum_claims=2, **FAST)

        async def work(name: str) -> None:
            marshaler = Marshaler(topics.claims_port(), name, "billing")
            async with marshaler.consumer(["orders"], options) as consumer:
                async for message in consumer.consume():
                    seen.append((message.partition, message.offset))
                    consumer.commit(message)
                    if len(seen) == 40:
                        done.set()

        workers = [asyncio.create_task(work(name)) for name in ("a", "b")]
        async with asyncio.timeout(30):
            await done.wait()
        await asyncio.sleep(0.1)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(10)]


async def test_commits_are_where_the_next_consumer_goes_on_though_the_leader_changed() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 10)
        marshaler = Marshaler(topics.claims_port(), "a", "billing")
        async with marshaler.consumer(["orders"], ConsumerOptions(**FAST)) as consumer:
            taken = 0
            async for message in consumer.consume():
                consumer.commit(message)
                taken += 1
                if taken == 4:
                    break
            assert await consumer.flush()
            cluster.group("orders").lead(2)
        offsets = await marshaler.partition_offsets("orders", 0)
        assert (offsets.committed, offsets.latest) == (4, 10)
        async with Marshaler(topics.claims_port(), "b", "billing").consumer(
            ["orders"], ConsumerOptions(**FAST)
        ) as consumer:
            async for message in consumer.consume():
                assert message.offset == 4
                break


async def test_the_port_tells_topics_that_are_not_there_and_partitions_that_do_not_answer() -> None:
    async with running(orders=1) as (cluster, topics):
        port = topics.claims_port(timeout_s=0.3)
        assert await port.partitions("orders") == 1
        assert await port.partitions("nothing") == 0
        with pytest.raises(BadArgumentsError):
            await Marshaler(port, "a", "g").consumer(["nothing"]).start()
        cluster.group("orders").lead(None)
        with pytest.raises(PortError):
            await port.look("orders", 0, "g")
        fetched = await port.fetch("orders", 0, 0, 10, 1_000)
        assert (fetched.records, fetched.earliest, fetched.end) == ((), 0, 0)


async def test_messages_that_only_change_the_topic_are_passed_over_and_retention_is_told() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 2)
        await topics.alter("orders", 2)
        await filled(topics, 4, ("orders", 0))
        port = topics.claims_port()
        fetched = await port.fetch("orders", 0, 0, 100, 100_000)
        assert [record.offset for record in fetched.records] == [0, 1, 3, 4, 5, 6]
        assert fetched.end == 7
        assert [r.offset for r in (await port.fetch("orders", 0, 0, 2, 100_000)).records] == [0, 1]
        cluster.group("orders").first = 3
        assert (await port.fetch("orders", 0, 0, 10, 1_000)).earliest == 3


async def test_a_stopped_server_is_left_for_another_replica() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 3)
        port = topics.claims_port(timeout_s=2)
        await port.fetch("orders", 0, 0, 10, 1_000)
        leader = cluster.group("orders").leads
        assert leader is not None
        await cluster.stop(leader)
        found = None
        for _ in range(20):
            with suppress(PortError):
                found = await port.fetch("orders", 0, 0, 10, 1_000)
                break
        assert found is not None
        assert len(found.records) == 3
