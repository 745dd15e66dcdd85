"""Members that come, go and are replaced while clients write (D-1, D-18).

The fast ones; replacing all servers under load and bad networks: `test_membership_long.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.members import GrowingCluster, Load

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

StartCluster = Callable[..., GrowingCluster]
OpenSessions = Callable[[Cluster], Sessions]

SMALL_SNAPSHOTS = {
    "ZRAFT_SNAPSHOT__COMMANDS_MIN": "1000",
    "ZRAFT_SNAPSHOT__LOG_BYTES_MIN": "65536",
    "ZRAFT_SNAPSHOT__LOG_RATIO_PERCENT": "0",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES": "0",
    "ZRAFT_SNAPSHOT__RETAIN_BYTES_MAX": "0",
}


@pytest.fixture
def growing(start_cluster: StartCluster) -> GrowingCluster:
    """Three servers with default settings that have written down who belongs to them."""
    cluster = start_cluster(kind=GrowingCluster)
    wait_members_known(cluster)
    return cluster


def wait_members_known(cluster: GrowingCluster) -> None:
    """All servers said what they can do, and the leader wrote the members into the state."""
    cluster.wait_roles(voters=sorted(cluster.servers))
    leader = wait_until(cluster.leader, "a leader")

    wait_until(
        lambda: "server.1=" in (cluster.ask(leader, "conf") or ""),
        "the configuration to name the members",
    )


def follower_of(cluster: GrowingCluster) -> int:
    leader = wait_until(cluster.leader, "a leader")
    return next(number for number in cluster.servers if number != leader)


def test_a_server_whose_directory_was_deleted_is_let_in_again_and_votes(
    growing: GrowingCluster, open_sessions: OpenSessions
) -> None:
    """The same command as before, on an empty directory; its vote is proved by a majority that needs it (D-1)."""
    sessions = open_sessions(growing)
    load = Load(growing, sessions)
    lost = follower_of(growing)
    before = growing.listing()[lost].instance
    growing.kill(lost)
    growing.wipe(lost)
    load.wait_progress()
    growing.start(lost)
    growing.wait_roles(voters=sorted(growing.servers))
    assert growing.listing()[lost].instance != before
    load.wait_progress()
    other = next(n for n in growing.servers if n not in (lost, growing.leader()))
    growing.kill(other)
    load.wait_progress()  # needs the vote of the server that was lost
    growing.start(other)
    growing.wait_ready()
    load.stop_and_check()
