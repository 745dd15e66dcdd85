"""The plan of faults is pure, complete and bounded."""

from __future__ import annotations

import itertools

import pytest

from tests.chaos.schedule import (
    DEFAULT,
    DURATIONS_S,
    MEMBERSHIP,
    NETWORK,
    PAUSE_S,
    FaultKind,
    parse_faults,
    plan,
)
from zraft_core.errors import ConfigError


def test_a_seed_decides_the_whole_plan() -> None:
    assert plan(7, 600, DEFAULT) == plan(7, 600, DEFAULT)
    assert plan(7, 600, DEFAULT) != plan(8, 600, DEFAULT)


def test_the_order_in_which_kinds_are_named_does_not_matter() -> None:
    assert plan(7, 600, sorted(DEFAULT)) == plan(7, 600, sorted(DEFAULT, reverse=True))


@pytest.mark.parametrize("seed", range(20))
def test_twenty_minutes_have_every_kind_of_fault(seed: int) -> None:
    assert {fault.kind for fault in plan(seed, 1200, DEFAULT)} == DEFAULT


@pytest.mark.parametrize("seed", range(20))
def test_faults_of_a_track_do_not_overlap_and_end_with_the_run(seed: int) -> None:
    faults = plan(seed, 300, DEFAULT)
    assert [fault.number for fault in faults] == list(range(1, len(faults) + 1))
    for on_network in (False, True):
        track = [fault for fault in faults if (fault.kind in NETWORK) == on_network]
        assert track
        assert track[-1].ends_s <= 300
        for before, after in itertools.pairwise(track):
            assert after.at_s - before.ends_s >= PAUSE_S[0]


def test_only_the_kinds_asked_for_strike() -> None:
    assert {fault.kind for fault in plan(1, 300, {FaultKind.CUT})} == {FaultKind.CUT}
    assert plan(1, 300, ()) == ()


def test_every_kind_has_a_duration_and_what_needs_membership_is_asked_for_by_name() -> None:
    assert set(DURATIONS_S) == set(FaultKind)
    assert not MEMBERSHIP & DEFAULT


def test_faults_are_named_added_and_taken_away() -> None:
    assert parse_faults("default") == DEFAULT
    assert parse_faults("none") == frozenset()
    assert parse_faults("all") == frozenset(FaultKind)
    assert parse_faults("kill, cut") == {FaultKind.KILL, FaultKind.CUT}
    assert parse_faults("-kill") == DEFAULT - {FaultKind.KILL}
    assert parse_faults("default,wipe,-cut") == (DEFAULT | {FaultKind.WIPE}) - {FaultKind.CUT}
    with pytest.raises(ConfigError, match="kill-all"):
        parse_faults("kil")
