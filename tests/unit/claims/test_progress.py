"""What a group is done with, against sets of offsets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zraft_core.claims.progress import NOTHING, Progress

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=12)


def offsets(progress: Progress) -> set[int]:
    found = set(range(progress.floor))
    for first, upto in progress.islands:
        found |= set(range(first, upto))
    return found


@given(RANGES)
def test_it_holds_exactly_the_offsets_added(ranges: list[tuple[int, int]]) -> None:
    """In the shortest form: islands are apart from each other and from the floor (asserted when it is made)."""
    progress, expected = NOTHING, set[int]()
    for first, length in ranges:
        assert progress.touches(first, first + length) == bool(expected & set(range(first, first + length)))
        progress = progress.after(first, first + length)
        expected |= set(range(first, first + length))
        assert offsets(progress) == expected


@given(RANGES, st.integers(0, 30))
def test_the_order_does_not_matter(ranges: list[tuple[int, int]], seed: int) -> None:
    there, back = NOTHING, NOTHING
    for first, length in ranges:
        there = there.after(first, first + length)
    for first, length in reversed(ranges):
        back = back.after(first, first + length)
    assert there == back
