"""Consumers over a cluster of shipped partitions: from any offset, in order, once; merged in one order."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.client.topics.cluster import Fault
from tests.client.topics.test_producer import running
from zraft_client import BadArgumentsError, UnimplementedError
from zraft_client.claims import PortError
from zraft_client.topics import (
    Compression,
    MergedConsumer,
    MessageId,
    NoTopicError,
    OffsetGoneError,
    Record,
    Start,
    Topics,
    round_robin_partitioner,
)
from zraft_client.topics.consumer import Consumer
from zraft_client.topics.reading_range import read_range
from zraft_core.ids import ServerId


async def polled(consumer: Consumer | MergedConsumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        more = await consumer.poll(10.0)
        assert more, f"{len(found)} of {count}"
        found += more
    assert len(found) == count
    return found


def places(records: list[Record]) -> list[tuple[MessageId, int]]:
    """What names each record: its message, and its place there."""
    return [(one.id, one.index) for one in records]


async def filled(topics: Topics, count: int, to: Any = "orders") -> None:
    """Send so many records to `to`; the partitions of a topic take turns."""
    async with topics.producer(partitioner=round_robin_partitioner()) as producer:
        for number in range(count):
            await producer.send_soon(to, b"%d" % number)
        await producer.flush()


async def test_a_consumer_gets_every_record_of_its_partitions_once_and_each_partition_in_order() -> None:
    async with running(orders=3) as (_, topics), topics.consumer("orders") as consumer:
        await filled(topics, 60)
        found = await polled(consumer, 60)
        assert sorted(int(one.value) for one in found) == list(range(60))
        for partition in range(3):
            offsets = [one.offset for one in found if one.partition == partition]
            assert offsets == list(range(20))
        assert await consumer.poll(0.05) == []


async def test_key_headers_and_a_compressed_value_come_out_as_they_went_in() -> None:
    async with running(orders=1) as (cluster, topics), topics.consumer("orders") as consumer:
        async with topics.producer(compression=Compression.ZSTD) as producer:
            await producer.send("orders", b"x" * 10_000, key=b"k", headers={"h": b"v"})
        (record,) = await polled(consumer, 1)
        assert (record.value, record.key, record.headers) == (b"x" * 10_000, b"k", {"h": b"v"})
        assert len(cluster.group("orders").deliveries[0].message.payload) < 200


async def test_seek_goes_back_and_forth_and_forgets_what_was_read_ahead() -> None:
    async with running(orders=1) as (_, topics), topics.consumer(("orders", 0)) as consumer:
        await filled(topics, 20)
        await polled(consumer, 20)
        consumer.seek("orders", 0, 5)
        assert [int(one.value) for one in await polled(consumer, 15)] == list(range(5, 20))
        consumer.seek("orders", 0, 19)
        assert [int(one.value) for one in await polled(consumer, 1)] == [19]
        assert consumer.lag() == {("orders", 0): 0}


async def test_latest_begins_behind_what_is_there() -> None:
    async with running(orders=1) as (_, topics):
        await filled(topics, 5)
        async with topics.consumer("orders", start=Start.LATEST) as consumer:
            await filled(topics, 1)
            (record,) = await polled(consumer, 1)
            assert record.offset == 5


async def test_stored_offsets_are_where_another_consumer_of_the_name_goes_on() -> None:
    async with running(orders=2) as (_, topics):
        await filled(topics, 20)
        async with topics.consumer("orders", name="billing") as consumer:
            assert await consumer.committed() == {("orders", 0): None, ("orders", 1): None}
            await polled(consumer, 20)
            await consumer.commit()
            await consumer.commit({("orders", 1): 8})
        async with topics.consumer("orders", name="billing", start=Start.STORED) as consumer:
            assert await consumer.committed() == {("orders", 0): 10, ("orders", 1): 8}
            found = await polled(consumer, 2)
            assert [(one.partition, one.offset) for one in found] == [(1, 8), (1, 9)]


async def test_a_consumer_without_a_name_stores_nothing() -> None:
    async with running(orders=1) as (_, topics), topics.consumer("orders") as consumer:
        with pytest.raises(BadArgumentsError, match="name"):
            await consumer.commit()
        with pytest.raises(BadArgumentsError, match="name"):
            topics.consumer("orders", start=Start.STORED)


async def test_records_that_retention_removed_are_passed_over_or_told() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 10)
        cluster.group("orders").first = 6
        async with topics.consumer("orders") as consumer:
            assert [one.offset for one in await polled(consumer, 4)] == [6, 7, 8, 9]
        async with topics.consumer("orders", skip_gone=False) as consumer:
            with pytest.raises(OffsetGoneError) as caught:
                await consumer.poll(10)
            assert caught.value.first == 6
            consumer.seek("orders", 0, 6)
            assert len(await polled(consumer, 4)) == 4


async def test_a_consumer_follows_a_partition_that_leaves_one_server_after_another() -> None:
    """The last move leaves none of the servers that the consumer knew of."""
    async with running(servers=4, orders=1) as (cluster, topics), topics.consumer("orders") as consumer:
        group = cluster.group("orders")
        found: list[Record] = []
        for gone, leader in (((1,), 2), ((2, 3), 4)):
            await filled(topics, 5)
            found += await polled(consumer, 5)
            group.move(*gone, leader=leader)
            await filled(topics, 5)
            found += await polled(consumer, 5)
            while consumer._reader.server_of(group.group) in group.left:
                assert await consumer.poll(0.05) == []
        assert [one.offset for one in found] == list(range(20))


async def test_a_consumer_that_waits_at_a_server_which_a_partition_leaves_is_sent_on() -> None:
    async with running(orders=1) as (cluster, topics), topics.consumer("orders", wait_ms=200) as consumer:
        assert await consumer.poll(0.3) == []
        group = cluster.group("orders")
        group.move(1, leader=3)
        await filled(topics, 5)
        assert [one.offset for one in await polled(consumer, 5)] == [0, 1, 2, 3, 4]


async def test_where_a_partition_ends_is_asked_where_it_has_moved() -> None:
    """None of the servers that the directory knew of has it any more."""
    async with running(servers=4, orders=1) as (cluster, topics):
        await filled(topics, 5)
        cluster.group("orders").move(1, 2, 3, leader=4)
        assert (await topics.bounds("orders", timeout_s=5))[0].end == 5
        port = topics.claims_port()
        for _ in range(3):
            with suppress(PortError):
                found = await port.fetch("orders", 0, 5, 10, 1_000)
        assert found.end == 5


async def test_a_guess_at_a_server_that_a_partition_left_is_not_kept() -> None:
    """Commits had made the directory believe in server 1; the consumer comes back to that guess when its ring is used up."""
    async with (
        running(servers=4, orders=1) as (cluster, topics),
        topics.consumer("orders", name="billing") as consumer,
    ):
        await filled(topics, 1)
        await polled(consumer, 1)
        await consumer.commit()
        group = cluster.group("orders")
        group.move(1, 2, 3, leader=4)
        consumer._directory._leaders[group.group] = ServerId(1)
        await filled(topics, 4)
        assert len(await polled(consumer, 4)) == 4
        assert consumer._directory.leader(group.group) == 4


async def test_a_consumer_goes_on_at_another_replica_without_a_gap_or_a_repeat() -> None:
    async with running(orders=2) as (cluster, topics), topics.consumer("orders") as consumer:
        found: list[Record] = []
        for victim in (1, 2, 3):
            await filled(topics, 20)
            found += await polled(consumer, 20)
            await cluster.stop(victim)
            await cluster.start(victim)
        places = [(one.partition, one.offset) for one in found]
        assert len(set(places)) == len(places) == 60


async def test_a_consumer_outlives_that_group_0_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where partitions are is asked anew when a server goes; partitions may be there while nobody answers that."""
    monkeypatch.setattr("zraft_client.topics.directory.REFRESH_S", 0.1)
    async with (
        running(timeout_s=1, orders=1) as (cluster, topics),
        topics.consumer("orders", wait_ms=100) as consumer,
    ):
        await filled(topics, 3)
        await polled(consumer, 3)
        cluster.fault("topics", *[Fault.CUT_BEFORE] * 1_000)
        for victim in (1, 2, 3):
            await cluster.stop(victim)
            await cluster.start(victim)
        group = cluster.group("orders")
        group.lead(1)
        before = len(cluster.requests)
        # Longer than the client waits for an answer.
        assert await consumer.poll(1.5) == []
        assert any(one["type"] == "fetch" for one in cluster.requests[before:])
        cluster.faults.clear()
        await filled(topics, 2)
        assert len(await polled(consumer, 2)) == 2


async def test_a_deleted_topic_is_told_after_its_records() -> None:
    async with running(orders=1) as (_, topics), topics.consumer("orders", wait_ms=50) as consumer:
        await filled(topics, 3)
        await polled(consumer, 3)
        await topics.delete("orders")
        with pytest.raises(NoTopicError, match="deleted"):
            await consumer.poll(20)


async def test_a_paused_partition_is_not_read_and_does_not_hold_up_others() -> None:
    async with running(orders=2) as (_, topics), topics.consumer("orders") as consumer:
        consumer.pause("orders", 0)
        await filled(topics, 10)
        assert {one.partition for one in await polled(consumer, 5)} == {1}
        consumer.resume("orders", 0)
        assert {one.partition for one in await polled(consumer, 5)} == {0}


async def test_an_idle_consumer_asks_once_per_wait_and_server() -> None:
    async with (
        running(1, orders=4) as (cluster, topics),
        topics.consumer("orders", wait_ms=60_000) as consumer,
    ):
        while cluster.fetches < 4:
            await consumer.poll(0.02)
        cluster.requests.clear()
        await consumer.poll(0.3)
        assert [one["type"] for one in cluster.requests] == []
        polls = cluster.fetches
        await filled(topics, 1)
        await polled(consumer, 1)
        # One partition had something; the reads of the three others went on.
        assert cluster.fetches <= polls + 1


async def test_iteration_gives_records_until_the_consumer_is_closed() -> None:
    async with running(orders=1) as (_, topics):
        await filled(topics, 3)
        consumer = topics.consumer("orders")
        await consumer.open()
        found = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == 3:
                await consumer.close()
        assert found == [b"0", b"1", b"2"]


async def test_two_merged_consumers_see_one_order_that_an_idle_partition_does_not_stall() -> None:
    """D-17b, D-17d."""
    async with (
        running(orders=4) as (cluster, topics),
        topics.merged("orders") as one,
        topics.merged("orders") as other,
    ):
        async with topics.producer() as producer:
            for number in range(90):
                # Partition 3 gets nothing.
                to: Any = ("orders", number % 3) if number % 5 else [("orders", 0), ("orders", 2)]
                await producer.send_soon(to, b"%d" % number)
            await producer.flush()
        first, second = await polled(one, 90), await polled(other, 90)
        assert places(first) == places(second)
        assert [record.stamp for record in first] == sorted(record.stamp for record in first)
        assert len({(record.id, record.index) for record in first}) == 90
        assert cluster.needs


async def test_a_merged_consumer_goes_on_where_another_left_off() -> None:
    async with running(orders=2) as (_, topics):
        await filled(topics, 30)
        async with topics.merged("orders") as one:
            all_of_it = await polled(one, 30)
        async with topics.merged("orders") as one:
            begun = await one.poll(10, limit=11)
            position = one.position()
        async with topics.merged("orders", position=position) as one:
            rest = await polled(one, 30 - len(begun))
        assert places(begun + rest) == places(all_of_it)


async def test_partitions_that_are_added_join_the_merged_order() -> None:
    async with running(orders=1) as (_, topics), topics.merged("orders") as consumer:
        await filled(topics, 5)
        await topics.alter("orders", 3)
        await filled(topics, 12)
        found = await polled(consumer, 17)
        assert {record.partition for record in found} == {0, 1, 2}
        async with topics.merged("orders") as other:
            assert places(await polled(other, 17)) == places(found)


async def test_a_merged_position_of_another_topic_is_refused() -> None:
    async with running(a=1, b=1) as (_, topics), topics.merged("a") as one:
        other = topics.merged("b", position=one.position())
        with pytest.raises(BadArgumentsError, match="position"):
            await other.open()
        await other.close()


async def test_a_merged_consumer_says_that_its_next_record_is_gone() -> None:
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 5)
        cluster.group("orders").first = 2
        async with topics.merged("orders") as consumer:
            with pytest.raises(OffsetGoneError):
                await consumer.poll(10)


async def test_bounds_are_those_of_each_partition() -> None:
    async with running(orders=2) as (cluster, topics):
        await filled(topics, 7)
        cluster.group("orders", 1).first = 1
        bounds = await topics.bounds("orders")
        assert {number: (one.first, one.end) for number, one in bounds.items()} == {0: (0, 4), 1: (1, 3)}


async def test_offsets_are_found_by_the_time_of_delivery() -> None:
    async with running(orders=2) as (cluster, topics):
        await filled(topics, 4)
        await asyncio.sleep(0.03)
        between = cluster.now_ms
        await filled(topics, 3)
        assert await topics.offsets_at("orders", 0) == {0: 0, 1: 0}
        found = await topics.offsets_at("orders", between)
        assert sum(found.values()) == 4
        bounds = await topics.bounds("orders")
        assert await topics.offsets_at("orders", 2**62) == {number: one.end for number, one in bounds.items()}
        with pytest.raises(BadArgumentsError, match="found -1, expected milliseconds since 1970"):
            await topics.offsets_at("orders", -1)
        with pytest.raises(NoTopicError):
            await topics.offsets_at("none", 0)


async def test_servers_of_a_lower_level_are_not_asked_for_offsets_by_time() -> None:
    async with running(orders=1) as (cluster, topics):
        cluster.features = 5
        await topics.directory.refresh()
        with pytest.raises(UnimplementedError, match=r"feature level is 5: they find .* from level 6 on"):
            await topics.offsets_at("orders", 0)
        cluster.features = 6
        assert await topics.offsets_at("orders", 0) == {0: 0}


async def test_bounds_and_ranges_hold_what_was_acknowledged_though_the_replica_that_is_asked_first_lags() -> (
    None
):
    async with running(orders=1) as (cluster, topics):
        await filled(topics, 3)
        await filled(topics, 4)
        group = cluster.group("orders")
        assert group.leads is not None
        leader, asked = ServerId(group.leads), ServerId(1 + group.leads % len(cluster.services))
        for end in (0, 3):
            group.behind = {asked: end}
            topics.directory.not_there(group.group, leader, asked)
            bounds = (await topics.bounds("orders"))[0]
            assert (bounds.first, bounds.end) == (0, 7)
            topics.directory.not_there(group.group, leader, asked)
            found = await read_range(topics.directory, "orders", 0, 0, 100)
            assert [one.offset for one in found] == list(range(7))


async def test_closing_ends_everything_that_was_begun() -> None:
    async with running(orders=2) as (_, topics):
        await filled(topics, 3)
        async with topics.consumer("orders"), topics.merged("orders") as consumer:
            await polled(consumer, 3)
    current = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not current and not task.done()]
    assert left == []


async def test_partitions_that_are_added_to_a_topic_are_read_from_their_beginning_whatever_the_start() -> (
    None
):
    async with (
        running(orders=1) as (_, topics),
        topics.consumer("orders") as everything,
        topics.consumer("orders", start=Start.LATEST) as latest,
        topics.consumer(("orders", 0)) as first,
    ):
        await filled(topics, 5)
        await topics.alter("orders", 3)
        await filled(topics, 30)
        found = await polled(everything, 35)
        assert len({(one.partition, one.offset) for one in found}) == 35
        assert everything.partitions == (("orders", 0), ("orders", 1), ("orders", 2))
        # They came after this one was opened, so all of them are news.
        assert len(await polled(latest, 35)) == 35
        assert {one.partition for one in await polled(first, 15)} == {0}
        assert first.partitions == (("orders", 0),), "who names partitions gets these"
        for number in range(3):
            offsets = [one.offset for one in found if one.partition == number]
            assert offsets == sorted(offsets)


async def test_added_partitions_are_found_although_no_change_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition whose log has the change stands still; the table of topics is looked at once in a while."""
    monkeypatch.setattr("zraft_client.topics.consumer.PARTITIONS_AGE_S", 0.05)

    async with running(orders=1) as (_, topics), topics.consumer("orders") as consumer:
        consumer.pause("orders", 0)
        await topics.alter("orders", 3)
        await filled(topics, 30)
        found = await polled(consumer, 20)
        assert {one.partition for one in found} == {1, 2}


async def test_an_added_partition_begins_where_its_consumer_left_off_if_offsets_are_stored() -> None:
    async with (
        running(orders=1) as (_, topics),
        topics.consumer("orders", name="billing") as consumer,
        topics.consumer("orders", name="billing", start=Start.STORED) as second,
    ):
        second.pause("orders", 0)
        await topics.alter("orders", 2)
        await filled(topics, 10, ("orders", 1))
        await polled(consumer, 10)
        await consumer.commit({("orders", 1): 7})
        second.resume("orders", 0)
        # The change itself has offset 0 there.
        assert [one.offset for one in await polled(second, 4)] == [7, 8, 9, 10]


async def test_a_topic_that_is_created_again_is_another_one() -> None:
    async with running(orders=1) as (_, topics), topics.consumer("orders") as consumer:
        await topics.delete("orders")
        await topics.create("orders", 3)
        await filled(topics, 9)
        await topics.metadata()
        assert await consumer._join(), "nothing is left to be found"

        async def read_to_the_end() -> None:
            while True:
                assert await consumer.poll(10.0) == []

        with pytest.raises(NoTopicError):
            await read_to_the_end()
        assert consumer.partitions == (("orders", 0),)
