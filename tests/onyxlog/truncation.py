"""Truncates a long log under load, on three real servers: `python -m tests.onyxlog.truncation [--entries N]`.

Prints what clients and servers saw before the truncation, and from it until its last entry has left memory: the worst
that an append, a read and a tail had to wait, the worst stall of each server's loop, and whether there was an election.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import click
from attrs import define, field, frozen

from onyxlog.peer.log.native import NativeLog
from onyxlog.peer.log.port import LogPort, Origin
from onyxlog.replica.commands import BackpressureOff, Record
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.replica import Parameters, Replica, VirtualPeer
from onyxlog.replica.table import Table
from tests.processes.cluster import Cluster
from zraft_client import Client

PATIENCE_S: Final = 900.0
AHEAD: Final = 2_000
"""Appends under way while the log is filled: they go in batches."""
KEPT: Final = 100
"""Entries at the end that are not truncated."""
WRITERS: Final = 4
TENANCY: Final = "truncation"


@frozen
class Waits:
    """Of one kind of call, in one phase, in seconds."""

    count: int
    median_s: float
    worst_s: float

    def __str__(self) -> str:
        return f"{self.count} (median {self.median_s * 1000:.1f} ms, worst {self.worst_s * 1000:.0f} ms)"


@frozen
class Phase:
    """What was seen in a stretch of time. `stalls_ms`: worst stall of each server's loop."""

    seconds: float
    appends: Waits
    reads: Waits
    deliveries: Waits
    """From the moment of the append to that at which a tail brought it."""
    stalls_ms: dict[int, float]


@frozen
class Measured:
    """`call_s`: how long `store_origin` took. `terms` before and after: equal if nobody stood for election."""

    before: Phase
    during: Phase
    call_s: float
    terms: tuple[int, int]
    visible: int
    """Entries that were left."""


@define
class Load:
    """Writers that wait for each answer, a reader, and a tail, until they are cancelled."""

    appends: list[float] = field(factory=list)
    reads: list[float] = field(factory=list)
    deliveries: list[float] = field(factory=list)
    _sent: dict[str, float] = field(factory=dict)

    async def write(self, port: LogPort, name: str) -> None:
        number = 0
        while True:
            number += 1
            author = f"{name}-{number}"
            began = self._sent[author] = time.monotonic()
            await port.append(record(author))
            self.appends.append(time.monotonic() - began)

    async def read(self, port: LogPort) -> None:
        while True:
            began = time.monotonic()
            await port.is_alive("nobody")
            self.reads.append(time.monotonic() - began)
            await asyncio.sleep(0.002)

    async def follow(self, port: LogPort, first: int) -> None:
        async for entries in port.tail(first):
            now = time.monotonic()
            for entry in entries:
                sent = self._sent.pop(entry.record.author, None)
                if sent is not None:
                    self.deliveries.append(now - sent)

    def clear(self) -> None:
        self.appends.clear()
        self.reads.clear()
        self.deliveries.clear()


def record(author: str) -> Record:
    return Record(BackpressureOff("peer-0001"), author)


def replica_at(position: int, peers: int) -> Replica:
    """As large as that of a fleet of so many peers, or so."""
    found = {f"peer-{n:06d}": VirtualPeer(f"group-{n:06d}", "10.0.0.1:4000") for n in range(peers)}
    return Replica(version=position, peers=Table(found))


def waits(seen: list[float]) -> Waits:
    ordered = sorted(seen)
    return Waits(len(ordered), ordered[len(ordered) // 2], ordered[-1]) if ordered else Waits(0, 0.0, 0.0)


async def fill(port: NativeLog, entries: int) -> None:
    """Append so many, the first ones included that are there."""
    under_way: set[asyncio.Task[int]] = set()
    for number in range(entries):
        under_way.add(asyncio.ensure_future(port.append(record(f"fill-{number}"))))
        if len(under_way) >= AHEAD:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
    await asyncio.gather(*under_way)


class Servers:
    """What the servers say of themselves."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def reset(self) -> None:
        for number in self._cluster.servers:
            await asyncio.to_thread(self._cluster.ask, number, "srst")

    async def number(self, server: int, name: str) -> float:
        found = await asyncio.to_thread(self._cluster.mntr, server)
        assert found is not None, f"server {server} does not answer"
        return float(found[name])

    async def stalls_ms(self) -> dict[int, float]:
        return {number: await self.number(number, "loop_stall_ms_max") for number in self._cluster.servers}

    async def term(self) -> int:
        return max([int(await self.number(number, "raft_term")) for number in self._cluster.servers])

    async def znodes(self) -> int:
        return max([int(await self.number(number, "znode_count")) for number in self._cluster.servers])


@asynccontextmanager
async def opened(cluster: Cluster) -> AsyncIterator[NativeLog]:
    client = Client(cluster.hosts(), renew_session=False, timeout_s=PATIENCE_S, session_timeout_s=40)
    await client.connect()
    port = NativeLog(client, TENANCY)
    try:
        yield port
    finally:
        await port.close()


async def measure(cluster: Cluster, entries: int, peers: int, before_s: float) -> Measured:
    """Fill, watch for a while, truncate, watch until the removed entries have left memory and a little longer."""
    servers, load = Servers(cluster), Load()
    async with opened(cluster) as port, opened(cluster) as reader, opened(cluster) as follower:
        await port.begin(Parameters())
        empty = await servers.znodes()
        await fill(port, entries)
        term = await servers.term()
        tasks = [asyncio.ensure_future(load.write(port, f"writer-{n}")) for n in range(WRITERS)]
        tasks += [
            asyncio.ensure_future(load.read(reader)),
            asyncio.ensure_future(load.follow(follower, entries)),
        ]
        try:
            await servers.reset()
            load.clear()
            began = time.monotonic()
            await asyncio.sleep(before_s)
            before = await phase(load, servers, began)

            await servers.reset()
            load.clear()
            began = time.monotonic()
            position = entries - KEPT - 1
            assert await reader.store_origin(Origin(position, replica_at(position, peers), CHAIN_START))
            call_s = time.monotonic() - began
            async with asyncio.timeout(PATIENCE_S):
                # What was written meanwhile is counted by the servers, too.
                while await servers.znodes() > empty + (await reader.bounds()).end - position + KEPT:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            await asyncio.sleep(before_s / 4)
            during = await phase(load, servers, began)
            for task in tasks:
                assert not task.done(), f"the load ended early: {task.exception()!r}"
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
        # The writers' last calls may still be on their way: this one, of the same session, comes after them.
        await port.append(record("last"))
        bounds = await port.bounds()
        assert bounds.first == position + 1
        visible = len((await port._client.children(port.layout.log)).names)
        assert visible == bounds.end - bounds.first
        return Measured(before, during, call_s, (term, await servers.term()), visible)


async def phase(load: Load, servers: Servers, began: float) -> Phase:
    seconds = time.monotonic() - began
    return Phase(
        seconds, waits(load.appends), waits(load.reads), waits(load.deliveries), await servers.stalls_ms()
    )


def show(name: str, seen: Phase) -> None:
    click.echo(f"{name}, {seen.seconds:.1f} s: appends {seen.appends}; reads {seen.reads}")
    click.echo(f"  by tail {seen.deliveries}; worst stall of the servers' loops, ms: {seen.stalls_ms}")


@click.command()
@click.option("--entries", default=1_000_000, show_default=True)
@click.option("--peers", default=1_000, show_default=True, help="In the origin's replica.")
@click.option("--before", "before_s", default=10.0, show_default=True, help="Seconds of load before.")
def main(entries: int, peers: int, before_s: float) -> None:
    with tempfile.TemporaryDirectory(prefix="truncation-") as directory:
        # default settings but for the words: an election timeout as users have it
        env = {"ZRAFT_CLIENT__FOUR_LETTER_WORDS": "*"}
        with Cluster(Path(directory), env=env) as cluster:
            cluster.start_all()
            began = time.monotonic()
            found = asyncio.run(measure(cluster, entries, peers, before_s))
            click.echo(f"{entries} entries, all in all {time.monotonic() - began:.0f} s")
            show("before", found.before)
            show("from the truncation until all is out of memory", found.during)
            elections = (
                "no election" if found.terms[0] == found.terms[1] else f"ELECTION: terms {found.terms}"
            )
            click.echo(
                f"the call took {found.call_s * 1000:.0f} ms; {elections}; {found.visible} entries left"
            )


if __name__ == "__main__":
    main()
