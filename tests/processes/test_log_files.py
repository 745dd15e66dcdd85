"""The log on the disks of real servers: a cut is not taken for an interrupted write, and no log grows for ever."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import ROOT, Cluster, wait_until
from zraft_client import Client
from zraft_client.topics import Topics

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., Cluster]
OpenSessions = Callable[[Cluster], Sessions]

LEFT_BYTES: Final = 1_100_000
PAYLOAD: Final = bytes(1_200)
PATIENT_S: Final = 60.0


def _create(sessions: Sessions, cluster: Cluster, names: range) -> None:
    """All of them are acknowledged."""
    client = sessions.open(only=cluster.running()[0])
    for pending in [client.create_async(f"/n{number}", PAYLOAD) for number in names]:
        pending.get(timeout=PATIENT_S)


def _zraft(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zraft", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENT_S,
        check=False,
    )


def _refuses(cluster: Cluster, number: int) -> None:
    """A start ends at once, and says what is wrong and what to do."""
    assert cluster.wait_exit(number) != 0
    segment = cluster.servers[number].data / "wal" / "0000000001.seg"
    cluster.servers[number].wait_says(
        f"{segment}: corrupt at offset {LEFT_BYTES}: the file was cut",
        "with an empty one",
        f"`zraft log accept-loss {cluster.servers[number].data}`",
    )


def test_a_server_whose_log_was_cut_refuses_to_start_and_the_others_lose_nothing(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """Of three, one was down for 1,000 writes; of the two that have them, one is cut. They must not elect without them."""
    cluster: Cluster = start_cluster()
    sessions = open_sessions(cluster)
    cut, away, whole = 1, 2, 3
    _create(sessions, cluster, range(500))
    cluster.kill(away)
    wait_until(cluster.leader, "a leader of two")
    _create(sessions, cluster, range(500, 1_500))
    for number in (cut, whole):
        cluster.kill(number)
    os.truncate(cluster.servers[cut].data / "wal" / "0000000001.seg", LEFT_BYTES)
    for number in cluster.servers:
        cluster.start(number)
    _refuses(cluster, cut)
    cluster.wait_ready([away, whole])
    client = sessions.open(only=away)
    client.sync("/")
    assert {f"n{number}" for number in range(1_500)} <= set(client.get_children("/"))
    verified = _zraft("log", "verify", cluster.servers[cut].data)
    assert verified.returncode == 1
    assert "CUT SHORT" in verified.stdout
    cluster.wipe(cut)
    cluster.start(cut)
    cluster.wait_ready()
    client = sessions.open(only=cut)
    assert len(client.get_children("/")) == 1_501
    cluster.wait_equal_digests()


def test_a_server_that_is_alone_goes_on_with_what_is_left_if_its_operator_accepts_the_loss(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    cluster: Cluster = start_cluster(servers=1)
    _create(open_sessions(cluster), cluster, range(1_500))
    cluster.kill(1)
    data = cluster.servers[1].data
    os.truncate(data / "wal" / "0000000001.seg", LEFT_BYTES)
    cluster.start(1)
    _refuses(cluster, 1)
    asked = _zraft("log", "accept-loss", data)
    assert asked.returncode == 1
    (shown,) = (line.split()[1] for line in asked.stdout.splitlines() if line.startswith("cluster:"))
    accepted = _zraft("log", "accept-loss", data, "--yes-i-lose-writes", shown[:8])
    assert accepted.returncode == 0, accepted.stderr
    cluster.start(1)
    cluster.wait_ready()
    left = open_sessions(cluster).open().get_children("/")
    assert 500 < len(left) < 1_501
    assert {f"n{number}" for number in range(len(left) - 1)} <= set(left), "a beginning of what was written"


def test_a_process_killed_at_any_step_leaves_a_log_that_is_not_taken_for_cut(tmp_path: Path) -> None:
    """The length is recorded when the file has it, and before the next frame: each order of the two on a real disk."""
    lived = subprocess.run(
        [sys.executable, "-m", "tests.processes.dying_log", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=4 * PATIENT_S,
        check=False,
    )
    assert lived.returncode == 0, lived.stderr
    assert int(lived.stdout) > 40, "deaths"


# -- how long it grows


def _produce(cluster: Cluster, size: int, piece: int) -> None:
    """So many bytes to two partitions of a topic, from one producer; nothing else is asked of the cluster."""

    async def main() -> None:
        payload = bytes(piece)
        async with Client(cluster.hosts(), timeout_s=PATIENT_S) as client, Topics(client) as topics:
            await topics.create("long", 2)
            async with topics.producer() as producer:
                left = size // piece

                async def send(partition: int) -> None:
                    nonlocal left
                    while left > 0:
                        left -= 1
                        await producer.send(("long", partition), payload)

                await asyncio.gather(*(send(number % 2) for number in range(16)))

    asyncio.run(main())


def _log_bytes(data: Path) -> int:
    return sum(file.stat().st_size for file in (data / "wal").iterdir())


def _stays_short(cluster: Cluster, size: int, piece: int, bytes_max: int) -> None:
    """Only topics write so much; the log stays below, says who needs it, and is read soon."""
    began = time.monotonic()
    _produce(cluster, size, piece)
    produced_s = time.monotonic() - began
    data = cluster.servers[1].data

    def is_short() -> bool:
        needed = int((cluster.mntr(1) or {})["groups_log_needed_bytes"])
        return max(_log_bytes(data), needed) < bytes_max

    wait_until(is_short, f"a log below {bytes_max} bytes, on the disk and as the metric says what is needed")
    metrics = cluster.mntr(1) or {}
    assert int(metrics["groups_log_oldest_group"]) >= 0
    assert int(metrics["snapshots_taken_total"]) >= 1, (
        "of the coordination group, which wrote next to nothing"
    )
    log = _log_bytes(data)
    cluster.kill(1)
    began = time.monotonic()
    cluster.start(1)
    cluster.wait_ready()
    print(
        f"{size} bytes in {produced_s:.0f} s: a log of {log} bytes, started in {time.monotonic() - began:.1f} s; {metrics}"
    )


def test_the_log_of_a_server_to_which_only_topics_write_stays_short(start_cluster: StartCluster) -> None:
    cluster: Cluster = start_cluster(
        servers=1,
        ZRAFT_GROUPS__WAL_BYTES_MAX=str(2 << 20),
        ZRAFT_GROUPS__SNAPSHOT_BYTES=str(1 << 20),
        ZRAFT_WAL__SEGMENT_BYTES_MAX=str(1 << 20),
    )
    _stays_short(cluster, 9 << 20, 32 << 10, 6 << 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_with_two_gigabytes(start_cluster: StartCluster) -> None:
    cluster: Cluster = start_cluster(servers=1, ZRAFT_GROUPS__WAL_BYTES_MAX=str(64 << 20))
    _stays_short(cluster, 2 << 30, 64 << 10, 256 << 20)
