"""Servers hold a stream to each leader that they follow, and learn by its end that the leader's process has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.nodes import Nodes
from tests.unit.server.test_loop_syncs import noting
from zraft.server.process.node import Node
from zraft_core.ids import ServerId


def holds(node: Node, leader: ServerId) -> bool:
    """Return whether a stream from this server to that one stands."""
    path = node._peers._streams._paths.get(leader)
    return path is not None and path.established


async def test_followers_learn_of_their_leaders_end_and_first_hear_what_it_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Nodes(tmp_path) as nodes:
        leader = nodes.leader.config.id
        others = [node for server, node in nodes.nodes.items() if server != leader]
        await nodes.until(lambda: all(holds(node, leader) for node in others))
        assert not any(holds(nodes.leader, node.config.id) for node in others), (
            "who follows nobody needs none"
        )
        notes: list[list[Any]] = []
        for node in others:
            said: list[str] = []
            notes.append(said)
            monkeypatch.setattr(node._peers, "drain", noting(said, "heard", node._peers.drain))
            monkeypatch.setattr(node.driver, "note_lost", noting(said, "lost", node.driver.note_lost))
        await nodes.stop(leader)
        await nodes.until(lambda: nodes.leader)
        new = nodes.leader.config.id
        await nodes.until(lambda: all(node is nodes.leader or holds(node, new) for node in others))
    for said in notes:
        assert said[said.index("lost") - 1] == "heard", said


async def test_servers_that_lead_partitions_are_held_by_all_that_follow_them(tmp_path: Path) -> None:
    async with Nodes(tmp_path) as nodes:
        await nodes.create_topic("t", 6)
        everybody = nodes.nodes
        await nodes.until(
            lambda: all(
                holds(node, other)
                for server, node in everybody.items()
                for other in everybody
                if other != server
            )
        )


async def test_a_server_that_stops_itself_loses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Nodes(tmp_path) as nodes:
        leader = nodes.leader
        others = [node for node in nodes.nodes.values() if node is not leader]
        await nodes.until(lambda: all(holds(node, leader.config.id) for node in others))
        said: list[str] = []
        monkeypatch.setattr(leader.driver, "note_lost", noting(said, "lost", leader.driver.note_lost))
        await nodes.stop(leader.config.id)
    assert not said
