"""K-1 to K-10: Kafka Lite's calls on a topic of shipped partitions."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.client.topics.conftest import TopicThread
from zraft_client import BadArgumentsError
from zraft_client.kafkalite import (
    BrokerDisconnectError,
    ConsumerGroup,
    ConsumerRecord,
    InvalidPartitionIdError,
    LeaderNotFoundError,
    LiteProducer,
    mount_consumer_group,
    mount_producer,
)
from zraft_client.kafkalite.consumers import split_evenly

TOPIC = "kafka-lite"


@pytest.fixture
def producer(fake_topics: TopicThread) -> Iterator[LiteProducer]:
    with mount_producer(fake_topics.hosts, partitions=4, timeout_s=20) as mounted:
        yield mounted


@pytest.fixture
def group(fake_topics: TopicThread, producer: LiteProducer) -> Iterator[ConsumerGroup]:
    with mount_consumer_group(fake_topics.hosts, 3, timeout_s=20) as mounted:
        yield mounted


def test_a_message_is_appended_to_the_partition_that_was_chosen_and_its_offset_is_told(
    producer: LiteProducer, group: ConsumerGroup
) -> None:
    """K-1, K-5."""
    assert [producer.add_message(2, b"%d" % number) for number in range(3)] == [0, 1, 2]
    assert group.consume([2], 0, 10) == {2: [b"0", b"1", b"2"]}
    assert group.consume([0], 0, 10) == {0: []}


def test_consume_gives_of_each_partition_n_messages_from_an_offset_on(
    producer: LiteProducer, group: ConsumerGroup
) -> None:
    """K-4."""
    for number in range(5):
        for partition in range(4):
            producer.add_message_soon(partition, b"%d/%d" % (partition, number))
    producer.flush()
    found = group.consume([3, 0, 1, 2], 1, 3)
    assert list(found) == [3, 0, 1, 2]
    assert found == {p: [b"%d/%d" % (p, number) for number in (1, 2, 3)] for p in range(4)}
    assert group.consume([0, 0], 4, 9) == {0: [b"0/4"]}
    assert group.consume([0], 0, 0) == {0: []}


def test_partitions_are_split_evenly_among_the_groups_consumers() -> None:
    """K-4: the manifest."""
    assert [list(share) for share in split_evenly([1, 2, 3, 4, 5, 6, 7], 3)] == [[1, 4, 7], [2, 5], [3, 6]]
    assert [list(share) for share in split_evenly([1], 3)] == [[1]]


def test_poll_gives_what_is_new_once_and_waits_for_it(producer: LiteProducer, group: ConsumerGroup) -> None:
    """K-4."""
    producer.add_message(0, b"a")
    producer.add_message(0, b"b")
    producer.add_message(1, b"c")
    found: list[ConsumerRecord] = []
    while sum(len(one.messages) for one in found) < 3:
        found += group.poll(10)
    assert {(one.partition_id, one.last_offset) for one in found} >= {(0, 1), (1, 0)}
    assert sorted(message for one in found for message in one.messages) == [b"a", b"b", b"c"]
    assert group.poll(0.05) == []
    late = threading.Timer(0.1, producer.add_message, (3, b"late"))
    late.start()
    assert group.poll(10) == [ConsumerRecord(3, (b"late",), 0)]
    late.join()
    group.seek(0, 1)
    assert group.poll(10) == [ConsumerRecord(0, (b"b",), 1)]


def test_a_partition_that_is_not_there_is_told_as_such(producer: LiteProducer, group: ConsumerGroup) -> None:
    """K-5."""
    for number in (4, -1):
        with pytest.raises(InvalidPartitionIdError):
            producer.add_message(number, b"")
        with pytest.raises(InvalidPartitionIdError):
            group.consume([number], 0, 1)
    with pytest.raises(BadArgumentsError):
        group.consume([0], -1, 1)


def test_without_a_leader_a_message_waits_until_its_timeout_and_is_there_once_afterwards(
    fake_topics: TopicThread, producer: LiteProducer, group: ConsumerGroup
) -> None:
    """K-5, K-10: no writes are blocked for good, and none is doubled."""
    producer.add_message(0, b"0")
    fake_topics.do(lambda cluster: cluster.group(TOPIC, 0).lead(None))
    with pytest.raises(LeaderNotFoundError):
        producer.add_message_timeout(0, b"1", 0.2)
    fake_topics.do(lambda cluster: cluster.group(TOPIC, 0).lead(3))
    producer.add_message(0, b"2")
    assert group.consume([0], 0, 10) == {0: [b"0", b"1", b"2"]}


def test_no_server_at_all_is_a_disconnect(fake_topics: TopicThread, producer: LiteProducer) -> None:
    """K-5."""
    for server in (1, 2, 3):
        fake_topics.stop(server)
    with pytest.raises(BrokerDisconnectError):
        mount_producer(fake_topics.hosts, timeout_s=0.3)
    for server in (1, 2, 3):
        fake_topics.start(server)


def test_a_topic_that_nobody_created_cannot_be_mounted(fake_topics: TopicThread) -> None:
    """K-10: a message to nobody is refused at once."""
    with pytest.raises(InvalidPartitionIdError, match="none of this name"):
        mount_consumer_group(fake_topics.hosts, 1, topic="nothing", timeout_s=5)
    with pytest.raises(BadArgumentsError):
        mount_consumer_group(fake_topics.hosts, 0)


def test_servers_that_stop_one_after_another_lose_and_repeat_nothing(
    fake_topics: TopicThread, producer: LiteProducer, group: ConsumerGroup
) -> None:
    """K-3, K-8, K-10."""
    expected = []
    for victim in (1, 2, 3):
        sent = [producer.add_message_soon(number % 4, b"%d/%d" % (victim, number)) for number in range(40)]
        fake_topics.stop(victim)
        for number, one in enumerate(sent):
            one.result(20)
            expected.append((number % 4, b"%d/%d" % (victim, number)))
        found = group.consume(range(4), 0, 1_000)
        assert sorted((p, message) for p, messages in found.items() for message in messages) == sorted(
            expected
        )
        fake_topics.start(victim)


def test_several_topics_beside_each_other_are_several_mounts(fake_topics: TopicThread) -> None:
    """K-10."""
    with (
        mount_producer(fake_topics.hosts, topic="a", partitions=1) as one,
        mount_producer(fake_topics.hosts, topic="b", partitions=2) as other,
    ):
        assert (one.add_message(0, b"a"), other.add_message(1, bytes(100_000))) == (0, 0)
        assert (one.partitions, other.partitions) == (1, 2)
    one.unmount()
