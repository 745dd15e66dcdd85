"""Whole servers with partitions of topics, whose power fails at any moment (docs/explanation/groups.md, "In a server")."""

from __future__ import annotations

import pytest

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.hosting_simulation import HostingSimulation, HostingStatistics
from tests.simulation.planted_hosting import PLANTS
from tests.simulation.scenarios import HOSTING
from zraft_core.errors import StorageError

SEEDS = range(1, 5)
FOUNDING_SEEDS = range(1, 31)
LONG_SEEDS = range(1_000, 1_060)


@pytest.mark.timeout(300)
def test_what_was_delivered_survives_power_failures_once_and_in_one_order_on_every_replica() -> None:
    seen = [HostingSimulation(seed).run() for seed in SEEDS]
    total = HostingStatistics(*(sum(values) for values in zip(*map(_values, seen), strict=True)))
    assert total.decided == 120 * len(SEEDS)
    assert total.deliveries >= 150 * len(SEEDS)
    assert total.crashes >= 3 * len(SEEDS)
    assert total.snapshots >= 15 * len(SEEDS)
    assert total.installed >= len(SEEDS), "images and deliveries went from server to server"
    assert total.compared >= 5 * len(SEEDS), "members compared their states (D-26)"


def test_nobody_votes_before_the_disks_of_all_founders_name_the_same_founders() -> None:
    """D-1, whenever servers start and lose their power, and whatever the network loses of what they say."""
    early = sum(HostingSimulation(seed).found() for seed in FOUNDING_SEEDS)
    assert 5 <= early <= len(FOUNDING_SEEDS) - 5, "some are founded among the faults, and others not"


def _values(one: HostingStatistics) -> tuple[int, ...]:
    return one.decided, one.deliveries, one.crashes, one.snapshots, one.installed, one.refused, one.compared


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_same_over_many_seeds() -> None:
    for seed in LONG_SEEDS:
        try:
            HostingSimulation(seed).run()
        except (BrokenPromiseError, StorageError, AssertionError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTS)
def test_planted_bugs_are_caught(name: str) -> None:
    first = HOSTING.known.get(name, 1)
    result, tried = HOSTING.run_planted(name, range(first, first + HOSTING.planted_seeds_max))
    assert result is not None, f"{tried} seeds did not notice: {PLANTS[name].text}"
