"""Results files as rows, by a reader that shares nothing with the program that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from onyxlog.audits.errors import AuditError
from onyxlog.audits.measurements import read_measurements
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.published_figures import longest_us
from zraft_bench.histogram import highest_of
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.results import ElectionTrial, Part, combine
from zraft_bench.workload import Workload


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
    from attrs import evolve

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
