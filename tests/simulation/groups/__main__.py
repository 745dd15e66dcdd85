"""The command that simulates servers with many groups: seeds, or planted bugs that must be caught.

    python -m tests.simulation.groups --seeds 20
    python -m tests.simulation.groups --seed 7
    python -m tests.simulation.groups --planted all

A seed and a commit decide everything. See docs/GROUPS.md, "Simulation".
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import partial
from typing import Final

import click

from tests.simulation.groups.planted import PLANTS, planted
from tests.simulation.groups.simulation import GroupsReport, GroupsSimulation
from tests.simulation.seed_command import Searched, console, reports_of, search_plants, show_figures, verdict
from tests.simulation.seed_runs import Result, first_to_notice, judged

PLANTED_SEEDS_MAX: Final = 40
"""A planted bug that so many seeds do not notice counts as missed."""

PLANTED_GROUPS: Final = 25
"""Of a seed that looks for a planted bug: fewer groups show the same and cost less."""

FIGURES: Final = (
    *("groups", "created", "removed", "entries", "leaders", "faults", "moves", "exchanges", "snapshots"),
    *("installed", "recoveries", "reads", "covered", "idle_datagrams", "idle_datagrams_max", "idle_turns"),
)
"""What is shown of a range of seeds."""


def run_seed(seed: int, groups: int | None = None) -> Result[GroupsReport]:
    return judged(seed, lambda: GroupsSimulation(seed, groups=groups))


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result[GroupsReport] | None, int]:
    def is_sound(seed: int) -> bool:
        return run_seed(seed, PLANTED_GROUPS).report is not None

    return first_to_notice(
        seeds, lambda: planted(name), lambda seed: run_seed(seed, PLANTED_GROUPS), is_sound
    )


def _search(start: int, name: str) -> Searched[GroupsReport]:
    return name, *run_planted(name, range(start, start + PLANTED_SEEDS_MAX))


def _seeds(seeds: range, jobs: int) -> int:
    began = time.monotonic()
    reports, failed = reports_of(run_seed, seeds, jobs, "python -m tests.simulation.groups")
    show_figures(reports, FIGURES, began)
    return verdict(seeds, failed)


@click.command()
@click.option("--seeds", default=10, show_default=True, help="How many seeds.")
@click.option("--start", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--groups", type=int, help="With --seed: so many groups, instead of what the seed rolls.")
@click.option("--planted", "plant", help="Plant this bug (or `all`) and demand that a seed catches it.")
def main(seeds: int, start: int, jobs: int, seed: int | None, groups: int | None, plant: str | None) -> None:
    """Simulate servers that host many groups, with faults, and check every promise for every group."""
    if plant is not None:
        if plant != "all" and plant not in PLANTS:
            raise click.BadParameter(f"{plant!r}; known are: {', '.join(PLANTS)}", param_hint="--planted")
        names = list(PLANTS) if plant == "all" else [plant]
        raise SystemExit(search_plants(partial(_search, start), names, PLANTS, jobs))
    if seed is None:
        raise SystemExit(_seeds(range(start, start + seeds), jobs))
    result = run_seed(seed, groups)
    if result.report is None:
        console.print(f"[red]seed {seed}[/red] {result.checker}: {result.reason}")
        raise SystemExit(1)
    console.print(result.report)


if __name__ == "__main__":
    main()
