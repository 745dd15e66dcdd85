"""Servers with partitions under faults: a few seeds, and bugs that have to be noticed (docs/explanation/topics.md)."""

from __future__ import annotations

import pytest

from tests.simulation.partitions.planted import PLANTS
from tests.simulation.scenarios import PARTITIONS

FRESH = [seed for seed in range(13) if seed != 9]
"""Seed 9 restarts no server, so it says nothing about what disks keep."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [14, *(pytest.param(seed, marks=pytest.mark.long) for seed in FRESH)])
def test_a_seed_breaks_no_promise_of_multicast_and_loses_nothing_that_was_delivered(seed: int) -> None:
    result = PARTITIONS.run_seed(seed)
    assert result.report is not None, f"{result.checker}: {result.reason}"
    assert result.report.recoveries > 10
    assert result.report.snapshots > 10
    assert result.report.several > 50
    assert result.report.idle_datagrams <= result.report.idle_datagrams_max


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_noticed_by_a_seed(name: str) -> None:
    result, tried = PARTITIONS.search(name)
    assert result is not None, f"{tried} seeds did not notice: {PLANTS[name].text}"
