"""Topics on real servers that are killed: each message once at all its destinations, in one order, from any replica."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.processes.cluster import Cluster
from tests.processes.conftest import StartCluster
from tests.processes.topics import wait_leader
from zraft.cli.main import main as zraft
from zraft_client import Client, NodeExistsError, NoNodeError
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.kafkalite import mount_consumer_group, mount_producer
from zraft_client.topics import (
    ConditionFailedError,
    Consumed,
    MergedConsumer,
    MessageId,
    NoTopicError,
    Order,
    Record,
    Start,
    Topics,
    round_robin_partitioner,
)
from zraft_client.topics.consumer import Consumer
from zraft_core.ids import GroupId

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

PATIENT_S = 60.0
_names = (f"topic-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for what harms no server."""
    with Cluster(tmp_path_factory.mktemp("topics")) as cluster:
        cluster.start_all()
        yield cluster


@asynccontextmanager
async def topics_of(cluster: Cluster) -> AsyncIterator[Topics]:
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        yield topics


async def polled(consumer: Consumer | MergedConsumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        more = await consumer.poll(PATIENT_S)
        assert more, f"{len(found)} of {count} records in {PATIENT_S:g} s"
        found += more
    assert len(found) == count, f"{len(found)} records, expected {count}"
    return found


def names(records: list[Record]) -> list[tuple[MessageId, int]]:
    """What names each record: its message, and its place there."""
    return [(one.id, one.index) for one in records]


def in_one_order(logs: list[list[Record]]) -> bool:
    """Whether no two logs contradict each other: places in the order ascend, and a record has the same one everywhere."""
    stamps: dict[Any, Any] = {}
    for log in logs:
        places = [(one.stamp, one.index) for one in log]
        if places != sorted(set(places)):
            return False
        for one in log:
            if stamps.setdefault(one.id, one.stamp) != one.stamp:
                return False
    return True


async def test_a_topic_is_created_filled_by_several_partitions_at_once_read_and_deleted(
    running: Cluster,
) -> None:
    async with topics_of(running) as topics:
        name = next(_names)
        topic = await topics.create(name, 3)
        assert len(topic.partitions) == 3
        with pytest.raises(NodeExistsError):
            await topics.create(name, 1)
        async with topics.producer() as producer:
            receipt = await producer.send((name, 0), b"one", key=b"k")
            assert receipt.offsets == {(name, 0): 0}
            await producer.send([(name, 0), (name, 1), (name, 2)], b"three", headers={"h": b"v"})
        async with topics.consumer(name) as consumer:
            found = await polled(consumer, 4)
            assert Counter(one.value for one in found) == {b"one": 1, b"three": 3}
            assert len({one.stamp for one in found if one.value == b"three"}) == 1
        bounds = await topics.bounds(name)
        assert [(one.first, one.end) for one in bounds.values()] == [(0, 2), (0, 1), (0, 1)]
        await topics.delete(name)
        with pytest.raises(NoNodeError):
            await topics.delete(name)
        async with topics.producer() as producer:
            with pytest.raises(NoTopicError):
                await producer.send(name, b"too late")


async def test_offsets_are_stored_and_conditions_take_one_message_per_step(running: Cluster) -> None:
    async with topics_of(running) as topics:
        name = next(_names)
        await topics.create(name, 1)
        async with topics.producer() as producer:
            for number in range(10):
                await producer.send_soon(name, b"%d" % number)
            await producer.flush()
            step = Consumed(name, 0, b"worker", 0, 4)
            await producer.send(name, b"result", consumed=step)
            with pytest.raises(ConditionFailedError):
                await producer.send(name, b"again", consumed=step)
        async with topics.consumer(name, name="worker", start=Start.STORED) as consumer:
            assert await consumer.committed() == {(name, 0): 4}
            found = await polled(consumer, 7)
            assert [one.value for one in found] == [*(b"%d" % n for n in range(4, 10)), b"result"]
            await consumer.commit()
            assert await consumer.committed() == {(name, 0): 11}


async def test_two_merged_consumers_see_one_order_and_an_idle_partition_stalls_neither(
    running: Cluster,
) -> None:
    """D-17b, D-17d."""
    async with topics_of(running) as topics:
        name = next(_names)
        await topics.create(name, 3)
        async with topics.merged(name) as one, topics.merged(name) as other:
            async with topics.producer() as producer:
                for number in range(200):
                    to: Any = (name, number % 2) if number % 3 else [(name, 0), (name, 1)]
                    await producer.send_soon(to, b"%d" % number)
                await producer.flush()
            first, second = await polled(one, 200), await polled(other, 200)
        assert names(first) == names(second)
        assert in_one_order([first])


async def test_partitions_are_added_while_messages_are_sent_and_every_consumer_reads_them_a_merged_one_from_one_place_on(
    running: Cluster,
) -> None:
    async with topics_of(running) as topics:
        name = next(_names)
        await topics.create(name, 1)
        async with (
            topics.producer(partitioner=round_robin_partitioner()) as producer,
            topics.merged(name) as one,
            topics.consumer(name) as plain,
        ):
            for number in range(20):
                await producer.send_soon(name, b"%d" % number)
            await topics.alter(name, 3)
            await producer.flush()
            for number in range(20, 60):
                await producer.send_soon(name, b"%d" % number)
            await producer.flush()
            first = await polled(one, 60)
            assert set(names(await polled(plain, 60))) == set(names(first))
            async with topics.merged(name) as other:
                second = await polled(other, 60)
        assert names(first) == names(second)
        assert {record.partition for record in first} == {0, 1, 2}


async def test_marshals_consumers_share_partitions_and_hand_them_on(running: Cluster) -> None:
    """M-5, M-8."""
    async with topics_of(running) as topics:
        name = next(_names)
        await topics.create(name, 2)
        async with topics.producer(partitioner=round_robin_partitioner()) as producer:
            for number in range(40):
                await producer.send_soon(name, b"%d" % number)
            await producer.flush()
        seen: list[tuple[int, int]] = []
        done = asyncio.Event()

        async def work(client: str) -> None:
            marshaler = Marshaler(topics.claims_port(), client, "billing")
            options = ConsumerOptions(maximum_claims=1, claim_interval_ms=100, poll_ms=50)
            async with marshaler.consumer([name], options) as consumer:
                async for message in consumer.consume():
                    seen.append((message.partition, message.offset))
                    consumer.commit(message)
                    if len(seen) == 40:
                        done.set()

        workers = [asyncio.create_task(work(client)) for client in ("a", "b")]
        async with asyncio.timeout(PATIENT_S):
            await done.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(20)]


def test_kafka_lites_calls_work_over_real_servers(running: Cluster) -> None:
    """K-4, K-5."""
    topic = next(_names)
    with mount_producer(running.hosts(), topic=topic, partitions=3, timeout_s=PATIENT_S) as producer:
        assert [producer.add_message(1, b"%d" % number) for number in range(3)] == [0, 1, 2]
        for number in range(30):
            producer.add_message_soon(number % 3, b"more")
        producer.flush()
    with mount_consumer_group(running.hosts(), 2, topic=topic, timeout_s=PATIENT_S) as group:
        assert group.consume([1, 2], 0, 3) == {1: [b"0", b"1", b"2"], 2: [b"more"] * 3}
        found = 0
        while found < 33:
            found += sum(len(one.messages) for one in group.poll(PATIENT_S))
        assert found == 33


async def test_every_server_is_killed_in_turn_and_nothing_is_lost_repeated_or_out_of_order(
    start_cluster: StartCluster,
) -> None:
    """The leaders of all partitions among them, while messages to one and to several are under way."""
    cluster = await asyncio.to_thread(start_cluster)
    killed: list[int] = []

    async with topics_of(cluster) as topics:
        name = next(_names)
        await topics.create(name, 4)
        loop = asyncio.get_running_loop()
        sent: dict[bytes, Any] = {}
        async with topics.producer() as producer, topics.producer(order=Order.FIFO) as strict:
            for victim in (1, 2, 3):
                for number in range(60):
                    value = b"%d/%d" % (victim, number)
                    many = [(name, number % 4), (name, (number + 1) % 4)]
                    sent[value] = await producer.send_soon((name, number % 4) if number % 3 else many, value)
                    value = b"strict " + value
                    sent[value] = await strict.send_soon([(name, 0), (name, 3)], value)
                    if number == 30:
                        await loop.run_in_executor(None, cluster.kill, victim)
                        killed.append(victim)
                await producer.flush()
                await strict.flush()
                cluster.start(victim)
                await loop.run_in_executor(None, cluster.wait_ready)
            for one in sent.values():
                await one
        places = {value: len(one.together.message.destinations) for value, one in sent.items()}
        expected = sum(places.values())
        async with topics.consumer(name) as consumer:
            found = await polled(consumer, expected)
            assert await consumer.poll(0.5) == []
        logs: dict[int, list[Record]] = defaultdict(list)
        for record in found:
            logs[record.partition].append(record)
        for partition, log in logs.items():
            assert [one.offset for one in log] == list(range(len(log))), partition
        assert in_one_order(list(logs.values()))
        assert Counter(one.value for one in found) == Counter(places)
        for log in logs.values():
            numbers = [one.id.seq for one in log if one.value.startswith(b"strict")]
            assert numbers == sorted(numbers)
        async with topics.merged(name) as merged:
            everything = await polled(merged, len(sent))
            assert in_one_order([everything, *logs.values()])
    assert killed == [1, 2, 3]


async def test_topics_survive_that_all_servers_are_killed_at_once(start_cluster: StartCluster) -> None:
    cluster = await asyncio.to_thread(start_cluster)

    async with topics_of(cluster) as topics:
        await topics.create("kept", 2)
        async with topics.producer() as producer:
            for number in range(50):
                await producer.send_soon([("kept", 0), ("kept", 1)], b"%d" % number)
            await producer.flush()
    for number in cluster.servers:
        cluster.kill(number)
    for number in cluster.servers:
        cluster.start(number)
    await asyncio.to_thread(cluster.wait_ready)
    async with topics_of(cluster) as topics:
        async with topics.consumer("kept") as consumer:
            found = await polled(consumer, 100)
            assert {one.offset for one in found} == set(range(50))
        async with topics.producer() as producer:
            receipt = await producer.send(("kept", 1), b"goes on")
            assert receipt.offsets == {("kept", 1): 50}


async def test_an_idle_partition_holds_two_merged_consumers_up_for_one_advance_also_when_its_leader_is_killed(
    start_cluster: StartCluster,
) -> None:
    """4.10.8, D-17b: equal sequences, and beyond its own delivery a message waits for one commit of an idle partition.

    That is judged by the idle partition's log, not by a clock; how long it took is printed.
    """
    cluster = await asyncio.to_thread(start_cluster)
    held_up: list[float] = []
    seen: list[list[Record]] = [[], []]
    groups: list[GroupId] = []
    counts = (30, 15, 15)

    async def until_both_have(count: int, consumers: tuple[MergedConsumer, MergedConsumer]) -> None:
        for consumer, log in zip(consumers, seen, strict=True):
            log += await polled(consumer, count)

    logged: Counter[str] = Counter()
    loop = asyncio.get_running_loop()
    async with (
        Client(cluster.hosts(1), timeout_s=PATIENT_S) as client,
        Client(cluster.hosts(2), timeout_s=PATIENT_S) as client_of_other,
        Topics(client) as topics,
        Topics(client_of_other) as topics_of_other,
    ):
        groups.extend((await topics.create("idle", 3)).partitions)
        async with (
            topics.producer() as producer,
            topics.merged("idle") as one,
            topics_of_other.merged("idle") as other,
        ):
            number = 0
            for phase, count in enumerate(counts):
                if phase == 1:
                    killed = await loop.run_in_executor(None, wait_leader, cluster, groups[2])
                    await loop.run_in_executor(None, cluster.kill, killed)
                elif phase == 2:
                    await loop.run_in_executor(None, cluster.start, killed)
                    await loop.run_in_executor(None, cluster.wait_ready)
                for _ in range(count):
                    # One at a time, so that each waits for the idle partition by itself.
                    to: Any = ("idle", number % 2) if number % 3 else [("idle", 0), ("idle", 1)]
                    await producer.send(to, b"%d" % number)
                    began = loop.time()
                    await until_both_have(1, (one, other))
                    held_up.append(loop.time() - began)
                    number += 1
    stopped = next(number for number in cluster.servers if number != killed)
    await loop.run_in_executor(None, cluster.kill, stopped)
    logged.update(await asyncio.to_thread(commands_of, cluster.servers[stopped].data, groups[2]))
    assert names(seen[0]) == names(seen[1])
    assert [int(one.value) for one in seen[0]] == list(range(sum(counts))), (
        "each was told before the next was sent"
    )
    assert in_one_order(seen)
    assert 0 < logged["advance"] <= sum(counts), "more than one commit of the idle partition per message"
    assert not logged["start"] + logged["remote"], "the idle partition has a part in no message"
    print(
        f"held up for {sorted(held_up)[len(held_up) // 2] * 1000:.1f} ms in the median, {max(held_up):.2f} s at most"
    )


def commands_of(data: Path, group: GroupId) -> Counter[str]:
    """The kinds of commands in a group's log, as `zraft log dump` shows them."""
    dumped = CliRunner().invoke(zraft, ["log", "dump", str(data), "--json", "--group", str(group)])
    assert dumped.exit_code == 0, dumped.output
    return Counter(
        command["command"]
        for line in dumped.output.splitlines()
        for command in json.loads(line).get("commands", ())
    )
