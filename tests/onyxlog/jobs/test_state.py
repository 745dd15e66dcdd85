"""What a window holds and when it tells it: each trigger by examples, and all of them against the plain meaning."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from onyxlog.errors import EntryError
from onyxlog.jobs.aggregates import Aggregation
from onyxlog.jobs.grouping import GroupBy, grouping, sources_of, table_of
from onyxlog.jobs.predicates import Predicate
from onyxlog.jobs.segments import canonical
from onyxlog.jobs.state import WindowFullError, WindowState
from onyxlog.jobs.triggers import (
    Cause,
    Complete,
    Evict,
    Firing,
    Punctuation,
    Segments,
    Timer,
    Trigger,
    TriggerType,
    Watermark,
)
from onyxlog.jobs.windows import (
    EVERYTHING,
    Extent,
    Fixed,
    Global,
    Session,
    Sliding,
    Window,
    WindowType,
)
from tests.onyxlog.jobs.samples import HERE, sessions

BY_USER = GroupBy(("user",))
MARK = Punctuation(Predicate(f"{HERE}:is_mark"))


def state(
    over: WindowType,
    *on: TriggerType | Trigger,
    aggregation: Aggregation | None = None,
    group_by: GroupBy | None = None,
    extents_max: int = 1000,
) -> WindowState:
    triggers = [
        rule if isinstance(rule, Trigger) else Trigger(f"t{number}", "w", rule, emit="result")
        for number, rule in enumerate(on)
    ]
    window = Window("w", "task", over, aggregation or Aggregation("count"), "at", extents_max)
    return WindowState(window, triggers, grouping(group_by) if group_by else None)


def at(*times: int, **more: Any) -> list[dict[str, Any]]:
    return [{"at": time, **more} for time in times]


def told(firings: Sequence[Firing]) -> list[tuple[Any, ...]]:
    return [(*firing.extent, firing.result) for firing in firings]


def test_segments_are_counted_for_each_extent_and_group() -> None:
    of = state(Fixed(10), Complete(), group_by=BY_USER)
    assert of.apply(at(1, 5, 12, user="a") + at(3, user="b")) == []
    assert [*of.values()] == [("a", Extent(0, 10), 2), ("a", Extent(10, 20), 1), ("b", Extent(0, 10), 1)]
    assert len(of) == 3


def test_a_segments_trigger_fires_for_an_extent_every_so_many_segments_of_it() -> None:
    of = state(Fixed(10), Segments(2))
    assert told(of.apply(at(1, 11, 2, 3, 4, 12))) == [(0, 10, 2), (0, 10, 4), (10, 20, 2)]


def test_fire_all_extents_tells_the_others_of_the_group_that_have_news() -> None:
    trigger = Trigger("t", "w", Segments(2), emit="result", fire_all_extents=True)
    of = state(Fixed(10), trigger, group_by=BY_USER)
    of.apply(at(1, user="b"))
    assert told(of.apply(at(1, 11, 2, user="a"))) == [(0, 10, 2), (10, 20, 1)]
    assert told(of.apply(at(3, 4, user="a"))) == [(0, 10, 4)]


def test_a_punctuation_fires_for_the_extents_of_its_segment_which_is_in_them() -> None:
    of = state(Sliding(10, 5), MARK)
    assert of.apply(at(1, 6)) == []
    assert told(of.apply(at(7, mark=True))) == [(0, 10, 3), (5, 15, 2)]


def test_a_watermark_fires_once_time_has_passed_the_end_and_for_each_late_segment() -> None:
    of = state(Fixed(10), Watermark())
    assert of.apply(at(1, 9, 2)) == []
    assert told(of.apply(at(10))) == [(0, 10, 3)]
    assert told(of.apply(at(3, 25))) == [(0, 10, 4), (10, 20, 1)]
    assert [firing.cause for firing in of.complete()] == [Cause.COMPLETE]


def test_a_delay_lets_segments_be_out_of_order() -> None:
    of = state(Fixed(10), Watermark(delay_ms=5))
    assert of.apply(at(1, 12, 9, 14)) == []
    assert told(of.apply(at(15))) == [(0, 10, 2)]


def test_a_percentage_fires_before_the_end() -> None:
    of = state(Fixed(10), Watermark(percent=50))
    assert of.apply(at(1, 4)) == []
    assert told(of.apply(at(5))) == [(0, 10, 3)]


def test_time_of_any_group_fires_watermarks_of_all_and_never_goes_back() -> None:
    of = state(Fixed(10), Watermark(), group_by=BY_USER)
    of.apply(at(1, user="a"))
    assert of.apply(at(9, user="b")) == []
    assert told(of.apply(at(10, user="c"))) == [(0, 10, 1), (0, 10, 1)]
    assert told(of.apply(at(5, user="d"))) == [(0, 10, 1)]
    assert told(of.apply(at(3, user="a"))) == [(0, 10, 2)]


def test_a_session_ends_a_gap_after_its_last_segment_however_long_it_was() -> None:
    of = state(Session(10), Watermark(), group_by=BY_USER)
    assert of.apply(at(0, 8, 16, 24, user="a")) == []
    assert of.apply(at(33, user="b")) == []
    assert told(of.apply(at(34, user="b"))) == [(0, 34, 4)]


def test_a_segment_between_sessions_makes_them_one() -> None:
    of = state(Session(10), Complete(), aggregation=Aggregation("sum", "n"))
    of.apply([{"at": 0, "n": 1}, {"at": 18, "n": 2}, {"at": 50, "n": 4}])
    assert [extent for _, extent, _ in of.values()] == [Extent(0, 10), Extent(18, 28), Extent(50, 60)]
    of.apply([{"at": 9, "n": 8}])
    assert [*of.values()] == [(None, Extent(0, 28), 11), (None, Extent(50, 60), 4)]
    assert len(of) == 2


def test_sessions_that_become_one_are_told_with_what_is_new_in_both() -> None:
    of = state(Session(10), Segments(3))
    assert of.apply(at(0, 1, 18, 19)) == []
    assert told(of.apply(at(9))) == [(0, 29, 5)]
    of = state(Session(10), Segments(2))
    assert told(of.apply(at(0, 1, 18, 19))) == [(0, 11, 2), (18, 29, 2)]
    assert of.apply(at(9)) == []
    assert told(of.apply(at(10))) == [(0, 29, 6)]


def test_timers_run_from_the_first_tick_and_tell_what_changed_since() -> None:
    of = state(Global(), Timer(100), group_by=BY_USER)
    of.apply(at(1, user="b") + at(1, 2, user="a"))
    assert of.tick(1_000) == []
    assert of.tick(1_099) == []
    assert [(firing.group, firing.result) for firing in of.tick(1_100)] == [("a", 2), ("b", 1)]
    assert of.tick(1_200) == []
    of.apply(at(1, user="b"))
    assert [(firing.group, firing.result) for firing in of.tick(1_350)] == [("b", 2)]
    assert of.tick(1_400) == []  # one period after it fired, not after it should have
    of.apply(at(1, user="b"))
    assert of.tick(1_449) == []
    assert len(of.tick(1_450)) == 1


def test_the_end_of_the_input_tells_what_was_not_told_yet() -> None:
    of = state(Fixed(10), Segments(2))
    of.apply(at(1, 2, 3, 11, 12))
    assert told(of.complete()) == [(0, 10, 3)]
    assert of.complete() == []


def test_a_trigger_may_keep_silent_at_the_end() -> None:
    of = state(Global(), Trigger("t", "w", Segments(2), emit="result", on_complete=False))
    of.apply(at(1))
    assert of.complete() == []


def test_evicting_forgets_what_was_told_after_all_triggers_have_told_it() -> None:
    first = Trigger("first", "w", Segments(2), emit="result", evict=Evict.ALL)
    second = Trigger("second", "w", Segments(2), emit="result")
    of = state(Fixed(10), first, second)
    firings = of.apply(at(1, 2, 3, 4))
    assert [(firing.trigger, firing.result) for firing in firings] == [("first", 2), ("second", 2)] * 2
    assert len(of) == 0
    assert of.snapshot() == canonical(
        [1, "w", [{"type": "fixed", "range": 10}, "count", "at"], ["first", "second"], 4, []]
    )


def test_evicting_one_extent_of_a_segment_does_not_lose_it_in_another() -> None:
    """All extents have it before any is told and forgotten."""
    trigger = Trigger("t", "w", Segments(2), emit="result", evict=Evict.ALL, fire_all_extents=True)
    of = state(Sliding(10, 5), trigger)
    assert told(of.apply(at(1, 7))) == [(-5, 5, 1), (0, 10, 2), (5, 15, 1)]
    assert len(of) == 0


def test_evicting_at_the_end_of_time_lets_all_triggers_see_it() -> None:
    triggers = [
        Trigger("first", "w", Watermark(), emit="result", evict=Evict.ALL),
        Trigger("second", "w", Watermark(), emit="result"),
    ]
    of = state(Fixed(10), *triggers)
    of.apply(at(1))
    assert [firing.trigger for firing in of.apply(at(10))] == ["first", "second"]
    assert [firing.trigger for firing in of.complete()] == ["first", "second"]


def test_what_a_window_holds_is_bounded_and_the_error_names_the_knob() -> None:
    of = state(Fixed(10), Complete(), extents_max=3)
    of.apply(at(1, 11, 21, 22))
    with pytest.raises(
        WindowFullError, match=r"window 'w' of task 'task' holds 3 extents.*raise the window's extents_max"
    ):
        of.apply(at(31))


def test_sessions_that_become_one_make_room() -> None:
    of = state(Session(10), Complete(), extents_max=2)
    of.apply(at(0, 18, 9, 50))
    assert len(of) == 2


def test_long_sessions_and_late_segments_keep_the_list_of_times_short() -> None:
    of = state(Session(10), Watermark(delay_ms=1_000))
    of.apply(at(*range(500)))
    assert len(of) == 1
    assert len(of._due) <= 1


def test_keys_of_any_plain_type_are_groups_and_equal_numbers_are_one() -> None:
    of = state(Global(), Complete(), group_by=BY_USER)
    users: list[Any] = [1, True, 1.0, "1", None, [1, 2], [1.0, 2], b"1", {"a": 1}]
    of.apply([{"at": 0, "user": user} for user in users])
    assert sorted(result for _, _, result in of.values()) == [1, 1, 1, 1, 2, 3]


def test_a_restored_window_goes_on_as_if_nothing_had_happened() -> None:
    of = state(Fixed(10), Segments(3), Watermark(), group_by=BY_USER)
    of.apply(at(1, 2, 11, user="a") + at(3, user=5))
    again = state(Fixed(10), Segments(3), Watermark(), group_by=BY_USER)
    again.restore([of.snapshot()])
    assert again.snapshot() == of.snapshot()
    more = at(4, 25, user="a") + at(4, user=5)
    assert [*again.apply(more)] == [*of.apply(more)] != []
    assert again.complete() == of.complete()


def test_triggers_are_found_by_their_names_in_a_snapshot() -> None:
    count, mark = Trigger("count", "w", Segments(3), emit="result"), Trigger("mark", "w", MARK, emit="result")
    of = state(Global(), count, mark)
    of.apply(at(1, 2) + at(3, mark=True))
    again = state(Global(), mark, evolve(count, id="new"))
    again.restore([of.snapshot()])
    assert [firing.trigger for firing in again.complete()] == ["new"]


MEANING = [{"type": "fixed", "range": 10}, "count", "at"]


def test_a_snapshot_of_what_was_another_window_by_this_name_is_refused() -> None:
    of = state(Fixed(10), Complete())
    of.apply(at(1))
    with pytest.raises(EntryError, match="use another id for it"):
        state(Fixed(10), Complete(), aggregation=Aggregation("sum", "n")).restore([of.snapshot()])


@pytest.mark.parametrize(
    "snapshot",
    [
        b"",
        b"\xc1",
        canonical([2, "w", MEANING, [], None, []]),
        canonical([1, "other", MEANING, [], None, []]),
        canonical([1, "w", [{"type": "fixed", "range": 11}, "count", "at"], [], None, []]),
        canonical([1, "w", MEANING, ["t0"], None, [["a", [[0, 10, 1, 1, []]]]]]),
        canonical([1, "w", MEANING, [], None, [["a", [[0, 10]]]]]),
        canonical(7),
    ],
)
def test_bytes_that_are_no_snapshot_of_the_window_are_an_error(snapshot: bytes) -> None:
    with pytest.raises(EntryError, match="the checkpoint of window 'w' of task 'task' cannot be read"):
        state(Fixed(10), Complete()).restore([snapshot])


def test_a_segment_without_time_is_an_error() -> None:
    with pytest.raises(
        ValueError, match="window 'w': expected an integer as time at 'at' of the segment, found None"
    ):
        state(Fixed(10), Complete()).apply([{"n": 1}])


# The plain meaning: everything is kept, and counted again.

users = st.sampled_from(["a", "b", 1, None])
events = st.lists(
    st.fixed_dictionaries({"at": st.integers(0, 60), "user": users, "mark": st.booleans()}), max_size=40
)
overs = st.sampled_from(
    [Fixed(7), Fixed(10, 3), Sliding(10, 4), Sliding(6, 6), Global(), Session(5), Session(1)]
)
timed = st.sampled_from(
    [Segments(1), Segments(3), MARK, Watermark(), Watermark(percent=50), Watermark(delay_ms=4)]
)
kinds = st.builds(
    Trigger,
    id=st.just("t"),
    window=st.just("w"),
    on=timed,
    emit=st.just("result"),
    evict=st.sampled_from(Evict),
    fire_all_extents=st.booleans(),
)
Held = dict[tuple[Any, Extent], int]


def brute_force(over: WindowType, segments: Sequence[dict[str, Any]]) -> Held:
    held: Held = Counter()
    if isinstance(over, Session):
        by_user = defaultdict(list)
        for segment in segments:
            by_user[segment["user"]].append(segment["at"])
        for user, times in by_user.items():
            for extent in sessions(Extent(time, time + over.gap) for time in times):
                held[user, extent] = sum(extent.start <= time < extent.end for time in times)
        return held
    for segment in segments:
        if isinstance(over, Global):
            held[segment["user"], EVERYTHING] += 1
            continue
        for start in range(-20, 100):
            extent = Extent(start, start + over.range)
            slide = over.slide if isinstance(over, Sliding) else over.range
            if (start - over.offset) % slide == 0 and start <= segment["at"] < extent.end:
                held[segment["user"], extent] += 1
    return held


def holds(of: WindowState) -> Held:
    return {(group, extent): result for group, extent, result in of.values()}


@settings(max_examples=150)
@given(overs, events)
def test_a_window_holds_what_brute_force_counts(over: WindowType, segments: list[dict[str, Any]]) -> None:
    of = state(over, Complete(), group_by=BY_USER)
    of.apply(segments)
    assert holds(of) == brute_force(over, segments)
    assert len(of) == len(holds(of))


def fits(over: WindowType, trigger: Trigger) -> bool:
    return not (isinstance(over, Global) and isinstance(trigger.on, Watermark))


@settings(max_examples=200)
@given(overs, kinds, events)
def test_with_eviction_every_segment_is_told_once_for_each_of_its_extents(
    over: WindowType, trigger: Trigger, segments: list[dict[str, Any]]
) -> None:
    if not fits(over, trigger):
        return
    of = state(over, evolve(trigger, evict=Evict.ALL), group_by=BY_USER)
    firings = of.apply(segments) + of.complete()
    expected: Counter[Any] = Counter()
    for segment in segments:
        expected[segment["user"]] += len(over.extents(segment["at"]))
    found: Counter[Any] = Counter()
    for firing in firings:
        found[firing.group] += firing.result
    assert found == expected
    assert len(of) == 0
    assert not of._groups


@settings(max_examples=200)
@given(overs, kinds, events)
def test_without_eviction_the_last_thing_told_of_an_extent_is_all_of_it(
    over: WindowType, trigger: Trigger, segments: list[dict[str, Any]]
) -> None:
    if not fits(over, trigger):
        return
    of = state(over, evolve(trigger, evict=Evict.NONE), group_by=BY_USER)
    firings = of.apply(segments) + of.complete()
    last: Held = {}
    for firing in firings:
        assert last.get((firing.group, firing.extent)) != firing.result, "told, though nothing was new"
        last[firing.group, firing.extent] = firing.result
    held = brute_force(over, segments)
    assert {place: last[place] for place in held} == held


@settings(max_examples=200)
@given(overs, kinds, kinds, events, st.lists(st.integers(0, 40), max_size=4), st.booleans())
def test_neither_batches_nor_restarts_from_checkpoints_change_anything(
    over: WindowType,
    one: Trigger,
    two: Trigger,
    segments: list[dict[str, Any]],
    cuts: list[int],
    restart: bool,
) -> None:
    triggers = [one, evolve(two, id="t2")]
    if not all(fits(over, trigger) for trigger in triggers):
        return
    whole = state(over, *triggers, group_by=BY_USER)
    expected = whole.apply(segments)
    of = state(over, *triggers, group_by=BY_USER)
    found = []
    edges = [0, *sorted(cuts), len(segments)]
    for begin, end in pairwise(edges):
        found += of.apply(segments[begin:end])
        if restart:
            snapshot = of.snapshot()
            of = state(over, *triggers, group_by=BY_USER)
            of.restore([snapshot])
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert of.snapshot() == whole.snapshot()
    assert of.complete() == whole.complete()


@settings(max_examples=60)
@given(
    overs,
    events,
    st.sets(st.integers(0, 9), min_size=1),
    st.sets(st.integers(0, 9), min_size=1),
    st.booleans(),
)
def test_other_workers_take_over_the_states_of_all_buckets(
    over: WindowType, segments: list[dict[str, Any]], old: set[int], new: set[int], grouped: bool
) -> None:
    """More, fewer, other slots: together they hold what one worker would. Without grouping each has a part of it."""
    group_by = BY_USER if grouped else None
    before, after = table_of(old), table_of(new)
    by = grouping(BY_USER)
    snapshots = {}
    for slot in old:
        worker = state(over, Complete(), group_by=group_by)
        worker.apply([segment for segment in segments if before[by.bucket(segment)] == slot])
        snapshots[slot] = worker.snapshot()
    total: Held = Counter()

    def is_of(slot: int, bucket: int) -> bool:
        return not grouped or after[bucket] == slot

    for slot in new:
        worker = state(over, Complete(), group_by=group_by)
        sources = [snapshots[source] for source in sources_of(slot, new, old, grouped=grouped)]
        worker.restore(sources, partial(is_of, slot))
        for place, count in holds(worker).items():
            assert not grouped or place not in total
            total[place] += count
    if grouped:
        assert total == brute_force(over, segments)
    elif isinstance(over, Fixed):
        ungrouped = brute_force(over, [{**segment, "user": None} for segment in segments])
        assert total == ungrouped
