"""The table of a comparison: per test and system the medians of its repeats, and their ratios to ZooKeeper's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

from attrs import frozen
from rich.table import Table

from zraft_bench.results import TestResult

BASE: Final = "zookeeper"
"""The system to which all others are compared."""


@frozen(kw_only=True)
class Medians:
    """The medians of one system's results in one test; of those that succeeded, of which there is at least one.

    Attributes:
        per_second_range: least and most.
        servers_us: CPU of all servers per request; None if it is not known.
    """

    per_second: float
    per_second_range: tuple[float, float]
    p50_ms: float
    p99_ms: float
    generator_us: float
    servers_us: float | None


def medians(results: Sequence[TestResult]) -> Medians | None:
    """Return the medians of the results that succeeded; None if none did."""
    good = [(one, one.latency.percentiles) for one in results if one.ok and one.latency is not None]
    if not good:
        return None
    rates = [one.per_second for one, _ in good]
    used = [one.servers_us for one, _ in good if one.servers_us is not None]
    return Medians(
        per_second=median(rates),
        per_second_range=(min(rates), max(rates)),
        p50_ms=median(percentiles["50"] for _, percentiles in good),
        p99_ms=median(percentiles["99"] for _, percentiles in good),
        generator_us=median(one.generator_us for one, _ in good),
        servers_us=median(used) if used else None,
    )


def comparison_table(results: Sequence[TestResult], title: str) -> Table:
    """Return a row for each system in each test; repeats that failed are counted, and left out of the medians."""
    table = Table(title=title)
    for name in ("test", "system"):
        table.add_column(name)
    for name in (
        *("req/s", "least - most", "/ zookeeper", "p50 ms", "p99 ms", "servers us", "/ zookeeper", "gen us"),
        "failed",
    ):
        table.add_column(name, justify="right")
    tests: dict[int, dict[str, list[TestResult]]] = {}
    for one in results:
        tests.setdefault(one.number, {}).setdefault(one.target, []).append(one)
    for systems in tests.values():
        base = medians(systems.get(BASE, []))
        for place, (target, found) in enumerate(sorted(systems.items(), key=lambda one: one[0] == BASE)):
            title_of_test = found[0].workload.title() if place == 0 else ""
            failed = sum(not one.ok for one in found)
            row = _cells(medians(found), base if target != BASE else None)
            table.add_row(
                title_of_test,
                target,
                *row,
                f"{failed} of {len(found)}" if failed else "",
                end_section=place == len(systems) - 1,
            )
    return table


def _cells(found: Medians | None, base: Medians | None) -> list[str]:
    if found is None:
        return ["-"] * 8
    least, most = found.per_second_range
    return [
        f"{found.per_second:,.0f}",
        f"{least:,.0f} - {most:,.0f}",
        _ratio(found.per_second, None if base is None else base.per_second),
        f"{found.p50_ms:.2f}",
        f"{found.p99_ms:.2f}",
        "-" if found.servers_us is None else f"{found.servers_us:,.0f}",
        _ratio(found.servers_us, None if base is None else base.servers_us),
        f"{found.generator_us:.0f}",
    ]


def _ratio(found: float | None, base: float | None) -> str:
    return f"{found / base:.2f}" if found is not None and base else ""
