"""Random schedules with every promise checked after every step, and the same schedules with bugs planted."""

from __future__ import annotations

import pytest

from tests.unit.raft.changing_world import World
from tests.unit.raft.checkers import Violation
from tests.unit.raft.planted import (
    AcknowledgesBeforeSync,
    CountsOwnLogBeforeSync,
    HeartbeatCommitsAboveMatch,
    ReadsBeforeOwnCommit,
    ReadsWithoutRound,
    SendsBeforeSync,
    TrustsHeartbeatReply,
    VotesByTermOnly,
)
from zraft.raft.core import Raft

STEPS = 600


@pytest.mark.parametrize("servers", [1, 3, 5])
@pytest.mark.parametrize("seed", range(30))
def test_random_schedule_keeps_every_promise_and_recovers(seed: int, servers: int) -> None:
    """Loss, duplication, reordering, late syncs, crashes, partitions; then all heals (figure 3, D-7)."""
    world = World(seed, voters=servers, changing=False)
    world.live(STEPS)
    world.heal()
    assert len(world.committed) >= 2
    assert world.checkers.leaders


def test_random_schedules_together_see_enough() -> None:
    """The fixed seeds contain many leaderships, commits and reads; else the test above proves little."""
    terms = commits = reads = 0
    for seed in range(30):
        world = World(seed, changing=False)
        world.live(STEPS)
        terms += len(world.checkers.leaders)
        commits += len(world.committed)
        reads += world.seen["reads"]
    assert terms >= 40
    assert commits >= 500
    assert reads >= 300


def run_seeds(cls: type[Raft]) -> None:
    for seed in range(60):
        world = World(seed, cls, changing=False)
        world.live(STEPS)
        world.heal()


@pytest.mark.parametrize(
    ("cls", "promise"),
    [
        (SendsBeforeSync, "durability"),
        (AcknowledgesBeforeSync, "durability"),
        (CountsOwnLogBeforeSync, "durability"),
        (TrustsHeartbeatReply, "durability"),
        (HeartbeatCommitsAboveMatch, "state machine safety"),
        (VotesByTermOnly, "leader completeness"),
        (ReadsWithoutRound, "stale read"),
        (ReadsBeforeOwnCommit, "stale read"),
    ],
)
def test_checkers_catch_planted_bug(cls: type[Raft], promise: str) -> None:
    """Rule D-7 and flaws 1, 4, 9, 17; figure 8 and lost votes need the directed schedules of `test_flaws`."""
    with pytest.raises(Violation, match=promise):
        run_seeds(cls)
