"""Some seeds of `python -m zraft.testing.claims` keep every promise, and every planted bug is noticed."""

from __future__ import annotations

import pytest

from zraft.testing.claims.planted import PLANTS, planted
from zraft.testing.claims.running import MEANS_FROM_SEEDS, Result, emptiness, run_planted, run_seed

QUICK_SEEDS = (1, 2, 6, 7, 8, 10, 15, 18, 19, 20, 24, 30)
"""Of a second or less each; all seeds are as good."""

KNOWN_SEEDS = dict.fromkeys(PLANTS, 1)
"""When a change moves a schedule, `python -m zraft.testing.claims --planted NAME` finds another seed."""


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return [run_seed(seed) for seed in QUICK_SEEDS]


def test_quick_seeds_break_no_promise(results: list[Result]) -> None:
    broken = [f"seed {one.seed}: {one.promise}: {one.reason}" for one in results if one.report is None]
    assert broken == []


def test_quick_seeds_saw_enough_to_mean_anything(results: list[Result]) -> None:
    reports = [one.report for one in results if one.report is not None]
    assert len(reports) >= MEANS_FROM_SEEDS
    assert emptiness(reports) == []


def test_a_run_that_saw_nothing_is_noticed(results: list[Result]) -> None:
    report = next(one.report for one in results if one.report is not None)
    assert emptiness([type(report)(0, 1, 1, 0, 0, 0, ())] * MEANS_FROM_SEEDS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTS)
def test_planted_bug_is_caught(name: str) -> None:
    """The checkers notice this bug in this seed, or, if schedules have moved, in one of the next few."""
    first = KNOWN_SEEDS[name]
    result, tried = run_planted(name, [first, *(seed for seed in range(60) if seed != first)])
    assert result is not None, f"{name}: {PLANTS[name].text}: not noticed in {tried} seeds"


def test_every_flaw_of_marshal_is_planted() -> None:
    assert {plant.flaw for plant in PLANTS.values()} >= {str(number) for number in range(1, 9)}


def test_same_seed_is_the_same_run() -> None:
    assert run_seed(2).report == run_seed(2).report


def test_a_plant_is_gone_afterwards() -> None:
    before = run_seed(2).report
    with planted("no_self_fencing"):
        pass
    assert run_seed(2).report == before
