"""Real servers that are killed, stopped and started again, under clients that write all the time.

Rules cited as D-n are in docs/explanation/rules.md.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.workload import Workload

pytestmark = pytest.mark.processes

StartCluster = Callable[..., Cluster]
OpenSessions = Callable[[Cluster], Sessions]


def _kill_leaders(cluster: Cluster, sessions: Sessions, kills: int, seed: int) -> None:
    rng = random.Random(seed)
    workload = Workload(cluster, sessions)
    workload.start()
    outages: list[float] = []
    for _ in range(kills):
        workload.wait_progress()
        # The moment within the clients' work is what is drawn here; nothing is waited for.
        threading.Event().wait(rng.random())
        victim = wait_until(cluster.leader, "a leader")
        survivors = [number for number in cluster.servers if number != victim]
        cluster.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        cluster.wait_ready(survivors)
        outages.append(time.monotonic() - killed)
        workload.wait_progress()
        cluster.start(victim)
        cluster.wait_ready()
    workload.wait_progress()
    workload.stop_and_check()
    print(
        f"{kills} leaders killed: {workload.acknowledged} steps acknowledged, {workload.uncertain} uncertain, "
        f"a new leader served after {', '.join(f'{outage:.2f}' for outage in outages)} s"
    )
    assert workload.uncertain > 0, "no client noticed anything: the kills did not hit the workload"


@pytest.mark.timeout(300)
def test_nothing_acknowledged_is_lost_when_leaders_are_killed(
    cluster: Cluster, sessions: Sessions, seed: int
) -> None:
    """Two kills; see the long test for more."""
    _kill_leaders(cluster, sessions, 2, seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_when_ten_leaders_are_killed(
    cluster: Cluster, sessions: Sessions, seed: int
) -> None:
    _kill_leaders(cluster, sessions, 10, seed)


@pytest.mark.timeout(300)
def test_a_restart_of_all_servers_loses_nothing(cluster: Cluster, sessions: Sessions) -> None:
    """All three are killed at once; what was acknowledged was on a majority's disks, sessions included."""
    workload = Workload(cluster, sessions)
    workload.start()
    workload.wait_progress(10)
    for number in cluster.servers:
        cluster.kill(number, signal.SIGKILL)
    for number in cluster.servers:
        cluster.start(number)
    cluster.wait_ready()
    workload.wait_progress()
    workload.stop_and_check()
    print(f"{workload.acknowledged} steps acknowledged, {workload.uncertain} uncertain")


def _stop_all(start_cluster: StartCluster, open_sessions: OpenSessions, stopped_s: float) -> None:
    """D-11, D-14: time in which nobody ran ages nobody."""
    cluster = start_cluster(ZRAFT_TICK_TIME_MS="1000")
    sessions = open_sessions(cluster)
    clients = [sessions.open(first=n % 3 + 1, timeout_s=3.0, name=f"client {n}") for n in range(6)]
    for n, client in enumerate(clients):
        client.create(f"/alive-{n}", ephemeral=True)
        assert client._session_timeout / 1000 + 1 < stopped_s, "the pause must exceed the timeout and a tick"
    for number in cluster.servers:
        cluster.stop(number)
    threading.Event().wait(stopped_s)
    for number in cluster.servers:
        cluster.cont(number)
    for n, client in enumerate(clients):
        client.retry(client.set, f"/alive-{n}", b"still")
    for number in cluster.servers:
        with sessions.reading(number) as reader:
            for n, client in enumerate(clients):
                data, stat = reader.get(f"/alive-{n}")
                assert data == b"still"
                assert stat.ephemeralOwner == client.client_id[0]
    assert sessions.lost == []
    cluster.wait_equal_digests()


@pytest.mark.timeout(300)
def test_no_session_expires_while_all_servers_stand_still(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    _stop_all(start_cluster, open_sessions, 9.0)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_session_expires_while_all_servers_stand_still_for_a_minute(
    start_cluster: StartCluster, open_sessions: OpenSessions
) -> None:
    _stop_all(start_cluster, open_sessions, 60.0)
