"""The gossip pool's rule (D-21): always connected, few moves, no dice."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.replica.pool import (
    STREAMS_MIN,
    THRESHOLDS,
    GroupArc,
    Pool,
    departed,
    ends_in_order,
    joined,
    settled,
    streams_for,
)

EMPTY = Pool(STREAMS_MIN, {})


def grown(groups: int) -> Pool:
    pool = EMPTY
    for number in range(groups):
        pool = joined(pool, f"g{number * 7_919 % 99_991}")
    return pool


def reaches_all(pool: Pool) -> bool:
    """From every stream that somebody publishes on, every group hears in the end."""
    edges = {arc.ends for arc in pool.arcs.values()}
    heard_on = {subscribe for subscribe, _ in edges}
    for start in {publish for _, publish in edges}:
        reached, todo = {start}, [start]
        while todo:
            at = todo.pop()
            for subscribe, publish in edges:
                if subscribe == at and publish not in reached:
                    reached.add(publish)
                    todo.append(publish)
        if not heard_on <= reached:
            return False
    return True


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_the_thresholds_are_where_the_logarithm_passes_an_integer(threshold: int) -> None:
    assert math.floor(math.log(threshold)) == math.floor(math.log(threshold - 1)) + 1
    assert streams_for(threshold, STREAMS_MIN) == math.floor(math.log(threshold))


@pytest.mark.parametrize("groups", [0, 1, 2, 7, 8])
def test_there_are_two_streams_below_eight_groups_too(groups: int) -> None:
    """The thesis' formula gives none for two peers and one below eight: there was nothing to choose from."""
    assert streams_for(groups, STREAMS_MIN) == 2


def test_the_number_of_streams_falls_only_well_below_where_it_rose() -> None:
    assert streams_for(54, 4) == 4
    assert streams_for(44, 4) == 4
    assert streams_for(43, 4) == 3
    assert streams_for(3, 5) == 2


def test_the_first_arcs_are_a_cycle_over_all_streams() -> None:
    order = ends_in_order(4)
    assert order[:4] == ((0, 1), (1, 2), (2, 3), (3, 0))
    assert len(order) == len(set(order)) == 12


@pytest.mark.parametrize("groups", [2, 3, 7, 8, 20, 21, 22, 55, 149])
def test_a_pool_that_grew_one_by_one_is_connected_and_even(groups: int) -> None:
    """Of the thesis' groups, the one that raised the number of streams was cut off with probability 2/s."""
    pool = grown(groups)
    assert reaches_all(pool)
    counts = Counter(arc.ends for arc in pool.arcs.values())
    assert max(counts.values()) - min(counts[ends] for ends in ends_in_order(pool.streams)) <= 1


@given(st.integers(0, 2**32))
def test_a_pool_stays_connected_whoever_comes_and_goes(seed: int) -> None:
    rng = Random(seed)
    pool, made = EMPTY, 0
    for _ in range(rng.randint(1, 120)):
        if not pool.arcs or rng.random() < 0.65:
            made += 1
            pool = joined(pool, f"g{made * 7_919 % 9_973}")
        else:
            pool = departed(pool, rng.choice(sorted(pool.arcs)))
        if len(pool.arcs) >= 2:
            assert reaches_all(pool), pool
        for arc in pool.arcs.values():
            assert arc.subscribe != arc.publish
            assert arc.subscribe not in arc.former
            assert list(arc.former) == sorted(set(arc.former))


def test_a_group_keeps_its_arc_while_the_number_of_streams_stays() -> None:
    before = grown(10)
    after = joined(before, "new")
    assert {group: after.arcs[group] for group in before.arcs} == before.arcs
    assert not any(arc.former for arc in after.arcs.values())


def test_a_change_of_the_number_moves_all_and_they_listen_on_both() -> None:
    before, after = grown(20), grown(21)
    assert (before.streams, after.streams) == (2, 3)
    for group, arc in before.arcs.items():
        assert {arc.subscribe, after.arcs[group].subscribe} == {
            after.arcs[group].subscribe,
            *after.arcs[group].former,
        }
    calm = {**after.arcs, **settled(after.arcs)}
    assert not any(arc.former for arc in calm.values())
    assert {group: arc.ends for group, arc in calm.items()} == {
        group: arc.ends for group, arc in after.arcs.items()
    }


def test_an_arc_of_the_cycle_that_falls_empty_is_filled_by_one_move() -> None:
    pool = grown(3)
    lonely = next(group for group, arc in pool.arcs.items() if arc.ends == (1, 0))
    left = departed(pool, lonely)
    moved = [group for group in left.arcs if left.arcs[group] != pool.arcs[group]]
    assert len(moved) == 1
    assert left.arcs[moved[0]] == GroupArc(1, 0, former=(0,))


def test_who_was_never_in_leaves_nothing() -> None:
    pool = grown(3)
    assert departed(pool, "stranger") is pool
