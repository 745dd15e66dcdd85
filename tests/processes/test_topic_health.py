"""Operators see the health of topics: a replica that is stopped is out of sync for commands, metrics and the page."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from tests.processes.cluster import wait_until
from tests.processes.members import GrowingCluster
from zraft.cli.main import main

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

PARTITIONS = 2
RECORDS = 50


def zraft(cluster: GrowingCluster, *words: str, key: bool = False) -> str:
    """Return what a command prints that asks the servers which run."""
    hosts = ",".join(str(server.address) for server in cluster.servers.values() if server.running)
    options = ["--connect", hosts, *(("--key", str(cluster.key)) if key else ())]
    result = CliRunner().invoke(main, [*words, *options])
    assert result.exit_code == 0, result.output
    return result.output


def described(cluster: GrowingCluster) -> dict[str, Any]:
    """Return what `zraft topic describe` tells scripts."""
    found: dict[str, Any] = json.loads(zraft(cluster, "topic", "describe", "orders", "--json", key=True))
    return found


def produce(cluster: GrowingCluster) -> None:
    """The same number of records to each partition."""
    lines = cluster.directory / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(RECORDS)))
    for number in range(PARTITIONS):
        zraft(cluster, "topic", "produce", "orders", str(lines), "--partition", str(number))


def scraped(cluster: GrowingCluster, number: int) -> dict[tuple[str, ...], float]:
    """The metrics of single partitions: (name, values of labels by the labels' names)."""
    with urllib.request.urlopen(f"http://{cluster._admin(number)}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith(("zraft_partition_", "zraft_partitions_", "zraft_consumer_"))
    }


def in_sync(found: dict[str, Any]) -> list[set[int]]:
    return [
        {one["server"] for one in partition["replicas"] if one["in_sync"]}
        for partition in found["partitions"]
    ]


def test_a_stopped_replica_is_out_of_sync_for_commands_metrics_and_the_page(
    start_cluster: Callable[..., GrowingCluster],
) -> None:
    cluster = start_cluster(kind=GrowingCluster)
    zraft(cluster, "topic", "create", "orders", "--partitions", str(PARTITIONS), key=True)
    produce(cluster)
    wait_until(lambda: in_sync(described(cluster)) == [{1, 2, 3}] * PARTITIONS, "all replicas in sync")
    before = described(cluster)
    assert [one["leader"] for one in before["partitions"]] == [
        one["preferred"] for one in before["partitions"]
    ]
    assert [one["end"] for one in before["partitions"]] == [RECORDS] * PARTITIONS
    assert all(one["stored_bytes"] > 0 and one["oldest_age_ms"] is not None for one in before["partitions"])
    totals = [cluster.status(number)["partitions"]["records_total"] for number in cluster.servers]
    assert sum(totals) == RECORDS * PARTITIONS, "the page counts each record once, at its leader"

    leaders = {one["leader"] for one in before["partitions"]}
    stopped = next(number for number in cluster.servers if number not in leaders)
    cluster.kill(stopped)
    running = set(cluster.servers) - {stopped}
    wait_until(lambda: in_sync(described(cluster)) == [running] * PARTITIONS, "one replica out of sync")
    produce(cluster)
    found = described(cluster)
    (unanswered,) = found["unanswered"]
    assert unanswered["server"] == stopped
    for partition in found["partitions"]:
        (away,) = [one for one in partition["replicas"] if one["server"] == stopped]
        assert (away["in_sync"], away["end"]) == (False, None)
        assert away["behind"] > 0
        assert away["silent_ms"] > 0
        name, place = "zraft_partition_replica", (str(partition["number"]), str(stopped), "orders")
        numbers = scraped(cluster, partition["leader"])
        assert numbers[f"{name}_in_sync", *place] == 0
        assert numbers[f"{name}_lag_entries", *place] >= away["behind"]
        assert numbers["zraft_partition_end_offset", str(partition["number"]), "orders"] == partition["end"]
        assert numbers["zraft_partitions_under_replicated",] >= 1
    status = zraft(cluster, "status")
    assert f"topics: 1, partitions: {PARTITIONS}, records/s: " in status
    assert f"with too few replicas in sync: {PARTITIONS}" in status

    cluster.start(stopped)
    wait_until(lambda: in_sync(described(cluster)) == [{1, 2, 3}] * PARTITIONS, "the replica to catch up")
    ends = [{one["end"] for one in partition["replicas"]} for partition in described(cluster)["partitions"]]
    assert all(len(one) == 1 for one in ends), "every server tells the same end"
