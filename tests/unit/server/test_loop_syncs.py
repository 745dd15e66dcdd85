"""The turns around a sync of the loop's own: what leaves before it, what is heard after it, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.server.nodes import Nodes
from zraft.server.process.client_protocol import ClientProtocol
from zraft.server.process.node import LATE_MS, Node
from zraft.server.process.sync_pace import SyncPace
from zraft.server.process.wal_writer import SMALL_BYTES
from zraft.storage.records import Record
from zraft.storage.wal import Wal
from zraft_client import Client
from zraft_core.znodes.txn import CREATE

WRITES = 20


def noting(notes: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which first notes that it was called."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        notes.append(name)
        return function(*args, **kwargs)

    return noted


def watch(patch: pytest.MonkeyPatch, node: Node, *, took_s: float | None = None) -> list[str]:
    """Return the list in which this server notes from now on what it does; its syncs say that they took so long."""
    notes: list[str] = []
    submit = node._wal_writer.submit

    def sync(records: Sequence[Record]) -> float | None:
        notes.append("sync")
        seconds = submit(records)
        return seconds if seconds is None or took_s is None else took_s

    patch.setattr(node._wal_writer, "submit", sync)
    patch.setattr(node._peers, "drain", noting(notes, "hear", node._peers.drain))
    patch.setattr(node._peers, "send", noting(notes, "send", node._peers.send))
    patch.setattr(node.driver, "turn", noting(notes, "turn", node.driver.turn))
    patch.setattr(node.driver, "persisted", noting(notes, "durable", node.driver.persisted))
    # One that is asked for from now on; the method of an alarm that is set goes past it.
    patch.setattr(node, "_turn", noting(notes, "called", node._turn))
    patch.setattr(ClientProtocol, "write", noting(notes, "answer", ClientProtocol.write))
    return notes


async def write(nodes: Nodes, server: Node, count: int = WRITES) -> None:
    async with Client(str(nodes.addresses[server.config.id])) as client:
        for number in range(count):
            await client.create(f"/n{number}")


async def test_a_single_server_writes_and_answers_in_one_call_of_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path, servers=1) as nodes:
        notes = watch(monkeypatch, nodes.leader, took_s=0.0)
        await write(nodes, nodes.leader)
    said = " ".join(notes)
    assert said.count("called turn sync durable turn answer") >= WRITES, said


async def test_what_a_turn_says_leaves_before_the_loop_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path) as nodes:
        leader = nodes.leader
        notes = watch(monkeypatch, leader, took_s=0.0)
        await write(nodes, leader)
    assert notes.count("sync") >= WRITES
    for at in [place for place, note in enumerate(notes) if note == "sync"]:
        assert notes[at + 1 : at + 2] == ["durable"], "nothing of the turn is left to be said"


@pytest.mark.parametrize("took_ms", [0, LATE_MS])
async def test_after_a_long_sync_other_servers_are_heard_before_the_next_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took_ms: int
) -> None:
    """Their heartbeats have arrived, so no time that has passed meanwhile may be held against them."""
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path, servers=1) as nodes:
        notes = watch(monkeypatch, nodes.leader, took_s=took_ms / 1000)
        await write(nodes, nodes.leader)
    for at in [place for place, note in enumerate(notes) if note == "sync"]:
        after = notes[at + 1 : notes.index("durable", at) + 1]
        assert after == (["hear", "durable"] if took_ms else ["durable"]), after


async def test_a_sync_of_the_loop_is_a_stall_and_no_part_of_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took_s = 1_000.0
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path, servers=1) as nodes:
        leader = nodes.leader
        watch(monkeypatch, leader, took_s=took_s)
        await write(nodes, leader, 1)
        process = leader._process
        assert process.stall_ms_max >= took_s * 1000
        assert process.fsync.view().largest == took_s
        assert process.turns.view().largest < took_s


async def test_what_a_server_hears_after_a_long_sync_may_end_it_and_then_it_says_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-26: such as that its state is not the majority's."""
    monkeypatch.setattr(SyncPace, "is_fast", True)
    async with Nodes(tmp_path, servers=1) as nodes:
        leader = nodes.leader
        notes = watch(monkeypatch, leader, took_s=LATE_MS / 1000)
        monkeypatch.setattr(leader._peers, "drain", leader._end)
        leader.driver.submit((CREATE, "/n", b"", None, 0, 0), lambda _: None)
        leader.schedule()
        await leader._stop.wait()
        await nodes.stop(leader.config.id)
    assert "durable" not in notes[notes.index("sync") :]


@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_vote_that_is_durable_at_once_hides_no_election(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_fast: bool
) -> None:
    monkeypatch.setattr(SyncPace, "is_fast", is_fast)
    # The log of a server that was stopped is as long as what it holds, so the thread would write the vote.
    monkeypatch.setattr(Wal, "room", property(lambda _: SMALL_BYTES, lambda *_: None))
    with capture_logs() as logs:
        async with Nodes(tmp_path, servers=1) as nodes:
            await nodes.stop(nodes.leader.config.id)
            logs.clear()
            nodes.start(1)
            await nodes.until(lambda: nodes.leader)
    said = [entry.get("role") or entry["event"] for entry in logs]
    assert said.index("candidate") < said.index("became leader")
