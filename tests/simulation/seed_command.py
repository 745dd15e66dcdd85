"""What the commands of simulations have in common: seeds and planted bugs on all cores, and what is said of them."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from rich.console import Console
from rich.table import Table

from tests.simulation.seed_runs import Result

R = TypeVar("R")
REASON_CHARACTERS_MAX = 600

console = Console(highlight=False)


class Planted(Protocol):
    """What is said of a bug that can be planted."""

    @property
    def rule(self) -> str: ...

    @property
    def text(self) -> str: ...


Searched = tuple[str, Result[R] | None, int]
"""(planted bug, the seed that noticed it, how many were tried)."""


def reports_of(
    run: Callable[[int], Result[R]], seeds: range, jobs: int, command: str
) -> tuple[list[R], list[int]]:
    """Run the seeds; what they reported, and which broke a promise: that is told at once.

    Args:
        run: one seed; a function of a module, or a partial one, for it goes to other processes.
        command: what runs one seed again, but for its number.
    """
    reports: list[R] = []
    failed: list[int] = []
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for result in pool.imap_unordered(run, seeds):
            if result.report is not None:
                reports.append(result.report)
                continue
            failed.append(result.seed)
            console.print(
                f"[red]seed {result.seed}[/red] {result.checker}: {result.reason[:REASON_CHARACTERS_MAX]}"
            )
            console.print(f"    {command} --seed {result.seed}")
    return reports, failed


def show_figures(reports: Sequence[object], names: Iterable[str], began: float | None = None) -> None:
    """A table of what each seed saw: these attributes of its report. `began`: when the range was, `time.monotonic()`."""
    if not reports:
        return
    took = "" if began is None else f" in {time.monotonic() - began:.0f} s"
    table = Table(title=f"{len(reports)} seeds{took}")
    for column in ("per seed", "mean", "least", "most"):
        table.add_column(column, justify="left" if column == "per seed" else "right")
    for name in names:
        values = [getattr(report, name) for report in reports]
        mean = sum(values) / len(values)
        table.add_row(name.replace("_", " "), f"{mean:.1f}", str(min(values)), str(max(values)))
    console.print(table)


def verdict(seeds: range, failed: Sequence[int], shortfalls: Sequence[str] = ()) -> int:
    """Say whether the range kept its promises, and saw enough to mean anything; the exit code."""
    for line in shortfalls:
        console.print(f"[red]too little seen[/red]: {line}")
    if failed:
        console.print(f"[red]{len(failed)} of {len(seeds)} seeds failed[/red]: {sorted(failed)}")
    elif not shortfalls:
        console.print(f"[green]no promise broken[/green] in seeds {seeds.start} to {seeds.stop - 1}")
    return 1 if failed or shortfalls else 0


def search_plants(
    search: Callable[[str], Searched[R]], names: Iterable[str], plants: Mapping[str, Planted], jobs: int
) -> int:
    """Look for a seed that notices each planted bug; the exit code.

    Args:
        search: for one bug, as a function that goes to other processes.
    """
    table = Table(title="planted bugs")
    for column in ("bug", "rule", "seed", "seeds", "caught by"):
        table.add_column(column, overflow="fold")
    missed = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for name, result, tried in pool.imap_unordered(search, names):
            plant = plants[name]
            if result is None:
                missed += 1
                console.print(f"[red]missed[/red] {name} ({plant.rule}): {plant.text}, {tried} seeds")
                table.add_row(name, plant.rule, "-", str(tried), "[red]missed[/red]")
            else:
                console.print(f"caught {name} ({plant.rule}): {result.checker}: {result.reason[:200]}")
                table.add_row(name, plant.rule, str(result.seed), str(tried), result.checker)
    console.print(table)
    return 1 if missed else 0
