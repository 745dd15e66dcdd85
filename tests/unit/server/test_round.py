"""What a write costs three servers while one client asks for one after the other: bounds on counts, not on time.

docs/ARCHITECTURE.md tells the path; here is how often it wakes somebody. Each server syncs its log itself, as on a fast
disk, so that what a thread does is counted, too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest
from attrs import asdict, frozen

from tests.unit.server.node_counts import NodeCounts
from tests.unit.server.nodes import Nodes
from zraft.server.process.sync_pace import SyncPace
from zraft_core.wire.client import ZkClientCodec
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
        reader, writer = await asyncio.open_connection(address.host, address.port)
        codec = ZkClientCodec()

        async def ask(request: bytes) -> None:
            writer.write(request)
            while not codec.receive(await reader.read(65_536)):
                pass

        await ask(codec.connect(timeout_ms=60_000))
        await ask(codec.write((CREATE, "/n", b"", None, 0, -1))[1])
        looks = [
            await _look(nodes, lambda: ask(codec.write((SET_DATA, "/n", bytes(100), -1))[1]))
            for _ in range(LOOKS)
        ]
        writer.close()
    for name, most in asdict(MOST).items():
        assert min(getattr(look, name) for look in looks) <= most, (name, looks)


async def _look(nodes: Nodes, write: Callable[[], Awaitable[None]]) -> Round:
    counts, before = NodeCounts(nodes), _sent(nodes)
    with counts.counted():
        for _ in range(WRITES):
            await write()
    found = (counts.wakes, counts.turns, _sent(nodes) - before, counts.calls)
    return Round(*(each.total() / WRITES for each in found))


def _sent(nodes: Nodes) -> Counter[int]:
    sent: Counter[int] = Counter()
    for server, node in nodes.nodes.items():
        traffic = node._peers.traffic()
        assert traffic is not None
        sent[server] = traffic[0].datagrams_sent
    return sent
