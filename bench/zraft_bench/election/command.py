"""The commands `zraft-bench election` and `failover`: how long it takes when a leader is lost."""

from __future__ import annotations

import asyncio
import random
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from attrs import evolve
from rich.console import Console

from onyxlog.theses import zatt
from zraft_bench.cluster import LocalCluster
from zraft_bench.election.times import DEFINITIONS, distribution, series
from zraft_bench.election.trials import HOWS, failover_trial, run_elections
from zraft_bench.options import comment_option, out_option, settings_option
from zraft_bench.result_files import ResultFile, new_run
from zraft_bench.results import OK, ElectionTrial
from zraft_bench.show import Display, distribution_table, new_console
from zraft_bench.targets.target import Target, in_turn, maker

SAVE_EVERY: Final = 20
FAILOVER_DEADLINE_S: Final = 30.0

how_option = click.option(
    "--how",
    default="kill",
    show_default=True,
    type=click.Choice(sorted(HOWS)),
    help="How a leader is lost: kill is SIGKILL, then a start on the same directory; stop is SIGSTOP, then SIGCONT.",
)
seed_option = click.option(
    "--seed", default=1, show_default=True, help="The seed of the pauses between trials."
)


class _Keeper:
    """Keeper of trials, which writes them to the file, but not after every one of a thousand."""

    def __init__(self, file: ResultFile, display: Display) -> None:
        self._file = file
        self._display = display
        self.trials: list[ElectionTrial] = []

    def take(self, trial: ElectionTrial) -> None:
        self.trials.append(trial)
        self._display.advance()
        if trial.state != OK:
            self._display.console.print(f"trial {trial.number} failed: {trial.reason}", highlight=False)
        if len(self.trials) % SAVE_EVERY == 0:
            self.save()

    def save(self) -> None:
        self._file.save(evolve(self._file.run, trials=tuple(self.trials)))


@click.command(short_help="How long until another server leads, over many losses of a leader.")
@click.option("-s", "--servers", default=5, show_default=True, type=click.IntRange(3, 9))
@click.option("--trials", default=100, show_default=True, type=click.IntRange(1, 100_000))
@how_option
@seed_option
@settings_option
@comment_option
@out_option
def election(
    servers: int, trials: int, how: str, seed: int, settings: tuple[str, ...], comment: str, out: Path
) -> None:
    """Lose the leader of a local cluster again and again, and measure the elections.

    Two definitions of the beginning are reported: the loss of the leader, so that the time to notice it is in (by design
    about half of raft.election_timeout_ticks for a process that ends, and 1 to 2 times that for one that hangs), and the
    first server's candidacy, when its timer has fired. Times are read from the servers' logs, whose clock all processes of
    this machine share.
    """
    console = new_console()
    run = evolve(
        new_run("election", title=f"{servers} servers, {how}", settings={"set": " ".join(settings)}),
        comment=comment,
    )
    file = ResultFile(out, run)
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as directory:
        cluster = LocalCluster(Path(directory), servers, settings)
        with Display(console, trials, f"elections of {servers} servers") as display:
            keeper = _Keeper(file, display)
            try:
                cluster.start()
                run_elections(cluster, trials, HOWS[how], seed=seed, on_trial=keeper.take)
            finally:
                keeper.save()
                cluster.stop()
    raise SystemExit(_conclude(console, keeper.trials, file, f"{servers} servers, {how}"))


@click.command(short_help="How long clients cannot write when a leader is lost.")
@click.option("-s", "--servers", default=3, show_default=True, type=click.IntRange(3, 9))
@click.option("--trials", default=10, show_default=True, type=click.IntRange(1, 100_000))
@click.option(
    "-c",
    "--clients",
    default=8,
    show_default=True,
    type=click.IntRange(1, 1000),
    help="How many sessions write.",
)
@click.option(
    "--protocol",
    "target",
    default="zraft",
    show_default=True,
    type=click.Choice(["zraft", "zraft-zookeeper"]),
)
@click.option(
    "--after",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.1),
    help="How many seconds of load come after it.",
)
@how_option
@seed_option
@settings_option
@comment_option
@out_option
def failover(
    servers: int,
    trials: int,
    clients: int,
    target: str,
    after: float,
    how: str,
    seed: int,
    settings: tuple[str, ...],
    comment: str,
    out: Path,
) -> None:
    """Lose the leader while clients write, and measure how long nobody's write is acknowledged."""
    console = new_console()
    title = f"{servers} servers, {clients} clients ({target}), {how}"
    run = evolve(new_run("failover", title=title, settings={"set": " ".join(settings)}), comment=comment)
    file = ResultFile(out, run)
    with tempfile.TemporaryDirectory(prefix="zraft-bench-") as directory:
        cluster = LocalCluster(Path(directory), servers, settings)
        with Display(console, trials, f"failovers of {servers} servers") as display:
            keeper = _Keeper(file, display)
            try:
                cluster.start()
                asyncio.run(_failovers(cluster, trials, HOWS[how], clients, target, after, seed, keeper))
            finally:
                keeper.save()
                cluster.stop()
    raise SystemExit(_conclude(console, keeper.trials, file, title))


async def _failovers(
    cluster: LocalCluster,
    trials: int,
    how: signal.Signals,
    clients: int,
    target: str,
    after: float,
    seed: int,
    keeper: _Keeper,
) -> None:
    rng = random.Random(seed)
    make = maker(target)
    for number in range(1, trials + 1):
        targets: list[Target] = [
            make(in_turn(cluster.hosts, n), "failover", True, FAILOVER_DEADLINE_S) for n in range(clients)
        ]
        keeper.take(await failover_trial(cluster, how, number, targets, rng, after))


def _conclude(console: Console, trials: Sequence[ElectionTrial], file: ResultFile, title: str) -> int:
    found = [
        (name, one) for name, values in series(trials).items() if (one := distribution(values)) is not None
    ]
    if found:
        console.print(distribution_table(found, f"milliseconds; {title}"))
        for name, _ in found:
            console.print(f"{name}: {DEFINITIONS[name]}", highlight=False)
    if file.run.kind == "election":
        claims = ", ".join(f"{share:.0%} < {ms:.0f} ms" for ms, share in zatt.ELECTION_SHARES)
        console.print(
            f"Zatt's thesis: {claims} of {zatt.ELECTION_TRIALS} elections of {zatt.ELECTION_SERVERS} servers, "
            "from candidacy",
            highlight=False,
        )
    bad = sum(trial.state != OK for trial in trials)
    console.print(
        f"{len(trials)} trials, {bad} failed; results: {file.path}", highlight=False, soft_wrap=True
    )
    return 1 if bad or not trials else 0
