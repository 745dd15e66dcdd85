"""Calls of one producer are taken in the order in which they are made, however many wait for room.

Each of them is a message here, whose number tells when it was taken; servers of an earlier feature level get these.
"""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from tests.client.test_client import until
from tests.client.topics.test_producer import MESSAGES_ONLY, running, values
from zraft_client import ClosedError
from zraft_client.topics import NoTopicError, Order, Producer, ProducerEndedError
from zraft_client.topics.sent import Sent


class Callers:
    """Tasks that send; `made` counts their calls in the order in which they are made."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._made = count(1)
        self.taken: dict[int, int] = {}
        """By the number of a call, that of its message."""

    async def send(self, size: int = 0, topic: str = "orders", partitions: int = 1) -> Sent:
        made = next(self._made)
        sent = await self._producer.send_soon((topic, made % partitions), b"%d" % made + bytes(size))
        assert sent.id is not None
        self.taken[made] = sent.id.seq
        return sent

    def in_order(self) -> bool:
        numbers = [self.taken[made] for made in sorted(self.taken)]
        return numbers == sorted(numbers)


async def test_2_000_callers_are_served_in_the_order_of_their_calls_while_a_partition_stands_still() -> None:
    """Each answer that left no room sent whoever waited longest to the end; one that made room for many woke one."""
    async with (
        running(features=MESSAGES_ONLY, orders=2) as (cluster, topics),
        topics.producer(window=64) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders", 0).silent = True
        tasks = [asyncio.create_task(callers.send(partitions=2)) for _ in range(1_000)]
        await until(lambda: producer.pending == 32)  # what went to the other partition is answered
        cluster.group("orders", 0).silent = False
        tasks += [asyncio.create_task(callers.send(partitions=2)) for _ in range(1_000)]
        await asyncio.gather(*tasks)
        await producer.flush()
        assert len(callers.taken) == 2_000
        assert callers.in_order()
        assert sum(len(values(group)) for group in cluster.groups.values()) == 2_000


@pytest.mark.parametrize("order", [Order.FIFO, Order.CAUSAL])
async def test_the_numbers_of_rounds_take_no_room_from_calls_whose_turn_it_is(order: Order) -> None:
    """A round was made between the turn of a call and its coming: the call failed with WindowFullError."""
    async with (
        running(features=MESSAGES_ONLY, orders=3) as (cluster, topics),
        topics.producer(window=8, order=order) as producer,
    ):
        callers = Callers(producer)
        await asyncio.gather(*(callers.send(partitions=3) for _ in range(2_000)))
        await producer.flush()
        assert callers.in_order()
        for group in cluster.groups.values():
            numbers = [one.message.mid.seq for one in group.deliveries]
            assert numbers == sorted(numbers)
        assert sum(len(values(group)) for group in cluster.groups.values()) == 2_000
        stamps = {one.message.mid.seq: one.stamp for g in cluster.groups.values() for one in g.deliveries}
        in_stamp_order = sorted(stamps, key=lambda number: stamps[number])
        assert order is Order.FIFO or in_stamp_order == sorted(stamps)


async def test_20_000_callers_are_served_in_the_order_of_their_calls() -> None:
    """With the window that producers have if they choose none, and three partitions."""
    async with running(features=MESSAGES_ONLY, orders=3) as (cluster, topics), topics.producer() as producer:
        callers = Callers(producer)
        await asyncio.gather(*(callers.send(partitions=3) for _ in range(20_000)))
        await producer.flush()
        assert len(callers.taken) == 20_000
        assert callers.in_order()
        for group in cluster.groups.values():
            numbers = [one.message.mid.seq for one in group.deliveries]
            assert numbers == sorted(numbers)


async def test_a_large_message_that_waits_for_room_keeps_its_place() -> None:
    """It went to the end each time when room for it was lacking, and small ones passed it for ever."""
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(buffer_bytes_max=1_000) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders").silent = True
        sizes = (400, 400, 900, 100, 100, 900, 100)
        tasks = [asyncio.create_task(callers.send(size)) for size in sizes]
        await asyncio.sleep(0.05)
        assert producer.pending == 2, "the third waits, and nobody passes it"
        cluster.group("orders").silent = False
        await asyncio.gather(*tasks)
        assert callers.in_order()


async def test_a_call_whose_topic_has_to_be_looked_up_is_not_overtaken() -> None:
    async with running(features=MESSAGES_ONLY, orders=1) as (_, topics), topics.producer() as producer:
        callers = Callers(producer)
        await callers.send()
        known = producer._directory.metadata
        await topics.create("new")
        producer._directory._metadata = known  # as to a client of another process
        first = asyncio.create_task(callers.send(topic="new"))
        second = asyncio.create_task(callers.send())
        await asyncio.gather(first, second)
        assert callers.in_order()


async def test_a_call_that_fails_lets_the_next_one_go() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=2) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders").silent = True
        tasks = [asyncio.create_task(callers.send()) for _ in range(3)]
        wrong = asyncio.create_task(callers.send(topic="nothing"))
        tasks.append(asyncio.create_task(callers.send()))
        await asyncio.sleep(0.05)
        cluster.group("orders").silent = False
        with pytest.raises(NoTopicError):
            await wrong
        await asyncio.gather(*tasks)
        assert callers.in_order()


async def test_calls_that_are_cancelled_while_they_wait_send_nothing_and_hold_nobody_up() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=4) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders").silent = True
        tasks = [asyncio.create_task(callers.send()) for _ in range(40)]
        await asyncio.sleep(0.05)
        cancelled = [task for place, task in enumerate(tasks) if place >= 4 and place % 3]
        for task in reversed(cancelled):
            task.cancel()
        cluster.group("orders").silent = False
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, asyncio.CancelledError) for one in found) == len(cancelled)
        await producer.flush()
        assert callers.in_order()
        assert len(values(cluster.group("orders"))) == 40 - len(cancelled)


async def test_a_call_that_is_cancelled_as_its_turn_comes_sends_nothing_and_gives_its_room_back() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=1) as producer,
    ):
        callers = Callers(producer)
        first = await callers.send()
        second = asyncio.create_task(callers.send())
        third = asyncio.create_task(callers.send())
        await asyncio.sleep(0)
        # The answer to the first one and the cancellation fall in one turn of the loop.
        answered = asyncio.get_running_loop().create_future()
        first.together._waiting_for_more[answered] = None
        answered.add_done_callback(lambda _: second.cancel())
        await third
        assert second.cancelled()
        await producer.flush()
        assert len(values(cluster.group("orders"))) == 2


async def test_flush_covers_calls_that_wait_for_room_and_none_that_come_later() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=4) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders").silent = True
        waiting = [asyncio.create_task(callers.send()) for _ in range(40)]
        await asyncio.sleep(0.05)
        flushed = asyncio.create_task(producer.flush())
        stop = asyncio.Event()

        async def go_on() -> None:
            while not stop.is_set():
                await callers.send()

        later = [asyncio.create_task(go_on()) for _ in range(8)]
        cluster.group("orders").silent = False
        await flushed
        assert all(task.done() and task.result().done() for task in waiting)
        assert not any(task.done() for task in later), "they go on, and flush does not wait for them"
        stop.set()
        await asyncio.gather(*later)


async def test_close_takes_no_more_calls_and_ends_those_that_wait_when_the_session_is_gone() -> None:
    async with (
        running(features=MESSAGES_ONLY, orders=1) as (cluster, topics),
        topics.producer(window=2) as producer,
    ):
        callers = Callers(producer)
        cluster.group("orders").silent = True
        tasks = [asyncio.create_task(callers.send()) for _ in range(6)]
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0.05)
        with pytest.raises(ClosedError):
            await producer.send_soon("orders", b"too late")
        (session,) = cluster.sessions
        cluster.expire(session)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, Sent) for one in found] == [True, True, False, False, False, False]
        assert all(isinstance(one, ProducerEndedError) for one in found[2:])
        with pytest.raises(ProducerEndedError):
            await closing
