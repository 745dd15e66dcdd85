"""All that an audit found, as one value from which every form of a report is made. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from attrs import field, frozen

from onyxlog.audits.costs import Cost
from onyxlog.audits.figures import Figures
from onyxlog.audits.jobs.auditing import CheckResult, Verdict
from onyxlog.audits.jobs.loading import TableRead
from onyxlog.audits.jobs.tables import ALL_TABLES
from onyxlog.audits.rules.check import Rule
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.thesis_tables import ThesisTables


@frozen(kw_only=True)
class RuleResult:
    """A rule's checks together. The rule is broken if one is; it has no data only if none had any."""

    rule: Rule
    checks: tuple[CheckResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict over all checks: broken if one is, without data if none had any."""
        found = {check.verdict for check in self.checks}
        return next(
            verdict for verdict in (Verdict.BROKEN, Verdict.HOLDS, Verdict.NO_DATA) if verdict in found
        )

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations of all checks."""
        return tuple(one for check in self.checks for one in check.violations)

    @property
    def seconds(self) -> float:
        """The time that the checks took, in seconds."""
        return sum(check.seconds for check in self.checks)

    @property
    def rows(self) -> int:
        """The number of rows that the largest check read."""
        return max(check.rows for check in self.checks)


@frozen(kw_only=True)
class Findings:
    """All that an audit found.

    Attributes:
        title: what was audited, for people.
        counts: rows of each table.
        read: tables that were decoded, in that order.
    """

    title: str
    began: str
    seconds: float
    paths: tuple[str, ...]
    version: str
    counts: Mapping[str, int]
    rules: tuple[RuleResult, ...]
    read: tuple[TableRead, ...] = ()
    figures: Figures = field(factory=Figures)
    thesis: ThesisTables | None = None

    @property
    def needed(self) -> Mapping[str, tuple[str, ...]]:
        """The data that rules without any need, in words, each with the ids of these rules."""
        found: dict[str, dict[str, None]] = {}
        for result in self.rules:
            if result.verdict is Verdict.NO_DATA:
                for name in {name: None for check in result.checks for name in check.missing}:
                    found.setdefault(ALL_TABLES[name].comes_from, {})[result.rule.id] = None
        return {what: tuple(ids) for what, ids in found.items()}

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The violations of all rules."""
        return tuple(one for rule in self.rules for one in rule.violations)

    @property
    def broken(self) -> bool:
        """True if a rule is broken."""
        return any(rule.verdict is Verdict.BROKEN for rule in self.rules)

    @property
    def judged(self) -> int:
        """The rules that had something to judge."""
        return sum(rule.verdict is not Verdict.NO_DATA for rule in self.rules)


def rule_results(rules: Sequence[Rule], checks: Sequence[CheckResult]) -> tuple[RuleResult, ...]:
    """Return results of checks by rule."""
    return tuple(
        RuleResult(rule=rule, checks=tuple(check for check in checks if check.rule == rule.id))
        for rule in rules
    )


def as_json(findings: Findings) -> dict[str, Any]:
    """Return plain values for programs; keys are the names of the classes' fields."""
    return {
        "title": findings.title,
        "began": findings.began,
        "seconds": round(findings.seconds, 3),
        "version": findings.version,
        "paths": list(findings.paths),
        "rows": dict(findings.counts),
        "read": [
            {"table": one.table, "rows": one.rows, "seconds": round(one.seconds, 3), "cost": _cost(one.cost)}
            for one in findings.read
        ],
        "broken": findings.broken,
        "rules": [
            {
                "rule": result.rule.id,
                "title": result.rule.title,
                "claim": result.rule.claim,
                "verdict": result.verdict.value,
                "checks": [
                    {
                        "promise": check.promise,
                        "verdict": check.verdict.value,
                        "rows": check.rows,
                        "seconds": round(check.seconds, 3),
                        "missing": list(check.missing),
                        "violations": len(check.violations),
                        "more": check.more,
                        "cost": _cost(check.cost),
                    }
                    for check in result.checks
                ],
            }
            for result in findings.rules
        ],
        "violations": [attrs.asdict(one) for one in findings.violations],
    }


def _cost(cost: Cost | None) -> dict[str, float] | None:
    return None if cost is None else attrs.asdict(cost)
