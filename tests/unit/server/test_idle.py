"""What servers do while nobody asks them for anything: bounds on wake-ups, turns, datagrams and calls, not on time.

Everything is counted per round of heartbeats, of which there are ten a second, so that a machine that is slow finds the
same as one that is not. What happens once in a second is a tenth of each figure.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest
from attrs import frozen

from tests.unit.server.asker import Asker
from tests.unit.server.node_counts import NodeCounts, datagrams_sent
from tests.unit.server.nodes import Nodes
from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.raft.rounds import Rounds
from zraft.server.process.node import Node, now_ms
from zraft_core.ids import ServerId
from zraft_core.znodes.txn import CREATE

ROUNDS: Final = 10
"""Of one look: a second, in which what happens once in a second has happened."""

LOOKS: Final = 4
"""The one that found least counts: in the others a busy machine may have delayed an answer, and more was said for that."""

SETTLE_ROUNDS: Final = 20
"""After the last thing that happened; what follows from it ends meanwhile."""


@frozen
class Idle:
    """What a server does per round of heartbeats at most, or did."""

    wakes: float
    turns: float
    datagrams: float
    calls: float


NO_TOPIC: Final = (
    Idle(wakes=2.5, turns=0.4, datagrams=2.5, calls=185),
    Idle(wakes=1.4, turns=0.5, datagrams=0.75, calls=110),
)
"""The leader speaks to both followers, of which one answers. That takes no turn: there is one a second, with the report."""

TOPICS: Final = (
    Idle(wakes=3.4, turns=1.4, datagrams=2.7, calls=790),
    Idle(wakes=2.9, turns=1.75, datagrams=2.7, calls=620),
)
"""Any two servers tell each other in one datagram each way that they live; who began has been woken by its alarm.

If a follower began, the leader's answer brings the heartbeat of the coordination group, and the follower acknowledges it
every other time in a turn and a datagram of its own.
"""


async def _rounds(nodes: Nodes, count: int) -> Node:
    """So many rounds of one leader, who is returned; of the next one, if another one is elected meanwhile."""
    while True:
        leader = nodes.leader
        raft = leader.driver.raft
        assert raft is not None
        term, until = raft.term, raft.round + count

        def over(raft: Raft = raft, term: int = term, until: int = until) -> bool:
            return raft.term != term or raft.role is not Role.LEADER or raft.round >= until

        await nodes.until(over)
        if raft.term == term and raft.role is Role.LEADER:
            return leader
        await nodes.until(lambda: nodes.leader)


@pytest.mark.parametrize(
    ("partitions", "bounds"),
    [pytest.param(0, NO_TOPIC, id="no topic"), pytest.param(12, TOPICS, id="topics")],
)
async def test_an_idle_server_does_little(tmp_path: Path, partitions: int, bounds: tuple[Idle, Idle]) -> None:
    """That hundreds of partitions cost what one costs is shown by the tests of hosts of groups."""
    async with Nodes(tmp_path) as nodes:
        if partitions:
            await nodes.create_topic("idle", partitions)
        leader = await _rounds(nodes, SETTLE_ROUNDS)
        found: dict[tuple[ServerId, bool], list[Idle]] = {}
        for _ in range(LOOKS):
            counts = NodeCounts(nodes)
            before = {server: datagrams_sent(node) for server, node in nodes.nodes.items()}
            with counts.counted():
                leader = await _rounds(nodes, ROUNDS)
            for server, node in nodes.nodes.items():
                seen = (
                    counts.wakes[server],
                    counts.turns[server],
                    datagrams_sent(node) - before[server],
                    counts.calls[server],
                )
                found.setdefault((server, node is leader), []).append(Idle(*(one / ROUNDS for one in seen)))
        for (_, leads), looks in found.items():
            most = bounds[0] if leads else bounds[1]
            for name in ("wakes", "turns", "datagrams", "calls"):
                assert min(getattr(look, name) for look in looks) <= getattr(most, name), (name, leads, looks)


def joined(rounds: Rounds, now: int) -> bool:
    rounds.wanted = True
    return True


async def test_a_leader_is_ticked_though_all_its_rounds_join_what_groups_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a tick asks again for what is overdue, and notices a lost quorum."""
    async with Nodes(tmp_path) as nodes:
        await nodes.create_topic("idle", 12)
        leader = await _rounds(nodes, SETTLE_ROUNDS)
        raft = leader.driver.raft
        assert raft is not None
        ticks: list[int] = []
        tick = raft.tick

        def noted(elapsed: int) -> None:
            ticks.append(raft.now)
            tick(elapsed)

        monkeypatch.setattr(raft, "tick", noted)
        # Whatever the rhythm of the groups is: every round begins before its own time.
        monkeypatch.setattr(Rounds, "join", joined)
        began, first = raft.now, raft.round
        assert await _rounds(nodes, ROUNDS) is leader
        longest = max(later - earlier for earlier, later in pairwise([began, *ticks, raft.now]))
        assert longest <= 2 * raft.settings.idle_heartbeat_ticks, (longest, ticks, raft.round - first)


async def test_what_was_applied_is_hashed_once_nothing_more_comes(tmp_path: Path) -> None:
    """Under load the same znodes would be hashed again every few milliseconds, on servers without clients, too."""
    async with Nodes(tmp_path, servers=1) as nodes:
        node = nodes.leader
        async with Asker(nodes.addresses[node.config.id]) as asker:
            await asker.write((CREATE, "/a", b"", None, 0, -1))
        machine = node.driver.machine
        waiting = machine.undigested
        assert waiting
        node._applied_before = 0
        node._do_chores(now_ms())
        assert machine.undigested == waiting
        node._do_chores(now_ms())
        assert not machine.undigested
