"""The command: seeds of consumers, partitions and faults, or planted bugs that must be caught.

    python -m tests.simulation.claims --seeds 200
    python -m tests.simulation.claims --seeds 10 --partitions 32 --consumers 20
    python -m tests.simulation.claims --seed 17
    python -m tests.simulation.claims --planted all

A seed and a commit decide the whole run. See docs/CLAIMS.md.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial

import click

from tests.simulation.claims.planted import PLANTS, planted
from tests.simulation.claims.running import PLANTED_SEEDS_MAX, emptiness, run_planted, run_seed
from tests.simulation.claims.simulation import Report
from tests.simulation.seed_command import Searched, console, reports_of, search_plants, show_figures, verdict


def _range(seeds: range, jobs: int, partitions: int | None, consumers: int | None) -> int:
    """Run a range of seeds; the exit code."""
    run = partial(run_seed, partitions=partitions, consumers=consumers)
    size = "" if partitions is None else f" --partitions {partitions}"
    size += "" if consumers is None else f" --consumers {consumers}"
    reports, failed = reports_of(run, seeds, jobs, f"python -m tests.simulation.claims{size}")
    _summary(reports)
    return verdict(seeds, failed, emptiness(reports))


def _summary(reports: list[Report]) -> None:
    show_figures(reports, ("partitions", "consumers", "messages", "faults", "leader_changes"))
    seen: Counter[str] = Counter()
    for report in reports:
        seen.update(dict(report.seen))
    console.print("seen: " + ", ".join(f"{what} {number}" for what, number in sorted(seen.items())))


def _search(start: int, name: str) -> Searched[Report]:
    return name, *run_planted(name, range(start, start + PLANTED_SEEDS_MAX))


@click.command()
@click.option("--seeds", default=50, show_default=True, help="How many seeds.")
@click.option("--start", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--partitions", type=click.IntRange(1, 256), help="Instead of what the seed says.")
@click.option(
    "--consumers", type=click.IntRange(1, 256), help="Of all groups together, instead of what the seed says."
)
@click.option("--planted", "name", help="Plant this bug, or `all` of them, and demand that it is caught.")
def main(
    seeds: int,
    start: int,
    jobs: int,
    seed: int | None,
    partitions: int | None,
    consumers: int | None,
    name: str | None,
) -> None:
    """Simulate consumers that claim partitions, under faults, and check every promise."""
    if name is not None and name != "all" and name not in PLANTS:
        raise click.BadParameter(f"{name!r}; known are: all, {', '.join(PLANTS)}", param_hint="--planted")
    if seed is not None:
        if name is None:
            result = run_seed(seed, partitions=partitions, consumers=consumers)
        else:
            with planted(name):
                result = run_seed(seed, partitions=partitions, consumers=consumers)
        if result.report is None:
            console.print(f"[red]seed {result.seed}[/red] {result.checker}: {result.reason}")
            raise SystemExit(1)
        _summary([result.report])
        raise SystemExit(0)
    if name is not None:
        names = list(PLANTS) if name == "all" else [name]
        raise SystemExit(search_plants(partial(_search, start), names, PLANTS, jobs))
    raise SystemExit(_range(range(start, start + seeds), jobs, partitions, consumers))


if __name__ == "__main__":
    main()
