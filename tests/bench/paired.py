"""Compares the speed of two commits: pairs of clusters, one of each, under the same load.

    python -m tests.bench.paired BASE              the working tree against a commit
    python -m tests.bench.paired BASE HEAD --pairs 15 --seconds 2

In a pair three servers of one commit run all tests, then three of the other, in an order that changes from pair to pair, so
that slow changes of the machine's speed meet both alike. The load always comes from the working tree. Tests are those
of the preset `deployment` with values of 100 bytes, and the streams of `zraft-bench multicast`. Shown per test: the median
over the pairs of HEAD over BASE, in throughput and in the servers' CPU per request, with a 95 % interval of that median (of
order statistics). A test is slower if its whole interval is below 0.95 in throughput, or above 1.05 in CPU; the exit code
is 1 then. Idle CPU of the servers, in percent of a core, and CPU seconds until they serve stand below.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Any, Final

import click
from attrs import evolve
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.simulation.compare import tree_of
from zraft_bench.cluster import LocalCluster, server_environment
from zraft_bench.load.measure import default_spread, run_test
from zraft_bench.load.schedule import PRESETS
from zraft_bench.load.workload import Workload
from zraft_bench.multicast.plan import Cell, stream_cells
from zraft_bench.multicast.run import default_processes, run_cell
from zraft_bench.processes import ServerProcess

SERVERS: Final = 3
VALUE_BYTES: Final = 100
ENTRIES: Final = 1_000
SETTLE_S: Final = 1.0
"""Before idle CPU is measured: the last writes are applied, and what follows a start is over."""
IDLE_S: Final = 3.0
CONFIDENCE: Final = 0.95
THROUGHPUT_MIN: Final = 0.95
CPU_MAX: Final = 1.05

Figures = dict[tuple[str, str], list[float]]
"""(test, what) -> HEAD over BASE, pair by pair."""


class TreeCluster(LocalCluster):
    """Servers that run the code of a checkout."""

    def __init__(self, tree: Path, directory: Path) -> None:
        super().__init__(directory, SERVERS)
        self._tree = tree

    def _place(self, key: Path) -> None:
        super()._place(key)
        path = os.pathsep.join(map(str, (self._tree, self._tree / "client", self._tree / "bench")))
        # Without the safe path, `python -m` finds the checkout in which this runs before the one that it is told.
        environment = server_environment() | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
        for number, process in self.processes.items():
            self.processes[number] = ServerProcess(process.command, process.log, environment)


def interval_of_median(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the narrowest pair of order statistics between which the median lies with at least this confidence.

    Nothing is assumed of the distribution. With few values it is their whole range, whose confidence is lower.
    """
    ordered, count = sorted(values), len(values)
    # The median is outside of (k-th, k-th from above) if at most k of the values are on one side of it.
    outside = 0.0
    for k in range(count // 2):
        outside += 2 * comb(count, k) / 2**count
        if outside > 1 - confidence:
            return ordered[max(0, k - 1)], ordered[count - max(1, k)]
    middle = max(0, count // 2 - 1)
    return ordered[middle], ordered[count - 1 - middle]


async def measure(
    tree: Path, target: str, tests: Sequence[Workload], streams: Sequence[Cell]
) -> dict[tuple[str, str], float]:
    """Start servers of a tree, run all tests, end the servers: (test, what) -> figure."""
    found: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory(prefix="paired-") as directory:
        cluster = TreeCluster(tree, Path(directory) / "servers")
        await asyncio.to_thread(cluster.start)
        try:
            found["start", "CPU s until serving"] = cluster.cpu_s() or 0.0
            for number, workload in enumerate(tests, 1):
                result = await run_test(
                    number, workload, target=target, servers=cluster, spread=default_spread()
                )
                if not result.ok or result.servers_us is None:
                    raise click.ClickException(f"{tree}: {workload.title()}: {result.reason}")
                title = f"{workload.operation.value} x{workload.workers}"
                found[title, "requests/s"] = result.per_second
                found[title, "CPU us"] = result.servers_us
            for cell in streams:
                stream = await run_cell(cell, cluster, default_processes())
                if not stream.ok or stream.servers_us is None:
                    raise click.ClickException(f"{tree}: {cell.name}: {stream.reason}")
                found[cell.name, "requests/s"] = stream.per_second
                found[cell.name, "CPU us"] = stream.servers_us
            await asyncio.sleep(SETTLE_S)
            before, began = cluster.cpu_s() or 0.0, time.monotonic()
            await asyncio.sleep(IDLE_S)
            used = (cluster.cpu_s() or 0.0) - before
            found["idle", "% of a core"] = 100 * used / (time.monotonic() - began)
        finally:
            await asyncio.to_thread(cluster.stop)
    return found


async def compare(
    trees: tuple[Path, Path], target: str, tests: Sequence[Workload], streams: Sequence[Cell], pairs: int
) -> tuple[Figures, Figures, Figures]:
    """Return the ratios, and the figures of BASE and of HEAD behind them."""
    ratios: Figures = defaultdict(list)
    sides: tuple[Figures, Figures] = (defaultdict(list), defaultdict(list))
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("pairs", total=2 * pairs)
        for pair in range(pairs):
            measured: dict[int, dict[tuple[str, str], float]] = {}
            for side in (0, 1) if pair % 2 == 0 else (1, 0):
                measured[side] = await measure(trees[side], target, tests, streams)
                progress.advance(task)
            for key, base in measured[0].items():
                sides[0][key].append(base)
                sides[1][key].append(measured[1][key])
                ratios[key].append(measured[1][key] / base if base else 1.0)
    return ratios, *sides


def shown(ratios: Figures, base: Figures, head: Figures, title: str) -> tuple[Table, list[str]]:
    """Return the table, and the tests that got slower."""
    table = Table(title=title)
    for name in ("test", "figure", "BASE", "HEAD", "HEAD / BASE", "95 %"):
        table.add_column(name, justify="left" if name in ("test", "figure") else "right")
    slower: list[str] = []
    for key, values in ratios.items():
        low, high = interval_of_median(values)
        test, what = key
        if (what == "requests/s" and high < THROUGHPUT_MIN) or (what == "CPU us" and low > CPU_MAX):
            slower.append(f"{test}: {what}")
        before, after = statistics.median(base[key]), statistics.median(head[key])
        table.add_row(
            test,
            what,
            f"{before:,.2f}",
            f"{after:,.2f}",
            f"{statistics.median(values):.3f}",
            f"{low:.3f} - {high:.3f}",
        )
    return table, slower


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("base")
@click.argument("head", required=False)
@click.option("--pairs", type=click.IntRange(1), default=15, show_default=True, help="How many.")
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Of each test.")
@click.option(
    "--target",
    type=click.Choice(["zraft", "zraft-zookeeper"]),
    default="zraft-zookeeper",
    show_default=True,
    help="By which protocol.",
)
def main(base: str, head: str | None, **options: Any) -> None:
    """Run pairs of BASE and HEAD (default: the working tree) and show how HEAD compares with BASE."""
    workload = Workload(seconds_min=options["seconds"], warm_up_s=0.5)
    tests = [
        # A round is short, so that a test takes about as long as it is told to.
        evolve(test, seconds_min=options["seconds"], entries=ENTRIES)
        for test in PRESETS["deployment"](workload)
        if test.value_bytes == VALUE_BYTES
    ]
    streams = stream_cells(Cell(name="streams", seconds=options["seconds"], messages=1))
    with tree_of(base) as one, tree_of(head) as other:
        found = asyncio.run(compare((one, other), options["target"], tests, streams, options["pairs"]))
    python = ".".join(map(str, sys.version_info[:3]))
    title = f"{options['pairs']} pairs, {options['target']}, {os.cpu_count()} cores, Python {python}"
    table, slower = shown(*found, title)
    console = Console(width=110)
    console.print(table)
    if slower:
        console.print("slower: " + ", ".join(slower), highlight=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
