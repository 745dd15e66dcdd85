"""Idle connections keep nobody out: the oldest that has had its time goes, or one of an address that has too many."""

from __future__ import annotations

from zraft.server.process.newcomers import PATIENCE_S, Newcomers


def test_while_there_is_room_nobody_goes() -> None:
    newcomers: Newcomers[int] = Newcomers(3)
    assert [newcomers.enter(n, "a", 0.0) for n in range(3)] == [None] * 3
    newcomers.leave(1)
    newcomers.leave(1)
    assert newcomers.enter(3, "a", 0.0) is None
    assert len(newcomers) == 3


def test_of_one_address_the_newest_is_refused_until_the_oldest_has_had_its_time() -> None:
    newcomers: Newcomers[int] = Newcomers(2)
    newcomers.enter(0, "a", 0.0)
    newcomers.enter(1, "a", 0.5)
    assert newcomers.enter(2, "a", 0.9) == 2, "an honest storm is not slowed down by itself"
    assert newcomers.enter(2, "a", PATIENCE_S) == 0
    assert newcomers.enter(3, "a", PATIENCE_S) == 3
    assert 1 in newcomers


def test_another_address_displaces_one_of_the_address_that_has_most_at_once() -> None:
    newcomers: Newcomers[str] = Newcomers(4)
    newcomers.enter("honest", "b", 0.0)
    for n in range(3):
        newcomers.enter(f"flood {n}", "a", 0.1)
    assert newcomers.enter("late", "c", 0.1) == "flood 0"
    assert newcomers.enter("later", "d", 0.1) == "flood 1"
    assert newcomers.enter("last", "e", 0.1) == "last", "no address has twice as many now"


def test_whoever_waits_for_this_server_is_spared() -> None:
    newcomers: Newcomers[int] = Newcomers(2)
    newcomers.enter(0, "a", 0.0)
    newcomers.enter(1, "a", 0.0)
    assert newcomers.enter(2, "b", 5.0, spared={0}) == 1
    assert newcomers.enter(3, "c", 5.0, spared={0, 2}) == 3
