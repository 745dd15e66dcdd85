"""What joining costs, by the ring and directly: `python -m tests.onyxlog.joining [--sizes 8,55,404]` (O-12).

Starts fleets of groups in one process, each group with a session of its own on a real server, and counts what all of
them together asked and were told: while a whole fleet joins at once, and while one more joins a fleet that stands.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click
from attrs import define, field, frozen

from onyxlog.peer.fleet import Fleet
from onyxlog.peer.idle_runner import run_nothing
from onyxlog.peer.incarnation import Incarnation
from onyxlog.peer.log.native import native_ports
from onyxlog.peer.log.port import LogPort, LogStatistics, OpenPort
from onyxlog.peer.settings import GroupSettings
from onyxlog.replica.codec import name_of
from onyxlog.replica.commands import Entry
from onyxlog.replica.playing import Step, play
from onyxlog.replica.replica import JoinMode, Parameters, Replica
from onyxlog.status import is_closed
from tests.onyxlog.simulation.memory_log import MemoryLog
from tests.onyxlog.simulation.virtual_time import run_virtually
from tests.processes.cluster import Cluster
from zraft.program.logs import configure_logging

PATIENCE_S: Final = 1_800.0
SESSION_TIMEOUT_S: Final = 600
NEVER_S: Final = 1e6
STEPS_KEPT: Final = 20_000


@frozen
class Cost:
    """Of `joins` joins, all groups together. `entries`: by kind."""

    joins: int
    seconds: float
    entries: Counter[str]
    reads: int
    pushes: int
    watches: int

    def __str__(self) -> str:
        def per(count: int) -> str:
            return f"{count / self.joins:8.1f}"

        kinds = ", ".join(f"{kind} {count / self.joins:.2f}" for kind, count in sorted(self.entries.items()))
        return (
            f"{per(self.entries.total())} entries {per(self.reads)} reads {per(self.watches)} watches "
            f"{per(self.pushes)} pushes, {self.seconds:.1f} s ({kinds})"
        )


@define
class Counted:
    """A fleet whose ports are all remembered, those of earlier incarnations included."""

    join: JoinMode
    opener: OpenPort
    ports: list[LogPort] = field(factory=list)
    fleet: Fleet = field(init=False)
    _names: int = 0

    def __attrs_post_init__(self) -> None:
        self.fleet = Fleet(self._opened, run_nothing)

    async def _opened(self) -> LogPort:
        port = await self.opener()
        self.ports.append(port)
        return port

    def _sum(self) -> LogStatistics:
        found = [port.statistics() for port in self.ports]
        return LogStatistics(
            sum(one.appends for one in found),
            sum(one.reads for one in found),
            sum(one.pushes for one in found),
            sum(one.watches for one in found),
        )

    async def joins(self, groups: int, observer: LogPort) -> Cost:
        """So many groups join; until all members have seen that all are in."""
        began, before = time.monotonic(), self._sum()
        first = (await observer.bounds()).end
        size = len(self.fleet.groups) + groups
        for _ in range(groups):
            self._names += 1
            self.fleet.start(
                GroupSettings(
                    name=f"g{self._names:04d}",
                    offers=(),
                    parameters=Parameters(join=self.join),
                    digests_every=10**9,
                    digest_after_quiet_s=NEVER_S,
                )
            )

        def all_are_in(incarnation: Incarnation) -> bool:
            replica = incarnation.core.replica
            return len(replica.groups) == size and is_closed(replica)

        async with asyncio.timeout(PATIENCE_S):
            await self.fleet.until(all_are_in)
        seconds, after = time.monotonic() - began, self._sum()
        entries = await observer.read(first, (await observer.bounds()).end)
        return Cost(
            groups,
            seconds,
            Counter(name_of(entry.command) for entry in entries),
            after.reads - before.reads,
            after.pushes - before.pushes,
            after.watches - before.watches,
        )


async def measure(
    opener: OpenPort, join: JoinMode, size: int, more: int, wave: int | None = None
) -> tuple[Cost, Cost]:
    """`size` groups, `wave` (or all) at a time; then `more` groups, one after the other, into the fleet that stands."""
    observer = await opener()
    await observer.begin(Parameters(join=join))
    counted = Counted(join, opener)
    try:
        wave = size if wave is None else wave
        waves = [await counted.joins(min(wave, size - start), observer) for start in range(0, size, wave)]
        each = [await counted.joins(1, observer) for _ in range(more)]
    finally:
        await counted.fleet.stop()
        await observer.close()
    return total(waves), total(each)


def shared(playing: Callable[[Replica, Entry, bytes], Step]) -> Callable[[Replica, Entry, bytes], Step]:
    """`play`, done once for all groups of the process that play the same entry after the same ones."""
    known: dict[bytes, Step] = {}

    def play_once(replica: Replica, entry: Entry, chain: bytes) -> Step:
        # the chain's value stands for all that was played before
        step = known.get(chain)
        if step is None or step.entry != entry:
            step = known[chain] = playing(replica, entry, chain)
            if len(known) > STEPS_KEPT:
                del known[next(iter(known))]
        return step

    return play_once


def total(costs: Iterable[Cost]) -> Cost:
    costs = list(costs)
    return Cost(
        sum(one.joins for one in costs),
        sum(one.seconds for one in costs),
        sum((one.entries for one in costs), Counter()),
        sum(one.reads for one in costs),
        sum(one.pushes for one in costs),
        sum(one.watches for one in costs),
    )


@click.command()
@click.option("--sizes", default="8,55,404", show_default=True)
@click.option("--joins", default="ring,direct", show_default=True)
@click.option("--more", default=10, show_default=True, help="Groups that join one by one afterwards.")
@click.option("--wave", type=int, help="Groups that join at a time; all of a size if it is not given.")
@click.option("--servers", default=1, show_default=True)
@click.option(
    "--memory", is_flag=True, help="On a log in memory and a virtual clock: no message takes any time."
)
@click.option(
    "--together",
    is_flag=True,
    help="Play each entry once for all groups, which their own machines would do at the same time.",
)
def main(
    sizes: str, joins: str, more: int, wave: int | None, servers: int, memory: bool, together: bool
) -> None:
    configure_logging(format="console", level="error")
    runs = [(int(size), JoinMode(join)) for size in sizes.split(",") for join in joins.split(",")]
    with ExitStack() as stack:
        if memory or together:
            stack.enter_context(patch("onyxlog.peer.core.play", shared(play)))
        if memory:
            for size, join in runs:
                show(size, join, wave, *run_virtually(measure(MemoryLog().opened, join, size, more, wave)))
        else:
            measure_really(runs, more, wave, servers)


def measure_really(runs: Sequence[tuple[int, JoinMode]], more: int, wave: int | None, servers: int) -> None:
    """Measure all runs on real servers, one after the other."""
    # a machine that is busy with hundreds of groups in one process may be silent for long
    env = {"ZRAFT_SESSION_TIMEOUT_MS_MAX": f"{1000 * SESSION_TIMEOUT_S}"}
    with (
        tempfile.TemporaryDirectory(prefix="joining-") as directory,
        Cluster(Path(directory), servers=servers, env=env) as cluster,
    ):
        cluster.start_all()
        for size, join in runs:
            opener = native_ports(
                cluster.hosts(),
                f"{join}-{size}",
                session_timeout_s=SESSION_TIMEOUT_S,
                timeout_s=PATIENCE_S,
            )
            show(size, join, wave, *asyncio.run(measure(opener, join, size, more, wave)))


def show(size: int, join: JoinMode, wave: int | None, first: Cost, one_more: Cost) -> None:
    way = "at once" if wave is None else f"{wave} at a time"
    click.echo(f"{size:4d} {join:6} {way}: {first}")
    click.echo(f"{size:4d} {join:6} one by one: {one_more}")


if __name__ == "__main__":
    main()
