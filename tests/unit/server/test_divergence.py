"""Digests compared by majority: who has to stop, and when nobody does (D-26)."""

from __future__ import annotations

import pytest

from zraft.groups.digests import POINTS_KEPT_MAX, DigestTable, DivergedError, check_digests
from zraft_core.ids import COORDINATION_GROUP, ServerId

ONE, TWO, THREE = ServerId(1), ServerId(2), ServerId(3)
ALL = (ONE, TWO, THREE)


def test_d26_the_majority_decides_as_soon_as_it_is_one() -> None:
    comparison = DigestTable()
    comparison.report(ONE, [(1024, 7)])
    assert comparison.decide(ALL) == []
    comparison.report(TWO, [(1024, 7)])
    assert comparison.decide(ALL) == [(1024, 7)]
    comparison.report(THREE, [(1024, 8)])
    assert comparison.decide(ALL) == [(1024, 7)]
    assert not comparison.disagreements


def test_d26_without_a_majority_it_is_an_alarm_and_nobody_stops() -> None:
    comparison = DigestTable()
    for server, digest in ((ONE, 1), (TWO, 2), (THREE, 3)):
        comparison.report(server, [(1024, digest)])
    assert comparison.decide(ALL) == []
    assert comparison.alarms_total == 1
    (told,) = comparison.disagreements
    assert "server 2: 00000000000000000000000000000002" in told
    assert comparison.decide(ALL) == []
    assert comparison.alarms_total == 1, "each point is told of once"


def test_learners_and_observers_do_not_decide() -> None:
    comparison = DigestTable()
    for server in (ServerId(4), ServerId(5), ServerId(6)):
        comparison.report(server, [(1024, 9)])
    comparison.report(ONE, [(1024, 7)])
    assert comparison.decide(ALL) == []


def test_memory_is_bounded_and_old_points_do_not_come_back() -> None:
    comparison = DigestTable()
    points = [(1024 * n, n) for n in range(1, 3 * POINTS_KEPT_MAX)]
    for point in points:
        comparison.report(ONE, [point])
    comparison.report(TWO, points)
    decided = comparison.decide(ALL)
    assert decided == points[-POINTS_KEPT_MAX:]


def test_d26_the_minority_learns_that_it_must_stop() -> None:
    check_digests(COORDINATION_GROUP, [(1024, 7), (2048, 8)], [(512, 1), (1024, 7)])
    with pytest.raises(DivergedError, match="entry 2048"):
        check_digests(COORDINATION_GROUP, [(1024, 7), (2048, 8)], [(1024, 7), (2048, 9)])
