"""Bounds what a write of one client, and of many, costs three servers: by counts, not by time.

docs/explanation/architecture.md tells the path; here is how often it wakes somebody. Each server syncs its log itself, as
on a fast disk, so that what a thread does is counted, too, and no disk is waited for. The servers' clock stands still
meanwhile, so that heartbeats, and what else comes with time, are not counted: on a slow machine there are more of them per
write.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import pytest
from attrs import fields, frozen

from tests.unit.server.asker import Asker, NativeAsker
from tests.unit.server.node_counts import NodeCounts, datagrams_sent
from tests.unit.server.nodes import Nodes
from zraft.raft.leading import Leading
from zraft.server.process import node
from zraft.server.process.node import now_ms_exactly
from zraft.server.process.sync_pace import SyncPace
from zraft_client import Client
from zraft_client.topics import Topics
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CREATE, SET_DATA

C = TypeVar("C")

WRITES: Final = 50
WRITE_MS: Final = 1
"""About what a write takes with fast disks."""

LOOKS_MAX: Final = 10
"""The one that found least counts: in the others a busy machine may have delayed a datagram."""


class Clock:
    """The clock of all servers, which can be held."""

    def __init__(self) -> None:
        self._held: float | None = None

    def exactly(self) -> float:
        return now_ms_exactly() if self._held is None else self._held

    def __call__(self) -> int:
        return int(self.exactly())

    def hold(self) -> None:
        self._held = self.exactly()

    def let_pass(self, ms: int) -> None:
        """Set a clock that is held forward."""
        assert self._held is not None
        self._held += ms

    def go_on(self) -> None:
        self._held = None


@frozen
class Round:
    """What a write costs all servers together at most, or did."""

    wakes: float
    turns: float
    datagrams: float
    calls: float


MOST: Final = Round(wakes=3.5, turns=1.1, datagrams=2.7, calls=635)
"""An append and an acknowledgement, and both with the other follower for every fourth write. Only the leader takes a turn,
when its client asks: the rest is settled without."""


CLIENTS: Final = 64
UNDER_WAY: Final = 16

CALLS_PER_SET: Final = 24
"""The leader makes 16 of them: it takes the request, executes it and answers. Each follower executes it with 3 or 4."""
CALLS_PER_CREATE: Final = 37
CALLS_PER_READ: Final = 12
SESSIONS: Final = 4
CALLS_PER_SESSION: Final = 245
"""A session of one client among many, which is opened and closed: of the connection, too."""
CALLS_PER_SESSION_ON_UVLOOP: Final = 425
"""Connections come there in groups of six, which share a round; the loop's own functions are none of the interpreter's."""
CALLS_PER_PUT: Final = 39
"""A put of the native protocol, of which the leader makes nearly all."""
RECORDS: Final = 1024
CALLS_PER_RECORD: Final = 180
"""A message of one record to one partition: 88 of its leader, 39 of each follower; and more where turns are small."""


@asynccontextmanager
async def _nodes_and_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Nodes, Clock]]:
    monkeypatch.setattr(SyncPace, "is_fast", True)
    monkeypatch.setattr(os, "fdatasync", lambda file: None)  # a loop that comes late looks into its sockets
    # A follower would wait for ever while the clock is held.
    monkeypatch.setattr(Leading, "_dispensable", lambda raft: ())
    clock = Clock()
    monkeypatch.setattr(node, "now_ms", clock)
    monkeypatch.setattr(node, "now_ms_exactly", clock.exactly)
    async with Nodes(tmp_path) as nodes:
        yield nodes, clock


@asynccontextmanager
async def _servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients: int
) -> AsyncIterator[tuple[Nodes, list[Asker], Clock]]:
    """Three servers whose clock is held when their clients have a session and a znode each."""
    async with _nodes_and_clock(tmp_path, monkeypatch) as (nodes, clock), AsyncExitStack() as stack:
        address = nodes.addresses[nodes.leader.config.id]
        askers = [await stack.enter_async_context(Asker(address)) for _ in range(clients)]
        for number, asker in enumerate(askers):
            await asker.write((CREATE, f"/{number}", b"", None, 0, -1))
        clock.hold()
        yield nodes, askers, clock
        clock.go_on()


async def test_a_write_wakes_servers_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dispensable = Leading._dispensable
    async with _servers(tmp_path, monkeypatch, 1) as (nodes, (client,), clock):
        monkeypatch.setattr(Leading, "_dispensable", dispensable)

        async def write() -> None:
            await client.write((SET_DATA, "/0", bytes(100), -1))
            clock.let_pass(WRITE_MS)

        looks: list[Round] = []
        while len(looks) < LOOKS_MAX and not (looks and _is_within(_least(looks), MOST)):
            looks.append(await _look(nodes, write))
    assert _is_within(_least(looks), MOST), looks


def _least(looks: list[Round]) -> Round:
    return Round(**{one.name: min(getattr(look, one.name) for look in looks) for one in fields(Round)})


def _is_within(found: Round, most: Round) -> bool:
    return all(getattr(found, one.name) <= getattr(most, one.name) for one in fields(Round))


async def test_a_write_of_many_costs_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _servers(tmp_path, monkeypatch, CLIENTS) as (nodes, clients, _):
        found = await _calls_of_many(
            nodes, clients, lambda client, own: client.write(*[(SET_DATA, own, bytes(100), -1)] * UNDER_WAY)
        )
    assert found <= CALLS_PER_SET, found


async def test_a_create_of_many_costs_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sequential znodes, each client's below its own."""
    async with _servers(tmp_path, monkeypatch, CLIENTS) as (nodes, clients, _):
        found = await _calls_of_many(
            nodes,
            clients,
            lambda client, own: client.write(*[(CREATE, f"{own}/q-", bytes(100), None, 2, 0)] * UNDER_WAY),
        )
    assert found <= CALLS_PER_CREATE, found


async def test_a_read_of_many_costs_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _servers(tmp_path, monkeypatch, CLIENTS) as (nodes, clients, _):
        found = await _calls_of_many(
            nodes, clients, lambda client, own: client.read(Opcode.GET_DATA, *[own] * UNDER_WAY)
        )
    assert found <= CALLS_PER_READ, found


async def test_a_session_of_many_costs_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client connects, opens a session, closes it, and does that again."""
    async with _servers(tmp_path, monkeypatch, 1) as (nodes, _, _):
        address = nodes.addresses[nodes.leader.config.id]
        on_asyncio = isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop)
        most = CALLS_PER_SESSION if on_asyncio else CALLS_PER_SESSION_ON_UVLOOP

        async def visit() -> None:
            for _ in range(SESSIONS):
                async with Asker(address) as client:
                    await client.close_session()

        found: list[float] = []
        while len(found) < LOOKS_MAX and not (found and min(found) <= most):
            counts = NodeCounts(nodes)
            with counts.counted():
                await asyncio.gather(*(visit() for _ in range(CLIENTS)))
            found.append(counts.calls.total() / (CLIENTS * SESSIONS))
    assert min(found) <= most, found


async def test_a_native_write_of_many_costs_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _servers(tmp_path, monkeypatch, 1) as (nodes, _, _), AsyncExitStack() as stack:
        address = nodes.addresses[nodes.leader.config.id]
        clients = [await stack.enter_async_context(NativeAsker(address)) for _ in range(CLIENTS)]
        found = await _calls_of_many(
            nodes,
            clients,
            lambda client, own: client.ask(
                *[{"type": "put", "key": own[1:], "value": bytes(100)}] * UNDER_WAY
            ),
        )
    assert found <= CALLS_PER_PUT, found


async def test_a_record_of_a_topic_alone_costs_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many messages of one record under way as a producer may have."""
    found: list[float] = []
    async with _nodes_and_clock(tmp_path, monkeypatch) as (nodes, clock):
        hosts = ",".join(map(str, nodes.addresses.values()))
        async with Client(hosts) as client, Topics(client) as topics:
            await topics.create("orders", 1)
            async with topics.producer(batch_bytes_max=0) as producer:
                await producer.send("orders", bytes(100))
                clock.hold()
                while len(found) < LOOKS_MAX and not (found and min(found) <= CALLS_PER_RECORD):
                    counts = NodeCounts(nodes)
                    with counts.counted():
                        await producer.send_many("orders", [bytes(100)] * RECORDS)
                        await producer.flush()
                    found.append(counts.calls.total() / RECORDS)
                clock.go_on()
    assert min(found) <= CALLS_PER_RECORD, found


async def _calls_of_many(nodes: Nodes, clients: list[C], ask: Callable[[C, str], Awaitable[None]]) -> float:
    """How many calls a request costs all servers, when each client asks for as many at once as it may have under way."""

    async def ask_all() -> None:
        await asyncio.gather(*(ask(client, f"/{number}") for number, client in enumerate(clients)))

    for _ in range(3):
        await ask_all()
    counts = NodeCounts(nodes)
    with counts.counted():
        await ask_all()
    return counts.calls.total() / (CLIENTS * UNDER_WAY)


async def _look(nodes: Nodes, write: Callable[[], Awaitable[None]]) -> Round:
    counts, before = NodeCounts(nodes), _sent(nodes)
    with counts.counted():
        for _ in range(WRITES):
            await write()
    # Alarms still come by the loop's own clock, and find nothing due.
    woken = counts.wakes.total() - counts.alarms
    totals = woken, counts.turns.total(), _sent(nodes) - before, counts.calls.total()
    return Round(*(total / WRITES for total in totals))


def _sent(nodes: Nodes) -> int:
    return sum(map(datagrams_sent, nodes.nodes.values()))
