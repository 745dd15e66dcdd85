"""The simulator's command: many seeds on all cores, one seed with a trace, or planted bugs that must be caught.

    python -m tests.simulation.simulate --seeds 2000
    python -m tests.simulation.simulate --seed 17 --trace
    python -m tests.simulation.simulate --planted all

A seed and a commit decide everything: the same run, byte for byte. See docs/SIMULATION.md.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.directed_schedules import DIRECTED
from tests.simulation.planted import PLANTS, planted
from tests.simulation.profile import Mode
from tests.simulation.seed_runs import Result, first_to_notice, judged
from tests.simulation.simulation import Report, Simulation

COMMANDS_MEAN_MIN: Final = 500
LEADER_CHANGES_MEAN_MIN: Final = 3
FAULTS_MEAN_MIN: Final = 5
SNAPSHOTS_TAKEN_MEAN_MIN: Final = 10
SNAPSHOTS_ADOPTED_MEAN_MIN: Final = 1.5
CONFIGURATIONS_MEAN_MIN: Final = 2.5
"""What a range of seeds must have seen on average to mean anything."""

COMMANDS_MIN: Final = 200
LEADER_CHANGES_MIN: Final = 1
FAULTS_MIN: Final = 3
"""What every single seed must have seen."""

MEANS_FROM_SEEDS: Final = 20
"""Averages of fewer seeds are not judged."""

KINDS_FROM_SEEDS: Final = 100
"""In fewer seeds a rare kind of operation may be missing."""

PLANTED_SEEDS_MAX: Final = 300
"""A planted bug that so many seeds do not notice counts as missed."""

console = Console(highlight=False)


def run_seed(seed: int, *, mode: Mode | None = None, trace: bool = False) -> Result[Report]:
    return judged(seed, lambda: Simulation(seed, mode=mode, trace=trace))


@cache
def is_sound(seed: int, mode: Mode | None) -> bool:
    """Whether a seed breaks no promise without a plant: if it does, it proves nothing about one."""
    return run_seed(seed, mode=mode).report is not None


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result[Report] | None, int]:
    mode = PLANTS[name].mode
    return first_to_notice(
        seeds,
        lambda: planted(name),
        lambda seed: run_seed(seed, mode=mode),
        lambda seed: is_sound(seed, mode),
    )


def run_directed(name: str) -> Result[Report] | None:
    """The directed schedule of a planted bug: what noticed it, or None."""
    began = time.process_time()
    directed = DIRECTED[name]
    try:
        with planted(name):
            directed.schedule()
    except directed.raises as error:
        checker = error.checker if isinstance(error, BrokenPromiseError) else type(error).__name__
        return Result(0, None, checker, str(error), time.process_time() - began)
    return None


def replay_command(result: Result[Report]) -> str:
    return f"python -m tests.simulation.simulate --seed {result.seed} --trace"


def emptiness(reports: list[Report]) -> list[str]:
    """Why these runs do not mean anything: averages and single seeds that saw too little."""
    found = []
    for report in reports:
        seen = (report.commands, report.leader_changes, report.faults)
        if seen < (COMMANDS_MIN, 0, 0) or seen[1] < LEADER_CHANGES_MIN or seen[2] < FAULTS_MIN:
            found.append(
                f"seed {report.seed} saw only {seen[0]} commands, {seen[1]} leader changes, {seen[2]} faults "
                f"(at least {COMMANDS_MIN}, {LEADER_CHANGES_MIN}, {FAULTS_MIN})"
            )
    if len(reports) >= MEANS_FROM_SEEDS:
        for name, least in (
            ("commands", COMMANDS_MEAN_MIN),
            ("leader_changes", LEADER_CHANGES_MEAN_MIN),
            ("faults", FAULTS_MEAN_MIN),
            ("snapshots_taken", SNAPSHOTS_TAKEN_MEAN_MIN),
            ("snapshots_adopted", SNAPSHOTS_ADOPTED_MEAN_MIN),
            ("configurations", CONFIGURATIONS_MEAN_MIN),
        ):
            mean = sum(getattr(report, name) for report in reports) / len(reports)
            if mean < least:
                found.append(f"{name.replace('_', ' ')} per seed: {mean:.1f}, at least {least} expected")
    if len(reports) >= KINDS_FROM_SEEDS:
        for kind, count in operations_seen(reports).items():
            if not count:
                found.append(f"no {kind} in {len(reports)} seeds")
    return found


def operations_seen(reports: Sequence[Report]) -> Counter[str]:
    """How often each kind of operation was seen, the ones never seen included."""
    seen: Counter[str] = Counter()
    for report in reports:
        seen.update(dict(report.operations))
    return seen


def _summary(reports: list[Report], cpu_s: float, wall_s: float) -> None:
    count = len(reports)
    table = Table(
        title=f"{count} seeds, {count / wall_s:.2f} seeds/s, {cpu_s / max(1, count):.2f} s CPU each"
    )
    table.add_column("per seed")
    for column in ("mean", "least", "most"):
        table.add_column(column, justify="right")
    for name in (
        "commands",
        "replies",
        "writes",
        "events",
        "entries",
        "leader_changes",
        "faults",
        "snapshots_taken",
        "snapshots_adopted",
        "configurations",
        "sessions_expired",
        "turns",
    ):
        values = [getattr(report, name) for report in reports]
        table.add_row(
            name.replace("_", " "), f"{sum(values) / count:.1f}", str(min(values)), str(max(values))
        )
    console.print(table)
    kinds = sorted(operations_seen(reports).items(), key=lambda item: -item[1])
    console.print("seen: " + ", ".join(f"{kind} {number}" for kind, number in kinds))


def _range(start: int, seeds: int, jobs: int) -> int:
    """Run a range of seeds; the exit code."""
    began = time.monotonic()
    failed: list[Result[Report]] = []
    reports: list[Report] = []
    cpu_s = 0.0
    broken_off = False
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    # Forked workers inherit the loaded modules; nothing has started a thread yet.
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs) as pool, Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=seeds, rate="")
        try:
            for result in pool.imap_unordered(run_seed, range(start, start + seeds)):
                cpu_s += result.cpu_s
                if result.report is not None:
                    reports.append(result.report)
                else:
                    failed.append(result)
                    progress.console.print(f"[red]seed {result.seed}[/red] {result.checker}: {result.reason}")
                    progress.console.print(f"    {replay_command(result)}")
                    progress.console.file.flush()
                done = len(reports) + len(failed)
                progress.update(task, advance=1, rate=f"{done / (time.monotonic() - began):.2f} seeds/s")
        except KeyboardInterrupt:
            # Hours of seeds are not thrown away: what was seen is told, and that it is not all.
            broken_off = True
    reports.sort(key=lambda report: report.seed)
    if reports:
        _summary(reports, cpu_s, time.monotonic() - began)
    empty = emptiness(reports)
    for line in empty:
        console.print(f"[red]too little seen[/red]: {line}")
    if failed:
        console.print(f"[red]{len(failed)} of {seeds} seeds failed[/red]: {sorted(r.seed for r in failed)}")
    elif broken_off:
        console.print(f"broken off after {len(reports)} of {seeds} seeds; no promise broken in these")
    elif not empty:
        console.print(f"[green]no promise broken[/green] in seeds {start} to {start + seeds - 1}")
    return 1 if failed or empty or broken_off else 0


def _search_plant(arguments: tuple[str, int, int]) -> tuple[str, Result[Report] | None, int]:
    name, start, seeds = arguments
    if name in DIRECTED:
        return name, run_directed(name), 0
    result, tried = run_planted(name, range(start, start + seeds))
    return name, result, tried


def _planted(names: list[str], start: int, seeds: int, jobs: int) -> int:
    """Search a seed that notices each planted bug; the exit code."""
    table = Table(title="planted bugs")
    for column in ("bug", "rule", "seeds", "seed", "caught by"):
        table.add_column(column, overflow="fold")
    missed = 0
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs) as pool:
        arguments = [(name, start, seeds) for name in names]
        for name, result, tried in pool.imap_unordered(_search_plant, arguments):
            plant = PLANTS[name]
            if result is None:
                missed += 1
                console.print(f"[red]missed[/red] {name}: {plant.text} ({tried} seeds)")
                table.add_row(name, plant.rule, f"{tried}", "-", "[red]missed[/red]")
            else:
                console.print(f"caught {name} after {tried}: {result.checker}: {result.reason[:150]}")
                seed = str(result.seed) if tried else "directed"
                table.add_row(name, plant.rule, f"{tried or '-'}", seed, result.checker)
    console.print(table)
    return 1 if missed else 0


@click.command()
@click.option("--seeds", default=100, show_default=True, help="How many seeds.")
@click.option("--start", default=0, show_default=True, help="The first seed.")
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--seed", type=int, help="Run this one seed only.")
@click.option("--trace", is_flag=True, help="With --seed: print what happens.")
@click.option(
    "--mode", type=click.Choice([mode.value for mode in Mode]), help="With --seed: prevailing faults."
)
@click.option(
    "--planted",
    "plant",
    help="Plant this bug (or `all`) and demand that it is caught, by its directed schedule or by seeds.",
)
def main(
    seeds: int, start: int, jobs: int, seed: int | None, trace: bool, mode: str | None, plant: str | None
) -> None:
    """Simulate clusters, clients and faults from seeds, and check every promise."""
    if plant == "all":
        raise SystemExit(_planted(list(PLANTS), start, PLANTED_SEEDS_MAX, jobs))
    if plant is not None and plant not in PLANTS:
        raise click.BadParameter(f"{plant!r}; known are: {', '.join(PLANTS)}", param_hint="--planted")
    if seed is not None:
        if plant is None:
            result = run_seed(seed, mode=Mode(mode) if mode else None, trace=trace)
        else:
            with planted(plant):
                result = run_seed(seed, mode=PLANTS[plant].mode, trace=trace)
        if result.report is None:
            console.print(f"[red]seed {seed}[/red] {result.checker}: {result.reason}")
            raise SystemExit(1)
        console.print(result.report)
        raise SystemExit(0)
    if plant is not None:
        raise SystemExit(_planted([plant], start, PLANTED_SEEDS_MAX, jobs))
    raise SystemExit(_range(start, seeds, jobs))


if __name__ == "__main__":
    main()
