"""Backups of real servers that have topics: taken while messages are sent, and made a new cluster of (D-15, D-18)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.processes.cluster import Cluster, wait_until
from tests.processes.members import GrowingCluster
from tests.processes.test_recovery import here, offline
from zraft.operator.requests import TopicDescribe, TopicDescription
from zraft_client import Client
from zraft_client.topics import Record, Start, Topics

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

StartCluster = Callable[..., GrowingCluster]
PLACES: Final = (("orders", 0), ("orders", 1), ("audit", 0))
PATIENT_S: Final = 60.0

Found = dict[tuple[str, int], list[Record]]


@asynccontextmanager
async def topics_of(cluster: Cluster) -> AsyncIterator[Topics]:
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
        yield topics


async def everything(topics: Topics) -> Found:
    """All records of every partition."""
    found: Found = {place: [] for place in PLACES}
    bounds = {place: (await topics.bounds(place[0]))[place[1]] for place in PLACES}
    async with topics.consumer(list(PLACES)) as consumer:
        while any(len(found[place]) < bounds[place].end for place in PLACES):
            records = await consumer.poll(PATIENT_S)
            assert records, "records are missing"
            for record in records:
                found[record.topic, record.partition].append(record)
    return found


class Sending:
    """Producers that send to one partition and to all of them by turns, until they are stopped."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._stopped = asyncio.Event()
        self.delivered = 0
        self._tasks = [asyncio.create_task(self._send(number)) for number in range(3)]

    async def _send(self, number: int) -> None:
        sent = 0
        async with self._topics.producer() as producer:
            while not self._stopped.is_set():
                to: Any = PLACES[sent % 3] if sent % 2 else list(PLACES)
                await producer.send(to, b"%d of %d" % (sent, number))
                sent += 1
                self.delivered += 1

    async def until(self, more: int) -> None:
        wanted = self.delivered + more
        while self.delivered < wanted:
            assert not any(task.done() for task in self._tasks), "a producer ended"
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        self._stopped.set()
        await asyncio.gather(*self._tasks)


async def saved(cluster: GrowingCluster, file: Path) -> tuple[Found, Found]:
    """Take a backup while messages are sent; return what there was before it, and in the end."""
    async with topics_of(cluster) as topics:
        await topics.create("orders", 2)
        await topics.create("audit", 1)
        sending = Sending(topics)
        await sending.until(60)
        await topics.set_offset("orders", 0, b"billing", 3)
        before = await everything(topics)
        save = asyncio.create_task(
            asyncio.to_thread(cluster.zraft, "snapshot", "save", str(file), timeout_s=PATIENT_S)
        )
        await sending.until(30)
        done = await save
        assert done.returncode == 0, done
        assert "topics: 2, partitions: 3" in done.stdout
        await sending.until(30)
        await sending.stop()
        return before, await everything(topics)


def places(records: list[Record]) -> list[tuple[Any, ...]]:
    return [(one.offset, one.stamp, one.id, one.index, one.value) for one in records]


async def check(cluster: GrowingCluster, expected: Found) -> None:
    """The new cluster has exactly this, and goes on behind it."""
    async with topics_of(cluster) as topics:
        found = await everything(topics)
        for place in PLACES:
            assert places(found[place]) == places(expected[place]), place
        async with topics.consumer([PLACES[0]], name="billing", start=Start.STORED) as consumer:
            assert await consumer.committed() == {PLACES[0]: 3}
            assert (await consumer.poll(PATIENT_S))[0].offset == 3
        async with topics.producer() as producer:
            receipt = await producer.send(list(PLACES), b"anew")
            for place, offset in receipt.offsets.items():
                assert offset == len(expected[place])
        async with topics.merged("orders") as merged:
            last: list[Record] = []
            while not last or last[-1].value != b"anew":
                last = await merged.poll(PATIENT_S)
                assert last
        highest = max(one.stamp for records in expected.values() for one in records)
        assert last[-1].stamp > highest


def test_a_backup_taken_while_messages_are_sent_becomes_a_cluster_with_all_up_to_one_time(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(kind=GrowingCluster)
    file = tmp_path / "backup.snap"
    before, end = asyncio.run(saved(cluster, file))
    inspected = offline(cluster, "snapshot", "inspect", file, "--json")
    assert inspected.returncode == 0, inspected.stderr
    time = json.loads(inspected.stdout)["topics_time"]
    expected = {place: [one for one in records if one.stamp.time <= time] for place, records in end.items()}
    for place in PLACES:
        assert len(before[place]) <= len(expected[place]) < len(end[place]), "the cut is between"
    for number in cluster.servers:
        cluster.kill(number)
        cluster.wipe(number)
    restored = offline(cluster, "snapshot", "restore", file, *here(cluster, 1))
    assert restored.returncode == 0, restored.stderr
    assert "topics:    2, with 3 partitions" in restored.stdout
    cluster.start(1)
    wait_until(lambda: "Mode: " in (cluster.ask(1, "srvr") or ""), "server 1 to serve alone")
    asyncio.run(check(cluster, expected))
    for number in (2, 3):
        cluster.start(number)
    cluster.wait_roles(voters=[1, 2, 3])

    def placed() -> bool:
        rows = [
            row
            for name in ("orders", "audit")
            for row in cluster.operate(TopicDescribe(name), TopicDescription).partitions
        ]
        return all((row.servers, row.state) == ((1, 2, 3), "ready") for row in rows)

    wait_until(placed, "replicas on all servers")
    cluster.wait_equal_digests()
    cluster.kill(1)

    async def without_the_founder() -> Found:
        async with topics_of(cluster) as topics:
            async with topics.producer() as producer:
                await producer.send(list(PLACES), b"without the founder")
            return await everything(topics)

    found = asyncio.run(without_the_founder())
    for place in PLACES:
        assert places(found[place][: len(expected[place])]) == places(expected[place]), place
        assert [one.value for one in found[place][len(expected[place]) :]] == [
            b"anew",
            b"without the founder",
        ]


def test_a_backup_without_topics_is_the_plain_snapshot_and_a_cluster_without_topics_needs_no_client(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    cluster = start_cluster(kind=GrowingCluster, servers=1)
    for name, options in (("none", []), ("left", ["--no-topics"])):
        if options:
            created = cluster.zraft("topic", "create", "orders", "--timeout", "60")
            assert created.returncode == 0, created
        file = tmp_path / f"{name}.snap"
        done = cluster.zraft("snapshot", "save", str(file), *options)
        assert done.returncode == 0, done
        assert file.read_bytes().startswith(b"\x8e\xa6format")
        assert "\ntopics:" not in done.stdout
    closed = cluster.zraft("snapshot", "save", str(tmp_path / "x.snap"), "--tls", "--timeout", "3")
    assert closed.returncode == 1
    assert "--no-topics saves the znodes alone" in closed.stderr
    assert not list(tmp_path.glob("*x.snap*")), "nothing is left of an attempt"
