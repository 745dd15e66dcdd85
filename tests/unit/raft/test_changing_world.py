"""Random schedules of changes, snapshots and transfers with every promise checked, and the same with bugs planted."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.raft.changing_world import World
from tests.unit.raft.checkers import Violation
from tests.unit.raft.planted import (
    CountsJointAsOne,
    CountsLearners,
    LeavingLeaderCountsItself,
    TakesAnySnapshot,
)
from zraft.raft.core import Raft

STEPS = 700
SEEDS = 240
PORTIONS = 24


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_random_changes_keep_every_promise_and_end(portion: int) -> None:
    """Flaws 13, 15 and 18; D-1, D-7, D-18: servers come, go, are replaced, fall behind snapshots, hand over.

    Afterwards all heals: the change under way ends, everybody agrees, and nobody disturbs.
    """
    for seed in range(portion, SEEDS, PORTIONS):
        world = World(seed)
        try:
            world.live(STEPS)
            world.heal()
        except (AssertionError, Violation) as error:
            raise Violation(f"seed {seed}: {error}") from error


def test_random_changes_together_see_enough() -> None:
    """The fixed seeds contain what the test above is about; else it proves little."""
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed)
        world.live(STEPS)
        seen += world.seen
        seen["commits"] += len(world.committed)
        seen["leaderships"] += len(world.checkers.leaders)
    least = {
        "commits": 1000,
        "leaderships": 120,
        "reads": 500,
        "joint": 40,
        "simple": 100,
        "compactions": 200,
        "compactions while leading": 50,
        "restores": 80,
        "restores while writing": 5,
        "restores of learners": 10,
        "transfers": 40,
    }
    assert {name: seen[name] for name in least if seen[name] < least[name]} == {}


def run_seeds(cls: type[Raft], seeds: range) -> None:
    for seed in seeds:
        World(seed, cls).live(STEPS)


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (CountsJointAsOne, "durability|votes"),
        (CountsLearners, "durability|votes"),
        (LeavingLeaderCountsItself, "durability"),
        (TakesAnySnapshot, "goes back"),
    ],
)
def test_checkers_catch_a_planted_bug_of_changes(cls: type[Raft], promise: str) -> None:
    """Sections 4.1 to 4.3 and flaw 13, each taken back."""
    with pytest.raises(Violation, match=promise):
        run_seeds(cls, range(150))
