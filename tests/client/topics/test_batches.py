"""Records that travel together: what producers put in one message, and what consumers make of a message of many."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from attrs import evolve

from tests.client.topics.cluster import TopicCluster
from tests.client.topics.test_consumer import places, polled
from tests.client.topics.test_producer import MESSAGES_ONLY, running, values
from tests.so_far import so_far
from tests.unit.records.strategies import with_checksum
from zraft_client import ClosedError, EncodingError
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import (
    Acknowledge,
    Compression,
    ConditionFailedError,
    Consumed,
    NeverDeliveredError,
    Order,
    PayloadError,
    ProducerEndedError,
    Receipt,
    Record,
    Start,
    round_robin_partitioner,
)
from zraft_client.topics.gathering import OPEN_MAX, Gatherer, Gathering
from zraft_client.topics.reading_range import read_range
from zraft_core.ids import GroupId
from zraft_core.records import Codec, MissingPackageError, compression, decode_batch, read_header
from zraft_core.topics.commands import ViewChanged
from zraft_core.topics.registry_values import Table

BOTH: Any = [("orders", 0), ("orders", 1)]


def batches(cluster: TopicCluster, partition: int = 0) -> list[int]:
    """How many records each message of a partition has."""
    return [one.message.records for one in cluster.group("orders", partition).deliveries]


def told(receipt: Receipt, offsets: dict[tuple[str, int], int]) -> bool:
    """Whether a receipt has some of these offsets, and no others: one destination may have answered for all."""
    return bool(receipt.offsets) and receipt.offsets.items() <= offsets.items()


# -- producing


async def test_records_of_one_moment_are_one_message_and_each_has_an_offset_and_a_receipt() -> None:
    async with (
        running(orders=1) as (cluster, topics),
        topics.producer(clock=lambda: 1_700_000_000.5) as producer,
    ):
        sent = [
            await producer.send_soon("orders", b"%d" % n, key=b"k", headers={"h": b"v"}) for n in range(5)
        ]
        assert producer.pending == 5
        assert so_far(sent[0].id) is None, "it has no number yet"
        receipts = [await one for one in sent]
        assert [one.offsets for one in receipts] == [{("orders", 0): n} for n in range(5)]
        assert [(one.id, one.index) for one in receipts] == [(sent[0].id, n) for n in range(5)]
        assert producer.pending == 0
        assert batches(cluster) == [5]
        async with topics.consumer("orders") as consumer:
            found = await polled(consumer, 5)
        assert [(one.offset, one.index, one.value) for one in found] == [(n, n, b"%d" % n) for n in range(5)]
        assert {(one.key, one.headers["h"], one.timestamp, one.id) for one in found} == {
            (b"k", b"v", 1_700_000_000_500, receipts[0].id)
        }
        assert (await producer.send("orders", b"next", timestamp=7)).offsets == {("orders", 0): 5}
        (record,) = decode_batch(cluster.group("orders").deliveries[1].message.payload, 1000)
        assert (record.key, record.value, record.headers, record.timestamp) == (None, b"next", (), 7)


async def test_records_to_several_partitions_are_one_message_there_with_an_offset_in_each() -> None:
    async with running(orders=2) as (cluster, topics), topics.producer() as producer:
        await producer.send(("orders", 1), b"before")
        sent = [await producer.send_soon(BOTH, b"%d" % n) for n in range(3)]
        for n, one in enumerate(sent):
            assert told(await one, {("orders", 0): n, ("orders", 1): n + 1})
        assert (batches(cluster), batches(cluster, 1)) == ([3], [1, 3])
        assert values(cluster.group("orders", 0)) == [b"0", b"1", b"2"]


async def test_records_to_other_partitions_gather_beside_each_other_unless_they_are_ordered() -> None:
    async with running(orders=2) as (cluster, topics):
        for order, expected in ((Order.PARTITION, [6]), (Order.FIFO, [1] * 6), (Order.CAUSAL, [1] * 6)):
            seen = len(batches(cluster)), len(batches(cluster, 1))
            async with topics.producer(order=order) as producer:
                for n in range(12):
                    await producer.send_soon(("orders", n % 2), b"%d" % n)
                await producer.flush()
            assert batches(cluster)[seen[0] :] == batches(cluster, 1)[seen[1] :] == expected


@pytest.mark.parametrize("order", list(Order))
async def test_records_without_a_key_stay_with_a_partition_for_a_batch_and_take_turns_by_batches(
    order: Order,
) -> None:
    async with running(orders=3, bills=2) as (cluster, topics):
        async with topics.producer(order=order, batch_bytes_max=500) as producer:
            for _ in range(2):
                for n in range(450):
                    await producer.send_soon("orders", b"%d" % n)
                for n in range(20):
                    await producer.send_soon(["orders", "bills"], b"%d" % n)
                await producer.flush()
        each = [sum(batches(cluster, partition)) for partition in range(3)]
        both = [sum(one.message.records for one in cluster.group("bills", n).deliveries) for n in range(2)]
        assert sum(each) == 940
        assert sum(both) == 40
        assert min(each) > 250
        assert min(both) >= 10
        assert all(len(batches(cluster, partition)) <= each[partition] / 5 for partition in range(3))


async def test_another_partitioner_is_asked_about_every_record() -> None:
    async with running(orders=2) as (cluster, topics):
        async with topics.producer(partitioner=round_robin_partitioner()) as producer:
            await producer.send_many("orders", [b"%d" % n for n in range(6)])
            await producer.flush()
        assert values(cluster.group("orders", 0)) == [b"0", b"2", b"4"]
        assert values(cluster.group("orders", 1)) == [b"1", b"3", b"5"]


async def test_new_partitions_get_records_at_once() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer(linger_s=60) as producer:
        await producer.send_soon("orders", b"old")
        await topics.alter("orders", 2)
        await producer.send_soon("orders", b"new")
        await producer.flush()
        assert [values(cluster.group("orders", n)) for n in range(2)] == [[b"old"], [b"new"]]


@pytest.mark.parametrize("order", [Order.FIFO, Order.CAUSAL])
async def test_batches_of_an_ordered_producer_stay_in_the_order_of_its_calls(order: Order) -> None:
    async with running(orders=2) as (cluster, topics):
        async with topics.producer(order=order, batch_bytes_max=400) as producer:
            for n in range(200):
                # Runs to one partition, to the other, and to both.
                await producer.send_soon((("orders", 0), ("orders", 1), BOTH)[n // 7 % 3], b"%d" % n)
            await producer.flush()
        async with topics.merged("orders") as merged:
            found = await polled(merged, 200)
        assert [one.value for one in found] == [b"%d" % n for n in range(200)]
        assert max(batches(cluster)) > 1


@pytest.mark.parametrize("batch_bytes_max", [0, 1])
async def test_batches_may_be_of_one_record_each(batch_bytes_max: int) -> None:
    async with (
        running(orders=1) as (cluster, topics),
        topics.producer(batch_bytes_max=batch_bytes_max) as producer,
    ):
        sent = await producer.send_many("orders", [b"%d" % n for n in range(5)])
        assert [(await one).offsets for one in sent] == [{("orders", 0): n} for n in range(5)]
        assert batches(cluster) == [1] * 5


async def test_a_batch_is_as_large_as_it_may_be_and_a_larger_record_travels_alone() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer(batch_bytes_max=1_000) as producer:
        for size in (100, 5_000, *[100] * 20):
            await producer.send_soon("orders", bytes(size))
        await producer.flush()
        payloads = [one.message.payload for one in cluster.group("orders").deliveries]
        assert batches(cluster)[:2] == [1, 1]
        assert len(payloads[1]) > 5_000
        assert all(len(one) <= 1_000 for one in payloads[2:])
        assert sum(batches(cluster)) == 22
        assert len(payloads) <= 6


@pytest.mark.loops("virtual")
async def test_a_batch_waits_for_more_records_as_long_as_it_is_told_and_no_longer_when_it_is_flushed() -> (
    None
):
    async with running(orders=1) as (cluster, topics), topics.producer(linger_s=5.0) as producer:
        loop = asyncio.get_running_loop()
        began = loop.time()
        first = await producer.send_soon("orders", b"0")
        await asyncio.sleep(3)
        second = await producer.send_soon("orders", b"1")
        assert not first.done()
        await first
        assert second.done()
        assert 5 <= loop.time() - began < 6
        last = await producer.send_soon("orders", b"2")
        began = loop.time()
        await producer.flush()
        assert last.done()
        assert loop.time() - began < 1
        assert batches(cluster) == [2, 1]


async def test_closing_sends_what_waits_for_more_and_closing_at_once_says_that_it_was_not_sent() -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.producer(linger_s=1_000) as producer:
            sent = await producer.send_soon("orders", b"0")
        assert sent.done()
        producer = topics.producer(linger_s=1_000)
        await producer.open()
        sent = await producer.send_soon("orders", b"1")
        await producer.close(flush=False)
        with pytest.raises(ClosedError):
            await sent
        with pytest.raises(ClosedError):
            await sent.accepted()
        assert values(cluster.group("orders")) == [b"0"]


async def test_a_record_behind_another_one_or_with_a_condition_travels_alone_behind_what_came_before() -> (
    None
):
    async with running(orders=2) as (cluster, topics), topics.producer(linger_s=1_000) as producer:
        first = await producer.send_soon(("orders", 0), b"0")
        other = await producer.send_soon(("orders", 1), b"1")
        behind = await producer.send_soon(BOTH, b"2", after=first)
        assert told(await behind, {("orders", 0): 1, ("orders", 1): 1})
        assert (await other).offsets == {("orders", 1): 0}
        step = Consumed("orders", 0, b"worker", 0, 1)
        await producer.send_soon(("orders", 0), b"3")
        await producer.send(("orders", 0), b"4", consumed=step)
        again = await producer.send_soon(("orders", 0), b"5", consumed=step)
        with pytest.raises(ConditionFailedError):
            await again
        assert values(cluster.group("orders", 0)) == [b"0", b"2", b"3", b"4"]
        assert batches(cluster) == [1, 1, 1, 1]


async def test_all_of_a_batch_fails_and_each_of_its_records_says_so() -> None:
    async with running(orders=1, audit=1) as (cluster, topics), topics.producer() as producer:
        cluster.group("orders").lead(None)
        sent = await producer.send_many("orders", [b"x"] * 3)
        waiting = [asyncio.ensure_future(one) for one in sent[:2]]
        await topics.delete("orders")
        group = next(group for group in cluster.groups.values() if group.leads is None)
        group.log((ViewChanged(cluster.registry.view()),))
        group.lead(1)
        errors = await asyncio.gather(*waiting, sent[2], return_exceptions=True)
        assert len({id(error) for error in errors}) == 3, "each gets an error of its own"
        assert {type(error).__name__ for error in errors} <= {"NeverDeliveredError", "UnknownOutcomeError"}
        assert producer.pending == 0


async def test_a_batch_whose_partition_is_gone_before_it_is_sent_fails_and_the_producer_goes_on() -> None:
    async with running(orders=1, audit=1) as (_, topics), topics.producer(linger_s=1_000) as producer:
        sent = await producer.send_soon("orders", b"x")
        assert producer._core is not None
        core = producer._core
        gone = core.table.groups - set(producer._groups(await topics.metadata(), "orders", None))
        core.on_table(Table(core.table.position + 1, core.table.epoch, frozenset(gone)))
        flushed = asyncio.create_task(producer.flush())
        with pytest.raises(NeverDeliveredError):
            await sent
        await flushed
        assert producer.pending == 0


async def test_when_a_session_expires_what_was_sent_is_unknown_and_what_was_not_is_not_sent() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer(window=1) as producer:
        cluster.group("orders").silent = True
        first = await producer.send_soon("orders", b"0")
        await asyncio.sleep(0.05)
        second = await producer.send_soon("orders", b"1")
        await asyncio.sleep(0.05)
        assert (first.id is None, second.id is None) == (False, True)
        (session,) = cluster.sessions
        cluster.expire(session)
        with pytest.raises(Exception, match="delivered everywhere or nowhere"):
            await first
        with pytest.raises(ProducerEndedError):
            await second


async def test_a_full_window_lets_batches_grow_and_the_buffer_bounds_them() -> None:
    async with (
        running(orders=1) as (cluster, topics),
        topics.producer(window=1, buffer_bytes_max=2_000) as producer,
    ):
        cluster.group("orders").silent = True
        sent = [await producer.send_soon("orders", b"first")]
        await asyncio.sleep(0.05)
        senders = [asyncio.create_task(producer.send("orders", bytes(100))) for _ in range(100)]
        await asyncio.sleep(0.05)
        assert 5 < producer.pending < 25, "the others wait for room"
        assert not sent[0].done()
        cluster.group("orders").silent = False
        await asyncio.gather(*senders)
        assert len(values(cluster.group("orders"))) == 101
        assert len(batches(cluster)) < 40


async def test_thousands_of_callers_are_served_in_order_with_little_room() -> None:
    async with (
        running(orders=2) as (cluster, topics),
        topics.producer(window=2, buffer_bytes_max=3_000, batch_bytes_max=500) as producer,
    ):
        senders = [asyncio.create_task(producer.send(("orders", n % 2), b"%d" % n)) for n in range(2_000)]
        await asyncio.gather(*senders)
        for partition in range(2):
            expected = [b"%d" % n for n in range(partition, 2_000, 2)]
            assert values(cluster.group("orders", partition)) == expected


async def test_accepted_counts_for_all_records_of_a_batch() -> None:
    async with (
        running(orders=2) as (cluster, topics),
        topics.producer(acknowledge=Acknowledge.ACCEPTED) as producer,
    ):
        cluster.group("orders", 1).silent = True
        sent = [await producer.send_soon(BOTH, b"%d" % n) for n in range(3)]
        for n, one in enumerate(sent):
            await one.accepted()
            assert ((await one).index, (await one).offsets) == (n, {})
        assert producer.pending == 3
        cluster.group("orders", 1).silent = False
        await producer.flush()


@pytest.mark.parametrize("form", list(Compression))
async def test_batches_are_compressed_as_a_whole(form: Compression) -> None:
    async with running(orders=1) as (cluster, topics):
        async with topics.producer(compression=form) as producer:
            await producer.send_many("orders", [b"much of the same" * 5] * 50)
        payload = cluster.group("orders").deliveries[0].message.payload
        assert read_header(payload).codec is form.codec
        assert form is Compression.NONE or len(payload) < 1_000
        assert values(cluster.group("orders")) == [b"much of the same" * 5] * 50


async def test_a_missing_package_is_said_by_who_would_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(orders=1) as (_, topics), topics.consumer("orders") as consumer:
        async with topics.producer(compression=Compression.LZ4) as producer:
            await producer.send_many("orders", [b"much of the same" * 5] * 50)
        monkeypatch.setattr(compression, "HAS_CRAMJAM", False)
        with pytest.raises(MissingPackageError, match="pip install"):
            topics.producer(compression=Compression.LZ4)
        for _ in range(2):
            with pytest.raises(MissingPackageError, match="pip install"):
                await consumer.poll(10)
        monkeypatch.setattr(compression, "HAS_CRAMJAM", True)
        assert len(await polled(consumer, 50)) == 50, "nothing was passed over"


async def test_what_is_no_record_is_refused_before_it_is_gathered() -> None:
    async with running(orders=1) as (cluster, topics), topics.producer() as producer:
        of_another_type: list[dict[str, Any]] = [
            {"timestamp": -1},
            {"timestamp": 1.5},
            {"timestamp": 2**63},
            {"key": "k"},
            {"headers": {"h": 1}},
        ]
        for wrong in of_another_type:
            with pytest.raises(EncodingError):
                await producer.send("orders", b"x", **wrong)
        with pytest.raises(EncodingError, match="16777"):
            await producer.send("orders", bytes(16 * 1024 * 1024))
        assert producer.pending == 0
        await producer.send("orders", b"good")
        assert batches(cluster) == [1]


async def test_servers_without_batches_get_messages_until_their_level_rises() -> None:
    async with running(features=MESSAGES_ONLY, orders=1) as (cluster, topics), topics.producer() as producer:
        await producer.send_many("orders", [b"0", b"1"])
        await producer.flush()
        cluster.features += 1
        await topics.create("another")
        await topics.metadata()
        await producer.send_many("orders", [b"2", b"3"])
        await producer.flush()
        assert batches(cluster) == [0, 0, 2]
        async with topics.consumer("orders") as consumer:
            found = await polled(consumer, 4)
        assert [(one.offset, one.index, one.timestamp is None) for one in found] == [
            (0, 0, True),
            (1, 0, True),
            (2, 0, False),
            (3, 1, False),
        ]


# -- consuming


async def two_batches(topics: Any) -> None:
    """Offsets 0 to 4, and 5 to 9."""
    async with topics.producer() as producer:
        for first in (0, 5):
            await producer.send_many("orders", [b"%d" % n for n in range(first, first + 5)])
            await producer.flush()


async def test_a_consumer_begins_and_goes_on_in_the_middle_of_a_batch() -> None:
    async with running(orders=1) as (_, topics):
        await two_batches(topics)
        async with topics.consumer("orders", name="billing") as consumer:
            assert [one.offset for one in await consumer.poll(10, limit=3)] == [0, 1, 2]
            assert consumer.positions() == {("orders", 0): 3}
            assert consumer.lag() == {("orders", 0): 7}
            await consumer.commit()
            assert [one.offset for one in await consumer.poll(10, limit=3)] == [3, 4, 5]
            consumer.seek("orders", 0, 8)
            assert [one.offset for one in await polled(consumer, 2)] == [8, 9]
            consumer.seek("orders", 0, 1)
            assert [(one.offset, one.value) for one in await consumer.poll(10, limit=1)] == [(1, b"1")]
        async with topics.consumer("orders", name="billing", start=Start.STORED) as consumer:
            assert [one.offset for one in await polled(consumer, 7)] == list(range(3, 10))
            assert consumer.lag() == {("orders", 0): 0}


async def test_a_range_begins_and_ends_in_the_middle_of_batches() -> None:
    async with running(orders=1) as (_, topics):
        await two_batches(topics)
        for first, count in ((3, 4), (0, 10), (9, 5), (4, 1), (7, 0)):
            found = await read_range(topics.directory, "orders", 0, first, count)
            assert [one.offset for one in found] == list(range(first, min(10, first + count)))


async def test_a_merged_consumer_goes_on_in_the_middle_of_a_batch_wherever_another_stopped() -> None:
    async with running(orders=2) as (_, topics):
        async with topics.producer() as producer:
            for n in range(24):
                to = (("orders", 0), ("orders", 1), BOTH)[n // 4 % 3]
                await producer.send_soon(to, b"%d" % n)
                if n % 4 == 3:
                    await producer.flush()
        async with topics.merged("orders") as merged:
            everything = await polled(merged, 24)
        for stopped in range(25):
            async with topics.merged("orders") as merged:
                begun: list[Record] = []
                while len(begun) < stopped:
                    begun += await merged.poll(10, limit=stopped - len(begun))
                position = merged.position()
            async with topics.merged("orders", position=position) as merged:
                rest = await polled(merged, 24 - stopped)
                assert merged.position().seen == 0
            assert places(begun + rest) == places(everything)


async def test_consumers_that_share_a_partition_claim_and_commit_records_of_batches() -> None:
    async with running(orders=1) as (_, topics):
        await two_batches(topics)
        seen = []
        for name, count in (("a", 3), ("b", 7)):
            marshaler = Marshaler(topics.claims_port(), name, "billing")
            options = ConsumerOptions(queue_max=4, claim_interval_ms=50, poll_ms=10)
            async with marshaler.consumer(["orders"], options) as consumer:
                async for message in consumer.consume():
                    seen.append((message.offset, message.value))
                    await consumer.commit(message)
                    if len(seen) == count + (3 if name == "b" else 0):
                        break
        assert seen == [(n, b"%d" % n) for n in range(10)]


def damage(cluster: TopicCluster, place: int) -> None:
    """The last byte of a stored batch is another one, with the checksum that it has then."""
    group = cluster.group("orders")
    one = group.deliveries[place]
    payload = with_checksum(one.message.payload[:-1] + b"\x09")
    group.deliveries[place] = evolve(one, message=evolve(one.message, payload=payload))


async def test_records_before_damaged_ones_are_returned_and_what_comes_behind_their_message_too() -> None:
    async with running(orders=1) as (cluster, topics):
        await two_batches(topics)
        damage(cluster, 0)
        async with topics.consumer("orders") as consumer, topics.merged("orders") as merged:
            for one in (consumer, merged):
                assert [record.offset for record in await one.poll(10)] == [0, 1, 2, 3]
                with pytest.raises(PayloadError, match="orders/0, offset 0"):
                    await one.poll(10)
                assert [record.offset for record in await polled(one, 5)] == [5, 6, 7, 8, 9]
            assert consumer.positions() == {("orders", 0): 10}


async def test_a_batch_of_another_number_of_records_than_its_message_says_is_damaged() -> None:
    async with running(orders=1) as (cluster, topics):
        await two_batches(topics)
        group = cluster.group("orders")
        one = group.deliveries[0]
        group.deliveries[0] = evolve(
            one, message=evolve(one.message, payload=group.deliveries[1].message.payload, records=4)
        )
        async with topics.consumer("orders") as consumer:
            with pytest.raises(PayloadError, match="expected 4 records, found 5"):
                await consumer.poll(10)


# -- gathering, without I/O

A, B = GroupId(1), GroupId(2)


def gatherer(*, in_order: bool = False, linger_s: float = 1.0) -> Gatherer:
    return Gatherer(batch_bytes_max=300, linger_s=linger_s, in_order=in_order)


def put(some: Gatherer, now: float, *groups: GroupId, size: int = 50) -> int:
    return some.add(groups, None, bytes(size), (), 0, size + 32, now)[1]


def taken(some: Gatherer, now: float, count: int = 100) -> list[tuple[tuple[GroupId, ...], int]]:
    return [(one.groups, one.builder.count) for one in some.take(now, count)]


def test_an_open_batch_is_taken_when_it_has_waited_or_is_full() -> None:
    some = gatherer()
    assert [put(some, 0.0, A), put(some, 0.5, A), put(some, 0.6, B)] == [0, 1, 0]
    assert (some.next_due, taken(some, 0.9)) == (1.0, [])
    assert taken(some, 1.0) == [((A,), 2)]
    assert (some.next_due, len(some)) == (1.6, 1)
    for _ in range(5):
        put(some, 1.1, A)
    assert some.closed == 1, "one that is full goes at once"
    assert taken(some, 1.1) == [((A,), 3)]


def test_a_batch_stays_open_while_there_is_no_room_for_it_and_messages_keep_their_order() -> None:
    some = gatherer(in_order=True)
    put(some, 0, A)
    put(some, 0, B)
    put(some, 0, A, B)
    assert taken(some, 9, 0) == []
    put(some, 9, A, B)
    assert taken(some, 9, 1) == [((A,), 1)]
    assert taken(some, 9) == [((B,), 1), ((A, B), 2)]


def test_what_is_alone_comes_behind_what_was_open() -> None:
    some = gatherer()
    put(some, 0, A)
    alone = Gathering((B,))
    alone.builder.append(None, b"", (), 0)
    some.add_alone(alone, 10)
    put(some, 0, B)
    assert taken(some, 0) == [((A,), 1), ((B,), 1)]
    assert some.size == 82
    some.close()
    assert taken(some, 0) == [((B,), 1)]
    assert some.size == 0


def test_so_many_batches_are_open_at_a_time_and_one_more_closes_the_oldest() -> None:
    some = gatherer(linger_s=1_000)
    for number in range(1, OPEN_MAX + 3):
        put(some, 0, GroupId(number))
    assert taken(some, 0) == [((A,), 1), ((B,), 1)]


def test_what_is_not_sent_any_more_is_given_back() -> None:
    some = gatherer()
    put(some, 0, A)
    put(some, 0, B)
    assert len(some.take_all()) == 2
    assert (len(some), some.size, some.next_due, some.close()) == (0, 0, None, None)


def test_codecs_of_batches_have_the_numbers_of_kafka_and_those_of_old_payloads_are_what_they_were() -> None:
    assert [(one.name, int(one)) for one in Compression][:2] == [("NONE", 0), ("ZSTD", 1)]
    assert {one.codec for one in Compression} == set(Codec)
