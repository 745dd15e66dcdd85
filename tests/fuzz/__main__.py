"""The command `python -m tests.fuzz`: which target, how many inputs, which seed; figures at the end."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from tests.fuzz.batches import BatchFuzz
from tests.fuzz.datagrams import DatagramFuzz
from tests.fuzz.frames import FrameFuzz
from tests.fuzz.live import ANSWER_S_MAX, LiveFuzz, LiveSettings, require_loopback
from tests.fuzz.native import NativeFuzz
from tests.fuzz.outcome import Outcome
from tests.fuzz.segments import SegmentFuzz
from tests.simulation.broken import BrokenPromiseError
from zraft_core.address import parse_address
from zraft_core.errors import ConfigError

TARGETS: Final = ("frames", "native", "datagrams", "segments", "batches")
IN_PROCESS: Final = frozenset({"segments", "native", "batches"})
DEFAULT_COUNTS: Final = {
    "frames": 20_000,
    "native": 20_000,
    "datagrams": 10_000,
    "segments": 2_000,
    "batches": 20_000,
}
REMOTE: Final = "I may break this server"


class _Rate(ProgressColumn):
    """Inputs per second since the target began."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed / task.elapsed if task.elapsed else 0:,.0f}/s", style="cyan")


@click.command()
@click.option("--target", type=click.Choice([*TARGETS, "all"]), default="all", show_default=True)
@click.option(
    "--count", type=click.IntRange(min=1), help="Inputs per target; by default what takes some seconds."
)
@click.option("--seed", type=int, help="Repeat the run that printed this number.")
@click.option("--connections", type=click.IntRange(1, 1_000), default=8, show_default=True, help="At a time.")
@click.option("--connect", "address", metavar="HOST:PORT", help="Fuzz a running server instead.")
@click.option("--pid", type=int, help="With --connect: the server's process, whose memory is watched.")
@click.option(
    "--growth-mb", type=click.IntRange(min=1), default=512, show_default=True, help="How much --pid may grow."
)
@click.option(
    "--answer-seconds",
    type=click.FloatRange(0.1, 600),
    default=ANSWER_S_MAX,
    show_default=True,
    help="With --connect: how long a well-behaved client waits; more on a busy machine.",
)
@click.option("--remote", metavar="WORDS", help=f'Needed for a host that is not this one: "{REMOTE}".')
def main(
    target: str,
    count: int | None,
    seed: int | None,
    connections: int,
    address: str | None,
    pid: int | None,
    growth_mb: int,
    answer_seconds: float,
    remote: str | None,
) -> None:
    """Feed bad input to zraft and check every answer. Exit code 0: all promises held; 1: one did not."""
    console = Console()
    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    console.print(f"seed {seed}", highlight=False)
    targets = TARGETS if target == "all" else (target,)
    try:
        if address is None:
            for name in targets:
                _report(console, _in_process(console, name, count or DEFAULT_COUNTS[name], seed, connections))
            return
        live = frozenset(targets) - IN_PROCESS
        if not live:
            raise ConfigError(f"--target {target}: it is fuzzed in process, leave --connect out")
        settings = LiveSettings(
            parse_address(address, "--connect"), connections, pid, growth_mb * 1024 * 1024, answer_seconds
        )
        if remote != REMOTE:
            require_loopback(settings.address)
        _report(console, _live(console, live, count or DEFAULT_COUNTS["frames"], seed, settings))
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    except ConnectionError as error:
        raise click.ClickException(f"--connect {address}: no server listens there: {error}") from error
    except BrokenPromiseError as error:
        console.print(
            f"FAILED with --seed {seed} --connections {connections}", style="bold red", highlight=False
        )
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        _Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _in_process(
    console: Console, name: str, count: int, seed: int, connections: int
) -> tuple[Outcome, float]:
    fuzz: FrameFuzz | NativeFuzz | DatagramFuzz | SegmentFuzz | BatchFuzz
    match name:
        case "frames":
            fuzz = FrameFuzz(seed, connections)
        case "native":
            fuzz = NativeFuzz(seed, connections)
        case "datagrams":
            fuzz = DatagramFuzz(seed)
        case "batches":
            fuzz = BatchFuzz(seed)
        case _:
            fuzz = SegmentFuzz(seed)
    began = time.monotonic()
    with _bar(console) as progress:
        task = progress.add_task(name, total=count)
        return fuzz.run(count, lambda more: progress.advance(task, more)), time.monotonic() - began


def _live(
    console: Console, targets: frozenset[str], count: int, seed: int, settings: LiveSettings
) -> tuple[Outcome, float]:
    began = time.monotonic()
    with _bar(console) as progress:
        task = progress.add_task("live", total=count * len(targets))
        fuzz = LiveFuzz(seed, settings)
        outcome = asyncio.run(fuzz.run(targets, count, lambda more: progress.advance(task, more)))
    return outcome, time.monotonic() - began


def _report(console: Console, result: tuple[Outcome, float]) -> None:
    outcome, seconds = result
    rate = outcome.inputs / seconds if seconds else 0.0
    console.print(
        f"{outcome.target}: {outcome.inputs:,} inputs in {seconds:.1f} s ({rate:,.0f}/s), "
        f"peak {outcome.peak_bytes / 1e6:.1f} MB",
        highlight=False,
    )
    for answer, number in sorted(outcome.answers.items()):
        console.print(f"  {number:>10,}  {answer}", highlight=False)
    if outcome.slowest is not None:
        console.print(f"  slowest input {outcome.slowest}", highlight=False, soft_wrap=True)
        console.print(f"  longest step {outcome.longest_s * 1_000:.1f} ms", highlight=False)


if __name__ == "__main__":
    main()
