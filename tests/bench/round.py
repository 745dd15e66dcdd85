"""Shows what a write costs three servers: who is woken by what, how often, and how much of the interpreter each uses.

    python -m tests.bench.round                    one client of the leader, one write after the other
    python -m tests.bench.round --clients 8

Three real servers and their clients share one process and one loop. So what the kernel and the switches between processes
cost is left out; code that runs alone in its process is colder, and takes about three times as long. Counts are those of
one pass, times those of another one, without the profile. Each server syncs its log in its loop, as on a fast disk.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
import pytest
import structlog
from attrs import Factory, define
from rich.console import Console
from rich.table import Table

from tests.unit.server.asker import Asker
from tests.unit.server.node_counts import CALLED, WAKES, NodeCounts, datagrams_sent
from tests.unit.server.nodes import Nodes
from zraft.server.process.client_protocol import ClientProtocol
from zraft.server.process.node import Node
from zraft.server.process.sync_pace import SyncPace
from zraft.transport.udp import UdpEndpoint
from zraft_core.ids import ServerId
from zraft_core.znodes.txn import CREATE, SET_DATA

ENTRIES: Final = (
    (ClientProtocol, "buffer_updated", "a client"),
    (UdpEndpoint, "_on_readable", "a datagram"),
    (Node, "_on_alarm", "its alarm"),
    (Node, "_on_written", "the log's thread"),
    (Node, "_turn", ""),
    (ClientProtocol, "connection_made", ""),
    (ClientProtocol, "connection_lost", ""),
)
"""The loop calls these functions of a server; each stands with what has woken the server then."""

assert {getattr(owner, name).__code__ for owner, name, _ in ENTRIES} == WAKES | CALLED

WARM_WRITES: Final = 200


@define
class Cost:
    """Times and counts of one server while the writes of a pass were done."""

    seconds: float = 0.0
    sync_seconds: float = 0.0
    woken_by: Counter[str] = Factory(Counter)
    turns: int = 0
    datagrams: int = 0
    calls: int = 0


class Meter:
    """The time that each server's callbacks take, from when they are entered until they return."""

    def __init__(self) -> None:
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.woken_by: Counter[tuple[int, str]] = Counter()
        self._inside = False

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Meter servers that are made from now on."""
        for owner, name, what in ENTRIES:
            patch.setattr(owner, name, self._metered(getattr(owner, name), what))

    def _metered(self, function: Callable[..., Any], what: str) -> Callable[..., Any]:
        @wraps(function)
        def metered(called: Any, *args: Any) -> Any:
            if self._inside:
                return function(called, *args)
            owner = id(called._node if isinstance(called, ClientProtocol) else called)
            self._inside = True
            began = time.perf_counter()
            try:
                return function(called, *args)
            finally:
                self.seconds[owner] += time.perf_counter() - began
                self.woken_by[owner, what] += 1
                self._inside = False

        return metered


async def measure(
    directory: Path, writes: int, clients: int, meter: Meter
) -> dict[tuple[ServerId, bool], Cost]:
    """Return what each server did, by its number and whether it leads."""
    async with Nodes(directory) as nodes, AsyncExitStack() as stack:
        leader = nodes.leader.config.id
        address = nodes.addresses[leader]
        askers = [await stack.enter_async_context(Asker(address)) for _ in range(clients)]
        for number, asker in enumerate(askers):
            await asker.write((CREATE, f"/n{number}", b"", None, 0, -1))

        async def write(count: int) -> None:
            await asyncio.gather(
                *(_write(asker, f"/n{number}", count // clients) for number, asker in enumerate(askers))
            )

        await write(WARM_WRITES)
        meter.seconds.clear()
        meter.woken_by.clear()
        synced = {server: node._process.fsync.view().total for server, node in nodes.nodes.items()}
        sent = {server: datagrams_sent(node) for server, node in nodes.nodes.items()}
        await write(writes)
        costs: dict[tuple[ServerId, bool], Cost] = {}
        for server, node in nodes.nodes.items():
            parts = (id(node), id(node._peers._endpoint))
            cost = costs[server, server == leader] = Cost()
            cost.seconds = sum(meter.seconds[part] for part in parts)
            cost.sync_seconds = node._process.fsync.view().total - synced[server]
            for (part, what), count in meter.woken_by.items():
                if what and part in parts:
                    cost.woken_by[what] += count
            cost.datagrams = datagrams_sent(node) - sent[server]
        counts = NodeCounts(nodes)
        with counts.counted():
            await write(writes)
        for (server, _), cost in costs.items():
            cost.turns, cost.calls = counts.turns[server], counts.calls[server]
    return costs


async def _write(asker: Asker, path: str, count: int) -> None:
    """Write one value after the other to a znode."""
    for _ in range(count):
        await asker.write((SET_DATA, path, bytes(100), -1))


def table_of(costs: dict[tuple[ServerId, bool], Cost], writes: int) -> Table:
    """Return what a write costs, a row for each server, and one for all."""
    table = Table("server", *(f"woken by {what}" for _, _, what in ENTRIES if what), title="per write")
    for column in ("turns", "datagrams", "calls", "µs", "of which the disk"):
        table.add_column(column, justify="right")
    total = Cost()
    for (server, leads), cost in sorted(costs.items()):
        table.add_row(f"{server}, {'leads' if leads else 'follows'}", *_cells(cost, writes))
        total.seconds += cost.seconds
        total.sync_seconds += cost.sync_seconds
        total.woken_by += cost.woken_by
        total.turns += cost.turns
        total.datagrams += cost.datagrams
        total.calls += cost.calls
    table.add_section()
    table.add_row("all", *_cells(total, writes))
    return table


def _cells(cost: Cost, writes: int) -> list[str]:
    return [
        *(f"{cost.woken_by[what] / writes:.2f}" for _, _, what in ENTRIES if what),
        f"{cost.turns / writes:.2f}",
        f"{cost.datagrams / writes:.2f}",
        f"{cost.calls / writes:.0f}",
        f"{1e6 * cost.seconds / writes:.0f}",
        f"{1e6 * cost.sync_seconds / writes:.0f}",
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--writes", type=click.IntRange(1), default=1_000, show_default=True, help="How many.")
@click.option(
    "--clients", type=click.IntRange(1), default=1, show_default=True, help="How many ask at a time."
)
def main(writes: int, clients: int) -> None:
    """Show what a write costs three servers: who is woken by what, and how much of the interpreter each uses."""
    meter, logging_before = Meter(), structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(SyncPace, "is_fast", True)
        meter.install(patch)
        try:
            costs = asyncio.run(measure(Path(directory), writes, clients, meter))
        finally:
            structlog.configure(**logging_before)
    Console(width=140).print(table_of(costs, writes))


if __name__ == "__main__":
    main()
