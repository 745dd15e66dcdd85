"""The command of the multicast simulator: many seeds, one seed with a trace, or planted bugs that must be caught.

python -m tests.simulation.multicast --seeds 10000
python -m tests.simulation.multicast --seed 17 --trace
python -m tests.simulation.multicast --planted all
python -m tests.simulation.multicast --controls
"""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections import Counter
from collections.abc import Iterable

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.simulation.multicast.planted import PLANTS
from tests.simulation.multicast.run import Result, run_directed, run_planted, run_seed, shortfalls, trace_of
from tests.simulation.multicast.thesis import CORRECTED, PUBLISHED, violations

PLANTED_SEEDS_MAX = 3000
CONTROL_RUNS = 1000
TOPICS = ("A", "B", "C")

console = Console(highlight=False)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many.")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=click.IntRange(0), help="Only this one.")
@click.option("--trace", is_flag=True, help="With --seed: every log, and what it delivered.")
@click.option("--planted", metavar="NAME|all", help="Until a seed or a directed schedule notices this bug.")
@click.option("--controls", is_flag=True, help="The published algorithms: do the checks find their mistakes?")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
def main(
    seeds: int, start: int, seed: int | None, trace: bool, planted: str | None, controls: bool, jobs: int
) -> None:
    """Let groups multicast under an adversary, and check what was promised.

    Exit code 0: every promise held and enough was seen, or every planted bug was noticed. 1: not so.
    """
    if planted is not None:
        names = sorted(PLANTS) if planted == "all" else [planted]
        unknown = [name for name in names if name not in PLANTS]
        if unknown:
            raise click.BadParameter(f"{unknown[0]}: expected all or one of {', '.join(sorted(PLANTS))}")
        sys.exit(0 if _plants(names, start) else 1)
    if controls:
        sys.exit(0 if _controls() else 1)
    if seed is not None:
        result = run_seed(seed)
        if trace:
            console.print(escape(trace_of(seed)))
        _tell(result)
        sys.exit(0 if result.summary is not None else 1)
    sys.exit(0 if _seeds(range(start, start + seeds), jobs) else 1)


def _tell(result: Result) -> None:
    if result.summary is None:
        console.print(
            f"[red]seed {result.seed}[/red] {escape(result.checker)}: {escape(result.reason[:1500])}"
        )
        console.print(f"again: python -m tests.simulation.multicast --seed {result.seed} --trace")
    else:
        summary = result.summary
        console.print(
            f"seed {result.seed}: {summary.messages} messages, {summary.deliveries} deliveries, "
            f"{summary.commands} commands, {dict(summary.faults)}"
        )


def _results(seeds: range, jobs: int) -> Iterable[Result]:
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run_seed, seeds, chunksize=4)


def _seeds(seeds: range, jobs: int) -> bool:
    good: list[Result] = []
    bad: list[Result] = []
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for result in _results(seeds, jobs):
            (bad if result.summary is None else good).append(result)
            progress.advance(task)
            if result.summary is None:
                _tell(result)
    faults: Counter[str] = Counter()
    for result in good:
        assert result.summary is not None
        faults.update(result.summary.faults)
    table = Table("seen", "in all", "per seed")
    sums = {
        "messages": sum(r.summary.messages for r in good if r.summary),
        "deliveries": sum(r.summary.deliveries for r in good if r.summary),
        "commands": sum(r.summary.commands for r in good if r.summary),
        **dict(faults.most_common()),
    }
    for name, count in sums.items():
        table.add_row(name, f"{count:,}", f"{count / max(1, len(good)):.1f}")
    console.print(table)
    few = shortfalls(good)
    for text in few:
        console.print(f"[red]too little seen:[/red] {text}")
    console.print(f"{len(seeds)} seeds from {seeds.start}: {len(bad)} broke a promise")
    return not bad and not few


def _plants(names: list[str], start: int) -> bool:
    table = Table("planted bug", "rule", "noticed by", "promise")
    missed = 0
    for name in names:
        directed = run_directed(name)
        if directed is not None:
            table.add_row(name, PLANTS[name].rule, "directed schedule", directed)
            continue
        result = run_planted(name, range(start, start + PLANTED_SEEDS_MAX))
        if result is None:
            missed += 1
            table.add_row(name, PLANTS[name].rule, "[red]nothing[/red]", "")
        else:
            table.add_row(name, PLANTS[name].rule, f"seed {result.seed}", escape(result.checker))
    console.print(table)
    console.print(f"{len(names)} planted, {missed} not noticed")
    return not missed


def _controls() -> bool:
    table = Table(
        "algorithm", "2 topics, 2 messages", "2 topics, 3", "3 topics, 4", title="runs with a violation"
    )
    right = True
    for variant in (*PUBLISHED, *CORRECTED):
        found = [
            violations(variant, CONTROL_RUNS, TOPICS[:topics], n) for topics, n in ((2, 2), (2, 3), (3, 4))
        ]
        table.add_row(variant.value, *(f"{count} of {CONTROL_RUNS}" for count in found))
        right = right and (any(found) == (variant in PUBLISHED))
    console.print(table)
    return right


if __name__ == "__main__":
    try:
        main()
    except Exception:
        traceback.print_exc()
        sys.exit(2)
