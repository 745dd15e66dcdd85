"""Many seeds: each one's end, whether all of them saw enough to mean anything, and which seed notices a planted bug."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from attrs import frozen

from zraft.testing.broken import BrokenPromiseError
from zraft.testing.claims.planted import planted
from zraft.testing.claims.simulation import Report, Simulation

MESSAGES_MEAN_MIN: Final = 200
FAULTS_MEAN_MIN: Final = 5
LEADER_CHANGES_MEAN_MIN: Final = 2
"""What a range of seeds must have seen on average to mean anything."""
MEANS_FROM_SEEDS: Final = 10
SEEN_IN_RANGE: Final = (
    *(
        "granted",
        "grants repeated",
        "handed out",
        "handed out again",
        "CommitBatch",
        "Heartbeat",
        "Release",
        "Pause",
    ),
    *("Heartbeat refused FENCED", "CommitBatch refused FENCED", "ClaimPartition refused MOVED"),
    *("ended by expiry", "ended by release", "ended by takeover", "ended by completion"),
    *("snapshots", "digests compared"),
)
"""What must have happened somewhere in `MEANS_FROM_SEEDS` seeds or more: a run without it checks nothing of it."""
PLANTED_SEEDS_MAX: Final = 60
"""A planted bug that so many seeds do not notice counts as missed."""


@frozen
class Result:
    """One seed's end: a report, or what broke. `cpu_s` is processor time in seconds."""

    seed: int
    report: Report | None
    promise: str
    reason: str
    cpu_s: float


def run_seed(seed: int, *, partitions: int | None = None, consumers: int | None = None) -> Result:
    """Run one seed; an error of the product itself is a failure, too."""
    began = time.process_time()
    simulation = Simulation(seed, partitions=partitions, consumers=consumers)
    try:
        report = simulation.run()
    except BrokenPromiseError as error:
        reason = f"at {simulation.schedule.now_ms} ms: {error.found}"
        return Result(seed, None, error.checker, reason, time.process_time() - began)
    except Exception as error:
        # The product raised what no input may make it raise; where is the first thing to know.
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(frame.filename)}:{frame.lineno}"
        reason = f"at {simulation.schedule.now_ms} ms: {type(error).__name__}: {error} ({where})"
        return Result(seed, None, "no crash", reason, time.process_time() - began)
    return Result(seed, report, "", "", time.process_time() - began)


@cache
def is_sound(seed: int) -> bool:
    """Whether a seed breaks no promise without a plant: if it does, it proves nothing about one."""
    return run_seed(seed).report is not None


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result | None, int]:
    """Seeds until one notices the planted bug: its result, or None, and how many it took."""
    tried = 0
    for seed in seeds:
        tried += 1
        with planted(name):
            result = run_seed(seed)
        if result.report is None and is_sound(seed):
            return result, tried
    return None, tried


def emptiness(reports: Sequence[Report]) -> list[str]:
    """Why these runs do not mean anything; empty if they do."""
    if len(reports) < MEANS_FROM_SEEDS:
        return []
    found = []
    for name, least in (
        ("messages", MESSAGES_MEAN_MIN),
        ("faults", FAULTS_MEAN_MIN),
        ("leader_changes", LEADER_CHANGES_MEAN_MIN),
    ):
        mean = sum(getattr(report, name) for report in reports) / len(reports)
        if mean < least:
            found.append(f"{name.replace('_', ' ')} per seed: {mean:.1f}, at least {least} expected")
    found += [f"no {what}" for what in SEEN_IN_RANGE if not any(report.count(what) for report in reports)]
    return found
