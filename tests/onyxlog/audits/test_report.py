"""What an audit shows: the page, the files, the summary, the exit code. Findings are made of lists; no Spark."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from attrs import evolve
from click.testing import CliRunner
from rich.console import Console

from onyxlog.audits.figures import Figures, Latency, Reign, Share
from onyxlog.audits.jobs.auditing import CheckResult, Verdict
from onyxlog.audits.measurements import Measurements
from onyxlog.audits.report.findings import Findings, RuleResult, as_json, rule_results
from onyxlog.audits.report.page import page
from onyxlog.audits.report.published import summary_of
from onyxlog.audits.report.terminal import show
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import judged
from onyxlog.audits.rules.gossip_completeness import PeerCounts, figures
from onyxlog.audits.thesis_tables import thesis_tables
from onyxlog.main import main
from tests.onyxlog.audits.planted import PLANTS
from tests.onyxlog.audits.sound import Tables, sound
from zraft_core.fleets import decode_audit, encode_audit


def measurements(tables: Tables) -> Measurements:
    return Measurements(
        *(
            tuple(tables[f"measured_{name}"])
            for name in ("tests", "trials", "cells", "sends", "pools", "copies")
        )
    )


def findings_of(tables: Tables, ids: tuple[str, ...] = tuple(RULES)) -> Findings:
    rules = [RULES[id] for id in ids]
    checks = [
        CheckResult(
            rule=rule.id,
            promise=check.promise,
            verdict=Verdict.BROKEN if (found := tuple(judged(check, tables))) else Verdict.HOLDS,
            rows=sum(len(tables.get(name, ())) for name in check.tables),
            seconds=0.5,
            violations=found,
        )
        for rule in rules
        for check in rule.checks
    ]
    return Findings(
        title="/data/<cluster>",
        began="2026-11-22 15:00:00+00:00",
        seconds=3.2,
        paths=("/data/<cluster>",),
        version="0",
        counts={name: len(rows) for name, rows in tables.items()},
        rules=rule_results(rules, checks),
        figures=Figures(
            reigns=(Reign(1, 1, 0.0, 5), Reign(2, 0, 7.0, 3)),
            growth={"server 1": ((1.0, 2.0), (9.0, 4.0))},
            positions={"server 1": ((1.0, 5.0), (9.0, 8.0))},
            replicas={"peer ga": ((0.0, 1.0), (2.0, 4.0))},
            partitions={"group 101": ((0.0, 3.0), (2.0, 9.0))},
            shares=(Share("ga", 4, 0.5),),
            latencies=(Latency("get", 5, 1.0, 2.0, 3.0, 4.0),),
            gossip=(
                figures("t", 2, [PeerCounts("ga", 4, 2, 2, 1, 3, 1), PeerCounts("gb", 3, 2, 3, 1, 3, 0)]),
            ),
        ),
        thesis=thesis_tables(measurements(tables)),
    )


def test_the_page_needs_nothing_from_elsewhere_and_escapes_what_comes_from_data() -> None:
    text = page(findings_of(PLANTS["a_later_leader_overwrites"].tables()), [])
    assert "<script" not in text
    assert "http" not in text.replace("<!doctype html>", "")
    assert "/data/&lt;cluster&gt;" in text
    assert "/data/<cluster>" not in text


def test_the_page_shows_each_rule_with_its_verdict_and_each_violation_with_its_place() -> None:
    text = page(findings_of(PLANTS["a_later_leader_overwrites"].tables()), [])
    assert text.count("<summary>") == len(RULES)
    assert text.count("class=broken") == 2, "the rule and its check"
    assert "broken: 1" in text
    assert "server-3/wal/0000000001.seg:1900" in text
    assert "one of term 4" in text
    assert "S22" in text


def test_files_say_the_same_as_the_page(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra `audits`")
    from onyxlog.audits.report.files import write

    findings = findings_of(PLANTS["two_groups_deliver_in_two_orders"].tables())
    write(findings, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"violations.parquet", "audit.json", "report.html"}
    rows = pq.read_table(tmp_path / "violations.parquet").to_pylist()
    assert [row["rule"] for row in rows] == [one.rule for one in findings.violations]
    assert {"S16", "S17"} == {row["rule"] for row in rows}
    plain = json.loads((tmp_path / "audit.json").read_text())
    assert plain == json.loads(json.dumps(as_json(findings)))
    assert plain["broken"] is True
    assert plain["violations"] == rows
    shown = (tmp_path / "report.html").read_text()
    assert shown.count("data:image/png;base64,") == 7


def test_an_audit_without_violations_writes_an_empty_table(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra `audits`")
    from onyxlog.audits.report.files import write

    write(findings_of(sound()), tmp_path)
    assert pq.read_table(tmp_path / "violations.parquet").num_rows == 0


def summary(findings: Findings) -> str:
    console = Console(file=io.StringIO(), width=160)
    show(findings, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_summary_names_what_is_broken_and_where() -> None:
    text = summary(findings_of(PLANTS["an_entry_is_missing"].tables()))
    assert "S6 " in text
    assert "server-2/wal/0000000001.seg:1600" in text
    assert "21 rules hold, 1 broken, 0 without data" in text


def test_a_rule_without_data_claims_nothing() -> None:
    findings = findings_of(sound())
    silent = findings.rules[0]
    silent = evolve(silent, checks=tuple(evolve(one, verdict=Verdict.NO_DATA) for one in silent.checks))
    text = summary(evolve(findings, rules=(silent, *findings.rules[1:])))
    assert "21 rules hold, 0 broken, 1 without data" in text


def test_what_to_record_is_said_once_for_all_rules_that_have_no_data() -> None:
    findings = findings_of(sound())

    def without(result: RuleResult, name: str) -> RuleResult:
        return evolve(
            result,
            checks=tuple(evolve(one, verdict=Verdict.NO_DATA, missing=(name,)) for one in result.checks),
        )

    rules = [
        without(one, "histories")
        if one.rule.id in ("S9", "S12")
        else without(one, "claims")
        if one.rule.id == "S21"
        else one
        for one in findings.rules
    ]
    findings = evolve(findings, rules=tuple(rules))
    expected = (
        "o data for S9, S12: give recorded histories of clients (*.jsonl), such as chaos runs write",
        "o data for S21: give servers with a topic whose partitions consumers have claimed",
    )
    for text in (summary(findings), page(findings, [])):
        assert [line in text for line in expected] == [True, True]
        assert text.count("o data for") == 2


def test_redundancy_of_gossip_is_given_in_both_definitions() -> None:
    found = figures("t", 2, [PeerCounts("ga", 4, 2, 2, 1, 3, 1), PeerCounts("gb", 1, 1, 3, 1, 3, 0)])
    assert found.redundancy_of_peers == pytest.approx((0.5 + 0.0) / 2)
    assert found.redundancy == pytest.approx(1 - 3 / 5)
    assert found.saved == pytest.approx(1 - 1 / 4)
    assert (found.sent_per_event, found.copies_per_event) == (1.0, 3.0)


def test_cells_of_zatts_tables_are_recomputed_from_counts() -> None:
    (test,) = sound()["measured_tests"]
    other = evolve(test, number=2, acknowledged=6, elapsed_s=1.0)
    failed = evolve(test, number=3, state="failed", acknowledged=0)
    (cell,) = thesis_tables(Measurements(tests=(test, other, failed))).cells
    assert (cell.workers, cell.entries, cell.value_bytes, cell.published_best) == (10, 100, 1000, 97)
    assert cell.per_second == pytest.approx(10 / 3)
    assert cell.seconds_per_entry == pytest.approx(0.3)
    assert not cell.stable
    (trial,) = sound()["measured_trials"]
    slow = evolve(trial, number=2, led_ms=190.0)
    elections = thesis_tables(Measurements(trials=(trial, slow))).elections
    assert elections is not None
    assert elections.below == ((80.0, 0.5), (100.0, 1.0))


def test_the_command_says_what_is_wrong_before_it_starts_anything() -> None:
    run = CliRunner().invoke
    assert run(main, ["audit"]).exit_code == 2
    wrong = run(main, ["audit", "/tmp", "--rules", "S1,S23"])
    assert wrong.exit_code == 2
    assert "--rules S23: expected S1 to S22, or a range such as S1-S7" in wrong.output


def test_the_command_lists_the_rules_and_what_they_read() -> None:
    shown = CliRunner().invoke(main, ["audit", "--list", "--rules", "S17"])
    assert shown.exit_code == 0
    assert shown.output.splitlines()[1] == "      deliveries of all logs have one order (deliveries)"


def test_what_is_published_has_the_verdict_on_each_rule_and_no_witness() -> None:
    broken = summary_of(findings_of(PLANTS["a_later_leader_overwrites"].tables()), 5)
    assert decode_audit(encode_audit(broken), "audit") == broken
    assert (broken.verdict, broken.at_ms, broken.title, broken.seconds) == ("broken", 5, "/data/<cluster>", 3)
    assert [rule.rule for rule in broken.rules] == [*RULES]
    assert {rule.violations > 0 for rule in broken.rules if rule.verdict == "broken"} == {True}
    assert summary_of(findings_of(sound()), 5).verdict == "holds"
