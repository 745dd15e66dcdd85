"""`zraft-bench gossip`: every table is there, with the thesis' figures and ours in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from onyxlog.gossip.measures import Scenario, measure
from onyxlog.gossip.spreading import Mode
from onyxlog.theses.gossip import GRAPHS, SPREADS
from zraft_bench.gossip import tables as gossip_tables
from zraft_bench.main import main
from zraft_bench.result_files import load_run


def small() -> gossip_tables.Tables:
    return gossip_tables.compute(
        gossip_tables.Extent(sizes=(8,), iterations=2, spread_runs=2, growth_runs=2, events=3),
        lambda what: None,
    )


def test_all_tables_are_computed_and_told_with_the_thesis_beside() -> None:
    tables = small()
    text = gossip_tables.markdown(tables)
    assert [one.row for one in tables.graphs] == list(GRAPHS)
    assert {one.row for one in tables.spreads} == set(SPREADS)
    assert {(one.scenario.mode, one.scenario.loss, one.scenario.churn) for one in tables.fleets} == {
        (mode, loss, churn)
        for mode in (Mode.POOL, Mode.PLUMTREE)
        for loss, churn in ((0.0, 0.0), (0.01, 0.0), (0.05, 0.0), (0.01, 0.1))
    }
    for row in GRAPHS:
        assert f"| {row.table} | {row.peers} | {row.streams} | {row.degree:.4f} / " in text
    assert "0.9562 / 0.8897" in text


def test_the_command_writes_tables_results_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = small()
    monkeypatch.setattr(gossip_tables, "compute", lambda extent, progress: tables)
    done = CliRunner().invoke(
        main, ["gossip", "--quick", "--out", str(tmp_path / "out")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "gossip.md").read_text(encoding="utf-8") == gossip_tables.markdown(tables)
    assert len(list((tmp_path / "out").glob("gossip-*.png"))) == 5
    (results,) = (tmp_path / "out").glob("result_*_gossip.json")
    assert load_run(results).gossip == gossip_tables.results_of(tables)


def test_a_row_tells_if_a_fleet_did_not_settle() -> None:
    from attrs import evolve

    found = measure(Scenario(8, events=2))
    tables = evolve(small(), fleets=(evolve(found, settled=False),))
    assert "not settled" in gossip_tables.markdown(tables)
