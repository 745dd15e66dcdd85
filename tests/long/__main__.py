"""`.ci/long`, once everything is installed: chooses pieces, runs them, remembers and sums up."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

import click

from tests.images.buildah import cannot
from tests.long.pieces import RUN_S_MAX, Piece, pieces
from tests.long.pythons import without
from tests.long.record import Outcome, Record, Result, clock, state_of, table
from tests.long.running import REPOSITORY, run_piece

PLACE: Final = REPOSITORY / ".long"
SUMMARY: Final = "summary.md"
SHOWN_LINES: Final = 40

Run = Callable[[Piece, Path, float], Outcome]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--list", "listing", is_flag=True, help="Show the pieces and their bounds, and do nothing.")
@click.option("--only", "names", multiple=True, metavar="NAME", help="Only this piece; may be repeated.")
@click.option("--fresh", is_flag=True, help="Forget which pieces are finished, and do them again.")
@click.option(
    "--seed", type=click.IntRange(0), help="Repeat a run's seeds; by default they follow from the checkout."
)
@click.option(
    "--slower",
    type=click.FloatRange(1),
    default=1.0,
    show_default=True,
    metavar="FACTOR",
    help="Multiply all bounds, for a machine that is slow or busy.",
)
def main(listing: bool, names: tuple[str, ...], fresh: bool, seed: int | None, slower: float) -> None:
    """Do what takes longer than .ci/run: at most two hours on two quiet cores.

    \b
        .ci/long                      everything that is not finished yet
        .ci/long --list               the pieces
        .ci/long --only images        one of them
        .ci/long --fresh              everything, again

    A piece that failed does not keep the others from running. What is finished is remembered for
    this state of the checkout, committed or not, and not done again: start a run that was stopped
    once more, and it goes on. A run ends after two hours; what has to wait is done by the next one.
    Logs and the summary are below .long/. The exit code is 1 if a piece failed, ran out of time or
    waits.
    """
    state = state_of(REPOSITORY)
    chosen_seed = int(state[:8], 16) if seed is None else seed
    place = PLACE / f"{state[:12]}-{chosen_seed}"
    all_pieces = pieces(sys.executable, chosen_seed, place)
    if listing:
        for piece in all_pieces:
            click.echo(f"{piece.name:16} {piece.bound_s // 60:3} min  {piece.about}")
        return
    unknown = set(names) - {piece.name for piece in all_pieces}
    if unknown:
        raise click.BadParameter(
            f"found {', '.join(sorted(unknown))}, expected names that --list shows", param_hint="--only"
        )
    if fresh:
        shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, exist_ok=True)
    chosen = [piece for piece in all_pieces if not names or piece.name in names]
    click.echo(f"state {state[:12]}, seed {chosen_seed} (repeat with --seed {chosen_seed}), logs in {place}")
    signal.signal(signal.SIGTERM, _interrupted)
    record = Record(place)
    try:
        run_all(chosen, record, place, slower)
    except KeyboardInterrupt:
        click.echo("interrupted; start it again to go on")
        raise SystemExit(130) from None
    finally:
        summary = table([piece.name for piece in chosen], record)
        (place / SUMMARY).write_text(f"State {state}, seed {chosen_seed}.\n\n{summary}\n", encoding="utf-8")
        click.echo(f"\n{summary}\n\n{place / SUMMARY}")
    if any(record.of(piece.name).result.is_failure for piece in chosen):
        raise SystemExit(1)


def run_all(
    chosen: Sequence[Piece],
    record: Record,
    place: Path,
    slower: float = 1.0,
    run: Run = run_piece,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run what is not finished, and save each outcome as soon as it is known. What two hours do not suffice for waits."""
    ends_at = now() + RUN_S_MAX * slower
    for piece in chosen:
        if record.of(piece.name).result is Result.OK:
            click.echo(f"== {piece.name}: finished earlier")
            continue
        reason = (cannot() if piece.needs_root else "") or (without(piece.python) if piece.python else "")
        if reason:
            click.echo(f"== {piece.name}: {reason}")
            record.save(piece.name, Outcome(Result.CANNOT, said=reason))
            continue
        bound_s = piece.bound_s * slower
        if now() + bound_s > ends_at:
            click.echo(
                f"== {piece.name}: it may take longer than is left of this run; start it again to go on"
            )
            record.save(piece.name, Outcome(Result.WAITS, said="start .ci/long again to go on"))
            continue
        shutil.rmtree(place / f"{piece.name}.out", ignore_errors=True)
        click.echo(f"== {piece.name}, at most {bound_s / 60:.0f} min: {piece.about}")
        log = place / f"{piece.name}.log"
        outcome = run(piece, log, bound_s)
        record.save(piece.name, outcome)
        click.echo(f"   {outcome.result.value} after {clock(outcome.took_s)}: {outcome.said}")
        if outcome.result.is_failure:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            click.echo("\n".join(f"   | {line}" for line in lines[-SHOWN_LINES:]))
            click.echo(f"   all of it: {log}")


def _interrupted(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(f"error: `{' '.join(map(os.fspath, error.cmd))}` failed: {error.stderr}")
