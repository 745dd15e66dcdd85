"""Programs whose rights are taken away while they run, on whole servers: they end at once and say which right is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.client.topics.test_claims_port import FAST
from tests.unit.server.nodes import Nodes
from zraft.config.features import LEVEL_OF_ACCESS
from zraft.config.sections import AuditConfig
from zraft.operator.requests import AclDefaults, AclSet, Done, OperatorReply
from zraft.server.operators import access
from zraft_client import Client, ClientError, NoAuthError, UnknownOutcomeError
from zraft_client.claims import ConsumerOptions, Marshaler
from zraft_client.topics import Consumer, NoTopicError, Topics
from zraft_core.topics.access import Guarded
from zraft_core.znodes.acl import READ, WRITE, Acl

WITHIN_S = 20.0
"""Far above what it takes, and far below what a program would wait that tries again for ever."""
NOBODY: Acl = ((0, "world", "anyone"),)
READERS: Acl = ((READ, "world", "anyone"),)
WRITERS: Acl = ((WRITE, "world", "anyone"),)


@asynccontextmanager
async def _topics(nodes: Nodes, on: int | None = None) -> AsyncIterator[Topics]:
    """A client of all servers, or of one."""
    addresses = [address for server, address in nodes.addresses.items() if on in (None, server)]
    async with Client(",".join(map(str, addresses))) as client, Topics(client) as topics:
        yield topics


async def _change(nodes: Nodes, request: AclSet | AclDefaults) -> None:
    """Do what an operator asks for, and wait until all servers have applied it."""
    replies: list[OperatorReply] = []
    leader = nodes.leader
    access.change(leader.driver.machine, request, leader.driver.submit_as_super, replies.append)
    leader.schedule()
    await nodes.until(lambda: replies)
    assert isinstance(replies[0], Done), replies
    position = leader.driver.machine.position
    await nodes.until(lambda: all(one.driver.machine.position >= position for one in nodes.nodes.values()))


async def _take_away(nodes: Nodes, left: Acl | None) -> None:
    """Leave these rights on the topic, or close everything."""
    change = AclDefaults(NOBODY) if left is None else AclSet(Guarded.TOPICS, b"orders", left)
    await _change(nodes, change)


async def _ending(running: Awaitable[object]) -> ClientError:
    """The error with which something ends."""
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(ClientError) as caught:
            await running
    return caught.value


async def _consume(consumer: Consumer) -> None:
    while True:
        await consumer.poll(5.0)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Nodes]:
    async with Nodes(tmp_path, audit=AuditConfig(file=tmp_path / "audit")) as nodes:
        await nodes.until(lambda: nodes.leader.driver.machine.feature_level >= LEVEL_OF_ACCESS)
        async with _topics(nodes) as topics:
            await topics.create("orders", 2)
        yield nodes


@pytest.mark.parametrize("left", [READERS, None])
async def test_a_producer_whose_right_is_taken_away_ends_and_says_so(nodes: Nodes, left: Acl | None) -> None:
    """It may still see the topic, or, where everything is closed, not even that."""
    async with _topics(nodes) as topics, topics.producer() as producer:
        await producer.send("orders", b"before")

        async def produce() -> None:
            while True:
                await asyncio.gather(*[producer.send("orders", b"record") for _ in range(8)])

        running = asyncio.ensure_future(produce())
        await asyncio.sleep(0.05)
        await _take_away(nodes, left)
        first = await _ending(running)
        assert isinstance(first, NoAuthError | UnknownOutcomeError | NoTopicError), first
        assert isinstance(await _ending(producer.send("orders", b"later")), NoAuthError | NoTopicError)


@pytest.mark.parametrize("left", [WRITERS, None])
async def test_a_consumer_whose_right_is_taken_away_while_it_waits_ends_and_says_so(
    nodes: Nodes, left: Acl | None
) -> None:
    async with AsyncExitStack() as stack:
        consumers = []
        for server in nodes.addresses:
            topics = await stack.enter_async_context(_topics(nodes, server))
            consumers.append(await stack.enter_async_context(topics.consumer("orders")))

        running = [asyncio.ensure_future(_consume(consumer)) for consumer in consumers]
        await asyncio.sleep(0.2)
        await _take_away(nodes, left)
        for one in running:
            assert isinstance(await _ending(one), NoAuthError | NoTopicError)


@pytest.mark.parametrize("left", [Guarded.TOPICS, Guarded.CONSUMERS, None])
async def test_consumers_that_share_partitions_end_when_a_right_of_theirs_is_taken_away(
    nodes: Nodes, left: Guarded | None
) -> None:
    """That of the topic, that of their name, or all."""
    async with _topics(nodes) as topics, topics.producer() as producer:
        marshaler = Marshaler(topics.claims_port(), "a", "billing")
        await producer.send("orders", b"before")
        consumed = asyncio.Event()

        async def consume() -> None:
            async with marshaler.consumer(["orders"], ConsumerOptions(**FAST)) as consumer:
                async for _ in consumer.consume():
                    consumed.set()

        running = asyncio.ensure_future(consume())
        async with asyncio.timeout(WITHIN_S):
            await consumed.wait()
        names = {Guarded.TOPICS: b"orders", Guarded.CONSUMERS: b"billing"}
        await _change(nodes, AclDefaults(NOBODY) if left is None else AclSet(left, names[left], NOBODY))
        assert isinstance(await _ending(running), NoAuthError | NoTopicError)


async def test_what_was_denied_is_in_the_audit_log_of_the_server_that_was_asked(
    nodes: Nodes, tmp_path: Path
) -> None:
    async with _topics(nodes) as topics, topics.consumer("orders") as consumer:
        await _take_away(nodes, WRITERS)
        assert isinstance(await _ending(_consume(consumer)), NoAuthError)
    line = b"user=127.0.0.1\tip=127.0.0.1\toperation=fetch\ttopic=orders\tresult=failure\n"
    await nodes.until(lambda: line in (tmp_path / "audit").read_bytes())
    assert sum(node.driver.clients.denied_total for node in nodes.nodes.values()) >= 1
