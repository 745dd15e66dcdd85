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
from zraft_bench.compare.table import comparison_table
from zraft_bench.compare.zookeeper_servers import JARS, ZooKeeperServers, installed, require_installed
from zraft_bench.load.measure import Side, Spread, run_test, run_tests
from zraft_bench.load.schedule import PRESETS, SESSION_PRESETS
from zraft_bench.load.schedule import schedule as tests_of
from zraft_bench.load.workload import OF_ALL_TARGETS, Operation, Workload
from zraft_bench.options import (
    comment_option,
    out_option,
    settings_option,
    spread_of,
    spread_options,
    workers_option,
    workload_of,
    workload_options,
)
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.show import Display, new_console
from zraft_bench.targets.pysyncobj import NOTES, PySyncObjServers, importable
from zraft_core.errors import ConfigError

SYSTEMS: Final = ("zraft", "zraft-zookeeper", "zookeeper", "pysyncobj")
SPEAK_ZOOKEEPER: Final = ("zraft-zookeeper", "zookeeper")


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
@click.option(
    "--schedule",
    type=click.Choice(sorted(PRESETS | SESSION_PRESETS)),
    help="Run several tests instead of one; cells are sessions of ZooKeeper's protocol with 1 to 64 requests under way.",
)
@click.option(
    "--repeat",
    default=1,
    show_default=True,
    type=click.IntRange(1, 100),
    help="How often all tests are run; the table shows medians.",
)
@spread_options
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(SYSTEMS),
    help="Let this system take part; may be repeated.  [default: all that are here, and can do the tests]",
)
@click.option(
    "--zookeeper", metavar="HOST:PORT,…", help="Use a ZooKeeper that runs already, instead of starting one."
)
@click.option(
    "--zookeeper-jars",
    "jars",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Start the ZooKeeper whose jars are in this directory, instead of an installed one.",
)
@click.option(
    "--warm-zookeeper",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How many seconds of reads and writes come before the first test: a cold JVM is a third slower.",
)
@settings_option
@comment_option
@out_option
def compare(
    servers: int,
    workers: int,
    schedule: str | None,
    repeat: int,
    processes: int | None,
    connections: int | None,
    systems: tuple[str, ...],
    zookeeper: str | None,
    jars: Path | None,
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

    \b
    zraft-bench compare --schedule cells --repeat 5 --seconds 4 --warm-up 2
    compares zraft-zookeeper and zookeeper in twelve cells, in about quarter of an hour.
    """
    tests = tests_of(schedule, workload_of(workers, workload))
    able = SYSTEMS if schedule not in SESSION_PRESETS else SPEAK_ZOOKEEPER
    if unable := [one for one in systems if one not in able]:
        raise ConfigError(f"--system {unable[0]}: --schedule {schedule} is for {' and '.join(able)}")
    chosen = systems or able
    if jars is not None and (zookeeper is not None or "zookeeper" not in chosen):
        raise ConfigError(
            f"--zookeeper-jars {jars}: expected that a ZooKeeper is started, found --zookeeper or other systems only"
        )
    spread = spread_of(processes, connections)
    given = given_servers(zookeeper, "--zookeeper") if zookeeper is not None else None
    console = new_console()
    run = evolve(
        new_run("compare", title=schedule or "compare", settings={"set": " ".join(settings)}), comment=comment
    )
    file = ResultFile(out, run)
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as name:
        sides, started, missing = _sides(
            Path(name),
            chosen,
            servers,
            settings,
            given,
            spread,
            jars,
            must=bool(systems),
        )
        for text in missing:
            console.print(text, highlight=False)
        file.run = evolve(file.run, notes=tuple(missing))
        ok = asyncio.run(_compare(tests, sides, started, repeat, warm_zookeeper, file, console))
    raise SystemExit(0 if ok else 1)


def _sides(
    directory: Path,
    chosen: Sequence[str],
    servers: int,
    settings: Sequence[str],
    zookeeper: GivenServers | None,
    spread: Spread,
    jars: Path | None,
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
        elif must or jars is not None or installed() is not None:
            found = require_installed(JARS if jars is None else (jars,))
            theirs = ZooKeeperServers(directory, servers, *found)
            started.append(theirs)
            sides.append(
                Side("zookeeper", theirs, spread, (f"ZooKeeper {theirs.version}, fsync on, JVM as it comes",))
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
    repeats: int,
    warm_zookeeper: float,
    file: ResultFile,
    console: Console,
) -> bool:
    try:
        for servers in started:
            await asyncio.to_thread(servers.start)
        with Display(console, repeats * len(tests) * len(sides), "comparison") as display:
            for side in sides:
                if side.target == "zookeeper" and warm_zookeeper:
                    await _warm(side, warm_zookeeper, tests, display)
            results = await run_tests(tests, sides, file, display, repeats=repeats)
    finally:
        for servers in started:
            await asyncio.to_thread(servers.stop)
    cores = file.run.machines[0].cores
    console.print(comparison_table(results, f"side by side on {cores} cores, medians of {repeats}"))
    for side in sides:
        for note in side.notes:
            console.print(f"{side.target}: {note}", highlight=False, soft_wrap=True)
    console.print(f"results: {file.path}", highlight=False, soft_wrap=True)
    return all(one.ok for one in results)


async def _warm(side: Side, seconds: float, tests: Sequence[Workload], display: Display) -> None:
    warming = evolve(
        max(tests, key=lambda one: one.workers if one.operation in OF_ALL_TARGETS else 0),
        operation=Operation.MIXED,
        read_share=0.5,
        seconds_min=seconds,
        warm_up_s=0.0,
    )
    async with display.test(f"warming {side.target}", seconds):
        await run_test(0, warming, target=side.target, servers=side.servers, spread=side.spread)
