"""Hours of mixed load under faults on five servers, in pieces that go on where the last one ended.

    python -m tests.soak --out DIRECTORY --hours 8

Each piece is a run of `tests.onyxlog.audits.everything`: producers, consumers, peers with jobs, and recording clients
work while servers, disks, clocks and links fail every few seconds. All pieces use the same servers, ports and data. A
piece ends in good order and is audited; what only that audit needed is deleted then. Meanwhile memory, open files, disk
and the latency of a steady client are sampled.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table

from tests.chaos.links import ports_of
from tests.chaos.schedule import DEFAULT
from tests.onyxlog.audits.everything import Everything, Stage, audited_in
from tests.onyxlog.audits.struck import SETTINGS, StruckServers
from tests.processes.cluster import free_ports
from tests.soak.diary import Diary, Piece, Place
from tests.soak.samples import MEASURES, Sample, Used, growing, growth, latencies, series, used_by
from zraft_bench.drawing import available, draw
from zraft_client import Client, ClientError

SERVERS: Final = 5
SAMPLE_S: Final = 5.0
PROBE: Final = "/soak-probe"
PROBE_PAUSE_S: Final = 0.05
PROBE_TIMEOUT_S: Final = 60.0
NUMBERS_PER_PIECE: Final = 1_000_000
RETENTION_BYTES: Final = 4 << 20
LOG_KEPT_BYTES: Final = 32 << 20
"""Less than in a single run, so that the disk is soon as full as it gets."""

LATENCY: Final = "write, ms: median"

AUDITED: Final = ("recordings", "histories", "work")
"""Only the audit of a piece needs these directories."""


class Watch:
    """Observer of a piece at work: it samples the servers and the latency of its own writes."""

    def __init__(self, place: Place, piece: int, load_s: float) -> None:
        self._place = place
        self._piece = piece
        self._load_s = load_s
        self._write_ms: list[float] = []

    async def run(self, cluster: StruckServers) -> None:
        """Sample until cancelled, beside a client that writes."""
        writing = asyncio.ensure_future(self._write(cluster))
        began = time.monotonic()
        try:
            while True:
                await asyncio.sleep(SAMPLE_S)
                servers = await asyncio.to_thread(self._used, cluster)
                write_ms, self._write_ms = self._write_ms, []
                at_s = self._load_s + time.monotonic() - began
                self._place.add(Sample(at_s, self._piece, servers, tuple(write_ms)))
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    def _used(self, cluster: StruckServers) -> tuple[Used, ...]:
        found = [
            used_by(server.process.pid, server.data)
            for server in cluster.servers.values()
            if server.process is not None and server.running
        ]
        return tuple(used for used in found if used is not None)

    async def _write(self, cluster: StruckServers) -> None:
        async with Client(cluster.hosts(), timeout_s=PROBE_TIMEOUT_S) as client:
            while True:
                began = time.monotonic()
                with suppress(ClientError):
                    await client.put(PROBE, str(began))
                    self._write_ms.append(round(1000 * (time.monotonic() - began), 2))
                await asyncio.sleep(PROBE_PAUSE_S)


def ended_piece(place: Place, diary: Diary, minutes: float, master: str) -> Piece:
    """Return what became of the piece that was begun last, after it has run."""
    try:
        wrong = run_piece(place, diary, minutes, master)
    except Exception as error:  # whatever it is, this piece did not do what it should
        traceback.print_exc()
        wrong = [f"{type(error).__name__}: {error}"]
    return Piece(diary.begun, 60 * minutes, tuple(wrong))


def run_piece(place: Place, diary: Diary, minutes: float, master: str) -> list[str]:
    """Run and audit the piece that was begun last; what broke, in words."""
    number, directory = diary.begun, place.piece(diary.begun)
    directory.mkdir(parents=True)
    for log in place.data.glob("*.log"):
        log.rename(directory / log.name)  # errors in it were judged with the piece that it is of
    stage = Stage(
        data=place.data,
        servers=SERVERS,
        ports=diary.ports,
        settings={**SETTINGS, "snapshot.retain_bytes": LOG_KEPT_BYTES},
        retention_bytes=RETENTION_BYTES,
        first=NUMBERS_PER_PIECE * number,
    )
    watch = Watch(place, number, diary.load_s)
    # The sum of a seed and an even number has the same mode of consumers.
    run = Everything(directory, diary.seed + 2 * number, 60 * minutes, DEFAULT, click.echo, stage, watch.run)
    wrong = asyncio.run(run.run())
    (directory / "servers").symlink_to(place.data)
    wrong += audited_in(directory, master, costs=False)
    if not wrong:
        for name in AUDITED:
            shutil.rmtree(directory / name)
        for log in directory.glob("*.log"):
            log.unlink()
    return wrong


def show(place: Place, diary: Diary) -> list[str]:
    """Print the table of growth and draw the plots; return what grows too much, in words."""
    samples = place.samples(diary)
    rows = {name: series(samples, name) for name in MEASURES} | {LATENCY: latencies(samples)}
    table = Table("", "second quarter", "last quarter", "growth")
    for name, points in rows.items():
        by, quarter = growth(points), len(points) // 4
        if by is not None:
            before, after = _mean(points[quarter : 2 * quarter]), _mean(points[-quarter:])
            table.add_row(name, f"{before:.1f}", f"{after:.1f}", f"{by:.2f}")
        if points and available():
            _plot(place.directory, name, points)
    Console(width=100).print(table)
    return growing(samples)


def _plot(directory: Path, name: str, points: list[tuple[float, float]]) -> None:
    def fill(axes: Any) -> None:
        axes.plot(*zip(*points, strict=True))
        axes.set_xlabel("hours of load")
        axes.set_ylabel(name)
        axes.set_ylim(bottom=0)

    title = name if name == LATENCY else f"{name}: mean of the servers"
    plot = draw(name.partition(",")[0].replace(" ", "-"), title, fill)
    (directory / f"{plot.name}.png").write_bytes(plot.png)


def _mean(points: list[tuple[float, float]]) -> float:
    return sum(value for _, value in points) / len(points)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="New, or that of a soak that goes on.",
)
@click.option("--hours", default=8.0, show_default=True, help="Of load, in all pieces together.")
@click.option(
    "--piece-minutes", default=20.0, show_default=True, type=click.FloatRange(0.5), help="Of load in a piece."
)
@click.option("--pieces", type=click.IntRange(1), help="Stop after so many; the next call goes on.")
@click.option("--seed", type=int, help="Of a new soak: decides what fails when.  [default: a fresh one]")
@click.option("--master", default="local[*]", show_default=True, help="Where the audits run.")
def main(
    out: Path, hours: float, piece_minutes: float, pieces: int | None, seed: int | None, master: str
) -> None:
    """Load five servers for hours, in pieces, with a fault every few seconds.

    A call that is interrupted, or stops after --pieces, is gone on with by the same command. It stops
    after a piece that broke a promise, and keeps all that this piece left. The exit code is 1 then, and if
    memory, files or disk grow.
    """
    place = Place(out.absolute())
    diary = place.read()
    if diary is None:
        seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
        diary = Diary(seed, tuple(free_ports(ports_of(SERVERS))))
    elif seed not in (None, diary.seed):
        raise click.BadParameter(
            f"found {seed}, expected {diary.seed}, with which this soak began", param_hint="--seed"
        )
    done = 0
    while diary.load_s < 3600 * hours and done != pieces and not any(piece.wrong for piece in diary.pieces):
        diary = diary.begin()
        place.write(diary)
        click.echo(
            f"piece {diary.begun}, after {diary.load_s / 3600:.2f} of {hours:g} hours; seed {diary.seed}"
        )
        diary = diary.end(ended_piece(place, diary, piece_minutes, master))
        place.write(diary)
        done += 1
    wrong = [f"piece {piece.number}: {line}" for piece in diary.pieces for line in piece.wrong]
    wrong += show(place, diary)
    for line in wrong:
        click.secho(line, fg="red")
    click.echo(f"{diary.load_s / 3600:.2f} of {hours:g} hours; all of it: {place.directory}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
