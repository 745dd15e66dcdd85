"""Java clients that follow the ensemble: ZooKeeper's and Curator's own classes read `/zookeeper/config`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processes.cluster import wait_until
from tests.processes.conftest import StartCluster
from tests.processes.java import curator_at
from tests.processes.members import GrowingCluster
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.tree.members import WantedMember, config_text
from zraft_core.ids import ServerId

pytestmark = pytest.mark.processes


def verifier(java: Any, text: str) -> Any:
    """What Curator makes of the configuration: ZooKeeper's `QuorumMaj`."""
    properties = java.java.util.Properties()
    properties.load(java.java.io.StringReader(text))
    return java.org.apache.zookeeper.server.quorum.flexible.QuorumMaj(properties)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("10.0.0.1:2181", "10.0.0.1:2181"),
        ("zk-1.example.org:65535", "zk-1.example.org:65535"),
        ("10.0.0.1:1", "10.0.0.1:1"),
        ("[fd00::1]:2181", "fd00:0:0:0:0:0:0:1:2181"),  # without brackets, which Java's clients take
    ],
)
def test_zookeepers_java_classes_read_who_votes_and_where_clients_connect(
    java: Any, address: str, shown: str
) -> None:
    """`ConfigUtils` is for `updateServerList` and zkCli's `config -c`; Curator's tracker uses the verifier."""
    members = {ServerId(1): WantedMember(True, address), ServerId(2): WantedMember(False, "10.0.0.2:2181")}
    text = config_text(members, 0x100000002, FEATURE_LEVEL_MAX).decode()

    version, _, servers = java.org.apache.zookeeper.server.util.ConfigUtils.getClientConfigStr(
        text
    ).partition(" ")
    assert version == "100000002"
    assert sorted(servers.split(",")) == sorted((shown, "10.0.0.2:2181"))

    read = verifier(java, text)
    assert read.getVersion() == 0x100000002
    assert list(read.getVotingMembers().keySet()) == [1]
    assert list(read.getObservingMembers().keySet()) == [2]
    tracker = java.org.apache.curator.framework.imps.EnsembleTracker
    assert sorted(tracker.configToConnectionString(read).split(",")) == sorted((shown, "10.0.0.2:2181"))


def test_curator_follows_servers_that_are_added_and_removed(java: Any, start_cluster: StartCluster) -> None:
    """It goes by who is to be a member, whether that server has caught up or not."""
    cluster = start_cluster(kind=GrowingCluster)
    assert isinstance(cluster, GrowingCluster)
    with curator_at(java, cluster.servers[1].address) as known:
        wait_until(lambda: known() == set(cluster.hosts().split(",")), "Curator to know all members")
        cluster.place(4)
        cluster.add(4)
        wait_until(lambda: known() == set(cluster.hosts().split(",")), "Curator to know of server 4")
        cluster.remove(4)
        cluster.retire(4)
        wait_until(
            lambda: known() == set(cluster.hosts().split(",")), "Curator to know that server 4 has gone"
        )
