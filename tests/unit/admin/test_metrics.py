"""Prometheus samples: what a scraper reads back from the exposition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.admin.values import OF_TOPICS, STATUS
from tests.unit.wire.reports import FOLLOWER
from zraft.admin.commands import COMMAND_NAMES
from zraft.admin.exposed import PREFIX, shown, text_of
from zraft.admin.metrics import OF_ZOOKEEPER, OURS, StatusCollector, families
from zraft.admin.partition_metrics import PARTITIONS
from zraft.server.operators.status import Status
from zraft_core.wire.framing import FOUR_LETTER_WORDS

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def exposition(status: Status) -> str:
    collector = StatusCollector()
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    collector.current = status
    return generate_latest(registry).decode()


def scraped(status: Status) -> Samples:
    return samples(exposition(status))


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_names_of_zookeepers_dashboards_are_there() -> None:
    found = scraped(STATUS)
    expected = {
        "znode_count": 5,
        "watch_count": 6,
        "ephemerals_count": 7,
        "num_alive_connections": 2,
        "approximate_data_size": 44,
        "avg_latency": 0.1235,
        "outstanding_requests": 4,
        "open_file_descriptor_count": 63,
        "synced_followers": 1,
        "quorum_size": 3,
        "election_time_count": 1,
        "fsynctime_count": 6,
        "fsynctime_sum": 500,
    }
    assert {name: found[name, ()] for name in expected} == expected
    assert found["fsynctime", (("quantile", "0.99"),)] <= 250


def test_raft_is_told_with_its_role_and_the_lag_of_each_follower() -> None:
    found = scraped(STATUS)
    roles = {labels[0][1]: v for (name, labels), v in found.items() if name == PREFIX + "raft_role"}
    assert roles == {"follower": 0, "pre-candidate": 0, "candidate": 0, "leader": 1}
    assert found[PREFIX + "raft_commit_index", ()] == 118
    lag = PREFIX + "raft_follower_lag_entries"
    assert (found[lag, (("server", "2"),)], found[lag, (("server", "3"),)]) == (2, 100)
    assert (lag, (("server", "1"),)) not in found
    assert found[PREFIX + "raft_follower_replicating", (("server", "3"),)] == 0


def test_a_silent_member_and_the_end_of_the_certificate_are_told_in_seconds() -> None:
    found = scraped(STATUS)
    silent = PREFIX + "raft_follower_silent_seconds"
    assert (found[silent, (("server", "2"),)], found[silent, (("server", "3"),)]) == (0.03, 61)
    assert found[PREFIX + "tls_certificate_not_after_seconds", ()] == 1_800_000_000
    without = scraped(evolve(STATUS, certificate_ends_s=None))
    assert (PREFIX + "tls_certificate_not_after_seconds", ()) not in without


def test_each_partition_is_told_with_its_replicas_as_the_leader_sees_them() -> None:
    found = samples(text_of(PARTITIONS, OF_TOPICS, openmetrics=False))

    def of(name: str, partition: str, *server: str) -> float | None:
        labels = {"topic": "orders", "partition": partition} | dict(zip(("server",), server, strict=False))
        return found.get((f"{PREFIX}partition_{name}", tuple(sorted(labels.items()))))

    assert (of("messages_total", "0"), of("records_total", "0"), of("bytes_total", "0")) == (7, 40, 2_000)
    assert (of("first_offset", "0"), of("end_offset", "0"), of("stored_bytes", "0")) == (10, 50, 4_096)
    assert (of("oldest_age_seconds", "0"), of("oldest_age_seconds", "1")) == (61.5, None)
    assert (of("leader_id", "0"), of("leader_id", "1")) == (1, 0)
    assert (of("replica_lag_entries", "0", "2"), of("replica_lag_entries", "0", "3")) == (0, 12)
    assert (of("replica_in_sync", "0", "2"), of("replica_in_sync", "0", "3")) == (1, 0)
    assert of("replica_in_sync", "1", "2") is None


def test_consumers_have_a_lag_and_what_has_no_series_is_counted() -> None:
    found = samples(text_of(PARTITIONS, OF_TOPICS, openmetrics=False))
    assert found[PREFIX + "consumer_lag_records", (("consumer", 'bill"ing\\xff'), ("topic", "orders"))] == 33
    assert found[PREFIX + "partition_series_left_out", ()] == 5
    assert found[PREFIX + "consumer_series_left_out", ()] == 2


class Partitions:
    """What prometheus-client collects of them."""

    def collect(self) -> Iterator[Metric]:
        return shown(PARTITIONS, OF_TOPICS)


@pytest.mark.parametrize(
    ("openmetrics", "encode", "parse"),
    [
        (False, generate_latest, text_string_to_metric_families),
        (True, openmetrics_exposition.generate_latest, openmetrics_parser.text_string_to_metric_families),
    ],
)
def test_the_text_of_many_samples_says_what_prometheus_client_would_say(
    openmetrics: bool, encode: Callable[[Any], bytes], parse: Callable[[str], Iterator[Metric]]
) -> None:
    text = text_of(PARTITIONS, OF_TOPICS, openmetrics=openmetrics)
    theirs = list(parse(encode(Partitions()).decode()))
    ours = list(parse(text + ("# EOF\n" if openmetrics else "")))
    assert [(one.name, one.type, one.documentation) for one in ours] == [
        (one.name, one.type, one.documentation) for one in theirs
    ]
    assert [one.samples for one in ours] == [one.samples for one in theirs]


def test_datagrams_refused_are_told_by_reason() -> None:
    found = scraped(STATUS)
    assert found[PREFIX + "peer_datagrams_refused_total", (("reason", "unauthentic"),)] == 3
    labels = (("direction", "send"), ("error", "ENOBUFS"))
    assert found[PREFIX + "peer_socket_errors_total", labels] == 4


def test_histograms_are_cumulative_and_in_seconds() -> None:
    found = scraped(STATUS)
    name = PREFIX + "fsync_duration_seconds"
    buckets = [(labels[0][1], v) for (n, labels), v in found.items() if n == name + "_bucket"]
    assert buckets == [("0.001", 3), ("0.01", 5), ("+Inf", 6)]
    assert (found[name + "_count", ()], found[name + "_sum", ()]) == (6, 0.5)


def test_total_stands_on_counters_and_on_nothing_else() -> None:
    for family in text_string_to_metric_families(exposition(STATUS)):
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


def test_our_own_metrics_are_in_base_units_and_no_name_is_used_twice() -> None:
    names = [metric.name for metric in families(STATUS)]
    assert len(names) == len(set(names))
    ours = [name for name in names if name.startswith(PREFIX)]
    assert len(ours) > 40
    assert not [name for name in ours if re.search(r"_(ms|millis|kb|mb)(_|$)", name)]
    assert all(metric.documentation.endswith(".") for metric in families(STATUS))


def test_a_server_that_does_not_serve_has_raft_but_no_numbers_of_the_tree() -> None:
    found = scraped(evolve(STATUS, statistics=None, ready=False, reasons=("no leader is known",)))
    assert found[PREFIX + "ready", ()] == 0
    assert (PREFIX + "raft_term", ()) in found
    assert ("znode_count", ()) not in found


def test_a_server_outside_of_every_cluster_is_scraped_too() -> None:
    found = scraped(evolve(STATUS, statistics=None, raft=None, peers=None, members=()))
    assert (PREFIX + "raft_term", ()) not in found
    assert found[PREFIX + "client_connections", ()] == 2


def test_a_follower_shows_nothing_that_only_leaders_know() -> None:
    found = scraped(evolve(STATUS, statistics=FOLLOWER))
    assert ("synced_followers", ()) not in found
    assert ("znode_count", ()) in found


def test_every_metric_of_a_scrape_is_one_that_is_declared_and_has_its_kind() -> None:
    """Documents and alert rules are compared with what is declared."""
    found = {family.name: family for family in families(STATUS)}
    declared = {metric.name: metric for metric in (*OF_ZOOKEEPER, *OURS)}
    assert len(declared) == len(OF_ZOOKEEPER) + len(OURS), "no name is used twice"
    for family in found.values():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        metric = declared[family.name + suffix]
        assert metric.kind == family.type
        assert metric.text == family.documentation
        for sample in family.samples:
            ours = sample.labels.keys() - {"le", "quantile"}
            assert ours == set(metric.labels), metric.name


def test_the_text_of_every_metric_is_a_sentence() -> None:
    for metric in (*OF_ZOOKEEPER, *OURS):
        assert metric.text.endswith("."), metric.name
        assert not metric.note or metric.note.endswith("."), metric.name


def test_every_metric_command_and_word_is_documented() -> None:
    folder = Path(__file__).parents[3] / "docs"
    document = (folder / "how-to" / "operations.md").read_text(encoding="utf-8")
    listed = (folder / "reference" / "metrics.md").read_text(encoding="utf-8")
    names = [metric.name for metric in (*OF_ZOOKEEPER, *OURS)]
    assert [name for name in names if not re.search(rf"^\| `{name}[`{{]", listed, re.MULTILINE)] == []
    assert [name for name in COMMAND_NAMES if name not in document] == []
    assert [word for word in FOUR_LETTER_WORDS if word not in document] == []
