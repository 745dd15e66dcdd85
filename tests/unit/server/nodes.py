"""Whole servers with their threads, files and sockets in one process, and a producer and a consumer of their partitions."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.simulation.topic_clients import Remembering
from zraft.config.features import LEVEL_OF_TOPICS
from zraft.config.server import ServerConfig
from zraft.raft.role import Role
from zraft.server.clients.errands import Errand
from zraft.server.engine.driver import ERRAND_BYTES
from zraft.server.process.listening_sockets import bound
from zraft.server.process.node import Node
from zraft.server.process.service_manager import ServiceManager
from zraft.server.process.surroundings import Surroundings
from zraft_core.address import Address
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.codec import decode_message, encode_registry
from zraft_core.topics.message import Message
from zraft_core.topics.producer import Ended, ProducerCore
from zraft_core.topics.registry_commands import CreateTopic, RegisterProducer, RegistryCommand
from zraft_core.wire.client import ZkClientCodec
from zraft_core.znodes.txn import TOPICS

WITHIN_S = 40.0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Nodes:
    """A cluster of one process. `settings` are further arguments of every server's configuration."""

    def __init__(
        self, root: Path, servers: int = 3, *, hosts: Sequence[str] = (), listen: str = "", **settings: Any
    ) -> None:
        """`hosts`: where each server is, 127.0.0.1 if not given; `listen`: the host at which all listen, if another."""
        self._root = root
        self._settings = settings
        self._listen = listen
        self.addresses = {
            ServerId(number): Address(host, _free_port())
            for number, host in enumerate(hosts or ("127.0.0.1",) * servers, 1)
        }
        self.nodes: dict[ServerId, Node] = {}
        self._runs: dict[ServerId, asyncio.Task[int]] = {}

    def data(self, server: int) -> Path:
        return self._root / str(server)

    def start(self, server: int, *, manager: ServiceManager | None = None, **settings: Any) -> Node:
        number = ServerId(server)
        self.data(server).mkdir(exist_ok=True)
        config = ServerConfig(
            id=number,
            data=self.data(server),
            address=Address(self._listen or self.addresses[number].host, self.addresses[number].port),
            cluster=self.addresses,
            insecure_peers=True,
            **{**self._settings, **settings},
        )
        with ExitStack() as stack:
            node = self.nodes[number] = Node(
                config, stack.enter_context(bound(config)), Surroundings(manager=manager)
            )
            sockets = stack.pop_all()
        self._runs[number] = asyncio.get_running_loop().create_task(_run(node, sockets))
        return node

    async def stop(self, server: int) -> int:
        """At once, without handing anything over; what is on the disk stays."""
        number = ServerId(server)
        self.nodes.pop(number)._end()
        return await self._runs.pop(number)

    def wipe(self, server: int) -> None:
        shutil.rmtree(self.data(server))

    async def __aenter__(self) -> Nodes:
        for server in self.addresses:
            self.start(server)
        await self.until(lambda: self.leader.driver.machine.feature_level >= LEVEL_OF_TOPICS)
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in tuple(self.nodes):
            await self.stop(server)

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait for what must come; a lookup that fails is a no."""
        give_up_at = asyncio.get_running_loop().time() + WITHIN_S
        while True:
            for run in self._runs.values():
                if run.done():
                    raise AssertionError(f"a server ended: {run.exception() or run.result()}")
            try:
                if holds():
                    return
            except LookupError:
                pass
            assert asyncio.get_running_loop().time() < give_up_at, "it never came"
            await asyncio.sleep(0.01)

    @property
    def leader(self) -> Node:
        """Of the coordination group."""
        for node in self.nodes.values():
            if node.driver.role is Role.LEADER and node.driver.leadership is not None:
                return node
        raise LookupError

    def leader_of(self, group: GroupId) -> Node:
        for node in self.nodes.values():
            replica = host_of(node).groups.get(group)
            if replica is not None and replica.raft.role is Role.LEADER and not replica.raft.transferring:
                return node
        raise LookupError

    async def command(self, command: RegistryCommand, session: int = 0) -> Any:
        results: list[Any] = []
        node = self.leader
        node.driver.origin.add(
            Errand(results.append), session, (), [(TOPICS, encode_registry(command))], ERRAND_BYTES
        )
        node.schedule()
        await self.until(lambda: results)
        return results[0]

    async def create_topic(self, name: str, partitions: int) -> tuple[GroupId, ...]:
        """Its groups, once they are led where they should be and take messages."""
        await self.command(CreateTopic(name, partitions))

        def groups() -> tuple[GroupId, ...]:
            registry = self.leader.driver.machine.registry
            return registry.topics[registry.names[name]].partitions

        await self.until(lambda: len(groups()) == partitions)
        await self.until(lambda: all(self.leader_of(group) for group in groups()))
        return groups()

    async def fetch(self, node: Node, group: GroupId) -> list[Message]:
        """All that is delivered there, from the beginning of its log."""
        found: list[Message] = []
        offset = 0
        while True:
            client = Remembering()
            assert node.driver.topics is not None
            node.driver.topics.fetch(client, 1, group, offset, 1 << 20, 0)
            node.schedule()
            await self._answered(client)
            if client.refused:
                # Its files are being opened.
                assert client.refused[0].kind == "busy", client.refused
                await asyncio.sleep(0.05)
            elif not client.fetched[0].deliveries:
                return found
            else:
                found += [decode_message(message) for _, _, message in client.fetched[0].deliveries]
                offset = client.fetched[0].next

    async def same(self, node: Node, group: GroupId, payloads: list[bytes]) -> None:
        """Wait until exactly these are delivered there."""
        await self.until(lambda: group in host_of(node).groups and node.driver.topics is not None)
        give_up_at = asyncio.get_running_loop().time() + WITHIN_S
        while [one.payload for one in await self.fetch(node, group)] != payloads:
            assert asyncio.get_running_loop().time() < give_up_at, "it never came"
            await asyncio.sleep(0.05)

    async def _answered(self, client: Remembering) -> None:
        await self.until(lambda: client.fetched or client.refused)


async def _run(node: Node, sockets: ExitStack) -> int:
    with sockets:
        return await node.run()


def host_of(node: Node) -> Any:
    assert node.driver.groups is not None
    return node.driver.groups.host


class _Handle:
    """Where a server writes to a client of itself."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take

    def write(self, data: bytes, *, close: bool) -> None:
        self._take(data)


class Sending:
    """A producer that sends everything again every now and then, to whoever leads, until it is decided."""

    def __init__(self, nodes: Nodes, producer: ProducerCore) -> None:
        self._nodes = nodes
        self._producer = producer
        self._clients: dict[int, Remembering] = {}
        self.ended: list[Ended] = []

    @classmethod
    async def open(cls, nodes: Nodes) -> Sending:
        node = nodes.leader
        codec = ZkClientCodec()
        opened: list[object] = []
        connection = node.driver.connect("127.0.0.1:1", ())
        assert connection is not None
        connection.handle = _Handle(lambda data: opened.extend(codec.receive(data)))
        connection.data_received(codec.connect(timeout_ms=40_000))
        node.schedule()
        await nodes.until(lambda: opened)
        (session,) = node.driver.machine.sessions
        result = await nodes.command(RegisterProducer(session), session)
        registry = nodes.leader.driver.machine.registry
        assert result.created is not None, result
        return cls(nodes, ProducerCore(ProducerId(result.created), registry.table()))

    async def send(self, messages: Iterable[tuple[Iterable[GroupId], bytes]]) -> None:
        """All of these, until they are decided everywhere."""
        loop = asyncio.get_running_loop()
        waiting = list(messages)[::-1]
        self.ended.clear()
        count = len(waiting)
        give_up_at = loop.time() + WITHIN_S
        again_at = 0.0
        while len(self.ended) < count:
            assert loop.time() < give_up_at, f"{len(self.ended)} of {count} are decided"
            fresh = []
            while waiting and self._producer.has_room:
                groups, payload = waiting.pop()
                fresh.append(self._producer.multicast(groups, payload).mid.seq)
            if loop.time() >= again_at:
                again_at = loop.time() + 0.3
                fresh = self._producer.undecided()
            for seq in fresh:
                for group, request in self._producer.requests(seq):
                    try:
                        node = self._nodes.leader_of(group)
                    except LookupError:
                        continue
                    client = self._clients.setdefault(id(node), Remembering())
                    assert node.driver.topics is not None
                    node.driver.topics.produce(client, 1, group, (request,))
                    node.schedule()
            await asyncio.sleep(0.005)
            for client in self._clients.values():
                replies, client.replies = client.replies, []
                for reply in replies:
                    self.ended += self._producer.on_reply(reply)
