"""Audits of tables by rules, check by check: each check holds, is broken by violations, or had no data.

The caller hands in frames and is told of progress; nothing here knows where tables come from or how results
are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from attrs import evolve, frozen

from onyxlog.audits.costs import Cost, Meter
from onyxlog.audits.jobs.tables import ROWS
from onyxlog.audits.rules.check import Check, Rule
from onyxlog.audits.rules.violation import Violation, order_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIOLATIONS_MAX: Final = 1_000
"""The most violations of one check in a report: a log that is broken in one place may break a promise at every
later entry.
"""


class Verdict(StrEnum):
    """The outcome of a check."""

    HOLDS = "holds"
    BROKEN = "broken"
    NO_DATA = "no data"
    """Some table that the check needs has no rows: nothing was judged, and nothing is claimed."""


@frozen(kw_only=True)
class CheckResult:
    """The result of one check.

    Attributes:
        rows: of all tables that the check reads.
        missing: tables without rows.
        violations: the first ones, sorted; `more`: there are others.
        cost: if it was asked for.
    """

    rule: str
    promise: str
    verdict: Verdict
    rows: int
    seconds: float
    missing: tuple[str, ...] = ()
    violations: tuple[Violation, ...] = ()
    more: bool = False
    cost: Cost | None = None


Progress = Callable[[int, int, str], None]
"""Called with (checks done, checks in all, what is judged now)."""


def no_progress(done: int, of: int, what: str) -> None:
    """Report no progress."""


def audit(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    counts: Mapping[str, int],
    rules: Sequence[Rule],
    *,
    violations_max: int = VIOLATIONS_MAX,
    progress: Progress = no_progress,
    clock: Callable[[], float] = time.perf_counter,
    meter: Meter | None = None,
) -> list[CheckResult]:
    """Run every check of the rules, in order.

    Args:
        spark: the session.
        frames: all tables by name, registered as views.
        counts: their numbers of rows.
        rules: the rules to judge.
        violations_max: how many violations of one check are returned.
        progress: called before each check.
        clock: in seconds.
        meter: measures what each check costs, if wanted.
    """
    checks = [(rule, check) for rule in rules for check in rule.checks]
    results = []
    for done, (rule, check) in enumerate(checks):
        progress(done, len(checks), f"{rule.id} {check.promise}")
        measured = None if meter is None else meter.measured()
        result = _result(spark, frames, counts, rule, check, violations_max, clock)
        results.append(result if measured is None else evolve(result, cost=measured()))
    progress(len(checks), len(checks), "done")
    return results


def _result(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    counts: Mapping[str, int],
    rule: Rule,
    check: Check,
    violations_max: int,
    clock: Callable[[], float],
) -> CheckResult:
    # Modules that need Arrow are imported where they are used: reports of findings need no Spark.
    from onyxlog.audits.jobs.keyed import violations_in, violations_of

    began = clock()
    missing = tuple(name for name in check.tables if not counts.get(name, 0))
    found: list[Violation] = []
    verdict = Verdict.NO_DATA
    if len(missing) < len(check.tables) and not set(missing).intersection(check.needed):
        found = violations_in(violations_of(check, spark, frames, ROWS).limit(violations_max + 1))
        verdict = Verdict.BROKEN if found else Verdict.HOLDS
    return CheckResult(
        rule=rule.id,
        promise=check.promise,
        verdict=verdict,
        rows=sum(counts.get(name, 0) for name in check.tables),
        seconds=clock() - began,
        missing=missing,
        violations=tuple(sorted(found, key=order_of)[:violations_max]),
        more=len(found) > violations_max,
    )
