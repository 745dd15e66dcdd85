"""One seed's verdict, alone, with a planted bug, or of a range: what the command and the tests share."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.multicast.directed import DIRECTED
from tests.simulation.multicast.planted import PLANTS, planted
from tests.simulation.multicast.profile import Mode, Size
from tests.simulation.multicast.world import Summary, World

MESSAGES_MEAN_MIN: Final = 200
FAULTS_MEAN_MIN: Final = 5
MEANS_FROM_SEEDS: Final = 100
"""Averages of fewer seeds are not judged."""
MINOR: Final = frozenset(("message lost", "message repeated"))
"""What is not counted as a fault: it happens all the time."""


@frozen
class Result:
    """A run: what it saw, or which promise was broken and how."""

    seed: int
    summary: Summary | None
    checker: str = ""
    reason: str = ""


def run_seed(seed: int, size: Size | None = None, mode: Mode | None = None) -> Result:
    """Run one seed; every error, of checks or of the product itself, is a failure of the seed."""
    try:
        return Result(seed, World(seed, size, mode).run())
    except BrokenPromiseError as error:
        return Result(seed, None, error.checker, error.found)
    except Exception as error:
        # The product raised what no schedule may make it raise; where is the first thing to know.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        return Result(seed, None, "no crash", f"{type(error).__name__}: {error} ({where})")


@cache
def is_sound(seed: int, size: Size | None, mode: Mode | None) -> bool:
    """Whether a seed breaks no promise without a plant: if it does, it proves nothing about one."""
    return run_seed(seed, size, mode).summary is not None


def run_planted(name: str, seeds: Iterable[int]) -> Result | None:
    """The first seed that notices a planted bug, in the small runs of its kind."""
    mode = PLANTS[name].mode
    for seed in seeds:
        with planted(name):
            result = run_seed(seed, Size.SMALL, mode)
        if result.summary is None and is_sound(seed, Size.SMALL, mode):
            return result
    return None


def run_directed(name: str) -> str | None:
    """Which promise the directed schedule of a planted bug finds broken; None if there is none, or it finds nothing."""
    schedule = DIRECTED.get(name)
    if schedule is None:
        return None
    schedule()
    try:
        with planted(name):
            schedule()
    except BrokenPromiseError as error:
        return error.checker
    return None


def shortfalls(results: Sequence[Result]) -> list[str]:
    """What a range of seeds saw too little of to mean anything."""
    summaries = [result.summary for result in results if result.summary is not None]
    if len(summaries) < MEANS_FROM_SEEDS:
        return []
    messages = sum(summary.messages for summary in summaries) / len(summaries)
    faults = sum(
        count for summary in summaries for kind, count in summary.faults.items() if kind not in MINOR
    ) / len(summaries)
    found = []
    if messages < MESSAGES_MEAN_MIN:
        found.append(f"{messages:.0f} messages per seed, expected {MESSAGES_MEAN_MIN}")
    if faults < FAULTS_MEAN_MIN:
        found.append(f"{faults:.1f} faults per seed, expected {FAULTS_MEAN_MIN}")
    return found


def trace_of(seed: int) -> str:
    """Every group's log and deliveries of a seed, as far as it came."""
    world = World(seed)
    try:
        world.run()
    except Exception as error:
        end = f"{type(error).__name__}: {error}"
    else:
        end = "no promise was broken"
    lines: list[str] = []
    for group, hosted in world.groups.items():
        lines.append(f"group {group}")
        lines += [f"    {command}" for batch in hosted.log for command in batch.commands]
        lines += [f"  delivered {tuple(d.stamp)} {tuple(d.message.mid)}" for d in hosted.delivered]
        lines.append(f"  void {[tuple(mid) for mid in hosted.voids]}")
    return "\n".join([*lines, end])
