"""The command that simulates servers with partitions: seeds, or planted bugs that must be caught.

    python -m zraft.testing.partitions --seeds 20
    python -m zraft.testing.partitions --seed 7
    python -m zraft.testing.partitions --planted all

A seed and a commit decide everything. See docs/TOPICS.md, "How it is checked".
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable
from typing import Final

import click
from attrs import fields
from rich.console import Console
from rich.table import Table

from zraft.testing.partitions.planted import PLANTS, planted
from zraft.testing.partitions.simulation import PartitionsReport, PartitionsRun
from zraft.testing.seed_runs import Result, first_to_notice, judged

PLANTED_SEEDS_MAX: Final = 20
"""A planted bug that so many seeds do not notice counts as missed."""

console = Console(highlight=False)


def run_seed(seed: int) -> Result[PartitionsReport]:
    return judged(seed, lambda: PartitionsRun(seed))


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result[PartitionsReport] | None, int]:
    return first_to_notice(
        seeds, lambda: planted(name), run_seed, lambda seed: run_seed(seed).report is not None
    )


def _search(arguments: tuple[str, int]) -> tuple[str, Result[PartitionsReport] | None, int]:
    name, start = arguments
    result, tried = run_planted(name, range(start, start + PLANTED_SEEDS_MAX))
    return name, result, tried


def _planted(names: list[str], start: int, jobs: int) -> int:
    missed = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for name, result, tried in pool.imap_unordered(_search, [(name, start) for name in names]):
            plant = PLANTS[name]
            if result is None:
                missed += 1
                console.print(f"[red]missed[/red] {name} ({plant.rule}): {plant.text}, {tried} seeds")
            else:
                console.print(
                    f"caught {name} ({plant.rule}) after {tried}: {result.checker}: {result.reason[:150]}"
                )
    return 1 if missed else 0


def _seeds(start: int, seeds: int, jobs: int) -> int:
    began = time.monotonic()
    failed = 0
    reports: list[PartitionsReport] = []
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for result in pool.imap_unordered(run_seed, range(start, start + seeds)):
            if result.report is not None:
                reports.append(result.report)
                continue
            failed += 1
            console.print(f"[red]seed {result.seed}[/red] {result.checker}: {result.reason}")
            console.print(f"    python -m zraft.testing.partitions --seed {result.seed}")
    if reports:
        table = Table(title=f"{len(reports)} seeds in {time.monotonic() - began:.0f} s")
        for column in ("per seed", "mean", "least", "most"):
            table.add_column(column, justify="right")
        for field in fields(PartitionsReport)[1:]:
            values = [getattr(report, field.name) for report in reports]
            table.add_row(
                field.name.replace("_", " "),
                f"{sum(values) / len(values):.1f}",
                str(min(values)),
                str(max(values)),
            )
        console.print(table)
    if not failed:
        console.print(f"[green]no promise broken[/green] in seeds {start} to {start + seeds - 1}")
    return 1 if failed else 0


@click.command()
@click.option("--seeds", default=10, show_default=True, help="How many seeds.")
@click.option("--start", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--planted", "plant", help="Plant this bug (or `all`) and demand that a seed catches it.")
def main(seeds: int, start: int, jobs: int, seed: int | None, plant: str | None) -> None:
    """Simulate servers with partitions, with faults, and check the promises of multicast and of the disks."""
    if plant is not None:
        if plant != "all" and plant not in PLANTS:
            raise click.BadParameter(f"{plant!r}; known are: {', '.join(PLANTS)}", param_hint="--planted")
        raise SystemExit(_planted(list(PLANTS) if plant == "all" else [plant], start, jobs))
    if seed is None:
        raise SystemExit(_seeds(start, seeds, jobs))
    result = run_seed(seed)
    if result.report is None:
        console.print(f"[red]seed {seed}[/red] {result.checker}: {result.reason}")
        raise SystemExit(1)
    console.print(result.report)


if __name__ == "__main__":
    main()
