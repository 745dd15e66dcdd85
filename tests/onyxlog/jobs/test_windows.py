"""Which extents a time belongs to, against the plain meaning of each kind of window."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.windows import (
    EVERYTHING,
    Extent,
    Fixed,
    Global,
    JoinedSessions,
    Session,
    Sliding,
    Window,
    joined,
)
from tests.onyxlog.jobs.samples import sessions

times = st.integers(-(10**6), 10**6)
lengths = st.integers(1, 50)


def test_fixed_windows_are_side_by_side() -> None:
    assert Fixed(10).extents(0) == Fixed(10).extents(9) == (Extent(0, 10),)
    assert Fixed(10).extents(10) == (Extent(10, 20),)
    assert Fixed(10).extents(-1) == (Extent(-10, 0),)
    assert Fixed(10, offset=3).extents(2) == (Extent(-7, 3),)


def test_sliding_windows_overlap_earliest_first() -> None:
    assert Sliding(10, 5).extents(12) == (Extent(5, 15), Extent(10, 20))
    assert Sliding(10, 5).extents(10) == (Extent(5, 15), Extent(10, 20))
    assert Sliding(10, 4).extents(11) == (Extent(4, 14), Extent(8, 18))
    assert Sliding(10, 4).extents(12) == (Extent(4, 14), Extent(8, 18), Extent(12, 22))


@settings(max_examples=100)
@given(times, lengths, lengths, times)
def test_sliding_extents_are_all_those_that_hold_the_time(
    time: int, length: int, slide: int, offset: int
) -> None:
    length, slide = max(length, slide), min(length, slide)
    found = Sliding(length, slide, offset).extents(time)
    expected = [
        Extent(start, start + length)
        for start in range(time - length - slide, time + 1)
        if (start - offset) % slide == 0 and start <= time < start + length
    ]
    assert list(found) == expected
    assert 1 <= len(found) <= length // slide + 1


@given(times, lengths, times)
def test_fixed_windows_are_sliding_ones_that_slide_by_their_range(
    time: int, length: int, offset: int
) -> None:
    assert Fixed(length, offset).extents(time) == Sliding(length, length, offset).extents(time)


def test_a_global_window_holds_all_times() -> None:
    assert Global().extents(5) == (EVERYTHING,)
    assert EVERYTHING.start <= -(2**62)
    assert EVERYTHING.end >= 2**62


def test_times_less_than_the_gap_apart_are_one_session_and_others_are_not() -> None:
    gap = Session(10)
    assert sessions([*gap.extents(0), *gap.extents(9)]) == (Extent(0, 19),)
    assert sessions([*gap.extents(0), *gap.extents(10)]) == (Extent(0, 10), Extent(10, 20))
    for present, new in ((0, 10), (10, 0)):
        (apart,) = gap.extents(new)
        assert joined(gap.extents(present), apart) == JoinedSessions(apart, ())
    for present, new in ((0, 9), (9, 0)):
        assert joined(gap.extents(present), *gap.extents(new)) == (Extent(0, 19), gap.extents(present))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 200), max_size=30), st.integers(1, 20))
def test_joining_one_by_one_in_any_order_makes_the_sessions_of_all(stamps: list[int], gap: int) -> None:
    window = Session(gap)
    present: list[Extent] = []
    for stamp in stamps:
        now = joined(present, window.extents(stamp)[0])
        assert set(now.absorbed) <= set(present)
        assert now.extent.start <= stamp < now.extent.end
        present = sorted({*present, now.extent} - ({*now.absorbed} - {now.extent}))
        assert all(one.end <= other.start for one, other in pairwise(present))
    assert tuple(present) == sessions(extent for stamp in stamps for extent in window.extents(stamp))
    # the meaning itself: a new session begins wherever the gap to the time before is long enough
    ordered = sorted(set(stamps))
    begins = [
        time for time, before in zip(ordered, [-(10**6), *ordered], strict=False) if time - before >= gap
    ]
    assert [extent.start for extent in present] == begins


def test_the_time_of_a_segment_is_an_integer_at_the_key() -> None:
    window = Window("w", "t", Fixed(5), Aggregation("count"), "at")
    assert window.time_of({"at": 7}) == 7
    for wrong in ({}, {"at": None}, {"at": "7"}, {"at": 7.0}, {"at": True}):
        with pytest.raises(
            ValueError, match="window 'w': expected an integer as time at 'at' of the segment, found"
        ):
            window.time_of(wrong)
