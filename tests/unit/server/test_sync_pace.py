"""Whether the loop may sync the log itself: by the last syncs, whoever did them."""

from __future__ import annotations

from zraft.server.process.sync_pace import KEPT, PROVED_FIRST, PROVED_MAX, STALL_S, SyncPace

USUAL_S = 0.001
FAST, SLOW, STALL = 0.0002, 0.002, STALL_S


def after(*seconds: float, pace: SyncPace | None = None) -> SyncPace:
    pace = pace or SyncPace(USUAL_S)
    for one in seconds:
        pace.took(one)
    return pace


def fast_ones_needed(pace: SyncPace) -> int:
    for count in range(2 * PROVED_MAX):
        if pace.is_fast:
            return count
        pace.took(FAST)
    raise AssertionError("never fast again")


def test_the_first_syncs_are_the_threads() -> None:
    assert fast_ones_needed(SyncPace(USUAL_S)) == PROVED_FIRST


def test_one_of_a_hundred_may_be_slow_and_two_may_not() -> None:
    pace = after(*[FAST] * KEPT)
    assert after(SLOW, pace=pace).is_fast
    assert not after(SLOW, pace=pace).is_fast
    assert fast_ones_needed(pace) == KEPT - 1, "until the first of the two is forgotten"


def test_a_disk_that_is_always_slow_is_never_synced_by_the_loop() -> None:
    assert not after(*[SLOW] * 10 * KEPT).is_fast


def test_a_stall_ends_it_and_the_next_one_for_twice_as_long() -> None:
    pace = after(*[FAST] * KEPT)
    needed = []
    for _ in range(8):
        pace.took(STALL)
        assert not pace.is_fast
        needed.append(fast_ones_needed(pace) + 1)
    assert needed == [128, 256, 512, 1024, 2048, PROVED_MAX, PROVED_MAX, PROVED_MAX]


def test_stalls_of_the_thread_are_no_relapse() -> None:
    pace = after(*[FAST] * KEPT, STALL, STALL, STALL)
    assert fast_ones_needed(pace) <= KEPT


def test_with_0_the_thread_always_syncs() -> None:
    assert not after(*[0.0] * 10 * KEPT, pace=SyncPace(0)).is_fast
