"""The command that simulates servers with partitions: seeds, or planted bugs that must be caught.

    python -m tests.simulation.partitions --seeds 20
    python -m tests.simulation.partitions --seed 7
    python -m tests.simulation.partitions --planted all

A seed and a commit decide everything. See docs/TOPICS.md, "How it is checked".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

import click
from attrs import fields

from tests.simulation.partitions.planted import PLANTS, planted
from tests.simulation.partitions.simulation import PartitionsReport, PartitionsRun
from tests.simulation.seed_command import Searched, console, reports_of, search_plants, show_figures, verdict
from tests.simulation.seed_runs import Result, first_to_notice, judged

PLANTED_SEEDS_MAX: Final = 20
"""A planted bug that so many seeds do not notice counts as missed."""


def run_seed(seed: int) -> Result[PartitionsReport]:
    return judged(seed, lambda: PartitionsRun(seed))


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result[PartitionsReport] | None, int]:
    return first_to_notice(
        seeds, lambda: planted(name), run_seed, lambda seed: run_seed(seed).report is not None
    )


def _search(start: int, name: str) -> Searched[PartitionsReport]:
    return name, *run_planted(name, range(start, start + PLANTED_SEEDS_MAX))


def _seeds(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    reports, failed = reports_of(run_seed, seeds, jobs, "python -m tests.simulation.partitions")
    show_figures(reports, [field.name for field in fields(PartitionsReport)[1:]], began)
    return verdict(seeds, failed)


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
        names = list(PLANTS) if plant == "all" else [plant]
        raise SystemExit(search_plants(partial(_search, start), names, PLANTS, jobs))
    if seed is None:
        raise SystemExit(_seeds(range(start, start + seeds), jobs))
    result = run_seed(seed)
    if result.report is None:
        console.print(f"[red]seed {seed}[/red] {result.checker}: {result.reason}")
        raise SystemExit(1)
    console.print(result.report)


if __name__ == "__main__":
    main()
