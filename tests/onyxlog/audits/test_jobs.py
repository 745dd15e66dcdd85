"""The same rules as Spark jobs: violations are those of the lists, whichever way rows are spread over partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check, judged
from onyxlog.audits.rules.violation import Violation, as_row, order_of
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
