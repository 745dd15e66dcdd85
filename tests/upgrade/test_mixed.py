"""Real servers of this release and of the last one in one cluster, in every role, before the level is raised (D-5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import wait_until
from tests.processes.members import Load
from tests.processes.topics import created, groups_of, settled_readings
from tests.topic_chaos.oracles import Reading
from tests.upgrade.releases import OLD_LEVEL, MixedCluster
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft_client import Client
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import Topics

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]

StartCluster = Callable[..., MixedCluster]
OpenSessions = Callable[[MixedCluster], Sessions]

TOPIC: Final = "orders"
PLACES: Final = ((TOPIC, 0), (TOPIC, 1))
PATIENT_S: Final = 60.0
SMALL_SNAPSHOTS: Final = {
    "ZRAFT_SNAPSHOT__COMMANDS_MIN": "1000",
    "ZRAFT_SNAPSHOT__LOG_BYTES_MIN": "65536",
    "ZRAFT_SNAPSHOT__LOG_RATIO_PERCENT": "1",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES": "0",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES_MAX": "0",
    "ZRAFT_GROUPS__SNAPSHOT_BYTES": "65536",
    "ZRAFT_GROUPS__KEEP_LOG_BYTES_MAX": "65536",
}


class Multicasts:
    """Messages to each partition and to both, and what every replica must have of them."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._places = groups_of(asyncio.run(created(cluster, {TOPIC: len(PLACES)})))
        self._sent: list[bytes] = []

    def send(self, count: int) -> None:
        asyncio.run(self._send(count))

    async def _send(self, count: int) -> None:
        async with (
            Client(self._cluster.hosts(), timeout_s=PATIENT_S) as client,
            Topics(client) as topics,
            topics.producer() as producer,
        ):
            for _ in range(count):
                value = b"%d " % len(self._sent) * 200
                self._sent.append(value)
                await producer.send_soon(PLACES, value)
            await producer.flush()

    def _readings(self) -> list[Reading]:
        return settled_readings(self._cluster, self._places, len(self._cluster.servers))

    @property
    def count(self) -> int:
        """How many were sent."""
        return len(self._sent)

    def batches(self) -> bool:
        """Whether some message holds several records."""
        return any(read.index for one in self._readings() for read in one.reads)

    def check(self) -> None:
        """Every server has every message, once, in one order."""
        readings = self._readings()
        assert len(readings) == len(PLACES) * len(self._cluster.servers)
        for reading in readings:
            assert [read.payload for read in reading.reads] == self._sent, reading.server


class Consumed:
    """What a consumer with claims was given and has committed, in all its lives."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self.places: list[tuple[int, int]] = []

    def take(self, count: int) -> None:
        """Consume and commit so many records, in a life of its own."""
        asyncio.run(self._take(count))

    async def _take(self, count: int) -> None:
        options = ConsumerOptions(claim_interval_ms=300, poll_ms=50, heartbeat_ms=5_000)
        async with (
            asyncio.timeout(PATIENT_S),
            Client(self._cluster.hosts(), timeout_s=PATIENT_S) as client,
            Topics(client) as topics,
            Marshaler(topics.claims_port(), "reader", "readers").consumer([TOPIC], options) as consumer,
        ):
            left = count
            async for record in consumer.consume():
                await consumer.commit(record)
                self.places.append((record.partition, record.offset))
                left -= 1
                if not left:
                    break
            await consumer.terminate(release=True)


def lead(cluster: MixedCluster, number: int) -> None:
    """Have the leadership handed to this server, as an operator does."""
    if cluster.leader() != number:
        cluster.transfer(number)
    wait_until(lambda: cluster.leader() == number, f"server {number} to lead")


def test_two_old_servers_and_a_new_one_work_together_whoever_leads(
    start_cluster: StartCluster, open_sessions: OpenSessions, last_release: Path
) -> None:
    cluster = start_cluster(kind=partial(MixedCluster, release=last_release, old=(1, 2)))
    client = open_sessions(cluster).open()
    multicasts = Multicasts(cluster)
    for leader in (3, 1):
        lead(cluster, leader)
        client.retry(client.create, f"/under-{leader}", b"")
        multicasts.send(5)
        cluster.wait_equal_digests()
    multicasts.check()
    assert cluster.level() == OLD_LEVEL, "the old servers announce no newer one"


@pytest.mark.long
@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_an_upgrade_begins_under_load_and_is_taken_back(
    start_cluster: StartCluster, open_sessions: OpenSessions, last_release: Path, leads: bool
) -> None:
    """One server of three is new; it gives a snapshot to an empty disk, or gets one, and is an old one again at the end."""
    cluster = start_cluster(
        kind=partial(MixedCluster, release=last_release, old=(1, 2, 3)), **SMALL_SNAPSHOTS
    )
    sessions = open_sessions(cluster)
    load = Load(cluster, sessions)
    multicasts = Multicasts(cluster)
    multicasts.send(200)
    consumed = Consumed(cluster)
    consumed.take(100)
    new = 2
    cluster.change_release(new, old=False)
    lead(cluster, new if leads else 1)
    load.wait_progress()

    lost = 3 if leads else new
    before = cluster.listing()[lost].instance
    cluster.kill(lost)
    cluster.wipe(lost)
    fill_until_logs_are_cut(cluster, sessions)
    multicasts.send(200)
    cluster.start(lost)
    cluster.wait_replaced(lost, before)
    assert cluster.status(lost)["raft"]["first_index"] > 1, "it got the log from the first entry on"
    assert cluster.leader() == (new if leads else 1), "the snapshot came from another server"
    load.wait_progress()
    multicasts.check()
    shown = wait_until(lambda: cluster.mntr(lost), "its numbers")
    assert int(shown["groups_installed_total"]) == len(PLACES), (
        "it got a partition's log from the first entry on"
    )

    assert cluster.level() == OLD_LEVEL
    cluster.change_release(new, old=True)
    load.wait_progress()
    multicasts.send(20)
    multicasts.check()
    load.stop_and_check()
    cluster.wait_equal_digests()

    for number in cluster.servers:
        cluster.change_release(number, old=False)
    wait_until(lambda: cluster.level() == FEATURE_LEVEL_MAX, "the level to rise")
    multicasts.send(20)
    assert multicasts.batches(), "records travel together from now on"
    multicasts.check()
    consumed.take(multicasts.count * len(PLACES) - 100)
    everything = {(place, offset) for _, place in PLACES for offset in range(multicasts.count)}
    assert len(consumed.places) == len(everything)
    assert set(consumed.places) == everything
    cluster.wait_equal_digests()


def fill_until_logs_are_cut(cluster: MixedCluster, sessions: Sessions) -> None:
    """Until every running server's log begins after a snapshot."""
    with sessions.reading(cluster.leader() or 1) as client:
        client.ensure_path("/filling")

        def log_begins_later() -> bool:
            pending = [client.create_async("/filling/n-", b"x" * 100, sequence=True) for _ in range(500)]
            for one in pending:
                one.get(timeout=30)
            return all(cluster.status(n)["raft"]["first_index"] > 1 for n in cluster.running())

        wait_until(log_begins_later, "the logs to begin after a snapshot")
