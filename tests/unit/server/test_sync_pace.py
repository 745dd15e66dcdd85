"""Whether the loop may sync the log itself: by its own last syncs, after the thread has proved that the disk works."""

from __future__ import annotations

import pytest

from zraft.server.process.sync_pace import (
    KEPT,
    LATE_MAX,
    LATE_S,
    PROVED_FIRST,
    PROVED_MAX,
    SHORT_OF,
    SLOW_MAX,
    STALL_S,
    SyncPace,
)

USUAL_S = 0.001
FAST, SLOW, LATE, STALL = 0.0002, 0.002, 2 * LATE_S, STALL_S


def after(*seconds: float, pace: SyncPace | None = None) -> SyncPace:
    """After so many syncs, each done by whom the pace lets do it."""
    pace = pace or SyncPace(USUAL_S)
    for one in seconds:
        if pace.is_fast:
            pace.took(one)
        else:
            pace.thread_took(one)
    return pace


def looping() -> SyncPace:
    """The loop syncs, and has done so once."""
    return after(*[FAST] * (PROVED_FIRST + 1))


def fast_ones_needed(pace: SyncPace) -> int:
    for count in range(2 * PROVED_MAX):
        if pace.is_fast:
            return count
        pace.thread_took(FAST)
    raise AssertionError("never fast again")


def by_loop(pace: SyncPace, seconds: list[float]) -> int:
    """How many of these the loop did."""
    count = 0
    for one in seconds:
        count += pace.is_fast
        after(one, pace=pace)
    return count


def test_the_first_syncs_are_the_threads() -> None:
    assert fast_ones_needed(SyncPace(USUAL_S)) == PROVED_FIRST


def test_the_second_late_one_of_the_last_128_gives_the_thread_the_next() -> None:
    pace = looping()
    for _ in range(3):
        assert after(LATE, *[FAST] * (KEPT - 1), pace=pace).is_fast, "the one before is forgotten"
    assert LATE_MAX == 1
    assert not after(LATE, *[FAST] * (KEPT - 2), LATE, pace=pace).is_fast


def test_a_quarter_of_the_last_128_may_be_slow_and_no_more() -> None:
    pace = looping()
    quarter = ([FAST] * 3 + [SLOW]) * (KEPT // 4)
    assert SLOW_MAX == KEPT // 4
    assert by_loop(pace, quarter * 10) == 10 * KEPT
    assert not after(SLOW, pace=after(*quarter[:-1], SLOW, SLOW, pace=pace)).is_fast


def test_a_disk_that_is_always_slow_is_never_synced_by_the_loop() -> None:
    assert by_loop(SyncPace(USUAL_S), [SLOW] * 10 * KEPT) == 0


def test_a_disk_that_becomes_slow_is_left_alone_until_it_is_fast_again() -> None:
    pace = looping()
    assert by_loop(pace, [SLOW] * 10 * KEPT) == SLOW_MAX + 1
    assert by_loop(pace, [FAST] * 2 * KEPT) > 0


def test_a_busy_loop_that_lets_the_thread_wait_for_the_interpreter_comes_to_sync_itself() -> None:
    """Python's threads wait for 5 ms and more for a loop that computes, however fast the disk is."""
    waited = [0.0114, 0.0052, 0.0053, 0.0142, *[0.0053] * 11, FAST]
    assert len(waited) == SHORT_OF
    assert after(*waited).is_fast
    pace = after(STALL, pace=looping())
    assert after(*waited * (KEPT // SHORT_OF), pace=pace).is_fast


def test_a_stall_ends_it_and_the_next_one_for_twice_as_long() -> None:
    pace = looping()
    needed = []
    for _ in range(8):
        pace.took(STALL)
        assert not pace.is_fast
        needed.append(fast_ones_needed(pace))
    assert needed == [128, 256, 512, 1024, 2048, PROVED_MAX, PROVED_MAX, PROVED_MAX]


@pytest.mark.parametrize("every", [KEPT, 300, 1_000, 3_000, PROVED_MAX, 3 * PROVED_MAX])
def test_a_disk_that_stalls_again_and_again_soon_stalls_the_loop_once_in_4096_syncs_at_most(
    every: int,
) -> None:
    pace = SyncPace(USUAL_S)
    period = [FAST] * (every - 1) + [STALL]
    after(*period * (2 * PROVED_MAX // every + 5), pace=pace)
    stalled = syncs = 0
    while syncs < 10 * PROVED_MAX:
        after(*period[:-1], pace=pace)
        stalled += pace.is_fast
        after(STALL, pace=pace)
        syncs += every
    assert stalled <= syncs // PROVED_MAX


def test_a_loop_that_held_out_for_long_comes_back_soon() -> None:
    pace = after(STALL, *[FAST] * KEPT, STALL, pace=looping())
    assert fast_ones_needed(pace) == 2 * KEPT
    assert by_loop(pace, [FAST] * PROVED_MAX) == PROVED_MAX
    pace.took(STALL)
    assert fast_ones_needed(pace) == KEPT


def test_stalls_of_the_thread_begin_its_proof_anew_and_are_no_relapse() -> None:
    pace = after(STALL, *[FAST] * (KEPT - 1), STALL, pace=looping())
    assert fast_ones_needed(pace) == KEPT
    pace = after(*[FAST] * (PROVED_FIRST - 1), STALL)
    assert fast_ones_needed(pace) == KEPT


def test_what_a_busy_thread_measures_does_not_end_it() -> None:
    """It was at work with segments or snapshots, and the loop gave it a frame behind that."""
    pace = looping()
    pace.thread_took(STALL)
    assert pace.is_fast


def test_with_0_the_thread_always_syncs() -> None:
    assert by_loop(SyncPace(0), [0.0] * 10 * KEPT) == 0
