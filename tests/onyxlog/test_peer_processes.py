"""`onyxlog peer` as processes on real servers: joins, deaths, pauses across garbage collections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from onyxlog.replica.replica import JoinMode
from tests.onyxlog.churn import Outcome, Size, churn
from tests.processes.conftest import StartCluster, start_cluster

__all__ = ["start_cluster"]  # a fixture

pytestmark = pytest.mark.processes


def run(start: StartCluster, directory: Path, size: Size, servers: int) -> Outcome:
    cluster = start(servers=servers)
    outcome = asyncio.run(churn(size, directory, cluster.hosts()))
    assert len(outcome.steps) == 7
    assert outcome.checked > size.peers
    return outcome


@pytest.mark.timeout(300)
@pytest.mark.parametrize("join", list(JoinMode))
def test_peers_join_die_and_are_overtaken_by_gc_and_agree(
    start_cluster: StartCluster, tmp_path: Path, join: JoinMode
) -> None:
    run(start_cluster, tmp_path, Size(peers=4, killed=1, more=1, join=join, session_timeout_s=4), 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gossip", ["pool", "plumtree"])
def test_gossiping_peers_join_die_are_paused_and_are_overtaken_by_gc_and_agree(
    start_cluster: StartCluster, tmp_path: Path, gossip: str
) -> None:
    """Datagrams come to who is stopped and are lost, entries are too large for any, and the log is truncated meanwhile."""
    size = Size(peers=4, killed=1, more=1, join=JoinMode.DIRECT, session_timeout_s=4, gossip=gossip)
    run(start_cluster, tmp_path, size, 1)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("join", list(JoinMode))
def test_fifty_peers_ten_killed_at_once_ten_more_agree(
    start_cluster: StartCluster, tmp_path: Path, join: JoinMode
) -> None:
    outcome = run(start_cluster, tmp_path, Size(join=join, session_timeout_s=20, fork=True), 3)
    assert outcome.steps[-1].groups == 50
