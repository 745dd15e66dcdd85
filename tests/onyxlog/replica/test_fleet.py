"""Random interleavings of many groups around one log: every invariant after every entry, equal chains, a closed ring.

`python -m tests.onyxlog.replica.test_fleet FIRST END` runs more seeds and says what they went through.
"""

from __future__ import annotations

import sys

import attrs
import pytest
from attrs import evolve

from onyxlog.replica.kind import AnyKind
from onyxlog.replica.kinds import KINDS, abort_join, group_leave, leave, notify_join, signal_ready
from onyxlog.replica.replica import JoinMode, Parameters
from onyxlog.scheduling.requirements import JobScheduler
from tests.onyxlog.simulation.fleet import Counts, Fleet
from tests.onyxlog.simulation.simulated_log import FleetError


def run(seed: int, mode: JoinMode, turns: int = 250) -> Counts:
    scheduler = list(JobScheduler)[seed % len(JobScheduler)]
    # up to 12 workers, on few groups or on many
    groups, workers = ((4, 3), (6, 2), (12, 1))[seed % 3]
    fleet = Fleet(seed, Parameters(join=mode, job_scheduler=scheduler), groups, workers)
    try:
        fleet.run(turns)
        fleet.heal()
    except AssertionError as error:
        error.add_note(f"seed {seed}, {mode.value}, {turns} turns")
        raise
    return fleet.counts()


def run_many(mode: JoinMode) -> None:
    for seed in range(20):
        run(seed, mode, 150)


def total(counts: list[Counts]) -> Counts:
    return Counts(*(sum(column) for column in zip(*map(attrs.astuple, counts), strict=True)))


@pytest.mark.parametrize("mode", list(JoinMode))
def test_replicas_agree_and_keep_every_invariant_whatever_happens(mode: JoinMode) -> None:
    seen = total([run(seed, mode) for seed in range(6)])
    # it went through all that it is about
    assert min(attrs.astuple(seen)) >= 3, seen


def test_a_run_is_decided_by_its_seed() -> None:
    assert run(3, JoinMode.RING, 120) == run(3, JoinMode.RING, 120) != run(4, JoinMode.RING, 120)


@pytest.mark.long
@pytest.mark.parametrize("mode", list(JoinMode))
@pytest.mark.parametrize("hundred", range(4))
def test_many_more_seeds(mode: JoinMode, hundred: int) -> None:
    for seed in range(1_000 + 25 * hundred, 1_025 + 25 * hundred):
        run(seed, mode)


def without_reactions(kind: AnyKind) -> AnyKind:
    return evolve(kind, reactions=lambda old, new, entry, diff, viewer: ())


def without_effects(kind: AnyKind) -> AnyKind:
    return evolve(kind, effects=lambda old, new, entry, diff, viewer: ())


MUTANTS = {
    "nobody notifies": (notify_join, without_reactions),
    "the stranded wait for ever": (group_leave, without_reactions),
    "nobody tries again": (abort_join, without_effects),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_fleet_notices_a_rule_that_is_missing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, change = MUTANTS[name]
    kind = next(each for each, known in KINDS.items() if known is module.KIND)
    monkeypatch.setitem(KINDS, kind, change(module.KIND))
    monkeypatch.setattr("tests.onyxlog.simulation.fleet.TURNS_TO_HEAL_MAX", 300)
    with pytest.raises(FleetError):
        run_many(JoinMode.RING)


@pytest.mark.parametrize("module", [leave, signal_ready, group_leave])
def test_the_fleet_notices_a_peer_that_computes_something_else(
    module: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if one of them ran another version: every third application of the kind does nothing."""
    known = module.KIND  # type: ignore[attr-defined]
    kind = next(each for each, other in KINDS.items() if other is known)
    calls = iter(range(10**9))

    def forgetful(replica: object, entry: object, command: object) -> object:
        return replica if next(calls) % 3 == 2 else known.apply(replica, entry, command)

    monkeypatch.setitem(KINDS, kind, evolve(known, apply=forgetful))
    with pytest.raises(AssertionError):
        run_many(JoinMode.DIRECT)


def main(first: int, end: int) -> None:
    for mode in JoinMode:
        counts = []
        for seed in range(first, end):
            counts.append(run(seed, mode, 400))
        print(mode.value, total(counts))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
