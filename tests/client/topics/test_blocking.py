"""Topics for threads, over a cluster of shipped partitions."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from tests.client.topics.conftest import TopicThread
from tests.client.topics.test_producer import values
from zraft_client import BlockingClient
from zraft_client.topics import (
    BlockingTopics,
    Consumer,
    MergedConsumer,
    NoTopicError,
    Order,
    Producer,
    Topics,
)
from zraft_client.topics.blocking import BlockingConsumer, BlockingMergedConsumer, BlockingProducer


@pytest.mark.parametrize(
    ("blocking", "asyncio_version", "names"),
    [
        (
            BlockingTopics,
            Topics,
            ("list", "describe", "create", "retain", "ensure", "alter", "delete", "bounds"),
        ),
        (BlockingProducer, Producer, ("saw", "flush")),
        (BlockingConsumer, Consumer, ("poll", "seek", "positions", "lag", "commit", "committed")),
        (BlockingMergedConsumer, MergedConsumer, ("poll", "position")),
    ],
)
def test_blocking_methods_have_the_parameters_and_docstrings_of_the_asyncio_ones(
    blocking: type, asyncio_version: type, names: tuple[str, ...]
) -> None:
    for name in names:
        ours, theirs = getattr(blocking, name), getattr(asyncio_version, name)
        assert ours.__name__ == name
        assert ours.__doc__ == theirs.__doc__
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert not inspect.iscoroutinefunction(ours)


def test_topics_producers_and_consumers_work_without_a_loop(fake_topics: TopicThread) -> None:
    with BlockingClient(fake_topics.hosts) as client, BlockingTopics(client) as topics:
        assert len(topics.create("orders", 3).partitions) == 3
        assert [topic.name for topic in topics.list()] == ["orders"]
        with topics.producer(order=Order.CAUSAL) as producer:
            first = producer.send_soon("orders", b"1", key=b"k")
            second = producer.send_soon("orders", b"2", key=b"k", after=first)
            ((place, offset),) = second.result().offsets.items()
            assert first.done()
            producer.send([("orders", 0), ("orders", 2)], b"3", headers={"h": b"v"})
            with topics.consumer("orders", name="me") as consumer, topics.merged("orders") as merged:
                records: list[Any] = []
                while len(records) < 4:
                    records += consumer.poll(10)
                assert sorted(record.value for record in records) == [b"1", b"2", b"3", b"3"]
                producer.saw(records[-1])
                consumer.commit()
                assert consumer.committed() == consumer.positions()
                assert set(consumer.lag().values()) == {0}
                consumer.seek("orders", place[1], offset)
                assert next(iter(consumer)).value == b"2"
                ordered: list[Any] = []
                while len(ordered) < 3:
                    ordered += merged.poll(10)
                assert [record.value for record in ordered][-1] == b"3"
                assert merged.position().last == ordered[-1].stamp
        assert topics.bounds("orders")[place[1]].end > offset
        assert len(topics.alter("orders", 4).partitions) == 4
        topics.delete("orders")
        with pytest.raises(NoTopicError):
            topics.describe("orders")


def test_a_timeout_says_what_the_record_waits_for(fake_topics: TopicThread) -> None:
    with BlockingClient(fake_topics.hosts) as client, BlockingTopics(client) as topics:
        topics.ensure("orders", 1)
        with topics.producer() as producer:
            fake_topics.do(lambda cluster: cluster.group("orders").lead(None))
            sent = producer.send_soon(("orders", 0), b"waits")
            with pytest.raises(TimeoutError, match=r"no outcome within 0\.3 s: orders/0: server \d"):
                sent.result(0.3)
            fake_topics.do(lambda cluster: cluster.group("orders").lead(2))
            assert sent.result(10).offsets == {("orders", 0): 0}


def test_many_threads_share_one_producer(fake_topics: TopicThread) -> None:
    with BlockingClient(fake_topics.hosts) as client, BlockingTopics(client) as topics:
        topics.ensure("orders", 3)
        with topics.producer() as producer:

            def work(number: int) -> None:
                for place in range(20):
                    producer.send("orders", b"%d/%d" % (number, place))

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            producer.flush()
    assert fake_topics.do(lambda cluster: sum(len(values(g)) for g in cluster.groups.values())) == 80


def test_closing_twice_or_after_the_client_harms_nothing(fake_topics: TopicThread) -> None:
    client = BlockingClient(fake_topics.hosts)
    topics = BlockingTopics(client)
    topics.create("orders")
    producer, consumer = topics.producer(), topics.consumer("orders")
    producer.send("orders", b"x")
    producer.close()
    producer.close()
    client.close()
    consumer.close()
    topics.close()
