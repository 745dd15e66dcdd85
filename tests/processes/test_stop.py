"""A server that is asked to stop: another one leads before it goes, and its clients lose no answer."""

from __future__ import annotations

import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import stuck_thread
from tests.processes.clients import Sessions
from tests.processes.cluster import DEADLINE_S, HOST, Cluster, free_ports, wait_until
from tests.processes.disks import FaultyCluster
from tests.processes.workload import Workload

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., Cluster]
OpenSessions = Callable[[Cluster], Sessions]

SLOW_ELECTIONS = {"ZRAFT_RAFT__ELECTION_TIMEOUT_TICKS": "3000", "ZRAFT_TICK_TIME_MS": "6000"}
"""An election that nobody was spared would take three seconds or more."""


def test_a_leader_that_is_stopped_hands_over_first_so_that_nobody_waits_for_an_election(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    cluster = start_cluster(**SLOW_ELECTIONS)
    sessions = open_sessions(cluster)
    leader = wait_until(cluster.leader, "a leader")
    client = sessions.open(only=next(n for n in cluster.servers if n != leader))
    client.create("/a", b"")
    client.set("/a", b"0")
    process = cluster.servers[leader].process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    longest = 0.0
    for n in range(200):
        began = time.monotonic()
        client.set("/a", b"%d" % n)
        longest = max(longest, time.monotonic() - began)
        if process.poll() is not None and n > 50:
            break
    print(f"longest pause of writes while the leader stopped: {longest * 1000:.0f} ms")
    assert cluster.wait_exit(leader) == 0
    assert longest < 2.0, "the writes waited for an election"
    assert cluster.leader() not in (None, leader)
    assert "server leaves" in cluster.servers[leader].log_text()


def test_servers_that_are_stopped_one_after_the_other_lose_nothing(
    cluster: Cluster, sessions: Sessions
) -> None:
    """Their clients find another server between two requests; the leader goes first."""
    workload = Workload(cluster, sessions)
    workload.start()
    workload.wait_progress()
    for _ in range(3):
        leader = wait_until(cluster.leader, "a leader")
        assert cluster.kill(leader, signal.SIGTERM) == 0
        cluster.start(leader)
        cluster.wait_ready()
        workload.wait_progress()
    workload.stop_and_check()
    print(f"{workload.acknowledged} steps acknowledged, {workload.uncertain} uncertain")


def test_a_single_server_stops_at_once(start_cluster: StartCluster, open_sessions: OpenSessions) -> None:
    """There is nobody to hand over to."""
    cluster = start_cluster(servers=1, **SLOW_ELECTIONS)
    open_sessions(cluster).open().create("/a", b"")
    began = time.monotonic()
    assert cluster.kill(1, signal.SIGTERM) == 0
    assert time.monotonic() - began < 3.0


def test_a_server_that_is_stopped_while_it_starts_ends_cleanly(tmp_path: Path) -> None:
    """What its directory holds then is what a crash would leave; it starts from it. Each fsync takes half a second."""
    with FaultyCluster(tmp_path, servers=1) as cluster:
        cluster.order(1, "slow 500")
        cluster.start(1)
        wait_until((cluster.servers[1].data / "lock").exists, "the start to reach its directory")
        assert cluster.kill(1, signal.SIGTERM) == 0
        said = cluster.servers[1].log_text()
        assert "listening" not in said, "it was not stopped while it started"
        assert "Traceback" not in said
        cluster.order(1, "")
        cluster.start(1)
        cluster.wait_ready()


class StuckCluster(Cluster):
    """Servers with a thread of their own that never ends: it loads the admin server."""

    def command(self, number: int, *, data: Path | None = None) -> list[str]:
        command = super().command(number, data=data)
        command[command.index("-m") : command.index("serve")] = [str(Path(stuck_thread.__file__))]
        return [*command, "--admin", f"{HOST}:{self.admin_port}"]

    def _place(self, count: int) -> None:
        super()._place(count)
        [self.admin_port] = free_ports(1)


def test_a_server_is_ready_and_ends_whatever_its_threads_do(
    start_cluster: Callable[..., StuckCluster],
) -> None:
    """It said that it serves when aiohttp was loaded, and ended when that was over, or all znodes were freed one by one."""
    cluster = start_cluster(servers=1, kind=StuckCluster)
    cluster.servers[1].wait_says(stuck_thread.STUCK)
    with urllib.request.urlopen(f"http://{HOST}:{cluster.admin_port}/readyz", timeout=DEADLINE_S) as answer:
        assert (answer.status, answer.read()) == (200, b"ok\n")
    assert cluster.kill(1, signal.SIGTERM) == 0
    assert "server stopping" in cluster.servers[1].log_text()
