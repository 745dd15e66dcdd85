"""Simulated servers of this release and of the last one that change places (`mixed_simulation`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.planted_registry import Patch, replaced
from tests.upgrade.mixed_simulation import MixedSimulation, Release, load_release
from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.server.coordination.membership_keeper import MembershipKeeper
from zraft.server.partitions.machine import PartitionMachine

SEEDS = range(1, 4)
LONG_SEEDS = range(1_000, 1_040)


@pytest.fixture(scope="module")
def old(last_release: Path) -> Release:
    return load_release(last_release)


def run(seeds: range, old: Release) -> list[MixedSimulation]:
    found = []
    for seed in seeds:
        found.append(MixedSimulation(seed, old))
        try:
            found[-1].run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return found


@pytest.mark.timeout(300)
def test_servers_that_change_releases_deliver_the_same_and_differ_in_nothing(old: Release) -> None:
    """D-5, D-26: what is sent, written and computed below the newest level is what the last release knows."""
    runs = run(SEEDS, old)
    assert sum(one.changes for one in runs) >= 2 * len(SEEDS), "servers went up and back"
    assert sum(one.mixed_ms for one in runs) >= 5_000 * len(SEEDS)
    assert sum(one.statistics.installed for one in runs) >= len(SEEDS), "images went from server to server"
    assert sum(one.statistics.compared for one in runs) >= 5 * len(SEEDS), "members compared their states"


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_over_many_seeds(old: Release) -> None:
    run(LONG_SEEDS, old)


def raises_the_level_blindly() -> Patch:
    return (MembershipKeeper, "level_of_all", lambda self, membership: FEATURE_LEVEL_MAX)


def computes_another_digest() -> Patch:
    original = PartitionMachine.digest
    return (PartitionMachine, "digest", lambda self: original(self) ^ 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (raises_the_level_blindly, f"is of feature level {FEATURE_LEVEL_MAX}"),
        (computes_another_digest, "differs from the majority's"),
    ],
)
def test_what_this_release_does_and_the_last_one_does_not_know_is_noticed(
    mistake: Any, said: str, old: Release
) -> None:
    with replaced(mistake()), pytest.raises(AssertionError, match=said):
        run(range(1, 13), old)
