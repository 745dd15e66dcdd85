"""The partitions of a server as commands and metrics see them, up to the bounds that its configuration sets."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.simulation.partitions.process import WALL_MS
from tests.unit.groups.hosts import S1
from tests.unit.profiled import profiled
from tests.unit.server.partitions.cluster import Cluster
from tests.unit.server.partitions.programs import Client, Producing
from zraft.admin.exposed import text_of
from zraft.admin.partition_metrics import PARTITIONS
from zraft.config.server import ServerConfig
from zraft.server.operators.partitions import PartitionsReport
from zraft_core.address import Address
from zraft_core.ids import GroupId

CALLS_PER_PARTITION_MAX = 100
"""Of functions, in Python and in C, for all series of an idle partition in one scrape: some 30 microseconds."""


def report_of(cluster: Cluster, **knobs: Any) -> PartitionsReport:
    """What server 1 reports."""
    here = Address("127.0.0.1", 2181)
    config = ServerConfig(id=S1, data=Path("/data"), address=here, cluster={S1: here}, **knobs)
    driver: Any = SimpleNamespace(machine=SimpleNamespace(registry=cluster.coordinator.registry))
    return PartitionsReport(
        driver, cluster.servers[S1].partitions, config, lambda: WALL_MS + cluster.now_ms + 5_000
    )


def resting(*partitions: int) -> Cluster:
    cluster = Cluster(*partitions)
    cluster.rest()
    cluster.run(100)
    return cluster


def store(cluster: Cluster, group: GroupId, *consumers: bytes) -> None:
    for id, consumer in enumerate(consumers):
        cluster.leading(group).topics.seek(Client(), id, group, consumer, 0)
    cluster.run(50)


def test_partitions_beyond_the_bound_have_no_series_and_are_counted() -> None:
    cluster = resting(3, 2)
    places = [(one.topic, one.number) for one in report_of(cluster).status().partitions]
    assert places == [("topic0", 0), ("topic0", 1), ("topic0", 2), ("topic1", 0), ("topic1", 1)]
    few = report_of(cluster, admin_partitions_max=4).status()
    assert [(one.topic, one.number) for one in few.partitions] == places[:4]
    assert few.partitions_left_out == 1
    none = report_of(cluster, admin_partitions_max=0).status()
    assert (none.partitions, none.partitions_left_out) == ((), 5)


def test_the_lag_of_a_consumer_is_the_sum_over_the_partitions_that_are_led_here() -> None:
    cluster = resting(6)
    producing = Producing(cluster)
    for group in cluster.groups:
        producing.say(group)
        producing.say(group)
        store(cluster, group, b"billing", b"audit")
    cluster.run_until(lambda: not producing.producer.undecided())
    led = sum(cluster.leader(group) == S1 for group in cluster.groups)
    assert led == 2
    found = report_of(cluster).status()
    assert {(one.topic, one.name, one.lag) for one in found.consumers} == {
        ("topic0", b"billing", 2 * led),
        ("topic0", b"audit", 2 * led),
    }
    few = report_of(cluster, admin_consumers_max=1).status()
    assert ([one.name for one in few.consumers], few.consumers_left_out) == ([b"audit"], 1)
    none = report_of(cluster, admin_consumers_max=0).status()
    assert (none.consumers, none.consumers_left_out) == ((), 2)


def test_a_server_lists_its_replicas_of_the_groups_that_are_asked_for() -> None:
    cluster = resting(2)
    producing = Producing(cluster)
    for group in cluster.groups:
        producing.say(group)
    cluster.run_until(lambda: not producing.producer.undecided())
    cluster.run(50)
    first, second = cluster.groups
    listing = report_of(cluster).replicas([second, GroupId(99_999), first])
    assert (listing.server, [one.group for one in listing.replicas]) == (S1, [second, first])
    for one in listing.replicas:
        assert one.leader == cluster.leader(GroupId(one.group))
        assert one.leads == (one.leader == S1)
        assert (one.first, one.end, one.problem) == (0, 1, "")
        assert one.oldest_age_ms is not None
        assert 5_000 <= one.oldest_age_ms < 6_000
        assert {follower.server for follower in one.followers} == ({2, 3} if one.leads else set())


def test_a_scrape_costs_little_per_idle_partition() -> None:
    """500 of them take some milliseconds, and nothing between two scrapes."""

    def cost(partitions: int) -> int:
        report = report_of(resting(partitions))
        calls = 0

        def count(frame: object, event: str, argument: object) -> None:
            nonlocal calls
            calls += event in ("call", "c_call")

        with profiled(count):
            text = text_of(PARTITIONS, report.status(), openmetrics=False)
        assert text.count("zraft_partition_end_offset{") == partitions
        return calls

    per_partition = (cost(60) - cost(30)) / 30
    assert per_partition <= CALLS_PER_PARTITION_MAX, per_partition
