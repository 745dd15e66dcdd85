"""A server whose state differs from the majority's puts it aside and joins again, without an operator (D-26)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes.clients import Sessions
from tests.processes.cluster import Cluster, wait_until
from tests.processes.erring import ErringCluster
from tests.processes.members import GrowingCluster
from zraft.operator.requests import MemberList, MemberListing
from zraft.tree.digest import DIGEST_EVERY

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]

StartCluster = Callable[..., Cluster]
OpenSessions = Callable[[Cluster], Sessions]


class ErringGrowingCluster(ErringCluster, GrowingCluster):
    """Servers that err when told to, and whose members are told from what an operator sees."""


def _asides(cluster: Cluster, number: int) -> list[Path]:
    return sorted(cluster.servers[number].data.glob("aside-*"))


def _write_until(cluster: Cluster, sessions: Sessions, survivor: int, done: Callable[[], bool]) -> None:
    """Write through `survivor`: states are compared at every 1,024th entry."""
    client = sessions.open(only=survivor)
    client.ensure_path("/load")
    for n in range(20 * DIGEST_EVERY):
        client.retry(client.set, "/load", b"%d" % n)
        if n % 100 == 0 and done():
            return
    raise AssertionError(f"{20 * DIGEST_EVERY} entries, and nothing was noticed")


@pytest.mark.parametrize("leads", [False, True], ids=["follower", "leader"])
def test_a_server_whose_state_differs_begins_anew_and_keeps_the_evidence(
    start_cluster: StartCluster, open_sessions: OpenSessions, leads: bool
) -> None:
    cluster = start_cluster(kind=ErringGrowingCluster)
    assert isinstance(cluster, ErringGrowingCluster)
    sessions = open_sessions(cluster)
    leader = wait_until(cluster.leader, "a leader")
    wrong = leader if leads else next(n for n in cluster.servers if n != leader)
    survivor = next(n for n in cluster.servers if n not in (wrong, leader))
    server = cluster.servers[wrong]
    process = server.process
    setter = sessions.open(only=survivor)
    setter.create("/wrong", b"")
    cluster.err(wrong)
    setter.set("/wrong", b"right")
    with sessions.reading(wrong) as reader:
        assert reader.get("/wrong")[0] == b"otherwise", "the planted error did not happen"
    _write_until(cluster, sessions, survivor, lambda: bool(_asides(cluster, wrong)))
    cluster.wait_ready()
    assert server.process is process
    assert server.running
    server.wait_says("state differs from the majority's")
    (aside,) = _asides(cluster, wrong)
    assert {"meta", "wal", "reason"} <= {one.name for one in aside.iterdir()}
    assert not (server.data / "condemned").exists()
    with sessions.reading(wrong) as reader:
        assert reader.get("/wrong")[0] == b"right"
    cluster.wait_equal_digests()
    # It counts again: with one of the others gone, the two of them are the majority.
    other = next(n for n in cluster.servers if n not in (wrong, survivor))
    wait_until(lambda: is_voter(cluster, wrong), "the new instance to be a voter")
    cluster.kill(other)
    setter.retry(setter.set, "/wrong", b"both")

    # The same once more within ten minutes: whatever it is, another new beginning does not help.
    cluster.start(other)
    cluster.wait_ready()
    cluster.err(wrong)
    setter.retry(setter.set, "/wrong", b"right again")
    wait_until(lambda: cluster.erred(wrong), "the planted error to happen again")
    _write_until(cluster, sessions, survivor, lambda: not server.running)
    assert cluster.wait_exit(wrong) == 1
    text = server.log_text()
    assert "the server stops" in text
    assert len(_asides(cluster, wrong)) == 1
    # And it stays so, until somebody has looked.
    cluster.start(wrong)
    assert cluster.wait_exit(wrong) == 1
    assert "the server stops" in server.log_text()
    setter.retry(setter.set, "/wrong", b"the others go on")


def is_voter(cluster: ErringGrowingCluster, number: int) -> bool:
    listing = cluster.operate(MemberList(), MemberListing)
    return not listing.changing and any(
        member.server == number and member.role == "voter" for member in listing.members
    )
