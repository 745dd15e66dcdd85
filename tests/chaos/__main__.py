"""The command `python -m tests.chaos`: real servers, faults, recording clients, a verdict.

python -m tests.chaos --minutes 2 --seed 7 --out /tmp/chaos
python -m tests.chaos --minutes 20 --faults kill,cut,loss --out /tmp/chaos
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import uvloop
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.chaos.run import ChaosRun, Settings, Summary
from tests.chaos.schedule import MEMBERSHIP, parse_faults
from tests.simulation.planted import PLANTS
from zraft_core.errors import ConfigError, ZraftError

SHOWN_OF_A_CHECKER_MAX: Final = 10
"""Violations: one checker that finds hundreds must not hide what another one finds."""

SHOWN_CHARACTERS_MAX: Final = 4_000


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=2.0, show_default=True)
@click.option("--seed", type=int, help="Decides plan and clients; drawn if not given.")
@click.option("--servers", type=click.Choice(["3", "5"]), default="3", show_default=True)
@click.option(
    "--faults",
    default="default",
    show_default=True,
    metavar="NAMES",
    help="default, all, none, or names with commas; -NAME takes one away. "
    f"Not in default: {', '.join(sorted(MEMBERSHIP))}.",
)
@click.option(
    "--pause-ms", type=click.FloatRange(1, 10_000), default=30.0, show_default=True, help="Of a client, mean."
)
@click.option(
    "--network",
    type=click.Choice(["proxy", "namespaces"]),
    default="proxy",
    show_default=True,
    help="What faults of the network are made by; namespaces need root.",
)
@click.option("--set", "knobs", multiple=True, metavar="KNOB=VALUE", help="A setting of all servers.")
@click.option(
    "--planted",
    type=click.Choice(sorted(PLANTS)),
    help="Servers with this bug: is it noticed?",
    metavar="BUG",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="An empty or new directory: histories, logs and data.",
)
def main(
    minutes: float,
    seed: int | None,
    servers: str,
    faults: str,
    pause_ms: float,
    network: str,
    knobs: Sequence[str],
    planted: str | None,
    out: Path,
) -> None:
    """Let servers suffer, and check what their clients were told.

    Exit code 0: no violation. 1: a promise was broken. 2: the run was not possible.
    """
    console = Console(highlight=False)
    chosen = random.SystemRandom().getrandbits(31) if seed is None else seed
    again = [
        *(sys.executable, "-m", "tests.chaos", "--minutes", f"{minutes:g}", "--seed", str(chosen)),
        *("--servers", servers, "--faults", faults, "--pause-ms", f"{pause_ms:g}", "--network", network),
        *(word for knob in knobs for word in ("--set", knob)),
        *(("--planted", planted) if planted is not None else ()),
    ]
    console.print(f"seed: {chosen}")
    try:
        settings = Settings(
            seed=chosen,
            duration_s=minutes * 60,
            servers=int(servers),
            faults=parse_faults(faults),
            pause_ms=pause_ms,
            out=_empty_directory(out),
            namespaces=network == "namespaces",
            knobs=dict(_knob(one) for one in knobs),
            planted=planted,
        )
        with Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[acknowledged]:,} writes"),
            TimeRemainingColumn(),
            console=console,
        ) as progress:
            task = progress.add_task("chaos", total=settings.duration_s, acknowledged=0)
            run = ChaosRun(
                settings,
                lambda text: progress.console.print(escape(text)),
                lambda gone, count: progress.update(task, completed=gone, acknowledged=count),
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                summary = runner.run(run.run())
    except asyncio.CancelledError:
        console.print("[red]stopped[/red] by SIGTERM: nothing was judged")
        sys.exit(2)
    except (ZraftError, OSError) as error:
        console.print(f"[red]error:[/red] {escape(str(error))}")
        sys.exit(2)
    _show(console, summary)
    if summary.violations:
        shown: Counter[str] = Counter()
        for violation in summary.violations:
            shown[violation.checker] += 1
            if shown[violation.checker] > SHOWN_OF_A_CHECKER_MAX:
                continue
            console.print(f"[red]{violation.checker}[/red] {escape(violation.found[:SHOWN_CHARACTERS_MAX])}")
        console.print(f"histories and logs: {out}\nagain: {escape(' '.join(again))} --out NEW_DIRECTORY")
        sys.exit(1)


def _empty_directory(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise ConfigError(f"--out: expected an empty or new directory, {path} has something in it")
    return path.resolve()


def _knob(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set: expected KNOB=VALUE, found {text!r}")
    return name, value


def _show(console: Console, summary: Summary) -> None:
    table = Table("operation", "ok", "refused", "unknown", title="Operations")
    for kind, counts in sorted(summary.operations.items()):
        table.add_row(kind, *(f"{counts[outcome]:,}" for outcome in ("ok", "fail", "unknown")))
    console.print(table)
    table = Table("fault", "struck", "not possible", title="Faults")
    for kind in sorted({*summary.faults, *summary.missed}):
        table.add_row(kind, str(summary.faults.get(kind, 0)), str(summary.missed.get(kind, 0)))
    console.print(table)
    table = Table(title="Verdict", show_header=False)
    outage = summary.outage
    table.add_row("longest outage", f"{outage.seconds:.2f} s, {outage.at_s:.1f} s after the beginning")
    table.add_row("during", escape("\n".join(outage.faults)) or "no fault")
    table.add_row("elections won", str(summary.elections))
    table.add_row("writes acknowledged", f"{summary.client_writes_per_s:,.0f} per second")
    table.add_row("violations", f"[{'red' if summary.violations else 'green'}]{len(summary.violations)}")
    console.print(table)


if __name__ == "__main__":
    main()
