"""Faults of topics and their partitions, caused on real servers, raise the alerts that are for them; see test_alerts.py."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.processes.cluster import wait_until
from tests.processes.conftest import StartCluster
from tests.processes.prometheus import Prometheus, ScrapedCluster, command, erring, scraped, watch
from tests.processes.topics import Producers, created, groups_of, leader_of
from tests.topic_chaos.oracles import Place

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(300)]

NOT_YET: Final = 3
"""Exit code of a command that gave up waiting for what it began."""
PATIENT_S: Final = 150


def wait_alert(prometheus: Prometheus, alert: str, why: str) -> None:
    """Until it fires, at whichever server."""
    wait_until(lambda: alert in dict(prometheus.firing()), f"{why} to raise {alert}", PATIENT_S)


def living_and_dead(cluster: ScrapedCluster, topic: str, partitions: int) -> tuple[list[Place], list[Place]]:
    """Partitions with a leader, and those without, after servers 1 and 2 of five were killed."""
    groups = groups_of(asyncio.run(created(cluster, {topic: partitions})))
    for number in (1, 2):
        cluster.kill(number)
    wait_until(cluster.leader, "a leader")

    def split() -> tuple[list[Place], list[Place]]:
        led = {place: asyncio.run(leader_of(cluster, group)) for place, group in groups.items()}
        return [place for place in led if led[place]], [place for place in led if not led[place]]

    wait_until(
        lambda: len(split()[0]) >= partitions // 2, "partitions with two living replicas to have leaders"
    )
    return split()


def test_partitions_without_a_quorum_raise_an_alert_while_the_cluster_has_one(
    start_cluster: StartCluster,
) -> None:
    """Who does not serve shows no numbers of partitions: with the cluster's quorum lost, ZraftNoLeader is the alert."""
    cluster = scraped(start_cluster, servers=5)
    with watch(cluster) as prometheus:
        command(cluster, "topic", "create", "orders", "--partitions", "20")
        prometheus.wait_calm()
        for number in (1, 2):
            cluster.kill(number)
        wait_alert(
            prometheus, "ZraftGroupsLeaderless", "partitions with two of three replicas on killed servers"
        )


def test_a_message_that_a_partition_without_a_quorum_holds_up_and_its_deletion_raise_alerts(
    start_cluster: StartCluster,
) -> None:
    """Nothing else is sent: the partition that waits for the other one is quiet meanwhile."""
    cluster = scraped(start_cluster, servers=5)
    living, dead = living_and_dead(cluster, "orders", 20)
    with watch(cluster) as prometheus, Producers(cluster, cluster.directory) as producers:
        producers.start("waits", [living[0], dead[0]], seed=1, count=8)
        wait_alert(prometheus, "ZraftMessagesPending", "a message that waits for a minute")
        command(cluster, "topic", "delete", "orders")
        wait_alert(
            prometheus, "ZraftPartitionsStuck", "a deletion that waits for a partition without a quorum"
        )


def test_deliveries_that_contradict_the_log_raise_an_alert(start_cluster: StartCluster) -> None:
    cluster = erring(start_cluster)
    asyncio.run(created(cluster, {"orders": 1}))
    cluster.err(2)
    with Producers(cluster, cluster.directory) as producers:
        producers.start("some", [("orders", 0)], seed=1, count=200).wait()
    wait_until(lambda: cluster.erred(2), "server 2 to deliver something else")
    cluster.kill(2)
    cluster.start(2)
    with watch(cluster) as prometheus:
        prometheus.wait_firing(("ZraftPartitionsBroken", 2))


def test_partitions_for_which_there_is_no_room_raise_an_alert_until_there_is(
    start_cluster: StartCluster,
) -> None:
    cluster = scraped(start_cluster)
    with watch(cluster) as prometheus:
        prometheus.wait_calm()
        command(cluster, "settings", "set", "topics_groups_max", "3")
        command(cluster, "topic", "create", "orders", "--partitions", "6", code=NOT_YET)
        prometheus.wait_firing(("ZraftPartitionsMissing", ""))
        command(cluster, "settings", "set", "topics_groups_max", "100")
        prometheus.wait_calm()
