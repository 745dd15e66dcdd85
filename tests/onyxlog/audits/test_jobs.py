"""The same rules as Spark jobs: violations are those of the lists, whichever way rows are spread over partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from onyxlog.audits.rules import reexecution
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check, judged
from onyxlog.audits.rules.violation import Violation, as_row, order_of
from onyxlog.audits.tables import TABLES
from tests.onyxlog.audits.planted import PLANTS
from tests.onyxlog.audits.sound import sound

pytest.importorskip("pyspark", reason="needs the extra `audits`")
CHECKS = {check.promise: check for rule in RULES.values() for check in rule.checks}
pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def job_finds(spark: Any, tables: Mapping[str, Sequence[Any]], checks: Iterable[Check]) -> list[Violation]:
    from onyxlog.audits.jobs.frames import frames_of_rows
    from onyxlog.audits.jobs.keyed import violations_in, violations_of
    from onyxlog.audits.jobs.tables import ROWS

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")  # a batch ends in the middle of a key
    frames = frames_of_rows(spark, tables)
    return [one for check in checks for one in violations_in(violations_of(check, spark, frames, ROWS))]


def in_order(violations: Sequence[Violation]) -> list[tuple[Any, ...]]:
    return [as_row(one) for one in sorted(violations, key=order_of)]


def test_jobs_find_what_pure_rules_find_whatever_was_planted(spark: Any) -> None:
    """All plants together; what one of them hides of another one's is looked at by itself."""
    tables = everything_planted()
    expected = [one for check in CHECKS.values() for one in judged(check, tables)]
    assert in_order(job_finds(spark, tables, CHECKS.values())) == in_order(expected)
    seen = {one.promise for one in expected}
    for plant in PLANTS.values():
        if plant.promise not in seen:
            seen.add(plant.promise)
            check, tables = CHECKS[plant.promise], plant.tables()
            found = judged(check, tables)
            assert found, plant.name
            assert in_order(job_finds(spark, tables, [check])) == in_order(found), plant.name


def test_verdicts_tell_what_holds_what_is_broken_and_what_nobody_judged(spark: Any) -> None:
    from onyxlog.audits.jobs.auditing import Verdict, audit
    from onyxlog.audits.jobs.frames import frames_of_rows

    tables = {name: rows for name, rows in sound().items() if name not in ("multicast", "claims")}
    tables["deliveries"][0] = evolve(tables["deliveries"][0], destinations=(999,))
    told: list[tuple[int, int]] = []
    results = audit(
        spark,
        frames_of_rows(spark, tables),
        {name: len(rows) for name, rows in tables.items()},
        [RULES["S16"], RULES["S21"]],
        violations_max=1,
        progress=lambda done, of, what: told.append((done, of)),
        clock=iter(range(100)).__next__,
        at_once=1,
    )
    assert [(one.rule, one.verdict) for one in results] == [
        ("S16", Verdict.BROKEN),
        ("S16", Verdict.HOLDS),
        ("S16", Verdict.HOLDS),
        ("S16", Verdict.NO_DATA),
        ("S16", Verdict.NO_DATA),
        ("S21", Verdict.NO_DATA),
    ]
    assert [len(one.violations) for one in results] == [1, 0, 0, 0, 0, 0]
    assert results[3].missing == ("multicast",)
    assert results[0].rows == len(tables["deliveries"])
    assert results[0].seconds == 1
    assert told == [(n, 6) for n in range(7)]


def test_promises_of_one_replay_are_judged_by_one_job_and_reported_each_by_itself(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onyxlog.audits.jobs import keyed
    from onyxlog.audits.jobs.auditing import Verdict, audit
    from onyxlog.audits.jobs.frames import frames_of_rows

    asked: list[str] = []
    violations_of = keyed.violations_of

    def noted(check: Check, *others: Any) -> Any:
        asked.append(check.promise)
        return violations_of(check, *others)

    monkeypatch.setattr(keyed, "violations_of", noted)
    tables = sound()
    executed = {row.server for row in tables["entry_payloads"]}
    tables["events"] = [
        evolve(row, digest=bytes(16)) if row.kind == "digest" and row.server in executed else row
        for row in tables["events"]
    ]
    replayed = [
        evolve(RULES[rule], checks=tuple(one for one in RULES[rule].checks if one.judged_with))
        for rule in ("S6", "S8", "S10", "S11")
    ]
    counts = {name: len(rows) for name, rows in tables.items()}
    results = audit(spark, frames_of_rows(spark, tables), counts, replayed, violations_max=1)
    assert asked == [
        f"{reexecution.STATES} and {reexecution.ONCE_ONLY} and {reexecution.EPHEMERALS} and {reexecution.NUMBERS}"
    ]
    assert [(one.rule, one.verdict, len(one.violations), one.more) for one in results] == [
        ("S6", Verdict.BROKEN, 1, True),
        ("S8", Verdict.HOLDS, 0, False),
        ("S10", Verdict.HOLDS, 0, False),
        ("S11", Verdict.HOLDS, 0, False),
    ]


def test_figures_are_those_of_the_tables(spark: Any) -> None:
    from onyxlog.audits.figures import figures_of
    from onyxlog.audits.jobs.frames import frames_of_rows

    tables = sound()
    tables["entries"] = [evolve(row, wall_time_ms=1_000_000 + 1_000 * row.index) for row in tables["entries"]]
    tables["events"] = [evolve(row, wall_time_ms=1_000_000 + 100 * row.seq) for row in tables["events"]]
    tables["onyx_entries"] = [evolve(row, applied_ms=5 + row.seq) for row in tables["onyx_entries"]]
    # Terms in which nothing but a no-op was written, which has no time: before all others, and behind them.
    noop = next(row for row in tables["entries"] if row.group == 0)
    tables["entries"] += [evolve(noop, index=90 + term, term=term, wall_time_ms=None) for term in (0, 3)]
    frames_of_rows(spark, tables)
    found = figures_of(spark, {name: len(rows) for name, rows in tables.items()})
    assert [(reign.term, reign.leader, reign.begins_s) for reign in found.reigns] == [
        (0, 0, 0.0),
        (1, 1, 0.0),
        (2, 2, 5.0),
        (3, 0, 5.0),
    ]
    assert set(found.growth) == {"server 1", "server 2", "server 3"}
    assert found.growth["server 3"][-1][1] == pytest.approx(8 * 50 / 1e6)
    assert found.positions["server 2"][-1][1] == 8
    assert found.replicas["peer ga"][-1][1] == 4
    ends = {f"group {row.group}": 0 for row in tables["deliveries"]}
    for row in tables["deliveries"]:
        ends[f"group {row.group}"] = max(ends[f"group {row.group}"], row.offset + row.span)
    assert {name: points[-1][1] for name, points in found.partitions.items()} == ends
    assert {share.peer: share.redundancy for share in found.shares} == {"ga": 0.5, "gb": 0.5}
    assert {each.kind: each.count for each in found.latencies}["set"] == 2
    assert all(each.p50 == pytest.approx(0.5) for each in found.latencies)
    (gossip,) = found.gossip
    assert (gossip.peers, gossip.receptions, gossip.first, gossip.redundancy) == (2, 8, 4, 0.5)


def test_an_audit_goes_from_directories_to_findings(spark: Any, generated: Path, tmp_path: Path) -> None:
    """Logs with truncations, and snapshots that are replayed upon; tables stay where they were asked for."""
    from onyxlog.audits.running import Asked, look, run

    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    asked = Asked(paths=(str(generated),), rules=(RULES["S2"], RULES["S6"]), tables=tmp_path, costs=True)
    findings = run(spark, asked, look(asked), now=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert {check.promise: check.verdict.value for one in findings.rules for check in one.checks} == {
        "equal index and term, equal entry and predecessor": "holds",
        "a log has no gap and its terms do not go back": "holds",
        "nothing committed is truncated": "no data",
        "files are whole": "holds",
        "states are the fold of the log": "holds",
    }
    assert findings.counts["truncations"] > 0
    assert findings.counts["snapshots"] == 6
    assert findings.began == "2026-01-01 00:00:00+00:00"
    assert all(check.cost is not None for one in findings.rules for check in one.checks)
    assert [one.table for one in findings.read] == [*TABLES]
    assert all(one.cost is not None and one.rows == findings.counts[one.table] for one in findings.read)
    assert spark.read.parquet(str(tmp_path / "entries")).count() == findings.counts["entries"]


def everything_planted() -> dict[str, list[Any]]:
    """All plants one after the other, but for those that need a row which an earlier one has changed."""
    tables = sound()
    for plant in PLANTS.values():
        tried = {name: list(rows) for name, rows in tables.items()}
        try:
            plant.spoil(tried)
        except (ValueError, StopIteration, KeyError):
            continue
        tables = tried
    return tables
