"""Many seeds: each one's end, whether all of them saw enough to mean anything, and which seed notices a planted bug."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

from tests.simulation.claims.planted import planted
from tests.simulation.claims.simulation import Report, Simulation
from tests.simulation.seed_runs import Result, first_to_notice, judged

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
        "Commit",
        "CommitRanges",
        "CommitBatch",
        "Heartbeat",
        "durable commits",
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


def run_seed(seed: int, *, partitions: int | None = None, consumers: int | None = None) -> Result[Report]:
    return judged(seed, lambda: Simulation(seed, partitions=partitions, consumers=consumers))


@cache
def is_sound(seed: int) -> bool:
    """Whether a seed breaks no promise without a plant: if it does, it proves nothing about one."""
    return run_seed(seed).report is not None


def run_planted(name: str, seeds: Iterable[int]) -> tuple[Result[Report] | None, int]:
    return first_to_notice(seeds, lambda: planted(name), run_seed, is_sound)


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
