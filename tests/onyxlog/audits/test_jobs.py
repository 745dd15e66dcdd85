"""The same rules as Spark jobs: violations are those of the lists, whichever way rows are spread over partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.violation import Violation, as_row, order_of
from tests.onyxlog.audits.planted import PLANTS
from tests.onyxlog.audits.sound import sound

pytest.importorskip("pyspark", reason="needs the extra `audits`")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def job_finds(spark: Any, tables: Mapping[str, Sequence[Any]], ids: Sequence[str]) -> list[Violation]:
    from onyxlog.audits.jobs.frames import frames_of_rows
    from onyxlog.audits.jobs.keyed import violations_of, violations_in
    from onyxlog.audits.jobs.tables import ROWS

    frames = frames_of_rows(spark, tables)
    found: list[Violation] = []
    for id in ids:
        for check in RULES[id].checks:
            found += violations_in(violations_of(check, spark, frames, ROWS))
    return found


def in_order(violations: Sequence[Violation]) -> list[tuple[Any, ...]]:
    return [as_row(one) for one in sorted(violations, key=order_of)]


def test_sound_tables_break_no_rule(spark: Any) -> None:
    assert job_finds(spark, sound(), list(RULES)) == []


def test_jobs_find_what_pure_rules_find_in_tables_that_everything_was_planted_into(spark: Any) -> None:
    tables = everything_planted()
    expected = [one for rule in RULES.values() for one in rule.judged(tables)]
    seen = {one.promise for one in expected}
    assert len(seen) > 40, "so much at least must be broken for this to mean anything"
    assert in_order(job_finds(spark, tables, list(RULES))) == in_order(expected)


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
