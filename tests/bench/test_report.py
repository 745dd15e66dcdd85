"""The report: every test is in it, failed ones marked; the published figures beside ours; nothing unescaped."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner
from rich.console import Console

from tests.bench.test_results import a_run, combined, part
from zraft_bench import drawing
from zraft_bench.compare.table import comparison_table, medians
from zraft_bench.load.workload import Workload
from zraft_bench.main import main
from zraft_bench.report import html as html_report
from zraft_bench.report import plots
from zraft_bench.result_files import ResultFile
from zraft_bench.results import ElectionTrial, Run, TestResult, failed


def page_of(run: Run) -> str:
    return html_report.page([(run, {})])


def test_failed_tests_are_in_the_table_and_marked() -> None:
    page = page_of(a_run())
    assert page.count("<tr class=failed>") == 2
    assert "failed: no cluster" in page
    assert "noise from a backup" in page
    assert "pysyncobj is left out" in page
    assert "4 workers in 1 processes on 1 machines" in page


def test_a_repeated_test_is_struck_out_and_kept() -> None:
    run = a_run()
    run = evolve(run, tests=(evolve(run.tests[0], superseded=True), evolve(run.tests[0], attempt=2)))
    page = page_of(run)
    assert "<tr class=superseded>" in page
    assert ">1.2<" in page


def test_the_published_figures_stand_beside_the_same_cells() -> None:
    """Z-32: 100 workers, 5,000 entries, 100 B: 1,466 on the laptop, 1,200 and 1,597 on AWS."""
    cell = Workload(entries=5000, workers=100)
    run = evolve(a_run(), tests=(combined([part(63_880, ended=12.0)], workload=cell),))
    page = page_of(run)
    assert "<td>31,940</td><td>1,466</td><td>1,200</td><td>1,597</td><td>20.0x</td><td>64.1x</td>" in page
    unstable = evolve(a_run(), tests=(combined([part()], workload=Workload(entries=10_000, workers=100)),))
    assert "<td>1,442</td><td>no result (unstable)</td><td>no result (unstable)</td>" in page_of(unstable)


def test_other_workloads_are_not_compared_with_the_thesis() -> None:
    for changed in (Workload(entries=5000, workers=99), Workload(entries=5000, workers=100, rate=10.0)):
        run = evolve(a_run(), tests=(combined([part()], workload=changed),))
        assert "Beside the published" not in page_of(run)


def test_what_comes_from_a_file_is_escaped() -> None:
    nasty = "<script>alert(1)</script>"
    run = a_run()
    run = evolve(
        run,
        title=nasty,
        comment=nasty,
        notes=(nasty,),
        settings={nasty: nasty},
        tests=(evolve(run.tests[0], comment=nasty, reason=nasty, target=nasty, notes=(nasty,)),),
        trials=(ElectionTrial(number=1, killed=1, state="failed", reason=nasty),),
    )
    page = html_report.page([(run, {"x": (nasty, b"png")})], nasty)
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 6


def test_elections_show_both_definitions_and_the_claim() -> None:
    run = evolve(
        a_run(),
        kind="election",
        trials=tuple(
            ElectionTrial(
                number=n, killed=1, stood_ms=300.0, candidate_ms=305.0, led_ms=300.0 + n, campaigns=1
            )
            for n in range(6, 106)
        ),
    )
    page = page_of(run)
    assert "from the loss of the leader, the time to notice it included" in page
    assert "<td>74.0%</td><td>94.0%</td>" in page
    assert "87% below 80 ms, 98% below 100 ms in 1000 elections of 5 servers" in page


def test_plots_are_png_and_every_kind_of_run_has_its_own() -> None:
    cells = tuple(
        combined([part(100)], workload=Workload(entries=entries, workers=100)) for entries in (1000, 5000)
    )
    tests = plots.plots_of(evolve(a_run(), tests=cells, trials=()))
    assert [plot.name for plot in tests] == ["throughput", "latency"]
    trials = tuple(
        ElectionTrial(number=n, killed=1, stood_ms=300.0, led_ms=310.0 + n, served_ms=400.0, gap_ms=390.0)
        for n in range(5)
    )
    elections = plots.plots_of(evolve(a_run(), tests=(), trials=trials))
    assert [plot.name for plot in elections] == ["elections", "elections-histogram", "failover"]
    assert {plot.png[:8] for plot in (*tests, *elections)} == {b"\x89PNG\r\n\x1a\n"}


@pytest.mark.parametrize("has_plots", [True, False])
def test_the_command_writes_a_page_and_a_file_per_plot(
    has_plots: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib a page with tables, which says so."""
    monkeypatch.setattr(drawing, "available", lambda: has_plots)
    file = ResultFile(tmp_path, a_run(), "one.json")
    file.save(file.run)
    answer = CliRunner().invoke(main, ["report", str(file.path), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 0, answer.output
    page = (tmp_path / "out" / "report.html").read_text()
    pictures = sorted(path.name for path in (tmp_path / "out").glob("*.png"))
    if has_plots:
        assert "one-throughput.png" in pictures
        assert "data:image/png;base64," in page
    else:
        assert pictures == []
        assert "matplotlib is not installed" in page


def test_the_command_refuses_what_is_no_results_file(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "x.json"), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert "expected a results file of format 1" in answer.output


def test_a_comparison_has_medians_and_their_ratios_to_zookeeper() -> None:
    def tests(target: str, number: int, *counts: int) -> list[TestResult]:
        return [evolve(combined([part(count)]), target=target, number=number) for count in counts]

    lost = failed(combined([part(900)]), "one request failed")
    results = [*tests("zraft", 1, 100, 300, 500), *tests("zookeeper", 1, 100, 100), *tests("zraft", 2, 7)]
    console = Console(width=200, record=True, file=StringIO())
    console.print(comparison_table([*results, lost], "medians"))
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in console.export_text().splitlines()
        if line.startswith("│")
    ]
    assert [(row[0], row[1], row[2], row[3], row[4], row[-1]) for row in rows] == [
        ("write, 1,000 entries of 100 B, 16 workers", "zraft", "150", "50 - 250", "3.00", "1 of 4"),
        ("", "zookeeper", "50", "50 - 50", "", ""),
        ("write, 1,000 entries of 100 B, 16 workers", "zraft", "4", "4 - 4", "", ""),
    ]
    assert medians([lost]) is None
