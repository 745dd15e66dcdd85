"""Topics on real servers for tests with faults: producers that are processes, who leads what, and what every replica has."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.processes.cluster import ROOT, wait_until
from tests.processes.reachable import Reachable
from tests.topic_chaos.journal import Key, Outcome, Sent, key_of, read_journal
from tests.topic_chaos.oracles import Judged, Place, Read, Reading, judge
from zraft_client import Client, ClientError, NodeExistsError
from zraft_client.calls import Request
from zraft_client.topics import Metadata, Topics, requests
from zraft_client.topics.records import records_of
from zraft_core.ids import GroupId
from zraft_core.wire.native.topic_results import ReplicaRefusal

PATIENT_S: Final = 180.0
FETCH_BYTES: Final = 1 << 20
ASK_S: Final = 10.0


def wait_count(count: Callable[[], int], wanted: int, what: str) -> None:
    """Until `count` is at least `wanted`, however slow the machine is: what is given up is a standstill."""

    def more(before: int) -> int | None:
        found = count()
        return found if found > before else None

    reached = count()
    while reached < wanted:
        reached = wait_until(partial(more, reached), f"{reached + 1} of {wanted} {what}", PATIENT_S)


class ProducerProcess:
    """A producer that runs by itself and may be killed."""

    def __init__(
        self, cluster: Reachable, directory: Path, name: str, places: Iterable[Place], **options: object
    ) -> None:
        self.name = name
        self.journal = directory / f"{name}.journal"
        self._log = directory / f"{name}.log"
        command = [
            sys.executable,
            "-m",
            "tests.processes.topic_producer",
            "--hosts",
            cluster.hosts(),
            "--name",
            name,
        ]
        command += ["--journal", str(self.journal)]
        for topic, partition in places:
            command += ["--place", f"{topic}/{partition}"]
        for option, value in options.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env=cluster.environment(1) | {"PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"},
            )

    def sent(self) -> dict[Key, Sent]:
        return read_journal(self.journal.read_text()) if self.journal.exists() else {}

    def delivered(self, places: frozenset[Place] | None = None) -> int:
        """How many messages it was told are delivered, of all or of those to exactly these places."""
        return sum(
            one.outcome is Outcome.DELIVERED and (places is None or one.places == places)
            for one in self.sent().values()
        )

    def wait_delivered(self, more: int, *, places: frozenset[Place] | None = None) -> None:
        """Until so many more than now are told."""

        def count() -> int:
            assert self.process.poll() is None, f"{self.name} ended: {self._log.read_text()[-3000:]}"
            return self.delivered(places)

        wait_count(count, count() + more, f"messages of {self.name} to be delivered")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        """Stop sending, and wait until everything it sent is decided; a process that does not listen yet just ends."""
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(PATIENT_S) != -signal.SIGTERM or self.sent():
            self.wait()

    def wait(self) -> None:
        code = self.process.wait(PATIENT_S)
        assert code == 0, f"{self.name}: exit code {code}: {self._log.read_text()[-3000:]}"


class Producers:
    """The producers of a test. Use as a context manager: leaving it ends every process."""

    def __init__(self, cluster: Reachable, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self.all: list[ProducerProcess] = []

    def __enter__(self) -> Producers:
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.all:
            if producer.process.poll() is None:
                producer.kill()

    def start(self, name: str, places: Iterable[Place], **options: object) -> ProducerProcess:
        made = ProducerProcess(self._cluster, self._directory, name, places, **options)
        self.all.append(made)
        return made

    def finish(self) -> None:
        for producer in self.all:
            if producer.process.poll() is None:
                producer.finish()

    def sent(self) -> dict[Key, Sent]:
        return {key: one for producer in self.all for key, one in producer.sent().items()}


# -- what there is


async def created(
    cluster: Reachable,
    topics: Mapping[str, int],
    *,
    retention_bytes: int | None = None,
    may_exist: bool = False,
) -> Metadata:
    """Create topics of so many partitions; where they are."""
    async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as found:
        for name, partitions in topics.items():
            try:
                await found.create(name, partitions, retention_bytes=retention_bytes)
            except NodeExistsError:
                if not may_exist:
                    raise
        return await found.metadata()


def groups_of(metadata: Metadata) -> dict[Place, GroupId]:
    return {
        (topic.name, number): group
        for topic in metadata.topics.values()
        for number, group in enumerate(topic.partitions)
    }


async def leader_of(cluster: Reachable, group: GroupId) -> int | None:
    """The running server that leads a group, as it says itself; None if none does now."""

    async def leads(number: int) -> bool:
        host = str(cluster.servers[number].address)
        try:
            async with Client(host, timeout_s=ASK_S) as client:
                asked: Request[Any] = requests.offset(group, b"nobody")
                return not isinstance(await client.ask(asked), ReplicaRefusal)
        except ClientError:
            return False

    numbers = cluster.running()
    found = [n for n, yes in zip(numbers, await asyncio.gather(*map(leads, numbers)), strict=True) if yes]
    return found[0] if len(found) == 1 else None


def wait_leader(cluster: Reachable, group: GroupId) -> int:
    return wait_until(lambda: asyncio.run(leader_of(cluster, group)), f"a leader of group {group}", PATIENT_S)


# -- what every replica has


async def read_log(client: Client, group: GroupId) -> tuple[Read, ...] | None:
    """A group's deliveries as the server that the client is connected to has them; None if it has no replica."""
    found: list[Read] = []
    offset = 0
    while True:
        fetched = await client.ask(requests.fetch([(group, offset, FETCH_BYTES)], 0))
        for refused in fetched.refused:
            if refused.kind == "no_group":
                return None
            await asyncio.sleep(0.05)
        for part in fetched.parts:
            assert part.first == 0, f"group {group}: retention removed what a test needs"
            for one in (record for delivery in part.deliveries for record in records_of(delivery, "", 0)):
                stamp, mid = one.stamp, one.id
                found.append(
                    Read(
                        one.offset,
                        (stamp.time, stamp.group, stamp.sub, stamp.single),
                        (mid.producer, mid.seq),
                        one.value,
                        one.index,
                    )
                )
            offset = part.next
            if offset >= part.end:
                return tuple(found)


async def read_all(
    cluster: Reachable, places: Mapping[Place, GroupId], servers: Sequence[int]
) -> list[Reading]:
    """The whole log of each place, from each of the servers that has it."""
    readings = []
    for number in servers:
        async with Client(str(cluster.servers[number].address), timeout_s=PATIENT_S) as client:
            for place, group in places.items():
                reads = await read_log(client, group)
                if reads is not None:
                    readings.append(Reading(number, place, reads))
    return readings


def pending(cluster: Reachable) -> int | None:
    """Messages that are begun and not delivered, anywhere; None if a server does not say."""
    found = [cluster.mntr(number) for number in cluster.running()]
    if any(one is None or "groups_pending" not in one for one in found):
        return None
    return sum(int(one["groups_pending"]) for one in found if one is not None)


def settled_readings(cluster: Reachable, places: Mapping[Place, GroupId], replicas: int) -> list[Reading]:
    """Until nothing is pending and all replicas of each place have the same; nobody may produce meanwhile."""

    def same() -> list[Reading] | None:
        if pending(cluster) != 0:
            return None
        readings = asyncio.run(read_all(cluster, places, cluster.running()))
        lengths: dict[Place, list[int]] = {}
        for one in readings:
            lengths.setdefault(one.place, []).append(len(one.reads))
        even = all(len(found) == replicas and len(set(found)) == 1 for found in lengths.values())
        return readings if even and len(lengths) == len(places) else None

    return wait_until(same, "all replicas to have delivered the same", PATIENT_S)


async def merged_order(cluster: Reachable, topic: str, count: int) -> list[Key]:
    """The first `count` messages of a topic, all of its partitions in one order."""
    async with (
        Client(cluster.hosts(), timeout_s=PATIENT_S) as client,
        Topics(client) as topics,
        topics.merged(topic) as consumer,
    ):
        found: list[Key] = []
        until = time.monotonic() + PATIENT_S
        while len(found) < count:
            assert time.monotonic() < until, f"{len(found)} of {count} messages of {topic} in one order"
            found += [key_of(record.value) for record in await consumer.poll(1.0)]
        return found


def judge_all(
    cluster: Reachable, producers: Producers, places: Mapping[Place, GroupId], replicas: int
) -> Judged:
    """Everything is healed, every producer has ended: read every replica of `places`, and judge."""
    readings = settled_readings(cluster, places, replicas)
    merged = {}
    for topic in sorted({topic for topic, _ in places}):
        keys = {
            key_of(read.payload)
            for reading in readings
            if reading.place[0] == topic and reading.server == readings[0].server
            for read in reading.reads
        }
        if sum(one == topic for one, _ in places) > 1:
            merged[topic] = [asyncio.run(merged_order(cluster, topic, len(keys))) for _ in range(2)]
    return judge(producers.sent(), readings, merged)
