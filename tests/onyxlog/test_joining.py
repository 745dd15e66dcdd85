"""What joining costs is counted right: the smallest sizes, on a log in memory."""

from __future__ import annotations

from onyxlog.replica.replica import JoinMode
from tests.onyxlog.joining import measure
from tests.onyxlog.simulation.memory_log import MemoryLog
from tests.onyxlog.simulation.virtual_time import run_virtually


async def test_a_direct_join_is_one_entry_and_no_pulse_is_watched() -> None:
    """O-12."""
    at_once, one_more = await measure(MemoryLog().opened, JoinMode.DIRECT, 5, 2)
    assert at_once.entries == {"join-direct": 5}
    assert one_more.entries == {"join-direct": 2}
    assert one_more.joins == one_more.watches == 2  # its own tail
    assert one_more.pushes >= 5 + 6


async def test_a_ring_join_is_three_entries_and_moves_watches() -> None:
    at_once, one_more = await measure(MemoryLog().opened, JoinMode.RING, 4, 2)
    assert at_once.entries["prepare-join"] >= 4
    assert at_once.entries["accept-join"] >= 3  # the first is in at once
    assert one_more.entries == {"prepare-join": 2, "notify-join": 2, "accept-join": 2}
    assert one_more.watches > 2
    assert one_more.reads >= 2


def test_groups_that_join_a_slow_ring_at_once_wait_for_their_turn() -> None:
    """Most are refused once, and ask again when a member is free to help; it was eleven entries for each before."""
    at_once, _ = run_virtually(measure(MemoryLog(delay_s=1.0).opened, JoinMode.RING, 30, 1))
    assert at_once.entries.total() <= 6 * 30
