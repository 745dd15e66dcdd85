"""Results: how parts become one, what marks a test as failed, and files that a broken-off run leaves whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from zraft_bench.load.histogram import Histogram
from zraft_bench.load.workload import Operation, Workload
from zraft_bench.records import RecordError, from_plain, to_plain
from zraft_bench.result_files import ResultFile, load_run, new_run
from zraft_bench.results import ElectionTrial, Part, Run, Skew, TestResult, combine, failed, nothing
from zraft_core.errors import ConfigError


def part(
    count: int = 100, *, began: float = 10.0, ended: float = 12.0, workers: int = 4, **more: Any
) -> Part:
    latencies = Histogram()
    latencies.add([0.001] * count)
    return Part(
        workers=workers,
        connections=1,
        acknowledged=count,
        began_s=began,
        ended_s=ended,
        latencies=latencies,
        **more,
    )


def combined(*machines: list[Part], workload: Workload | None = None, **more: Any) -> TestResult:
    return combine(
        number=1, target="zraft", servers=3, workload=workload or Workload(), machines=machines, **more
    )


def test_the_rate_is_what_was_acknowledged_from_first_request_to_last_answer() -> None:
    result = combined([part(100, began=10.0, ended=12.0), part(300, began=10.5, ended=14.0)])
    assert result.elapsed_s == 4.0
    assert result.per_second == 100.0
    assert result.seconds_per_entry == 0.01
    assert result.write_kb_per_s == 10.0
    assert result.ok
    assert result.latency is not None
    assert result.latency.count == 400


def test_clocks_of_different_machines_are_not_compared() -> None:
    """Flaw 24: the second machine's clock is hours ahead; only the measured spread of the beginnings counts."""
    skew = Skew(spread_ms=500.0, uncertainty_ms=1.0)
    result = combined([part(100, began=10.0, ended=12.0)], [part(100, began=9000.0, ended=9001.5)], skew=skew)
    assert result.elapsed_s == 2.5
    assert result.skew == skew


def test_how_workers_share_is_stated() -> None:
    result = combined([part(), part()], [part(), part()], workload=Workload(entries=10, workers=8))
    assert result.sharing.text() == (
        "16 workers, 6 of them without an entry to ask for in 4 processes on 2 machines, over 4 connections "
        "(4.0 workers each)"
    )


def test_one_failed_request_marks_the_test_and_keeps_its_figures() -> None:
    result = combined([part(99, failed=1, failures={"CONNECTION_LOSS": 1}), part(100)])
    assert not result.ok
    assert result.reason == "1 of 200 requests failed, most often: CONNECTION_LOSS"
    assert result.per_second > 0


def test_a_test_without_an_acknowledgement_and_one_that_was_cut_have_failed() -> None:
    assert combined([part(0)]).reason == "nothing was acknowledged"
    assert "7 requests were not even sent" in combined([part(1, not_asked=7)]).reason
    assert failed(combined([part(0)]), "later").reason == "nothing was acknowledged; later"


def test_a_busy_load_generator_is_noted() -> None:
    assert "the load generator limits this figure" in combined([part(cpu_s=1.9)]).notes[0]
    assert combined([part(cpu_s=0.5)]).notes == ()


def test_an_open_loop_that_was_not_kept_up_is_noted() -> None:
    result = combined([part(100)], workload=Workload(rate=1000.0))
    assert result.notes == ("asked for 1,000/s, 50/s were reached: beyond saturation",)


def test_cpu_is_counted_per_acknowledged_request() -> None:
    result = combined([part(100, cpu_s=0.01)], servers_cpu_s=0.02)
    assert result.generator_us == pytest.approx(100)
    assert result.servers_us == pytest.approx(200)
    assert combined([part(100)]).servers_us is None


def a_run() -> Run:
    one = combined([part(failures={"x": 1}, failed=1)], skew=Skew(spread_ms=1.0, uncertainty_ms=2.0))
    two = nothing(number=2, target="zookeeper", servers=3, workload=Workload(rate=5.0), reason="no cluster")
    return evolve(
        new_run("local", title="a test", settings={"set": "raft.heartbeat_ticks=40"}),
        tests=(evolve(one, comment="noise from a backup"), two),
        trials=(ElectionTrial(number=1, killed=2, stood_ms=300.0, led_ms=320.0),),
        notes=("pysyncobj is left out",),
    )


def test_a_results_file_says_what_the_run_was(tmp_path: Path) -> None:
    file = ResultFile(tmp_path / "new", a_run())
    file.save(file.run)
    loaded = load_run(file.path)
    assert loaded.tests[0].histogram.counts == file.run.tests[0].histogram.counts
    assert to_plain(loaded) == to_plain(file.run)
    assert loaded.tests[0].comment == "noise from a backup"
    assert loaded.tests[1].state == "failed"
    assert loaded.tests[1].workload.rate == 5.0
    assert loaded.tests[0].workload.operation is Operation.WRITE
    assert file.path.name.startswith("result_20")


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    file = ResultFile(tmp_path, a_run())
    file.save(evolve(a_run(), tests=()))
    before = file.path.stat().st_ino
    file.save(a_run())
    assert file.path.stat().st_ino != before
    assert [path.name for path in tmp_path.iterdir()] == [file.path.name]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "no JSON"),
        ("[]", "expected a results file of format 1, found format None"),
        ('{"format": 99}', "found format 99"),
        ('{"format": 1}', "missing"),
        ('{"format": 1, "kind": 3}', "kind: found int, expected str"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_run(path)


def test_records_of_a_newer_release_are_read_and_wrong_ones_refused() -> None:
    plain = to_plain(a_run())
    plain["something new"] = 1
    plain["tests"][0]["something new"] = [1]
    assert to_plain(from_plain(Run, json.loads(json.dumps(plain)))) == to_plain(from_plain(Run, plain))
    plain["tests"][0]["workload"]["workers"] = 0
    with pytest.raises(RecordError, match=r"Run\.tests\[0\]\.workload: 'workers' must be >= 1"):
        from_plain(Run, plain)
    with pytest.raises(RecordError, match=r"found 'erase', expected one of write, read, mixed"):
        from_plain(Workload, {"operation": "erase"})
    with pytest.raises(RecordError, match=r"Workload.entries: found bool, expected int"):
        from_plain(Workload, {"entries": True})
