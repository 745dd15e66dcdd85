"""Audits of tables by rules, check by check: each check holds, is broken by violations, or had no data.

The caller hands in frames and is told of progress; nothing here knows where tables come from or how results
are shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
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
        seconds: an equal share of the job's, if it judged several checks.
        violations: the first ones, sorted; `more`: there are others.
        cost: if it was asked for; shared like `seconds`.
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
"""Called with (parts done, parts in all, what is done now)."""


def no_progress(done: int, of: int, what: str) -> None:
    """Report no progress."""


JOBS_AT_ONCE: Final = 4
"""The most jobs that run at a time. Spark plans some while tasks of others keep all cores busy."""


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
    at_once: int = JOBS_AT_ONCE,
) -> list[CheckResult]:
    """Run every check of the rules, and return the results in order. Checks that need the same work share a job.

    Args:
        spark: the session.
        frames: all tables by name, registered as views.
        counts: their numbers of rows.
        rules: the rules to judge.
        violations_max: how many violations of one check are returned.
        progress: called at first and after each job, with the first check that is not done.
        clock: in seconds.
        meter: measures what each check costs, if wanted: then one job runs at a time.
        at_once: how many jobs run at a time otherwise.
    """
    checks = [Asked(rule, check) for rule in rules for check in rule.checks]
    jobs: dict[object, list[Asked]] = {}
    for asked in checks:
        jobs.setdefault(asked.check.judged_with or asked, []).append(asked)

    def done(job: Sequence[Asked]) -> list[CheckResult]:
        return _judged(spark, frames, counts, job, violations_max, clock, meter)

    progress(0, len(checks), str(checks[0]) if checks else "done")
    pool = ThreadPoolExecutor(at_once if meter is None else 1, "audit")
    try:
        # What replays whole logs takes longest, so it begins first.
        first = sorted(jobs.values(), key=lambda job: job[0].check.judged_with is None)
        running = {pool.submit(done, job): job for job in first}
        results: dict[Asked, CheckResult] = {}
        for finished in as_completed(running):
            results |= zip(running[finished], finished.result(), strict=True)
            left = next((str(asked) for asked in checks if asked not in results), "done")
            progress(len(results), len(checks), left)
    finally:
        # After an error, or at Ctrl-C, nothing waits for jobs: the session ends them.
        pool.shutdown(wait=False, cancel_futures=True)
    return [results[asked] for asked in checks]


@frozen(eq=False)
class Asked:
    """A check of a rule that is to be judged."""

    rule: Rule
    check: Check

    def __str__(self) -> str:
        """Return what a progress bar says."""
        return f"{self.rule.id} {self.check.promise}"


def _judged(
    spark: SparkSession,
    frames: Mapping[str, DataFrame],
    counts: Mapping[str, int],
    job: Sequence[Asked],
    violations_max: int,
    clock: Callable[[], float],
    meter: Meter | None,
) -> list[CheckResult]:
    """Return the results of checks that share a job, each with an equal share of its time and cost."""
    # Modules that need Arrow are imported where they are used: reports of findings need no Spark.
    from onyxlog.audits.jobs.keyed import first_of_each, violations_in, violations_of

    end = None if meter is None else meter.measured()
    began = clock()
    judged = [asked.check for asked in job if _has_data(asked.check, counts)]
    found: list[Violation] = []
    if judged:
        promises = [check.promise for check in judged]
        one = judged[0] if judged[0].judged_with is None else judged[0].judged_with(*promises)
        frame = violations_of(one, spark, frames, ROWS)
        found = violations_in(first_of_each(frame, promises, violations_max + 1))
    seconds = (clock() - began) / len(job)
    cost = None if end is None else end()
    if cost is not None:
        cost = evolve(cost, cpu_s=cost.cpu_s / len(job))
    by_promise = {check.promise: [one for one in found if one.promise == check.promise] for check in judged}
    strange = {one.promise for one in found} - by_promise.keys()
    assert not strange, f"{', '.join(map(str, job))}: found violations of {strange}"
    return [
        _result(asked, counts, by_promise.get(asked.check.promise), violations_max, seconds, cost)
        for asked in job
    ]


def _has_data(check: Check, counts: Mapping[str, int]) -> bool:
    missing = _missing(check, counts)
    return len(missing) < len(check.tables) and not set(missing).intersection(check.needed)


def _missing(check: Check, counts: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(name for name in check.tables if not counts.get(name, 0))


def _result(
    asked: Asked,
    counts: Mapping[str, int],
    found: Sequence[Violation] | None,
    violations_max: int,
    seconds: float,
    cost: Cost | None,
) -> CheckResult:
    """Return the result of a check that found these violations; None: it was not judged."""
    check, violations = asked.check, found or ()
    verdict = Verdict.NO_DATA if found is None else Verdict.BROKEN if found else Verdict.HOLDS
    return CheckResult(
        rule=asked.rule.id,
        promise=check.promise,
        verdict=verdict,
        rows=sum(counts.get(name, 0) for name in check.tables),
        seconds=seconds,
        missing=_missing(check, counts),
        violations=tuple(sorted(violations, key=order_of)[:violations_max]),
        more=len(violations) > violations_max,
        cost=cost,
    )
