"""The command `zraft-bench compare`: zraft beside ZooKeeper and PySyncObj, test by test in one run on one machine."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
from attrs import evolve
from rich.console import Console

from zraft_bench.cluster import GivenServers, LocalCluster, Servers, given_servers
from zraft_bench.compare.zookeeper_servers import ZooKeeperServers, installed, require_installed
from zraft_bench.load.measure import Side, Spread, run_tests
from zraft_bench.load.schedule import schedule as tests_of
from zraft_bench.load.workload import Workload
from zraft_bench.options import (
    comment_option,
    out_option,
    schedule_option,
    settings_option,
    spread_of,
    spread_options,
    workers_option,
    workload_of,
    workload_options,
)
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.results import TestResult
from zraft_bench.show import Display, new_console, result_table
from zraft_bench.targets.pysyncobj import NOTES, PySyncObjServers, importable
from zraft_core.errors import ConfigError

SYSTEMS: Final = ("zraft", "zraft-zookeeper", "zookeeper", "pysyncobj")


@click.command(short_help="zraft beside ZooKeeper and PySyncObj, in one run.")
@click.option(
    "-s",
    "--servers",
    default=3,
    show_default=True,
    type=click.IntRange(1, 9),
    help="How many servers each system has.",
)
@workers_option
@workload_options
@schedule_option
@spread_options
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(SYSTEMS),
    help="Let this system take part; may be repeated.  [default: all that are here]",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,…", help="Use a ZooKeeper that runs already, instead of starting one."
)
@click.option(
    "--warm-zookeeper",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How many seconds of writes come before the first test: a cold JVM is a third slower.",
)
@settings_option
@comment_option
@out_option
def compare(
    servers: int,
    workers: int,
    schedule: str | None,
    processes: int | None,
    connections: int | None,
    systems: tuple[str, ...],
    zookeeper: str | None,
    warm_zookeeper: float,
    settings: tuple[str, ...],
    comment: str,
    out: Path,
    **workload: Any,
) -> None:
    """Put the same load on several systems, cell by cell in turn, so that all meet the same noise.

    \b
    zraft            through its own protocol
    zraft-zookeeper  the same servers, through ZooKeeper's protocol
    zookeeper        given by --zookeeper, or started if it is installed; the same load generator as the one before
    pysyncobj        if it can be imported
    All that are started run at the same time on this machine's cores; idle ones use little. What is missing is said.
    """
    tests = tests_of(schedule, workload_of(workers, workload))
    chosen = systems or SYSTEMS
    spread = spread_of(processes, connections)
    given = given_servers(zookeeper, "--zookeeper") if zookeeper is not None else None
    console = new_console()
    run = evolve(
        new_run("compare", title=schedule or "compare", settings={"set": " ".join(settings)}), comment=comment
    )
    file = ResultFile(out, run)
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as name:
        sides, started, missing = _sides(
            Path(name), chosen, servers, settings, given, spread, must=bool(systems)
        )
        for text in missing:
            console.print(text, highlight=False)
        file.run = evolve(file.run, notes=tuple(missing))
        ok = asyncio.run(_compare(tests, sides, started, warm_zookeeper, file, console))
    raise SystemExit(0 if ok else 1)


def _sides(
    directory: Path,
    chosen: Sequence[str],
    servers: int,
    settings: Sequence[str],
    zookeeper: GivenServers | None,
    spread: Spread,
    *,
    must: bool,
) -> tuple[list[Side], list[Servers], list[str]]:
    """Return who takes part, what has to be started, and what is missing; with `must`, what is missing is an error."""
    sides: list[Side] = []
    started: list[Servers] = []
    missing: list[str] = []
    if "zraft" in chosen or "zraft-zookeeper" in chosen:
        ours = LocalCluster(directory / "zraft", servers, settings)
        started.append(ours)
        sides += [Side(one, ours, spread) for one in ("zraft", "zraft-zookeeper") if one in chosen]
    if "zookeeper" in chosen:
        if zookeeper is not None:
            sides.append(Side("zookeeper", zookeeper, spread))
        elif must or installed() is not None:
            jars, version = require_installed()
            theirs = ZooKeeperServers(directory, servers, jars, version)
            started.append(theirs)
            sides.append(
                Side("zookeeper", theirs, spread, (f"ZooKeeper {version}, fsync on, JVM as it comes",))
            )
        else:
            missing.append("zookeeper is left out: none given by --zookeeper and none installed")
    if "pysyncobj" in chosen:
        if importable():
            nodes = PySyncObjServers(directory, servers)
            started.append(nodes)
            sides.append(Side("pysyncobj", nodes, spread, NOTES))
        elif must:
            raise ConfigError("--system pysyncobj: it cannot be imported; pip install pysyncobj")
        else:
            missing.append("pysyncobj is left out: it cannot be imported (pip install pysyncobj)")
    return sides, started, missing


async def _compare(
    tests: Sequence[Workload],
    sides: Sequence[Side],
    started: Sequence[Servers],
    warm_zookeeper: float,
    file: ResultFile,
    console: Console,
) -> bool:
    try:
        for servers in started:
            await asyncio.to_thread(servers.start)
        with Display(console, len(tests) * len(sides), "comparison") as display:
            for side in sides:
                if side.target == "zookeeper" and warm_zookeeper:
                    await _warm(side, warm_zookeeper, tests[0].workers, display)
            results = await run_tests(tests, sides, file, display)
    finally:
        for servers in started:
            await asyncio.to_thread(servers.stop)
    console.print(result_table(results, f"side by side on {file.run.machines[0].cores} cores"))
    for line in ratios(results):
        console.print(line, highlight=False)
    console.print(f"results: {file.path}", highlight=False, soft_wrap=True)
    return all(one.ok for one in results)


async def _warm(side: Side, seconds: float, workers: int, display: Display) -> None:
    from zraft_bench.load.measure import run_test

    warming = Workload(workers=workers, entries=max(1000, workers), seconds_min=seconds, warm_up_s=0.0)
    async with display.test(f"warming {side.target}", seconds):
        await run_test(0, warming, target=side.target, servers=side.servers, spread=side.spread)


def ratios(results: Sequence[TestResult]) -> list[str]:
    """Return requests per second of each system over ZooKeeper's, test by test, where both have a figure."""
    base = {one.number: one.per_second for one in results if one.target == "zookeeper" and one.per_second}
    return [
        f"{one.workload.title()}: {one.target} / zookeeper = {one.per_second / base[one.number]:.2f}"
        for one in results
        if one.target != "zookeeper" and one.number in base and one.per_second
    ]
