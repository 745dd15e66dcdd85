"""A few seeds of the multicast simulator, and its command; more: `python -m tests.simulation multicast --seeds 10000`."""

from __future__ import annotations

from collections import Counter

import pytest
from click.testing import CliRunner

from tests.simulation.__main__ import main
from tests.simulation.multicast.profile import Mode, Size
from tests.simulation.multicast.world import Summary
from tests.simulation.scenario import Result
from tests.simulation.scenarios import MULTICAST


def sound(result: Result[Summary]) -> Summary:
    assert result.report is not None, f"seed {result.seed}: {result.checker}: {result.reason}"
    return result.report


@pytest.mark.parametrize("first", [0, 25, 50, 75])
def test_small_runs_break_no_promise(first: int) -> None:
    for seed in range(first, first + 25):
        sound(MULTICAST.run_seed(seed, size=Size.SMALL))


@pytest.mark.parametrize("mode", Mode)
def test_runs_with_much_of_one_trouble_break_no_promise(mode: Mode) -> None:
    for seed in range(12):
        sound(MULTICAST.run_seed(seed, size=Size.SMALL, mode=mode))


def test_long_runs_break_no_promise_and_see_much() -> None:
    """In one of a few, topics may be deleted early or most conditions not hold; messages there are in each."""
    summaries = [sound(MULTICAST.run_seed(seed, size=Size.LARGE)) for seed in range(1, 5)]
    assert all(summary.messages > 100 for summary in summaries)
    assert sum(summary.deliveries > summary.messages for summary in summaries) >= 3
    assert sum(summary.deliveries for summary in summaries) > sum(summary.messages for summary in summaries)


def test_a_fresh_seed_breaks_no_promise(seed: int) -> None:
    sound(MULTICAST.run_seed(seed))


def test_a_seed_decides_everything() -> None:
    assert MULTICAST.run_seed(7).report == MULTICAST.run_seed(7).report


def test_a_range_that_saw_too_little_fails() -> None:
    dull = Summary(0, 3, 3, 3, Counter({"message lost": 900, "leader changed": 2}), 0)
    assert len(MULTICAST.shortfalls([dull] * 100)) == 2
    busy = Summary(0, 300, 3, 3, Counter({"leader changed": 9}), 0)
    assert MULTICAST.shortfalls([busy] * 100) == []


def test_the_command_tells_what_was_seen_and_how_to_repeat_a_failure() -> None:
    runner = CliRunner()
    shown = runner.invoke(main, ["multicast", "--seeds", "2", "--start", "3", "--jobs", "1"])
    assert shown.exit_code == 0, shown.output
    assert "no promise broken in seeds 3 to 4" in shown.output
    assert "leader changed" in shown.output
    traced = runner.invoke(main, ["multicast", "--seed", "3", "--trace"])
    assert traced.exit_code == 0, traced.output
    assert "Start(message=" in traced.output
    assert "no promise broken in seed 3" in traced.output
    unknown = runner.invoke(main, ["multicast", "--planted", "nothing"])
    assert unknown.exit_code == 2
