"""The summary of an audit that is stored in a tenancy, for consoles of servers and `onyxlog status`. Pure."""

from __future__ import annotations

from onyxlog.audits.report.findings import Findings, RuleResult
from zraft_core.fleets import NAME_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, AuditReport, RuleVerdict


def summary_of(findings: Findings, at_ms: int) -> AuditReport:
    """Return the verdict on each rule, without witnesses. `at_ms`: when the audit ended, in ms since 1970."""
    return AuditReport(
        at_ms,
        findings.title[:TEXT_CHARACTERS_MAX],
        findings.version[:NAME_CHARACTERS_MAX],
        round(findings.seconds),
        tuple(map(_verdict, findings.rules)),
    )


def _verdict(result: RuleResult) -> RuleVerdict:
    return RuleVerdict(result.rule.id, result.rule.title, result.verdict.value, len(result.violations))
