"""The command: seeds of consumers, partitions and faults, or planted bugs that must be caught.

    python -m zraft.testing.claims --seeds 200
    python -m zraft.testing.claims --seeds 10 --partitions 32 --consumers 20
    python -m zraft.testing.claims --seed 17
    python -m zraft.testing.claims --planted all

A seed and a commit decide the whole run. See docs/CLAIMS.md.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from functools import partial

import click
from rich.console import Console
from rich.table import Table

from zraft.testing.claims.planted import PLANTS, planted
from zraft.testing.claims.running import PLANTED_SEEDS_MAX, emptiness, run_planted, run_seed
from zraft.testing.claims.simulation import Report
from zraft.testing.seed_runs import Result

console = Console(highlight=False)


def _range(start: int, seeds: int, jobs: int, partitions: int | None, consumers: int | None) -> int:
    """Run a range of seeds; the exit code."""
    reports: list[Report] = []
    failed: list[Result[Report]] = []
    run = partial(run_seed, partitions=partitions, consumers=consumers)
    size = "" if partitions is None else f" --partitions {partitions}"
    size += "" if consumers is None else f" --consumers {consumers}"
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for result in pool.imap_unordered(run, range(start, start + seeds)):
            if result.report is not None:
                reports.append(result.report)
                continue
            failed.append(result)
            console.print(f"[red]seed {result.seed}[/red] {result.checker}: {result.reason[:600]}")
            console.print(f"    python -m zraft.testing.claims --seed {result.seed}{size}")
    if reports:
        _summary(reports)
    empty = emptiness(reports)
    for line in empty:
        console.print(f"[red]too little seen[/red]: {line}")
    if failed:
        console.print(f"[red]{len(failed)} of {seeds} seeds failed[/red]: {sorted(r.seed for r in failed)}")
    elif not empty:
        console.print(f"[green]no promise broken[/green] in seeds {start} to {start + seeds - 1}")
    return 1 if failed or empty else 0


def _summary(reports: list[Report]) -> None:
    table = Table(title=f"{len(reports)} seeds")
    for column in ("per seed", "mean", "least", "most"):
        table.add_column(column, justify="left" if column == "per seed" else "right")
    for name in ("partitions", "consumers", "messages", "faults", "leader_changes"):
        numbers = [getattr(report, name) for report in reports]
        mean = sum(numbers) / len(numbers)
        table.add_row(name.replace("_", " "), f"{mean:.1f}", str(min(numbers)), str(max(numbers)))
    console.print(table)
    seen: Counter[str] = Counter()
    for report in reports:
        seen.update(dict(report.seen))
    console.print("seen: " + ", ".join(f"{what} {number}" for what, number in sorted(seen.items())))


def _search(start: int, name: str) -> tuple[str, Result[Report] | None, int]:
    return name, *run_planted(name, range(start, start + PLANTED_SEEDS_MAX))


def _planted(names: list[str], start: int, jobs: int) -> int:
    """Search a seed that notices each planted bug; the exit code."""
    table = Table(title="planted bugs")
    for column in ("bug", "flaw", "seed", "seeds", "caught by"):
        table.add_column(column, overflow="fold")
    missed = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for name, result, tried in pool.imap_unordered(partial(_search, start), names):
            flaw = PLANTS[name].rule
            if result is None:
                missed += 1
                console.print(f"[red]missed[/red] {name}: {PLANTS[name].text} ({tried} seeds)")
                table.add_row(name, flaw, "-", str(tried), "[red]missed[/red]")
            else:
                console.print(f"caught {name}: {result.checker}: {result.reason[:200]}")
                table.add_row(name, flaw, str(result.seed), str(tried), result.checker)
    console.print(table)
    return 1 if missed else 0


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
        raise SystemExit(_planted(list(PLANTS) if name == "all" else [name], start, jobs))
    raise SystemExit(_range(start, seeds, jobs, partitions, consumers))


if __name__ == "__main__":
    main()
