"""The summary of an audit for a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onyxlog.audits.jobs.auditing import Verdict
from onyxlog.audits.report.findings import Findings

SHOWN_MAX = 5
"""The most violations of one rule; the files have more."""
_STYLES = {Verdict.HOLDS: "green", Verdict.BROKEN: "bold red", Verdict.NO_DATA: "bright_black"}


def show(findings: Findings, console: Console) -> None:
    """Show a line per rule, then the first violations with their places, then the verdict."""
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for name, justify in (
        ("rule", "left"),
        ("", "left"),
        ("verdict", "left"),
        ("rows", "right"),
        ("s", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for result in findings.rules:
        verdict = result.verdict
        count = len(result.violations)
        more = "+" if any(check.more for check in result.checks) else ""
        text = f"{count}{more} violation{'' if count == 1 else 's'}" if count else verdict.value
        table.add_row(
            result.rule.id,
            result.rule.title,
            Text(text, style=_STYLES[verdict]),
            f"{result.rows:,}",
            f"{result.seconds:.1f}",
        )
    console.print(table)
    _costs(findings, console)
    for result in findings.rules:
        for one in result.violations[:SHOWN_MAX]:
            console.print(Text(one.line(), style="red"), soft_wrap=True)
        left = len(result.violations) - SHOWN_MAX
        if left > 0:
            console.print(Text(f"{result.rule.id}: {left} more in the report", style="red"))
    for what, ids in findings.needed.items():
        console.print(Text(f"no data for {', '.join(ids)}: give {what}", style="bright_black"))
    broken = sum(result.verdict is Verdict.BROKEN for result in findings.rules)
    silent = len(findings.rules) - findings.judged
    console.print(
        Text(
            f"{findings.judged - broken} rules hold, {broken} broken, {silent} without data; "
            f"{sum(findings.counts.values()):,} rows in {findings.seconds:.1f} s",
            style="bold red" if broken else "bold",
        )
    )


def _costs(findings: Findings, console: Console) -> None:
    """Show what each table and each check cost, if that was measured."""
    costs = [(f"reading {one.table}", one.rows, one.cost) for one in findings.read] + [
        (f"{check.rule} {check.promise}", check.rows, check.cost)
        for result in findings.rules
        for check in result.checks
    ]
    measured = [(what, rows, cost) for what, rows, cost in costs if cost is not None]
    if not measured:
        return
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    table.add_column("cost of")
    for name in ("rows", "CPU s", "rows per CPU s", "most MB"):
        table.add_column(name, justify="right")
    for what, rows, cost in measured:
        rate = f"{rows / cost.cpu_s:,.0f}" if cost.cpu_s else "-"
        table.add_row(what, f"{rows:,}", f"{cost.cpu_s:.2f}", rate, f"{cost.peak_mb:,.0f}")
    console.print(table)
