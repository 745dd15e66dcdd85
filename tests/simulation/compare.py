"""Compares what two states of the checkout do: the same seeds must give the same reports.

    python -m tests.simulation.compare BASE                     the working tree against a commit
    python -m tests.simulation.compare BASE HEAD --seeds 2000

A step that changes neither what is sent nor when leaves every report equal. The report of a simulated cluster has a
fingerprint of every byte that servers and clients exchanged and of its time, and that of whole servers with partitions
has one of what servers heard; those of the other simulators have counts of what was decided.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from tests.simulation.scenarios import SCENARIOS

REPOSITORY: Final = Path(__file__).parents[2]

PROGRAM: Final = """
import json, multiprocessing, os, sys
name, start, count, jobs = json.loads(sys.argv[1])
if not os.path.isfile("tests/simulation/scenarios.py"):
    sys.exit("no simulators in this tree")
from tests.simulation import scenarios
# What is installed elsewhere must not pass for what is here.
assert scenarios.__file__.startswith(os.getcwd()), scenarios.__file__

def one(seed):
    result = scenarios.SCENARIOS[name].run_seed(seed)
    return seed, repr((result.checker, result.reason) if result.report is None else result.report)

with multiprocessing.get_context("fork").Pool(jobs) as pool:
    for seed, report in pool.imap(one, range(start, start + count)):
        print(json.dumps([seed, report]), flush=True)
"""

console = Console(highlight=False)


@contextmanager
def tree_of(commit: str | None) -> Iterator[Path]:
    """A checkout of the commit, which goes afterwards; the working tree for None.

    Raises:
        click.ClickException: there is no such commit.
    """
    if commit is None:
        yield REPOSITORY
        return
    directory = Path(tempfile.mkdtemp(prefix="compare-"))
    added = git("worktree", "add", "--detach", str(directory / "tree"), commit)
    if added.returncode:
        shutil.rmtree(directory)
        raise click.ClickException(f"{commit}: {added.stderr.strip()}")
    try:
        yield directory / "tree"
    finally:
        git("worktree", "remove", "--force", str(directory / "tree"))
        shutil.rmtree(directory, ignore_errors=True)


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)


def reports_of(tree: Path, simulator: str, seeds: range, jobs: int) -> dict[int, str]:
    """What each seed reports in a tree.

    Raises:
        click.ClickException: the simulator ended with an error, which is in the message.
    """
    words = json.dumps([simulator, seeds.start, len(seeds), jobs])
    path = os.pathsep.join(map(str, (tree, tree / "client", tree / "bench")))
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM, words],
        cwd=tree,
        # The order of a set of strings is no difference between two trees.
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        raise click.ClickException(f"{simulator} in {tree}: {answer.stderr.strip()}")
    return dict(json.loads(line) for line in answer.stdout.splitlines())


def differing(before: dict[int, str], after: dict[int, str]) -> list[int]:
    """Seeds that do not report the same, or that only one of the two has."""
    return [seed for seed in sorted(before | after) if before.get(seed) != after.get(seed)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("base")
@click.argument("head", required=False)
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many.")
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, help="How many at once.")
@click.option(
    "--simulator",
    "names",
    type=click.Choice(list(SCENARIOS)),
    multiple=True,
    help="Only this one; may be repeated.",
)
def main(base: str, head: str | None, seeds: int, start: int, jobs: int, names: Sequence[str]) -> None:
    """Run the same seeds at BASE and at HEAD (default: the working tree) and show which report something else.

    The exit code is 1 if a seed does.
    """
    chosen = range(start, start + seeds)
    differ = False
    with tree_of(base) as old, tree_of(head) as new:
        for name in names or SCENARIOS:
            before = reports_of(old, name, chosen, jobs)
            after = reports_of(new, name, chosen, jobs)
            wrong = differing(before, after)
            differ = differ or bool(wrong)
            console.print(f"{name}: {len(chosen) - len(wrong)} of {len(chosen)} seeds report the same")
            for seed in wrong[:10]:
                console.print(f"  [red]seed {seed}[/red]\n    {before.get(seed)}\n    {after.get(seed)}")
    sys.exit(differ)


if __name__ == "__main__":
    main()
