"""Display of a benchmark on the terminal: progress while it runs, and tables of its results."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from zraft_bench.election.times import Distribution
from zraft_bench.results import TestResult

REFRESH_S: Final = 0.25
PLAIN_WIDTH: Final = 170
"""The width of tables that do not go to a terminal; a file has no width."""


def new_console() -> Console:
    """Return a console that shows texts unchanged: `[fd00::1]` is an address and no markup."""
    console = Console(markup=False)
    return console if console.is_terminal else Console(markup=False, width=PLAIN_WIDTH)


class Display:
    """One bar for the run, one for the test under way."""

    def __init__(self, console: Console, total: int, what: str) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all: TaskID = self._progress.add_task(what, total=total, unit="")

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self) -> None:
        """Move the bar of the run by one test."""
        self._progress.advance(self._all)

    @contextlib.asynccontextmanager
    async def test(self, title: str, seconds: float) -> AsyncIterator[None]:
        """Show a bar that fills in about `seconds`, which is the least that the test takes."""
        bar = self._progress.add_task(title, total=max(seconds, 0.1), unit="s")
        began = time.monotonic()

        async def fill() -> None:
            while True:
                passed = time.monotonic() - began
                self._progress.update(bar, completed=min(passed, seconds))
                await asyncio.sleep(REFRESH_S)

        filling = asyncio.get_running_loop().create_task(fill())
        try:
            yield
        finally:
            filling.cancel()
            self._progress.remove_task(bar)


def result_line(result: TestResult) -> str:
    """Return one line about a finished test."""
    head = f"{result.number:>3}. {result.target:<16} {result.workload.title()}: "
    if result.acknowledged == 0 or result.latency is None:
        return head + f"[red]failed[/red]: {result.reason}"
    p = result.latency.percentiles
    text = head + (
        f"{result.per_second:,.0f}/s, p50 {p['50']:.2f} ms, p99 {p['99']:.2f} ms, p99.9 {p['99.9']:.2f} ms"
    )
    return text if result.ok else f"{text} [red]failed[/red]: {result.reason}"


def result_table(results: Sequence[TestResult], title: str) -> Table:
    """Return a table of all tests, failed ones included and marked."""
    table = Table(title=title)
    for name in ("#", "target", "op", "entries", "workers", "bytes", "loop"):
        table.add_column(name, justify="right" if name not in ("target", "op", "loop") else "left")
    for name in (
        "req/s",
        "s/entry",
        "KB/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "gen us",
        "srv us",
        "state",
    ):
        table.add_column(name, justify="right")
    for one in results:
        latency = one.latency
        shown = (
            [f"{latency.percentiles[p]:.2f}" for p in ("50", "99", "99.9")] + [f"{latency.max_ms:.1f}"]
            if latency is not None and latency.count
            else ["-"] * 4
        )
        table.add_row(
            f"{one.number}" + (f".{one.attempt}" if one.attempt > 1 else ""),
            one.target,
            one.workload.operation.value,
            f"{one.workload.entries:,}",
            f"{one.sharing.workers}",
            f"{one.workload.value_bytes:,}",
            one.workload.loop,
            f"{one.per_second:,.0f}",
            f"{one.seconds_per_entry:.6f}",
            f"{one.write_kb_per_s:,.1f}",
            *shown,
            f"{one.generator_us:.0f}",
            "-" if one.servers_us is None else f"{one.servers_us:.0f}",
            "ok" if one.ok else "[red]failed[/red]",
            style="dim" if one.superseded else None,
        )
    return table


def thorough_lines(result: TestResult) -> list[str]:
    """Return what a single test's user wants to know beyond the table."""
    moved = result.write_kb_per_s * result.elapsed_s / 1000
    lines = [
        result.sharing.text(),
        f"measured {result.elapsed_s:.2f} s, {result.acknowledged:,} acknowledged, {result.failed:,} failed, "
        f"{result.unknown:,} of unknown outcome, {moved:,.2f} MB of values",
        f"duration of a process's part: mean {result.client_mean_s:.3f} s, standard deviation {result.client_stdev_s:.3f} s",
    ]
    if result.rounds:
        lines.append(
            f"{result.rounds} rounds: mean {result.round_mean_s:.4f} s, standard deviation {result.round_stdev_s:.4f} s"
        )
    lines.append(
        f"load generator: {result.generator_us:.1f} us of CPU per request, "
        f"busiest process {result.generator_share:.0%} of a core"
    )
    if result.service is not None:
        p = result.service.percentiles
        lines.append(
            f"sent to answered, without the wait for a late worker: p50 {p['50']:.2f}, p99 {p['99']:.2f} ms; "
            f"latest send {result.late_ms_max:.1f} ms after it was due"
        )
    if result.skew is not None:
        lines.append(
            f"clients began within {result.skew.spread_ms:.2f} ms (+- {result.skew.uncertainty_ms:.2f} ms)"
        )
    lines += [f"note: {note}" for note in result.notes]
    lines += [f"error, {count:,} times: {text}" for text, count in result.failures.items()]
    return lines


def distribution_table(rows: Sequence[tuple[str, Distribution]], title: str) -> Table:
    """Return a table of elections or failovers, one row per definition of the time."""
    table = Table(title=title)
    table.add_column("from … to …")
    for name in ("trials", "min", "median", "mean", "p90", "p99", "max", "< 80 ms", "< 100 ms"):
        table.add_column(name, justify="right")
    for name, one in rows:
        table.add_row(
            name,
            f"{one.count}",
            *(
                f"{value:.1f}"
                for value in (one.min_ms, one.median_ms, one.mean_ms, one.p90_ms, one.p99_ms, one.max_ms)
            ),
            f"{one.below_80:.1%}",
            f"{one.below_100:.1%}",
        )
    return table
