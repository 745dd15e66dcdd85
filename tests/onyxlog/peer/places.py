"""Where ports can be opened in tests, and how their sessions are ended and their connections cut there."""

from __future__ import annotations

import asyncio
import itertools
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Self

from kazoo.client import KazooClient

from onyxlog.peer.log.kazoo_session import KazooSession
from onyxlog.peer.log.native import NativeLog
from onyxlog.peer.log.port import LogPort
from onyxlog.peer.log.zookeeper import ZookeeperLog
from onyxlog.replica.codec import decode_record, encode_record
from tests.client.fake import FakeCluster
from tests.onyxlog.simulation.memory_log import MemoryLog, MemoryPort
from tests.processes.cluster import Cluster
from tests.processes.native import ConnectionEndedError, RawClient
from zraft_client import Client

PART_BYTES = 2_000
"""Small, so that a test's origin is in parts."""
TENANCIES = itertools.count(1)


class Place(ABC):
    """An async context manager. Its ports are of one tenancy, in which nothing is yet."""

    has_wills = True

    def __init__(self) -> None:
        self.opened: list[LogPort] = []
        self.tenancy = f"tenancy-{next(TENANCIES)}"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for port in self.opened:
            await port.close()

    async def open(self) -> Any:
        port = await self.make()
        self.opened.append(port)
        return port

    @abstractmethod
    async def make(self) -> LogPort: ...

    @abstractmethod
    async def expire(self, port: Any) -> None:
        """End its session, as a service does; the port may hear of it later."""

    @abstractmethod
    async def cut(self, port: Any) -> None:
        """Break its connection; its session lives."""

    @abstractmethod
    async def spoil(self, port: Any, data: bytes) -> None:
        """Put something into the log that no peer wrote."""

    @abstractmethod
    async def remove_entry(self, port: Any, position: int) -> None:
        """As nobody should."""


class Memory(Place):
    def __init__(self) -> None:
        super().__init__()
        self.log = MemoryLog(copy=lambda record: decode_record(encode_record(record), "copy"), batch=3)

    async def make(self) -> MemoryPort:
        return await self.log.opened()

    async def expire(self, port: MemoryPort) -> None:
        self.log.expire(port)

    async def cut(self, port: MemoryPort) -> None:
        self.log.hold(port)
        asyncio.get_running_loop().call_later(0.01, self.log.release, port)

    async def spoil(self, port: MemoryPort, data: bytes) -> None:
        raise NotImplementedError

    async def remove_entry(self, port: MemoryPort, position: int) -> None:
        raise NotImplementedError


class _Native(Place):
    hosts: str

    async def make(self) -> NativeLog:
        client = Client(self.hosts, renew_session=False, timeout_s=20)
        await client.connect()
        return NativeLog(client, self.tenancy, part_bytes=PART_BYTES)

    async def cut(self, port: NativeLog) -> None:
        if port._client._connection is not None:
            port._client._connection.abort()

    async def spoil(self, port: NativeLog, data: bytes) -> None:
        await port._client.create(port.layout.entry_stem, data, sequential=True)

    async def remove_entry(self, port: NativeLog, position: int) -> None:
        await port._client.remove(port.layout.entry(position))


class Fake(_Native):
    """Native, over the fake cluster in this loop."""

    async def __aenter__(self) -> Self:
        self.cluster = FakeCluster()
        await self.cluster.listen(2)
        self.hosts = self.cluster.hosts
        return self

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        await self.cluster.close()

    async def expire(self, port: NativeLog) -> None:
        assert port._client.session is not None
        self.cluster.expire(port._client.session.id)


class Native(_Native):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.cluster = cluster
        self.hosts = cluster.hosts()

    async def expire(self, port: NativeLog) -> None:
        """Somebody who knows the password takes the session over and ends it: to the port it has expired."""
        session = port._client.session
        assert session is not None
        hello = {"type": "hello", "timeout_ms": 10_000, "session": session.id, "password": session.password}

        def end() -> bool:
            """False if the port has taken its session back before the close was done."""
            try:
                with RawClient(self.cluster, 1) as other:
                    other.send({"id": 1, **hello}, {"id": 2, "type": "close"})
                    # After this refusal there is no other answer: an earlier close was done, and its answer got lost.
                    greeted = other.receive()
                    return greeted.get("code") == "SESSION_EXPIRED" or bool(other.receive()["success"])
            except ConnectionEndedError:
                return False

        while not await asyncio.to_thread(end):
            pass


class Zookeeper(Place):
    has_wills = False

    def __init__(self, hosts: str) -> None:
        super().__init__()
        self.hosts = hosts

    def client(self, **options: Any) -> KazooClient:
        retry = {"max_tries": -1, "delay": 0.05, "max_delay": 0.5}
        return KazooClient(hosts=self.hosts, timeout=10, connection_retry=retry, **options)

    async def make(self) -> ZookeeperLog:
        session = KazooSession(self.client(), 20)
        await session.connect()
        return ZookeeperLog(session, self.tenancy, poll_s=0.2, part_bytes=PART_BYTES)

    async def expire(self, port: ZookeeperLog) -> None:
        def end() -> None:
            other = self.client(client_id=port._session.client.client_id)
            other.start(20)
            other.stop()
            other.close()

        await asyncio.to_thread(end)

    async def cut(self, port: ZookeeperLog) -> None:
        with suppress(OSError):  # it is not connected just now
            port._session.client._connection._socket.shutdown(2)

    async def spoil(self, port: ZookeeperLog, data: bytes) -> None:
        client = port._session.client
        await port._session.write(lambda: client.create_async(port.layout.entry_stem, data, sequence=True))

    async def remove_entry(self, port: ZookeeperLog, position: int) -> None:
        await port._znodes.remove(port.layout.entry(position))
