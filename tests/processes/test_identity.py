"""Data directories that were wiped, copied or shared: such a server stays out, and says so (D-1)."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import DEADLINE_S, Cluster, wait_until
from tests.processes.workload import OPERATION_S

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

OpenSessions = Callable[[Cluster], Sessions]


def _follower(cluster: Cluster) -> int:
    leader = wait_until(cluster.leader, "a leader")
    return next(number for number in cluster.servers if number != leader)


def test_a_wiped_server_counts_for_nothing_until_a_leader_took_it_in(
    cluster: Cluster, sessions: Sessions
) -> None:
    """Its old self may have held the only other copy of an entry: with its vote that entry would be lost."""
    wiped = _follower(cluster)
    others = [number for number in cluster.servers if number != wiped]
    client = sessions.open(only=others[0])
    client.create("/before", b"acknowledged")
    cluster.kill(wiped)
    cluster.wipe(wiped)
    cluster.kill(others[1])
    wait_until(lambda: cluster.mntr(others[0]) is None, "the last server to notice that it has no quorum")
    pending = client.set_async("/before", b"only after the quorum is back")
    cluster.start(wiped)
    server = cluster.servers[wiped]
    server.wait_says("waiting until the leader")
    # Two of three run, and one of them forgot what it promised: several election timeouts change nothing.
    threading.Event().wait(4.0)
    assert cluster.ask(wiped, "ruok") == "imok"
    assert cluster.mntr(wiped) is None, "it serves although it lost everything"
    assert cluster.leader() is None, "a wiped server voted"
    assert not pending.ready() or not pending.successful()
    cluster.start(others[1])
    cluster.wait_ready()
    client.retry(client.set, "/before", b"back")
    with sessions.reading(wiped) as reader:
        assert reader.get("/before")[0] == b"back"
    cluster.wait_equal_digests()


def test_a_second_process_on_the_same_directory_is_refused(cluster: Cluster) -> None:
    second = cluster.run_beside(1, data=cluster.servers[1].data, elsewhere=True)
    output, _ = second.communicate(timeout=DEADLINE_S)
    assert second.returncode == 1
    process = cluster.servers[1].process
    assert process is not None
    assert f"process {process.pid} uses this data directory" in output.decode()
    assert cluster.wait_ready() in cluster.servers


def test_a_copy_of_the_directory_refuses_to_run_once_the_original_has_started_again(
    cluster: Cluster, sessions: Sessions
) -> None:
    """The copy would vote with the original's identity and have forgotten its votes and entries."""
    number = _follower(cluster)
    server = cluster.servers[number]
    copy = cluster.directory / "copy"
    cluster.kill(number)
    shutil.copytree(server.data, copy)
    for _ in range(2):
        # Each start is a boot of its own, registered in the log.
        cluster.start(number)
        cluster.wait_ready()
        cluster.kill(number)
    client = sessions.open(only=next(n for n in cluster.servers if n != number))
    client.create("/while-away", b"")
    impostor = cluster.run_beside(number, data=copy)
    output, _ = impostor.communicate(timeout=DEADLINE_S)
    assert impostor.returncode == 1, output.decode()
    assert "another process has registered boot" in output.decode()
    cluster.start(number)
    cluster.wait_ready()
    cluster.wait_equal_digests()


def test_a_directory_of_another_server_is_refused(cluster: Cluster) -> None:
    cluster.kill(1)
    impostor = cluster.run_beside(2, data=cluster.servers[1].data, elsewhere=True)
    output, _ = impostor.communicate(timeout=OPERATION_S)
    assert impostor.returncode == 1
    assert "this is the data directory of server 1, not of server 2" in output.decode()
