"""Some seeds of `python -m tests.simulation claims` keep every promise, and every planted bug is noticed."""

from __future__ import annotations

import pytest
from attrs import evolve

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.claims.checks import Checks
from tests.simulation.claims.planted import PLANTS, planted
from tests.simulation.claims.profile import HEARTBEAT_MS
from tests.simulation.claims.simulation import Report
from tests.simulation.scenario import Result
from tests.simulation.scenarios import CLAIMS
from zraft_core.claims.commands import ClaimCommand, ClaimPartition, Commit, Expire, Release
from zraft_core.claims.progress import Progress
from zraft_core.claims.state import Claims
from zraft_core.claims.values import Mode

QUICK_SEEDS = (1, 2, 3, 6, 8, 15, 18, 19, 24, 28, 31, 32, 34)
"""Of a second or less each; all seeds are as good."""


@pytest.fixture(scope="module")
def results() -> list[Result[Report]]:
    return [CLAIMS.run_seed(seed) for seed in QUICK_SEEDS]


def test_quick_seeds_break_no_promise(results: list[Result[Report]]) -> None:
    broken = [f"seed {one.seed}: {one.checker}: {one.reason}" for one in results if one.report is None]
    assert broken == []


def test_quick_seeds_saw_enough_to_mean_anything(results: list[Result[Report]]) -> None:
    reports = [one.report for one in results if one.report is not None]
    assert len(reports) >= CLAIMS.enough.means_from_seeds
    assert CLAIMS.shortfalls(reports) == []


def test_a_run_that_saw_nothing_is_noticed(results: list[Result[Report]]) -> None:
    report = next(one.report for one in results if one.report is not None)
    assert CLAIMS.shortfalls([type(report)(0, 1, 1, 0, 0, 0, ())] * CLAIMS.enough.means_from_seeds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", PLANTS)
def test_planted_bug_is_caught(name: str) -> None:
    """The checkers notice this bug in this seed, or, if schedules have moved, in one of the next few."""
    first = CLAIMS.known[name]
    result, tried = CLAIMS.run_planted(name, [first, *(seed for seed in range(20) if seed != first)])
    assert result is not None, f"{name}: {PLANTS[name].text}: not noticed in {tried} seeds"


def test_a_consumer_that_is_stopped_while_it_ends_starts_again() -> None:
    """Both consumers of a group ended in this seed, and nobody of it was left to own anything."""
    assert CLAIMS.run_seed(1478930094).report is not None


def test_every_plant_has_a_seed() -> None:
    assert set(CLAIMS.known) == set(PLANTS)


def test_every_flaw_of_marshal_is_planted() -> None:
    assert {plant.rule for plant in PLANTS.values()} >= {str(number) for number in range(1, 9)}


def test_same_seed_is_the_same_run() -> None:
    assert CLAIMS.run_seed(2).report == CLAIMS.run_seed(2).report


def test_a_plant_is_gone_afterwards() -> None:
    before = CLAIMS.run_seed(2).report
    with planted("no_self_fencing"):
        pass
    assert CLAIMS.run_seed(2).report == before


# The checks themselves, where no plant leads to them -----------------------------------------------------------------


def checked(*commands: ClaimCommand, end: int = 100) -> Checks:
    """Checks that have seen these commands of one partition, ten seconds apart."""
    checks, claims = Checks(), Claims(HEARTBEAT_MS)
    for position, command in enumerate(commands, 1):
        now_ms = 10_000 * position
        answer = claims.apply(command, position, now_ms, end)
        checks.on_applied(0, position, now_ms, command, answer, 1, now_ms)
    return checks


GRANT = ClaimPartition("g", "x", "i", 1, 0, Mode.AT_LEAST_ONCE)


def test_a_message_under_a_claim_that_expired_is_noticed() -> None:
    checks = checked(GRANT, Expire("g", 1, 10_000))
    with pytest.raises(BrokenPromiseError, match="a stale owner stops"):
        checks.on_handed_out("g", 0, 5, 1, 0, 1.0)


def test_a_message_under_a_claim_that_never_was_is_noticed() -> None:
    with pytest.raises(BrokenPromiseError, match="owners only"):
        checked(GRANT).on_handed_out("g", 0, 5, 2, 0, 1.0)


def test_a_successor_that_starts_too_low_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Progress, "after", lambda self, first, upto: self)
    with pytest.raises(BrokenPromiseError, match="where a successor starts"):
        checked(GRANT, Release("g", 1, 50), evolve(GRANT, attempt=2, after=1))


def test_offsets_that_go_back_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Claims, "_committed", staticmethod(lambda claim, to, end: evolve(claim, committed=to))
    )
    with pytest.raises(BrokenPromiseError, match="offsets do not go back"):
        checked(GRANT, Commit("g", 1, 50), Commit("g", 1, 40))


def test_a_release_that_does_not_end_the_claim_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Claims, "_release", Claims._commit)
    with pytest.raises(BrokenPromiseError, match="a release ends the claim"):
        checked(GRANT, Release("g", 1, 50))


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed_of_run", [0, 1, 3])
def test_twenty_consumers_share_32_partitions(seed_of_run: int) -> None:
    """Killed, stopped and restarted: a minute each. Seed 2 is a single group in which little happens (65 grants)."""
    result = CLAIMS.run_seed(seed_of_run, partitions=32, consumers=20)
    assert result.report is not None, f"{result.checker}: {result.reason}"
    assert result.report.count("granted") > 100
    assert result.report.faults > 20
