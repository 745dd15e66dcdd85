"""The commands `zraft-bench head`, `server` and `client`: a benchmark on many machines.

Only the head is configured.
"""

from __future__ import annotations

import asyncio
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from attrs import evolve
from rich.console import Console

from zraft_bench.cluster import given_servers, new_key
from zraft_bench.distributed.client_agent import ClientAgent
from zraft_bench.distributed.head import Head, Plan
from zraft_bench.distributed.membership import HEAD, Cluster, gather_servers, restart_servers
from zraft_bench.distributed.messages import Membership
from zraft_bench.distributed.server_agent import OwnServer, ServerAgent, address_towards
from zraft_bench.distributed.supervision import Terminal
from zraft_bench.distributed.zraft_board import ZraftBoard
from zraft_bench.load.schedule import schedule as tests_of
from zraft_bench.options import (
    comment_option,
    out_option,
    schedule_option,
    settings_option,
    spread_options,
    workers_option,
    workload_of,
    workload_options,
)
from zraft_bench.result_files import ResultFile, new_run, this_machine
from zraft_bench.show import new_console, result_table
from zraft_core.address import Address, parse_address
from zraft_core.errors import ConfigError

RESTART_TIMEOUT_S: Final = 180.0

head_option = click.option(
    "--head",
    required=True,
    metavar="HOST:PORT",
    help="The head's address, which is waited for up to a minute; it tells the rest.",
)


@click.command(short_help="The head of a distributed benchmark: the only one that is configured.")
@click.option(
    "--address", metavar="HOST:PORT", help="Where the head's own server listens; others must reach it."
)
@click.option(
    "--connect",
    metavar="HOST:PORT,…",
    help="Use a cluster that runs already, instead of servers of the benchmark's own.",
)
@click.option(
    "-s",
    "--servers",
    default=3,
    show_default=True,
    type=click.IntRange(1, 254),
    help="How many servers there are, the head's included; `zraft-bench server` must be run for each of the others.",
)
@click.option(
    "--machines",
    default=1,
    show_default=True,
    type=click.IntRange(1, 254),
    help="How many client machines there are; `zraft-bench client` must be run on each.",
)
@workers_option
@workload_options
@schedule_option
@spread_options
@click.option("--supervised", is_flag=True, help="Ask after each test: go on, repeat, comment, break.")
@click.option(
    "--status-every",
    default=30.0,
    show_default=True,
    type=click.FloatRange(0.5),
    help="How many seconds are between two reports of the status.",
)
@click.option("--restart", is_flag=True, help="Restart all servers, one after the other, between tests.")
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cluster key; without it a fresh one is made, and told to those who ask the head's server.",
)
@settings_option
@comment_option
@out_option
def head(
    address: str | None,
    connect: str | None,
    servers: int,
    machines: int,
    workers: int,
    schedule: str | None,
    processes: int | None,
    connections: int | None,
    supervised: bool,
    status_every: float,
    restart: bool,
    key_file: Path | None,
    settings: tuple[str, ...],
    comment: str,
    out: Path,
    **workload: Any,
) -> None:
    """Run a benchmark on several machines.

    \b
        on the first:   zraft-bench head --address 10.0.0.1:7000 -s 3 --machines 2 --schedule matrix
        on two more:    zraft-bench server --head 10.0.0.1:7000
        on two others:  zraft-bench client --head 10.0.0.1:7000

    What is to be measured, when it begins, and what was seen travels through the servers' replicated state.
    Each test's result is written to a file of the head at once. -c is the number of workers of each client machine.
    To measure a cluster that runs already: --connect instead of --address.
    """
    if (address is None) == (connect is None):
        raise ConfigError(
            "--address, --connect: expected one of them: servers of the benchmark's own, or running ones"
        )
    if connect is not None and (restart or settings or key_file is not None):
        raise ConfigError(
            "--connect: servers that run already are not started: drop --restart, --set and --key"
        )
    tests = tests_of(schedule, workload_of(workers, workload))
    plan = Plan(
        hosts=lambda: connect or "",
        servers=len(connect.split(",")) if connect is not None else servers,
        clients=machines,
        tests=tests,
        processes=processes,
        connections=connections,
        supervised=supervised,
        status_every_s=status_every,
    )
    if connect is not None:
        given_servers(connect, "--connect")
    run = evolve(
        new_run("distributed", title=schedule or "distributed", settings={"set": " ".join(settings)}),
        comment=comment,
    )
    console = new_console()
    file = ResultFile(out, run)
    if connect is not None:
        ok = asyncio.run(_head(connect, plan, file, console))
    else:
        assert address is not None
        own = parse_address(address, "--address")
        ok = asyncio.run(_head_with_server(own, plan, file, console, key_file, settings, restart))
    raise SystemExit(0 if ok else 1)


async def _head_with_server(
    own: Address,
    plan: Plan,
    file: ResultFile,
    console: Console,
    key_file: Path | None,
    settings: tuple[str, ...],
    restart: bool,
) -> bool:
    with tempfile.TemporaryDirectory(prefix="zraft-bench-head-") as name:
        directory = Path(name)
        key = key_file
        if key is None:
            key = directory / "fresh.key"
            await asyncio.to_thread(new_key, key)
        cluster = Cluster(
            address=str(own),
            key=key,
            settings=settings,
            addresses={HEAD: str(own)},
            tells_key=key_file is None,
        )
        member = Membership(cluster=cluster.listed, key=key.read_text(), settings=settings)
        server = OwnServer(directory, HEAD, own, member)
        try:
            await asyncio.to_thread(server.start)
            await asyncio.to_thread(server.wait_serving)
            return await _head(str(own), plan, file, console, cluster=cluster, server=server, restart=restart)
        finally:
            await asyncio.to_thread(server.stop)


async def _head(
    hosts: str,
    plan: Plan,
    file: ResultFile,
    console: Console,
    *,
    cluster: Cluster | None = None,
    server: OwnServer | None = None,
    restart: bool = False,
) -> bool:
    def say(text: str) -> None:
        console.print(text, highlight=False)

    async with ZraftBoard(hosts) as board:
        known = cluster
        restarts = 0

        async def between() -> None:
            nonlocal restarts
            assert known is not None
            assert server is not None
            restarts += 1
            others = [n for n in known.addresses if n != HEAD]
            await restart_servers(board, others, restarts, RESTART_TIMEOUT_S)
            await asyncio.to_thread(server.restart)

        head = Head(
            board,
            evolve(plan, hosts=lambda: known.hosts if known is not None else hosts),
            file.run,
            say=say,
            save=file.save,
            operator=Terminal() if plan.supervised else None,
            between=between if restart else None,
        )
        await head.announce()
        if known is not None:
            say(f"head at {hosts}; waiting for {plan.servers - 1} servers")
            known = await gather_servers(board, known, plan.servers)
        run = await head.run()
    console.print(result_table(run.tests, f"{plan.servers} servers, {plan.clients} client machines"))
    say(f"results: {file.path}")
    counted = [one for one in run.tests if not one.superseded]
    return bool(counted) and len(counted) == len(plan.tests) and all(one.ok for one in counted)


@click.command(short_help="A server machine of a distributed benchmark.")
@head_option
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="Where its server listens.  [default: this machine's address towards the head, a free port]",
)
@click.option(
    "--key",
    "key_file",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The cluster key, if the head was given one.",
)
def server(head: str, address: str | None, key_file: Path | None) -> None:
    """Run a server for the benchmark whose head is at --head, until that is over."""
    towards = parse_address(head, "--head")
    own = parse_address(address, "--address") if address is not None else address_towards(towards)
    console = new_console()

    async def run() -> str:
        with tempfile.TemporaryDirectory(prefix="zraft-bench-server-") as directory:

            def make(number: int, at: Address, member: Membership) -> OwnServer:
                if key_file is None and not member.key:
                    raise ConfigError(
                        "--key: expected the file of the cluster key, which the head does not tell"
                    )
                key = key_file.read_text() if key_file is not None else member.key
                return OwnServer(Path(directory), number, at, evolve(member, key=key))

            async with ZraftBoard(head) as board:
                agent = ServerAgent(
                    board, own, this_machine(), make, say=partial(console.print, highlight=False)
                )
                return await agent.run()

    console.print(f"the benchmark is over: {asyncio.run(run())}", highlight=False)


@click.command(short_help="A client machine of a distributed benchmark.")
@head_option
def client(head: str) -> None:
    """Put load on the servers of the benchmark whose head is at --head, as that says, until it is over."""
    parse_address(head, "--head")
    console = new_console()

    async def run() -> str:
        async with ZraftBoard(head) as board:
            return await ClientAgent(board, this_machine(), say=partial(console.print, highlight=False)).run()

    console.print(f"the benchmark is over: {asyncio.run(run())}", highlight=False)
