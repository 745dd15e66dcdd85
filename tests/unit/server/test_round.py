"""What a write costs three servers while one client asks for one after the other: bounds on counts, not on time.

docs/ARCHITECTURE.md tells the path; here is how often it wakes somebody. Each server syncs its log itself, as on a fast
disk, so that what a thread does is counted, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from attrs import asdict, frozen

from tests.unit.server.asker import Asker
from tests.unit.server.node_counts import NodeCounts, datagrams_sent
from tests.unit.server.nodes import Nodes
from zraft.server.process.sync_pace import SyncPace
from zraft_core.znodes.txn import CREATE, SET_DATA

WRITES: Final = 50

LOOKS: Final = 5
"""The one that found least counts: in the others a busy machine may have delayed a datagram, and more was said for that."""


@frozen
class Round:
    """What a write costs all servers together at most, or did."""

    wakes: float
    turns: float
    datagrams: float
    calls: float


MOST: Final = Round(wakes=7.2, turns=5.2, datagrams=5.3, calls=1_880)
"""Two appends and two acknowledgements, and what comes in between: heartbeats, reports, alarms."""


async def test_a_write_wakes_servers_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path) as nodes:
        address = nodes.addresses[nodes.leader.config.id]
        async with Asker(address) as client:
            await client.write((CREATE, "/n", b"", None, 0, -1))
            looks = [
                await _look(nodes, lambda: client.write((SET_DATA, "/n", bytes(100), -1)))
                for _ in range(LOOKS)
            ]
    for name, most in asdict(MOST).items():
        assert min(getattr(look, name) for look in looks) <= most, (name, looks)


async def _look(nodes: Nodes, write: Callable[[], Awaitable[None]]) -> Round:
    counts, before = NodeCounts(nodes), _sent(nodes)
    with counts.counted():
        for _ in range(WRITES):
            await write()
    totals = counts.wakes.total(), counts.turns.total(), _sent(nodes) - before, counts.calls.total()
    return Round(*(total / WRITES for total in totals))


def _sent(nodes: Nodes) -> int:
    return sum(map(datagrams_sent, nodes.nodes.values()))
