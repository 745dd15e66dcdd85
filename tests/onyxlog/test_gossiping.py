"""What gossip saves is counted right: a small fleet over UDP, on a log in memory."""

from __future__ import annotations

from onyxlog.gossip.spreading import Mode
from onyxlog.peer.entry_source import from_log
from tests.onyxlog.gossiping import gossiping, measure
from tests.onyxlog.simulation.memory_log import MemoryLog


async def test_groups_over_udp_apply_the_logs_own_chain_and_one_of_them_is_given_its_entries() -> None:
    found = await measure(MemoryLog().opened, gossiping(Mode.POOL, 0.0, "tests"), 8, 24, 0.005)
    assert (found.groups, found.entries, found.behind) == (8, 24, 0)
    # One sentinel; the more only if this machine stands still for longer than a gap is waited for.
    assert found.given >= 24
    assert found.sources["gossip"] > 0


async def test_by_the_tail_alone_the_log_gives_everything_to_everybody() -> None:
    found = await measure(MemoryLog().opened, from_log, 8, 24, 0.001)
    assert (found.given, found.saved, found.behind) == (8 * 24, 0.0, 0)
