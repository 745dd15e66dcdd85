"""Results files as rows, by a reader that shares nothing with the program that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve

from onyxlog.audits.errors import AuditError
from onyxlog.audits.measurements import read_measurements
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.published_figures import longest_us
from onyxlog.audits.thesis_gossip import copy_rows, expected_pools, pool_rows
from onyxlog.audits.thesis_multicast import mixes
from onyxlog.theses.atomic_kafka import SCENARIOS
from onyxlog.theses.gossip import GRAPHS
from tests.onyxlog.audits.sound import sound
from zraft_bench.gossip import tables as gossip_tables
from zraft_bench.load.histogram import highest_of
from zraft_bench.load.workload import Workload
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.results import ElectionTrial, Part, combine


def results(directory: Path) -> None:
    """A run as the benchmark writes it."""
    part = Part(workers=2, connections=1, acknowledged=4, began_s=1.0, ended_s=3.0)
    part.latencies.add([0.001, 0.002, 0.0005, 0.7])
    test = combine(
        number=1,
        target="zraft",
        servers=3,
        workload=Workload(entries=100, workers=10, value_bytes=1000),
        machines=[[part]],
    )
    run = new_run("local")
    trial = ElectionTrial(
        number=1, killed=1, winner=2, term=3, stood_ms=100.0, candidate_ms=101.0, led_ms=140.0
    )
    file = ResultFile(directory, run)
    file.save(evolve(run, tests=(test,), trials=(trial,)))


def test_what_the_benchmark_wrote_breaks_no_rule(tmp_path: Path) -> None:
    results(tmp_path)
    found = read_measurements([tmp_path])
    assert [(one.number, one.acknowledged, one.workers) for one in found.tests] == [(1, 4, 10)]
    assert [(one.winner, one.led_ms) for one in found.trials] == [(2, 140.0)]
    tables = {"measured_tests": found.tests, "measured_trials": found.trials}
    assert RULES["S22"].judged(tables) == []


def test_a_rate_that_was_changed_in_the_file_is_found(tmp_path: Path) -> None:
    results(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(path.read_text().replace('"per_second": 2.0', '"per_second": 3.0'))
    (found,) = RULES["S22"].judged({"measured_tests": read_measurements([path]).tests})
    assert found.subject.startswith("requests per second of test 1.1")
    assert (found.expected, found.found) == ("2, from 4 requests in 2 s", "3")
    assert found.file == path.name


def test_buckets_are_those_of_the_benchmark() -> None:
    assert all(longest_us(bucket) == highest_of(bucket) for bucket in range(2_000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ('{"format": 9}', "expected a results file of format 1, found format 9"),
        ('{"format": 1, "id": "x", "kind": "local", "tests": [{}]}', "a field is missing"),
    ],
)
def test_another_file_is_refused_with_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "result_x.json"
    path.write_text(text)
    with pytest.raises(AuditError, match=message):
        read_measurements([path])


def test_a_path_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="found none"):
        read_measurements([tmp_path])
    with pytest.raises(AuditError, match="no such file"):
        read_measurements([tmp_path / "there is none"])


def test_what_the_benchmark_of_gossip_wrote_breaks_no_rule_and_gives_its_tables(tmp_path: Path) -> None:
    """Tables 8.1 to 8.9: graphs by paths of streams, receptions counted again; nothing of the program that drew them."""
    extent = gossip_tables.Extent(sizes=(), iterations=5, spread_runs=5, growth_runs=1, events=1)
    tables = gossip_tables.compute(extent, lambda what: None)
    run = new_run("gossip")
    ResultFile(tmp_path, run).save(evolve(run, gossip=gossip_tables.results_of(tables)))
    found = read_measurements([tmp_path])
    assert RULES["S22"].judged(found.by_table()) == []
    rows = pool_rows(found.pools)
    assert [row.published.table for row in rows] == ["8.1", "8.2", "8.3", "8.4", "8.5", "8.6"]
    for row, graph in zip(rows, tables.graphs, strict=True):
        assert row.measured is not None
        assert row.measured.pools == 5
        assert row.measured.stream_path == pytest.approx(graph.stream_path)
    copies = copy_rows(found.copies)
    assert {(row.table, row.hops) for row in copies} == {
        (f"8.{n}", hops) for n in (7, 8, 9) for hops in (1, 2, 3, 4)
    }


def test_the_records_of_the_thesis_say_how_many_messages_went_to_all_topics() -> None:
    """A-18: 120,000 + 32 x; what its text calls 10 to 50 % were 11.0 to 50.9 %, and its baseline had 100,000 messages."""
    found = {mix.table: mix for mix in SCENARIOS}
    assert (found["5.1"].messages, found["5.1"].several) == (100_000, 0.0)
    shares = [round(100 * mix.implied_share, 1) for table, mix in found.items() if table != "5.1"]
    assert shares == [11.0, 18.9, 30.9, 41.0, 50.9]
    assert all(mix.records == 120_000 + 32 * mix.several for table, mix in found.items() if table != "5.1")
    # Neither its rates nor its headline follow from the same runs.
    assert [round(found[table].mean_delivered, 1) for table in ("5.1", "5.2", "5.6")] == [88.9, 9.4, 6.3]
    assert abs(found["5.1"].of_rates / found["5.1"].records - 1) > 0.2


def test_cells_of_multicast_are_recomputed_from_what_was_sent_and_read() -> None:
    tables = sound()
    (mix,) = mixes(tables["measured_cells"], tables["measured_sends"])
    assert (mix.table, mix.messages, mix.several, mix.deliveries) == ("5.2", 10, 1, 14)
    assert mix.records == mix.formula == 62
    assert mix.times == pytest.approx((14 / 2 / 5) / 9.4)


def test_the_thesis_published_ten_times_the_variance_that_its_draw_gives() -> None:
    by_table = {row.table: row for row in GRAPHS}
    assert by_table["8.4"].variance / expected_pools(by_table["8.4"]).variance == pytest.approx(9.3, abs=0.1)
    for table in ("8.1", "8.2", "8.3"):
        row = by_table[table]
        assert row.variance == pytest.approx(expected_pools(row).variance, rel=0.3)
        assert row.degree == pytest.approx(expected_pools(row).degree, rel=0.02)
