"""Servers with many groups, simulated: a few seeds as they are, and bugs that have to be noticed.

Source: docs/explanation/groups.md.
"""

from __future__ import annotations

import pytest

from tests.simulation.groups.planted import PLANTS
from tests.simulation.groups.simulation import GroupsReport, GroupsSimulation
from tests.simulation.scenarios import GROUPS


def run(seed: int, groups: int) -> GroupsReport:
    return GroupsSimulation(seed, groups=groups, servers=3, faults_until_ms=3_000).run()


def test_no_promise_is_broken_and_an_idle_cluster_does_nothing() -> None:
    report = run(1, groups=12)
    assert report.idle_datagrams <= report.idle_datagrams_max
    assert dict(report.kinds)["looked at idle"] == 0


def test_a_seed_decides_the_whole_run() -> None:
    assert run(3, groups=6) == run(3, groups=6)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [*range(6), 101, 105])
def test_no_promise_is_broken_with_as_many_groups_as_the_seed_rolls(seed: int) -> None:
    GroupsSimulation(seed).run()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_planted_bug_is_noticed(name: str) -> None:
    result, tried = GROUPS.search(name)
    assert result is not None, f"{tried} seeds did not notice: {PLANTS[name].text}"
