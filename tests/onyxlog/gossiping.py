"""What gossip saves: `python -m tests.onyxlog.gossiping [--groups 55] [--entries 500] [--losses 0,0.01]` (O-26).

Groups in one process, each with a session of its own on a real server and a UDP socket with sealed datagrams. All write
entries in turn, once by the log's tail alone and once by gossip for each loss; then every group's digest chain is
compared with one that is played from the log itself, and what the log had to give is counted.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import click
from attrs import frozen

from onyxlog.gossip.outputs import GossipCounters
from onyxlog.gossip.settings import settings_for
from onyxlog.gossip.spreading import Mode
from onyxlog.gossip.streams import View, view_of
from onyxlog.ids import GroupId, Position
from onyxlog.peer.entry_source import EntrySource, MakeSource, from_log
from onyxlog.peer.fleet import Fleet
from onyxlog.peer.gossip.link import Link, OpenLink, Received, open_udp
from onyxlog.peer.gossip.source import GossipSource, gossip_sources
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.log.native import native_ports
from onyxlog.peer.log.port import LogPort, OpenPort
from onyxlog.peer.settings import GroupSettings
from onyxlog.replica.commands import BackpressureOff, Entry
from onyxlog.replica.playing import play
from onyxlog.replica.pool import GroupArc
from onyxlog.replica.replica import Replica
from tests.onyxlog.joining import shared
from tests.processes.cluster import Cluster
from zraft.program.logs import configure_logging
from zraft.transport.keys import ClusterKey
from zraft_core.address import Address

PATIENCE_S = 1_200.0
VIEWS_KEPT = 1_000
KEY = ClusterKey(random.Random(1).randbytes(32))


@frozen
class Saved:
    """`given`: entries that the log gave, by reads or pushes; `requests`: reads and pushes. `behind`: groups whose chain
    is not the log's at the end. Latencies in ms, from the record's making to applied; `everywhere`: at the last group.
    """

    groups: int
    entries: int
    given: int
    requests: int
    behind: int
    median_ms: float
    p99_ms: float
    everywhere_median_ms: float
    everywhere_p99_ms: float
    sources: dict[str, int]

    @property
    def saved(self) -> float:
        """Of one reading of each entry by each group."""
        return 1 - self.given / (self.groups * self.entries)

    def __str__(self) -> str:
        return (
            f"{self.groups} groups, {self.entries} entries: the log gave {self.given} ({self.saved:.2%} saved, "
            f"{self.requests} requests), {self.behind} chains wrong; applied after {self.median_ms:.0f} ms (p99 "
            f"{self.p99_ms:.0f}), everywhere after {self.everywhere_median_ms:.0f} (p99 "
            f"{self.everywhere_p99_ms:.0f}); {self.sources}"
        )


class _Watched:
    """A source that notes when what was applied."""

    def __init__(self, inner: EntrySource, applied: dict[Position, list[float]]) -> None:
        self.inner = inner
        self._applied = applied
        self._version: Position | None = None

    def entries(self, first: Position, chain: bytes) -> AsyncIterator[tuple[Entry, ...]]:
        self._version = first - 1
        return self.inner.entries(first, chain)

    def appended(self, entry: Entry) -> None:
        self.inner.appended(entry)

    def applied(self, replica: Replica, chain: bytes) -> None:
        self._note(replica)
        self.inner.applied(replica, chain)

    def jumped(self, replica: Replica) -> None:
        self._note(replica)
        self.inner.jumped(replica)

    def _note(self, replica: Replica) -> None:
        now = time.time() * 1000
        for position in range((self._version or -1) + 1, replica.version + 1):
            self._applied.setdefault(position, []).append(now)
        self._version = replica.version

    @property
    def counters(self) -> GossipCounters | None:
        return self.inner.counters

    async def close(self) -> None:
        await self.inner.close()


class _Lossy:
    """A link that loses some of what arrives."""

    def __init__(self, inner: OpenLink, loss: float) -> None:
        self._inner = inner
        self._loss = loss
        self._random = random.Random(1)

    async def open(self, received: Received) -> Link:
        def some(datagram: bytes, source: Address) -> None:
            if self._random.random() >= self._loss:
                received(datagram, source)

        return await self._inner(some)


def gossiping(mode: Mode, loss: float, tenancy: str) -> MakeSource:
    link = _Lossy(open_udp(Address("127.0.0.1", 0)), loss)
    return gossip_sources(link.open, (KEY,), tenancy, settings_for(mode))


def shared_views(
    viewing: Callable[[int, Mapping[GroupId, GroupArc], View | None], View],
) -> Callable[[int, Mapping[GroupId, GroupArc], View | None], View]:
    """`view_of`, done once for all groups of the process that have played the same entry: their replicas are one."""
    known: dict[tuple[int, int, int], tuple[object, object, View]] = {}

    def view_once(streams: int, arcs: Mapping[GroupId, GroupArc], before: View | None) -> View:
        key = (streams, id(arcs), id(before))
        found = known.get(key)
        if found is None:
            # What the ids stand for stays, or they could come again for something else.
            found = known[key] = arcs, before, viewing(streams, arcs, before)
            if len(known) > VIEWS_KEPT:
                del known[next(iter(known))]
        return found[2]

    return view_once


async def measure(
    opener: OpenPort, make_source: MakeSource, groups: int, entries: int, interval_s: float
) -> Saved:
    """A fleet that joins, and then writes `entries` entries, one by one of the groups in turn."""
    applied: dict[Position, list[float]] = {}
    sources: list[_Watched] = []
    ports: list[LogPort] = []

    async def opened() -> LogPort:
        ports.append(await opener())
        return ports[-1]

    async def watched(port: LogPort, group: GroupId) -> EntrySource:
        sources.append(_Watched(await make_source(port, group), applied))
        return sources[-1]

    observer = await opener()
    origin = await observer.begin(GroupSettings().parameters)
    fleet = Fleet(opened, run_nothing, make_source=watched)
    try:
        for number in range(groups):
            fleet.start(
                GroupSettings(f"g{number:04d}", offers=(), digests_every=10**9, digest_after_quiet_s=1e6)
            )
        async with asyncio.timeout(PATIENCE_S):
            await fleet.until(lambda one: len(one.core.replica.groups) == groups)
            await asyncio.sleep(2)
            start = (await observer.bounds()).end
            before = _given(sources, ports)
            for number in range(entries):
                incarnation = fleet.groups[number % groups].incarnation
                assert incarnation is not None
                incarnation.append(BackpressureOff("nobody"))
                await asyncio.sleep(interval_s)
            await fleet.until(lambda one: one.core.version >= start + entries - 1)
            end = (await observer.bounds()).end
            await fleet.until(lambda one: one.core.version >= end - 1)
            after = _given(sources, ports)
            log = await _all(observer, end)
        chains, replica, chain = {}, origin.replica, origin.chain
        for entry in log:
            step = play(replica, entry, chain)
            replica, chain = step.replica, step.chain
            chains[entry.position] = chain
        present = [group.incarnation for group in fleet.groups]
        wrong = sum(one is None or chains.get(one.core.version) != one.core.chain for one in present)
        made = {entry.position: entry.record.at_ms for entry in log}
        times = {p: [at - made[p] for at in ats] for p, ats in applied.items() if start <= p < end}
        each = [one for ats in times.values() for one in ats]
        last = [max(ats) for ats in times.values()]
        how: dict[str, int] = {}
        for source in sources:
            if isinstance(source.inner, GossipSource):
                for name, count in source.inner.counters.applied.items():
                    how[name] = how.get(name, 0) + count
        return Saved(
            groups=groups,
            entries=end - start,
            given=after[0] - before[0],
            requests=after[1] - before[1],
            behind=wrong,
            median_ms=_quantile(each, 0.5),
            p99_ms=_quantile(each, 0.99),
            everywhere_median_ms=_quantile(last, 0.5),
            everywhere_p99_ms=_quantile(last, 0.99),
            sources=how,
        )
    finally:
        await fleet.stop()
        await observer.close()


async def _all(observer: LogPort, end: Position) -> list[Entry]:
    found: list[Entry] = []
    while len(found) < end:
        found += await observer.read(len(found), end)
    return found


def _given(sources: Sequence[_Watched], ports: Sequence[LogPort]) -> tuple[int, int]:
    """Entries that the log gave, and in how many requests and pushes."""
    entries = 0
    for source in sources:
        if isinstance(source.inner, GossipSource):
            entries += source.inner.counters.read_entries + source.inner.counters.tailed_entries
        elif source._version is not None:
            entries += source._version + 1
    statistics = [port.statistics() for port in ports]
    return entries, sum(one.reads + one.pushes for one in statistics)


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


@click.command()
@click.option("--groups", default=55, show_default=True)
@click.option("--entries", default=500, show_default=True)
@click.option("--interval-ms", default=20.0, show_default=True)
@click.option("--losses", default="0,0.01", show_default=True)
@click.option("--modes", default="pool,plumtree", show_default=True)
@click.option(
    "--together",
    is_flag=True,
    help="Play each entry and view its pool once for all groups, which their own machines would do at the same time.",
)
def main(groups: int, entries: int, interval_ms: float, losses: str, modes: str, together: bool) -> None:
    configure_logging(format="console", level="error")
    env = {"ZRAFT_SESSION_TIMEOUT_MS_MAX": "600000"}
    runs: list[tuple[str, MakeSource]] = [("tail", from_log)]
    for mode in modes.split(","):
        for loss in losses.split(","):
            tenancy = f"{mode}-{loss.replace('.', '-')}"
            runs.append((tenancy, gossiping(Mode(mode), float(loss), tenancy)))
    with (
        tempfile.TemporaryDirectory(prefix="gossiping-") as directory,
        Cluster(Path(directory), servers=1, env=env) as cluster,
        ExitStack() as stack,
    ):
        if together:
            stack.enter_context(patch("onyxlog.peer.core.play", shared(play)))
            stack.enter_context(patch("onyxlog.peer.gossip.source.view_of", shared_views(view_of)))
        cluster.start_all()
        for tenancy, source in runs:
            opener = native_ports(cluster.hosts(), tenancy, session_timeout_s=600, timeout_s=PATIENCE_S)
            found = asyncio.run(measure(opener, source, groups, entries, interval_ms / 1000))
            click.echo(f"{tenancy:16} {found}")


if __name__ == "__main__":
    main()
