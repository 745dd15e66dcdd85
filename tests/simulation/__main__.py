"""The command of all simulations: many seeds on all cores, one seed, or planted bugs that must be noticed.

    python -m tests.simulation cluster --seeds 2000
    python -m tests.simulation cluster --seed 17 --trace
    python -m tests.simulation claims --seeds 10 --partitions 32 --consumers 20
    python -m tests.simulation groups --planted all
    python -m tests.simulation controls

A seed and a commit decide everything: the same run, byte for byte. See docs/explanation/simulation.md.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.multicast.thesis import CORRECTED, PUBLISHED, violations
from tests.simulation.scenario import Result, Scenario
from tests.simulation.scenarios import SCENARIOS

REASON_CHARACTERS_MAX: Final = 1_500

CONTROL_RUNS: Final = 1_000
CONTROL_SIZES: Final = (("AB", 2), ("AB", 3), ("ABC", 4))
"""Topics, and how many messages."""

console = Console(highlight=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Simulate a system under faults from seeds, and check every promise.

    Exit code 0: every promise held and enough was seen, or every planted bug was noticed. 1: not so.
    """


def command_of(scenario: Scenario[Any]) -> click.Command:
    """The command of one scenario."""

    def run(
        seeds: int, start: int, jobs: int, seed: int | None, planted: str | None, **given: object
    ) -> None:
        options = {name: value for name, value in given.items() if value not in (None, False)}
        if planted not in (None, "all", *scenario.plants):
            raise click.BadParameter(
                f"{planted!r}; known are: all, {', '.join(scenario.plants)}", param_hint="--planted"
            )
        if options.get("trace") and seed is None:
            raise click.BadParameter("it needs --seed", param_hint="--trace")
        if seed is not None:
            raise SystemExit(_one(scenario, seed, None if planted == "all" else planted, options))
        if planted is not None:
            names = list(scenario.plants) if planted == "all" else [planted]
            raise SystemExit(_plants(scenario, names, start, jobs))
        raise SystemExit(_range(scenario, range(start, start + seeds), jobs, options))

    return click.Command(
        scenario.name,
        callback=run,
        help=scenario.about,
        params=[
            click.Option(
                ["--seeds"], type=click.IntRange(1), default=100, show_default=True, help="How many seeds."
            ),
            click.Option(
                ["--start"], type=click.IntRange(0), default=0, show_default=True, help="The first seed."
            ),
            click.Option(
                ["--jobs"],
                type=click.IntRange(1),
                default=os.cpu_count() or 1,
                show_default=True,
                help="Processes.",
            ),
            click.Option(["--seed"], type=click.IntRange(0), help="Run this one seed only."),
            click.Option(
                ["--planted"],
                metavar="NAME|all",
                help="Plant this bug, or each of them, and demand that its directed schedule or a seed notices it.",
            ),
            *scenario.options,
        ],
    )


def _one(scenario: Scenario[Any], seed: int, plant: str | None, options: Mapping[str, Any]) -> int:
    if plant is not None:
        options = {**scenario.planted_options(scenario.plants[plant]), **options}
    result = scenario.run_seed(seed, plant=plant, **options)
    if result.report is None:
        console.print(f"[red]seed {seed}[/red] {escape(result.checker)}: {escape(result.reason)}")
        return 1
    console.print(escape(str(result.report)))
    console.print(f"[green]no promise broken[/green] in seed {seed}")
    return 0


# What goes to other processes goes by the scenario's name.


def _run_seed(name: str, options: Mapping[str, Any], seed: int) -> Result[Any]:
    return SCENARIOS[name].run_seed(seed, **options)


def _search(name: str, start: int, plant: str) -> tuple[str, Result[Any] | None, int]:
    return plant, *SCENARIOS[name].search(plant, start)


def _range(scenario: Scenario[Any], seeds: range, jobs: int, options: Mapping[str, Any]) -> int:
    """Run a range of seeds; the exit code."""
    began = time.monotonic()
    again = " ".join(
        [
            "python -m tests.simulation",
            scenario.name,
            *(f"--{k}" if v is True else f"--{k} {v}" for k, v in options.items()),
        ]
    )
    reports: dict[int, Any] = {}
    failed: list[int] = []
    cpu_s = 0.0
    broken_off = False
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    run_seed = partial(_run_seed, scenario.name, options)
    with ExitStack() as stack:
        results: Iterable[Result[Any]] = map(run_seed, seeds)
        if jobs > 1:
            # Forked workers inherit the loaded modules; nothing has started a thread yet. One job forks nothing, so it also
            # runs inside of a program with threads: a worker that is forked there may never end.
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(jobs))
            results = pool.imap_unordered(run_seed, seeds)
        progress = stack.enter_context(Progress(*columns, console=console))
        task = progress.add_task("seeds", total=len(seeds), rate="")
        try:
            for result in results:
                cpu_s += result.cpu_s
                if result.report is not None:
                    reports[result.seed] = result.report
                else:
                    failed.append(result.seed)
                    reason = escape(result.reason[:REASON_CHARACTERS_MAX])
                    progress.console.print(
                        f"[red]seed {result.seed}[/red] {escape(result.checker)}: {reason}"
                    )
                    progress.console.print(f"    {again} --seed {result.seed}")
                    progress.console.file.flush()
                done = len(reports) + len(failed)
                progress.update(task, advance=1, rate=f"{done / (time.monotonic() - began):.2f} seeds/s")
        except KeyboardInterrupt:
            # Hours of seeds are not thrown away: what was seen is told, and that it is not all.
            broken_off = True
    in_order = [reports[seed] for seed in sorted(reports)]
    _show(scenario, in_order, cpu_s, time.monotonic() - began)
    shortfalls = scenario.shortfalls(in_order)
    for line in shortfalls:
        console.print(f"[red]too little seen[/red]: {line}")
    if failed:
        console.print(f"[red]{len(failed)} of {len(seeds)} seeds failed[/red]: {sorted(failed)}")
    elif broken_off:
        console.print(f"broken off after {len(reports)} of {len(seeds)} seeds; no promise broken in these")
    elif not shortfalls:
        console.print(f"[green]no promise broken[/green] in seeds {seeds.start} to {seeds.stop - 1}")
    return 1 if failed or shortfalls or broken_off else 0


def _show(scenario: Scenario[Any], reports: Sequence[Any], cpu_s: float, wall_s: float) -> None:
    """A table of what each seed saw, and how often everything was seen in all of them."""
    if not reports:
        return
    count = len(reports)
    table = Table(title=f"{count} seeds, {count / wall_s:.2f} seeds/s, {cpu_s / count:.2f} s CPU each")
    table.add_column("per seed")
    for column in ("mean", "least", "most"):
        table.add_column(column, justify="right")
    for name in scenario.figures:
        values = [getattr(report, name) for report in reports]
        table.add_row(
            name.replace("_", " "), f"{sum(values) / count:.1f}", str(min(values)), str(max(values))
        )
    console.print(table)
    seen = scenario.seen_in(reports)
    if seen:
        console.print("seen: " + ", ".join(f"{what} {number}" for what, number in seen.most_common()))


def _plants(scenario: Scenario[Any], names: Sequence[str], start: int, jobs: int) -> int:
    """Look for what notices each planted bug; the exit code."""
    table = Table(title="planted bugs")
    for column in ("bug", "rule", "seeds", "seed", "caught by"):
        table.add_column(column, overflow="fold")
    missed = 0
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        for name, result, tried in pool.imap_unordered(partial(_search, scenario.name, start), names):
            plant = scenario.plants[name]
            if result is None:
                missed += 1
                console.print(f"[red]missed[/red] {name} ({plant.rule}): {plant.text} ({tried} seeds)")
                table.add_row(name, plant.rule, f"{tried}", "-", "[red]missed[/red]")
            else:
                reason = escape(result.reason[:200])
                console.print(
                    f"caught {name} ({plant.rule}) after {tried}: {escape(result.checker)}: {reason}"
                )
                seed = str(result.seed) if tried else "directed"
                table.add_row(name, plant.rule, f"{tried or '-'}", seed, escape(result.checker))
    console.print(table)
    console.print(f"{len(names)} planted, {missed} not noticed")
    return 1 if missed else 0


@click.command()
def controls() -> None:
    """Run the published algorithms of multicast: the checks must find their mistakes, and none in the corrected ones."""
    sizes = [f"{len(topics)} topics, {count} messages" for topics, count in CONTROL_SIZES]
    table = Table("algorithm", *sizes, title="runs with a violation")
    right = True
    for variant in (*PUBLISHED, *CORRECTED):
        found = [violations(variant, CONTROL_RUNS, topics, count) for topics, count in CONTROL_SIZES]
        table.add_row(variant.value, *(f"{count} of {CONTROL_RUNS}" for count in found))
        right = right and (any(found) == (variant in PUBLISHED))
    console.print(table)
    raise SystemExit(0 if right else 1)


for _scenario in SCENARIOS.values():
    main.add_command(command_of(_scenario))
main.add_command(controls)


if __name__ == "__main__":
    main()
