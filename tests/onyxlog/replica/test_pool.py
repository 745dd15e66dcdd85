"""The stream pool as the log deals it (D-21), and what the thesis' dice got wrong (3.2-2, 3.2-4)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.replica.pool import (
    STEPS,
    STREAMS_MAX,
    Arc,
    Pool,
    arc_at,
    arc_count,
    joined,
    left,
    number_of,
    settled,
    streams_for,
    violations,
)


def name(number: int) -> str:
    return f"group-{number:05d}"


def grown(groups: Iterable[int], pool: Pool | None = None) -> Pool:
    pool = pool or Pool()
    for position, number in enumerate(groups):
        pool = joined(pool, name(number), position)
    return pool


def reached(pool: Pool, origin: str) -> set[str]:
    """Who gets what `origin` publishes, directly or passed on."""
    known, streams = set[str](), {pool.arc(origin).publishes}
    while True:
        heard = {group for group in pool.arcs if pool.arc(group).listens in streams}
        if heard == known:
            return known
        known, streams = heard, streams | {pool.arc(group).publishes for group in heard}


@pytest.mark.parametrize("streams", range(2, STREAMS_MAX + 1))
def test_numbers_of_arcs_are_a_bijection_that_begins_with_the_cycle(streams: int) -> None:
    arcs = [arc_at(number, streams) for number in range(arc_count(streams))]
    assert set(arcs) == {Arc(a, b) for a in range(streams) for b in range(streams) if a != b}
    assert arcs[:streams] == [Arc(a, (a + 1) % streams) for a in range(streams)]
    assert [number_of(arc, streams) for arc in arcs] == list(range(arc_count(streams)))


def test_streams_are_the_logarithm_of_the_groups_and_two_where_that_is_undefined() -> None:
    """3.2-2: with 3 to 7 peers the thesis draws the subscription from an empty range, with fewer from none at all."""
    for groups in range(1, 30000):
        assert streams_for(groups) == min(max(2, math.floor(math.log(groups))), STREAMS_MAX), groups
    assert streams_for(0) == 2


def test_streams_fall_only_below_four_fifths_of_the_groups_at_which_they_rose() -> None:
    for streams, step in enumerate(STEPS[1:], start=3):
        assert (streams_for(step - 1), streams_for(step)) == (streams - 1, streams)
        least = -(-4 * step // 5)
        assert (streams_for(least, streams), streams_for(least - 1, streams)) == (streams, streams - 1)
    assert streams_for(1, STREAMS_MAX) == 2


@pytest.mark.parametrize("groups", [2, 3, 7, 8, 20, 21, 22, 54, 55, 56, 149, 404])
def test_everybody_hears_everybody_at_any_size_including_the_one_whose_arrival_adds_a_stream(
    groups: int,
) -> None:
    """3.2-4: in the thesis that peer is cut off with probability 2/s."""
    pool = grown(range(groups))
    assert pool.streams == streams_for(groups)
    assert not list(violations(pool))
    assert max(pool.sizes) - min(pool.sizes) <= 1
    for origin in {name(0), name(groups // 2), name(groups - 1)}:
        assert reached(pool, origin) | {origin} == set(pool.arcs)
        # One relay suffices, as every arc has a group.
        first = pool.arc(origin).publishes
        assert {pool.arc(g).publishes for g in pool.arcs if pool.arc(g).listens == first} | {first} == set(
            range(pool.streams)
        )


def test_an_arc_is_kept_while_others_come_and_go_and_streams_stay() -> None:
    pool = grown(range(30))
    before = dict(pool.arcs)
    pool = grown(range(30, 54), pool)
    for number in range(30, 54):
        pool = left(pool, name(number), 100)
    assert dict(pool.arcs) == before
    assert pool.epoch == 20


def test_an_empty_arc_of_the_cycle_gets_the_last_group_of_the_fullest_arc_and_nobody_else_moves() -> None:
    pool = grown(range(21))
    victims = [group for group, number in pool.arcs.items() if number == 1]
    assert len(victims) == 4
    before = dict(pool.arcs)
    for group in victims:
        pool = left(pool, group, 50)
    assert pool.streams == 3
    assert not list(violations(pool))
    moved = [group for group, number in pool.arcs.items() if number != before[group]]
    assert len(moved) == 1
    assert pool.arcs[moved[0]] == 1
    assert before[moved[0]] == 2, "of arcs 0 and 2 with four groups each, the last"


def test_a_change_of_streams_moves_only_who_has_to_move_and_keeps_the_old_streams_until_the_next_origin() -> (
    None
):
    before = grown(range(20))
    after = joined(before, name(20), 77)
    assert (after.streams, after.epoch) == (3, 77)
    assert (after.former_streams, after.former_epoch) == (2, before.epoch)
    assert set(after.former_arcs) == set(after.arcs)
    stayed = [g for g in before.arcs if before.arc(g) == after.arc(g)]
    assert len(stayed) >= 2 * (21 // arc_count(3)), "the share of each of the two arcs that there were"
    done = settled(after)
    assert not done.former_arcs
    assert done.arcs == after.arcs
    assert settled(done) is done


def test_who_leaves_is_gone_from_the_old_streams_too() -> None:
    pool = left(grown(range(21)), name(3), 30)
    assert name(3) not in pool.former_arcs
    assert len(pool.former_arcs) == 20


def test_joining_twice_and_leaving_without_having_joined_change_nothing() -> None:
    pool = grown(range(5))
    assert joined(pool, name(2), 9) is pool
    assert left(pool, name(9), 9) is pool


def test_what_must_never_be_is_reported() -> None:
    pool = grown(range(21))
    bad = [
        evolve(pool, streams=4),
        evolve(pool, sizes=(0, *pool.sizes[1:])),
        evolve(pool, arcs=pool.arcs.set(name(0), 6)),
        evolve(pool, former_arcs=pool.former_arcs.set("stranger", 0)),
    ]
    assert all(list(violations(pool)) for pool in bad)


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_no_history_of_joins_and_leaves_breaks_a_rule(seed: int, size: int) -> None:
    random = Random(seed)
    pool, present = Pool(), set[int]()
    for position in range(150):
        before = pool
        number = random.randrange(size)
        if number in present and random.random() < 0.6:
            present.remove(number)
            pool = left(pool, name(number), position)
        else:
            present.add(number)
            pool = joined(pool, name(number), position)
        assert not list(violations(pool))
        assert set(pool.arcs) == {name(number) for number in present}
        if pool.epoch == before.epoch:
            moved = [g for g in pool.arcs if g in before.arcs and pool.arcs[g] != before.arcs[g]]
            assert len(moved) <= 1
            assert all(pool.arcs[g] < pool.streams for g in moved)
        if random.random() < 0.02:
            pool = settled(pool)
