"""Disks that are full, slow, failing or not ours: what a server does, says and counts.

See docs/explanation/rules.md.
"""

from __future__ import annotations

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from crc32c import crc32c

from tests.processes.clients import Sessions
from tests.processes.cluster import DEADLINE_S, Cluster, wait_until
from tests.processes.disks import FaultyCluster, SmallDisk
from zraft.storage.directory import META_FORMAT

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., Cluster]
OpenSessions = Callable[[Cluster], Sessions]

SMALL_SEGMENTS: Final = {"ZRAFT_WAL__SEGMENT_BYTES_MAX": "131072"}
SLOW: Final = {"ZRAFT_WAL__SLOW_FSYNC_MS": "200", "ZRAFT_WAL__LOOP_SYNC_US": "0"}
"""A thread writes all: a leader whose loop itself waits for 300 ms may be taken for dead."""
PIECE: Final = bytes(20_000)


def _faulty(start_cluster: StartCluster, **env: str) -> FaultyCluster:
    cluster = start_cluster(kind=FaultyCluster, **env)
    assert isinstance(cluster, FaultyCluster)
    return cluster


def _counts(cluster: Cluster, number: int, name: str) -> float:
    return float((cluster.mntr(number) or {}).get(name, "0"))


def _other(cluster: Cluster, *numbers: int) -> int:
    return next(n for n in cluster.servers if n not in numbers)


def test_a_leader_with_a_full_disk_hands_its_leadership_on_and_recovers_without_a_restart(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """D-10: nothing is acknowledged there, its clients keep their sessions and read, the others write on."""
    cluster = _faulty(start_cluster, **SMALL_SEGMENTS)
    sessions = open_sessions(cluster)
    full = wait_until(cluster.leader, "a leader")
    inside = sessions.open(only=full, timeout_s=4.0, name="client of the full server")
    writer = sessions.open(only=full, timeout_s=40.0, name="client that waits for its write")
    outside = sessions.open(only=_other(cluster, full), name="client of another")
    outside.create("/before", b"seen")
    outside.create("/piece", b"")
    inside.sync("/")
    cluster.order(full, "full")

    def fill() -> bool:
        outside.retry(outside.set, "/piece", PIECE)
        return _counts(cluster, full, "disk_full") == 1

    wait_until(fill, "the disk to be full")
    successor = wait_until(
        lambda: next((n for n in cluster.servers if n != full and cluster.leader() == n), None),
        "another server to lead",
    )
    cluster.servers[full].wait_says("the disk of this leader is full")
    assert _counts(cluster, full, "leaderships_handed_on_total") >= 1
    pending = writer.set_async("/before", b"acknowledged late")
    began = time.monotonic()
    while time.monotonic() - began < 6.0:
        # Longer than the session timeout of the client inside.
        outside.retry(outside.set, "/piece", PIECE)
        assert inside.get_async("/before").get(timeout=DEADLINE_S)[0] == b"seen"
        threading.Event().wait(0.2)
        assert not pending.ready(), "a write was acknowledged whose entry this server could not write"
    assert cluster.leader() == successor
    cluster.order(full, "")
    pending.get(timeout=DEADLINE_S)
    wait_until(lambda: _counts(cluster, full, "disk_full") == 0, "the disk to be well again")
    inside.sync("/")
    assert inside.get("/before")[0] == b"acknowledged late"
    assert sessions.lost == []
    assert cluster.servers[full].starts == 1
    assert cluster.servers[full].running
    cluster.wait_equal_digests()


def test_a_disk_that_fills_up_during_a_snapshot_costs_the_snapshot_which_is_written_later(
    tmp_path: Path, open_sessions: OpenSessions
) -> None:
    """On a real small file system where one may be mounted, else by errors put under the server."""
    env = SMALL_SEGMENTS | {
        "ZRAFT_SNAPSHOT__COMMANDS_MIN": "300",
        "ZRAFT_SNAPSHOT__LOG_BYTES_MIN": str(1 << 30),
    }
    with (
        FaultyCluster(tmp_path, servers=1, env=env) as cluster,
        SmallDisk(cluster.servers[1].data, 24) as disk,
    ):
        cluster.start_all()
        client = open_sessions(cluster).open()
        for n in range(100):
            client.create(f"/n{n}", os.urandom(30_000))
        if disk.mounted:
            disk.fill(leave=1_500_000)
        else:
            print("a tmpfs cannot be mounted here: ENOSPC comes from LD_PRELOAD instead")
            cluster.order(1, "full")
        pending = [client.set_async("/n0", b"%d" % n) for n in range(900)]
        wait_until(lambda: _counts(cluster, 1, "snapshots_failed_total") >= 1, "a snapshot to fail")
        assert _counts(cluster, 1, "snapshots_taken_total") == 0
        cluster.servers[1].wait_says("no snapshot could be written")
        snapshots = cluster.servers[1].data / "groups" / "0" / "snap"
        wait_until(lambda: not list(snapshots.iterdir()), "what was written of it to be removed")
        if disk.mounted:
            disk.free()
        else:
            cluster.order(1, "")
        for one in pending:
            one.get(timeout=DEADLINE_S)
        # Without a single further write.
        wait_until(lambda: _counts(cluster, 1, "snapshots_taken_total") == 1, "the snapshot to be written")
        cluster.kill(1)
        cluster.start(1)
        cluster.wait_ready()
        assert client.retry(client.get, "/n0")[0] == b"899"


@pytest.mark.parametrize(("order", "said"), [("badsync", "fsync failed"), ("badwrite", "cannot be written")])
def test_a_disk_that_fails_ends_the_server_with_its_reason_and_the_others_go_on(
    start_cluster: StartCluster, open_sessions: OpenSessions, order: str, said: str
) -> None:
    """D-10: after a failed fsync the kernel may have dropped the pages: a second one that succeeds proves nothing."""
    cluster = _faulty(start_cluster)
    sessions = open_sessions(cluster)
    broken = wait_until(cluster.leader, "a leader")
    client = sessions.open(first=_other(cluster, broken))
    client.create("/a", b"1")
    cluster.order(broken, order)
    client.retry(client.set, "/a", b"2")
    assert cluster.wait_exit(broken) == 1
    text = cluster.servers[broken].log_text()
    assert said in text
    assert "Input/output error" in text
    assert "check" in text
    assert "the disk" in text
    client.retry(client.set, "/a", b"3")
    cluster.order(broken, "")
    cluster.start(broken)
    cluster.wait_ready()
    with sessions.reading(broken) as reader:
        assert reader.get("/a")[0] == b"3"
    cluster.wait_equal_digests()


def _refused(cluster: Cluster) -> str:
    """The output of a server that does not start."""
    process = cluster.run_beside(1, data=cluster.servers[1].data)
    output, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, output.decode()
    assert b"Traceback" not in output, output.decode()
    return output.decode()


@pytest.mark.parametrize(
    ("order", "said"),
    [("readonly", "Read-only file system"), ("forbidden", "Permission denied"), ("full", "no space left")],
)
def test_a_directory_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, order: str, said: str
) -> None:
    with FaultyCluster(tmp_path, servers=1) as cluster:
        cluster.start_all()
        cluster.kill(1, signal.SIGTERM)
        cluster.order(1, order)
        output = _refused(cluster)
        assert said in output
        assert str(cluster.servers[1].data) in output
        cluster.order(1, "")
        cluster.start(1)
        cluster.wait_ready()


def test_a_read_only_file_system_is_refused_at_the_start(tmp_path: Path) -> None:
    """A real one, where a tmpfs may be mounted; else EROFS comes from LD_PRELOAD, as it does above."""
    with FaultyCluster(tmp_path, servers=1) as cluster, SmallDisk(cluster.servers[1].data, 80) as disk:
        if disk.mounted:
            cluster.start_all()
            cluster.kill(1, signal.SIGTERM)
            disk.remount_read_only()
        else:
            print("a tmpfs cannot be mounted here: EROFS comes from LD_PRELOAD")
            cluster.order(1, "readonly")
        assert "Read-only file system" in _refused(cluster)


def test_a_file_system_that_turns_read_only_ends_its_server_and_no_other(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    """The kernel does so after an error of the disk, under a server that runs (D-10). Nothing acknowledged is lost."""
    cluster = _faulty(start_cluster)
    struck = wait_until(cluster.leader, "a leader")
    client = open_sessions(cluster).open(first=_other(cluster, struck))
    client.create("/before", b"1")
    cluster.order(struck, "readonly")

    def writes_until_it_ends() -> bool:
        client.retry(client.set, "/before", b"2")
        return not cluster.servers[struck].running

    wait_until(writes_until_it_ends, "the server with the read-only file system to end")
    assert cluster.wait_exit(struck) == 1
    said = cluster.servers[struck].log_text()
    assert "Read-only file system" in said
    assert "mount it for writing" in said
    assert "Traceback" not in said
    client.retry(client.set, "/before", b"3")
    cluster.order(struck, "")
    cluster.start(struck)
    cluster.wait_ready()
    client.sync("/")
    assert client.get("/before")[0] == b"3"
    cluster.wait_equal_digests()


@pytest.mark.parametrize(
    ("step", "said"), [(-1, "the release before this one"), (1, "start it with a newer release")]
)
def test_a_directory_of_another_format_is_refused_and_left_as_it_is(
    tmp_path: Path, step: int, said: str
) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        cluster.start_all()
        cluster.kill(1, signal.SIGTERM)
        meta = cluster.servers[1].data / "meta"
        before = meta.read_bytes()
        other = before[:8] + bytes([META_FORMAT + step]) + before[9:-4]
        other += crc32c(other).to_bytes(4, "big")
        meta.write_bytes(other)
        output = _refused(cluster)
        assert said in output
        assert f"format {META_FORMAT + step}" in output
        assert meta.read_bytes() == other
        meta.write_bytes(before)
        cluster.start(1)
        cluster.wait_ready()


def test_a_leader_with_a_slow_disk_hands_its_leadership_on_once(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    cluster = _faulty(start_cluster, **SLOW)
    sessions = open_sessions(cluster)
    slow = wait_until(cluster.leader, "a leader")
    client = sessions.open(only=_other(cluster, slow))
    client.create("/a", b"")
    cluster.order(slow, "slow 300")

    def moved() -> int | None:
        client.retry(client.set, "/a", b"x")
        found = cluster.leader()
        return found if found not in (None, slow) else None

    wait_until(moved, "another server to lead")
    cluster.servers[slow].wait_says("leadership is handed on", "wal.slow_fsync_ms")
    for _ in range(10):
        client.retry(client.set, "/a", b"y")
    assert _counts(cluster, slow, "leaderships_handed_on_total") == 1
    cluster.order(slow, "")
    cluster.wait_equal_digests()


def test_a_follower_with_a_slow_disk_slows_nobody_elses_writes(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    cluster = _faulty(start_cluster, **SLOW)
    sessions = open_sessions(cluster)
    leader = wait_until(cluster.leader, "a leader")
    slow = _other(cluster, leader)
    client = sessions.open(only=leader)
    client.create("/a", b"")
    cluster.order(slow, "slow 1500")
    took = []
    for n in range(40):
        began = time.monotonic()
        client.set("/a", b"%d" % n)
        took.append(time.monotonic() - began)
    assert statistics.median(took) < 0.75, "writes wait for the slowest disk"
    assert cluster.leader() == leader
    cluster.order(slow, "")
    cluster.wait_equal_digests()
