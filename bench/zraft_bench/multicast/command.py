"""The command `zraft-bench multicast`: the thesis' scenarios of atomic multicast and ours, on real servers."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from attrs import evolve
from rich.console import Console
from rich.table import Table as RichTable

from zraft_bench.cluster import LocalCluster, Servers, given_servers
from zraft_bench.multicast import plan
from zraft_bench.multicast.genuine import run_genuine
from zraft_bench.multicast.plan import Cell, Singles
from zraft_bench.multicast.results import CellResult, GenuineResult, MulticastResults, StreamResult
from zraft_bench.multicast.run import default_processes, run_cell
from zraft_bench.multicast.streams import run_stream, targets_of
from zraft_bench.multicast.tables import Table, tables_of
from zraft_bench.options import comment_option, out_option, settings_option
from zraft_bench.processes import ServerError
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.show import Display, new_console
from zraft_core.errors import ConfigError

PARTS: Final = ("thesis", "latency", "genuine", "streams", "orders", "records")
GENUINE_SERVERS: Final = 5


@click.command(short_help="Atomic multicast and topics: the thesis' tables 5.1 to 5.6 beside ours.")
@click.option(
    "-s",
    "--servers",
    default=3,
    show_default=True,
    type=click.IntRange(1, 9),
    help="How many servers to start.",
)
@click.option(
    "--connect", metavar="HOST:PORT,…", help="Use servers that run already, instead of starting any."
)
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(PARTS),
    help="Measure only this; may be repeated.  [default: all; with --connect all but genuine]",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    type=click.FloatRange(0, 1),
    help="Measure with this share of messages to all topics, instead of the published shares; may be repeated.",
)
@click.option(
    "--topics", default=plan.THESIS_TOPICS, show_default=True, type=click.IntRange(2, plan.TOPICS_MAX)
)
@click.option("--producers", default=plan.THESIS_PRODUCERS, show_default=True, type=click.IntRange(1, 64))
@click.option(
    "--messages",
    default=plan.THESIS_MESSAGES,
    show_default=True,
    type=click.IntRange(1),
    help="How many messages each producer sends at least.",
)
@click.option(
    "--seconds",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0),
    help="How long each producer goes on sending at least.",
)
@click.option(
    "--messages-max",
    default=plan.MESSAGES_MAX,
    show_default=True,
    type=click.IntRange(1),
    help="After so many messages of all producers together, they stop earlier.",
)
@click.option(
    "--batch-bytes",
    default=0,
    show_default=True,
    type=click.IntRange(0, 512 * 1024),
    help="Let messages to the same topics travel together, in batches of up to so many bytes; 0: each travels alone.",
)
@click.option(
    "--window",
    type=click.IntRange(1, 65_536),
    help=f"How many messages of a producer may be undecided.  [default: 256; with --batch-bytes {plan.BATCHED_WINDOW}]",
)
@click.option(
    "--repeat", default=1, show_default=True, type=click.IntRange(1, 100), help="How often the cells are run."
)
@click.option(
    "-d",
    "--size",
    "value_bytes",
    default=100,
    show_default=True,
    type=click.IntRange(plan.HEADER.size, 900_000),
)
@click.option(
    "--singles",
    default=Singles.OWN.value,
    show_default=True,
    type=click.Choice([one.value for one in Singles]),
    help="Where messages to one topic go: to the producer's own, as in the thesis, or to all alike.",
)
@click.option(
    "--sleep",
    is_flag=True,
    help="Sleep 5 ms after each message, as the thesis did; then only latency is compared.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    help="How many processes the load generator has; half of them produce.  [default: half of the cores, at least 2]",
)
@click.option("--seed", default=1, show_default=True, help="The seed that decides which message goes where.")
@settings_option
@comment_option
@out_option
def multicast(
    *,
    servers: int,
    connect: str | None,
    parts: tuple[str, ...],
    shares: tuple[float, ...],
    topics: int,
    producers: int,
    messages: int,
    seconds: float,
    messages_max: int,
    batch_bytes: int,
    window: int | None,
    repeat: int,
    value_bytes: int,
    singles: str,
    sleep: bool,
    processes: int | None,
    seed: int,
    settings: tuple[str, ...],
    comment: str,
    out: Path,
) -> None:
    """Measure topics: messages to one and to several at once, in one order.

    \b
    thesis   5 topics, 2 producers, 0 to 50 % of the messages to all five; consumers read everything
    latency  one message at a time, to 1, 2 and all topics
    genuine  messages to 1, 2 and 5 of 10 topics: whom they touch (5 servers of its own, topics replicated once)
    streams  one topic, 100 B and 1 KB, 1 and 8 partitions, beside a log of znodes
    orders   one producer to four partitions, in order PARTITION, FIFO and CAUSAL
    records  one producer of records in batches, 100 B and 1 KB, over 1, 8 and 64 partitions; consumers read afterwards
    Every log is read in full and compared with the others: a cell that breaks a promise fails, and has no figures.
    """
    if connect is not None and settings:
        raise ConfigError("--connect: servers that run already are not started: drop --set")
    if connect is not None and "genuine" in parts:
        raise ConfigError(
            "--part genuine reads the servers' logs, which needs servers of its own: drop --connect"
        )
    if window is not None and window > plan.MESSAGES_UNDECIDED_MAX and not batch_bytes:
        raise ConfigError(
            f"--window: found {window}; a producer has at most {plan.MESSAGES_UNDECIDED_MAX} messages under way that travel "
            "alone: choose fewer, or add --batch-bytes"
        )
    chosen = parts or tuple(one for one in PARTS if connect is None or one != "genuine")
    base = Cell(
        name="base",
        fanout=topics,
        topics=topics,
        producers=producers,
        singles=Singles(singles),
        messages=messages,
        seconds=0.0 if sleep else seconds,
        messages_max=max(messages * producers, messages_max) if not sleep else messages * producers,
        batch_bytes=batch_bytes,
        window=window or (plan.BATCHED_WINDOW if batch_bytes else 256),
        value_bytes=value_bytes,
        sleep_ms=plan.THESIS_SLEEP_MS if sleep else 0.0,
        seed=seed,
    )
    given = given_servers(connect, "--connect") if connect is not None else None
    title = ", ".join(chosen) + (", with 5 ms sleep" if sleep else "")
    run = evolve(new_run("multicast", title=title, settings={"set": " ".join(settings)}), comment=comment)
    file = ResultFile(out, run)
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as directory:
        running: Servers = (
            given if given is not None else LocalCluster(Path(directory) / "a", servers, settings)
        )
        aside = LocalCluster(Path(directory) / "b", GENUINE_SERVERS, (*settings, "topics.replication=1"))
        work = _Run(base, chosen, shares, processes or default_processes(), repeat, file, new_console())
        ok = asyncio.run(work.all(running, aside))
    raise SystemExit(0 if ok else 1)


class _Run:
    """Run of all parts, one after the other; the file is written after each cell."""

    def __init__(
        self,
        base: Cell,
        parts: Sequence[str],
        shares: Sequence[float],
        processes: int,
        repeat: int,
        file: ResultFile,
        console: Console,
    ) -> None:
        self._base = base
        self._parts = parts
        self._processes = processes
        self._file = file
        self._console = console
        self._cells: list[Cell] = []
        if "thesis" in parts:
            mixes = [evolve(base, name=f"{share:.0%}", share=share) for share in shares]
            self._cells += mixes or plan.thesis_cells(base)
        if "latency" in parts:
            self._cells += plan.latency_cells(base)
        if "orders" in parts:
            self._cells += plan.order_cells(base)
        if "records" in parts:
            self._cells += plan.records_cells(base)
        self._cells *= repeat
        self._results = MulticastResults()

    async def all(self, servers: Servers, aside: LocalCluster) -> bool:
        streams = plan.stream_cells(self._base) if "streams" in self._parts else []
        total = len(self._cells) + len(streams) + ("genuine" in self._parts)
        with Display(self._console, total, "multicast") as display:
            if self._cells or streams:
                try:
                    await asyncio.to_thread(servers.start)
                    for cell in self._cells:
                        async with display.test(cell.name, cell.seconds):
                            self._keep(cells=[await run_cell(cell, servers, self._processes)])
                        display.advance()
                    for cell in streams:
                        for target in targets_of(cell):
                            async with display.test(f"{target}: {cell.name}", cell.seconds):
                                self._keep(streams=[await run_stream(cell, servers, self._processes, target)])
                        display.advance()
                finally:
                    await asyncio.to_thread(servers.stop)
            if "genuine" in self._parts:
                async with display.test("genuine", 30.0):
                    self._keep(genuine=await _genuine(aside))
                display.advance()
        for table in tables_of(self._results):
            self._console.print(rich_table(table))
            for note in table.notes:
                self._console.print(note, style="dim", highlight=False)
        for note in sorted({note for one in self._results.cells for note in one.notes}):
            self._console.print(f"note: {note}", highlight=False)
        self._console.print(f"results: {self._file.path}", highlight=False, soft_wrap=True)
        return self._results.ok

    def _keep(
        self,
        cells: Sequence[CellResult] = (),
        streams: Sequence[StreamResult] = (),
        genuine: Sequence[GenuineResult] = (),
    ) -> None:
        before = self._results
        self._results = evolve(
            before,
            cells=(*before.cells, *cells),
            streams=(*before.streams, *streams),
            genuine=(*before.genuine, *genuine),
        )
        self._file.save(evolve(self._file.run, multicast=self._results))
        done: list[CellResult | StreamResult | GenuineResult] = [*cells, *streams, *genuine]
        for one in done:
            self._console.print(line_of(one), highlight=False)


async def _genuine(cluster: LocalCluster) -> list[GenuineResult]:
    try:
        await asyncio.to_thread(cluster.start)
        return await run_genuine(cluster)
    except ServerError as error:
        return [GenuineResult(topics=0, fanout=0, messages=0, reason=str(error))]
    finally:
        await asyncio.to_thread(cluster.stop)


def line_of(one: CellResult | StreamResult | GenuineResult) -> str:
    """Return a line about something that is finished."""
    match one:
        case CellResult(cell=cell):
            head = f"{cell.name}: {one.messages:,} messages, {one.multicasts:,} to several: "
            text = f"{one.per_second:,.0f} messages/s, {one.delivered / max(one.elapsed_s, 1e-9):,.0f} deliveries/s"
        case StreamResult():
            head = f"{one.target}, {one.partitions} x {one.value_bytes} B: "
            text = f"{one.per_second:,.0f} messages/s, {one.mb_per_second:.2f} MB/s"
        case GenuineResult():
            head = f"{one.messages} messages to {one.fanout} of {one.topics} topics: "
            text = f"{one.per_message:.2f} messages between groups each, {one.commits} commits one after the other"
    return head + (text if one.ok else f"[red]failed[/red]: {one.reason}")


def rich_table(table: Table) -> RichTable:
    """Return a table for the terminal; failed rows are red."""
    shown = RichTable(title=table.title)
    for n, name in enumerate(table.head):
        shown.add_column(name, justify="left" if n in table.texts else "right")
    for n, row in enumerate(table.rows):
        shown.add_row(*row, style="red" if n in table.failed else None)
    return shown
