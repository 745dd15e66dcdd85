"""The command `zraft-bench local`: servers and load on this machine."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from attrs import evolve
from rich.console import Console

from zraft_bench.cluster import LocalCluster, Servers, given_servers
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
from zraft_bench.show import Display, new_console, result_table, thorough_lines
from zraft_bench.targets.target import TARGETS
from zraft_core.errors import ConfigError


@click.command(short_help="Servers and load on this machine.")
@click.option(
    "-s",
    "--servers",
    default=4,
    show_default=True,
    type=click.IntRange(1, 9),
    help="How many servers to start.",
)
@workers_option
@workload_options
@schedule_option
@spread_options
@click.option(
    "--connect", metavar="HOST:PORT,…", help="Use servers that run already, instead of starting any."
)
@click.option(
    "--protocol",
    "target",
    default="zraft",
    show_default=True,
    type=click.Choice(["zraft", "zraft-zookeeper"]),
    help="The protocol of the load: zraft's own, or ZooKeeper's.",
)
@click.option("--docker", is_flag=True, help="Start the servers in containers (needs a Docker engine).")
@click.option(
    "--image",
    default="zraft",
    show_default=True,
    help="With --docker, the image to use; it is built if absent.",
)
@click.option("--restart", is_flag=True, help="Restart all servers between tests.")
@settings_option
@comment_option
@out_option
def local(
    servers: int,
    workers: int,
    schedule: str | None,
    processes: int | None,
    connections: int | None,
    connect: str | None,
    target: str,
    docker: bool,
    image: str,
    restart: bool,
    settings: tuple[str, ...],
    comment: str,
    out: Path,
    **workload: Any,
) -> None:
    """Start servers on this machine, put load on them, and say what they did.

    \b
        zraft-bench local                              # 4 servers, 16 clients, 1,000 entries of 100 bytes
        zraft-bench local -s 3 -c 64 --operation read
        zraft-bench local -s 3 --rate 5000             # latencies without coordinated omission
        zraft-bench local -s 2 --schedule matrix       # Zatt's matrix, beside the published figures

    The load generator shares the machine with the servers: see what it used in the results. A failed test is kept and
    marked, and the exit code is 1.
    """
    if connect is not None and (docker or settings or restart):
        raise ConfigError(
            "--connect: servers that run already are not started: drop --docker, --set and --restart"
        )
    tests = tests_of(schedule, workload_of(workers, workload))
    given = given_servers(connect, "--connect") if connect is not None else None
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as directory:
        running: Servers
        if given is not None:
            running = given
        elif docker:
            from zraft_bench.local.containers import ContainerCluster, engine

            running = ContainerCluster(engine(), image, servers, settings)
        else:
            running = LocalCluster(Path(directory), servers, settings)
        run = evolve(
            new_run("local", title=schedule or "local", settings={"set": " ".join(settings)}), comment=comment
        )
        file = ResultFile(out, run)
        ok = asyncio.run(
            _local(tests, running, target, spread_of(processes, connections), restart, file, new_console())
        )
    raise SystemExit(0 if ok else 1)


async def _local(
    tests: Sequence[Workload],
    servers: Servers,
    target: str,
    spread: Spread,
    restart: bool,
    file: ResultFile,
    console: Console,
) -> bool:
    assert target in TARGETS

    def again() -> None:
        if restart:
            servers.restart()

    try:
        await asyncio.to_thread(servers.start)
        with Display(console, len(tests), f"{servers.count} servers at {servers.hosts}") as display:
            results = await run_tests(
                tests, [Side(target, servers, spread)], file, display, before_each=again
            )
    finally:
        await asyncio.to_thread(servers.stop)
    console.print(result_table(results, f"{servers.count} servers, {file.run.machines[0].cores} cores"))
    if len(results) == 1:
        for line in thorough_lines(results[0]):
            console.print(line, highlight=False)
    console.print(f"results: {file.path}", highlight=False, soft_wrap=True)
    return all(one.ok for one in results)
