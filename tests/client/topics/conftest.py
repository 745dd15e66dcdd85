"""A cluster with topics in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.client.topics.cluster import TopicCluster

T = TypeVar("T")


class TopicThread:
    """`do` runs a function, and `run` a coroutine, where the cluster lives."""

    def __init__(self, servers: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="topic cluster")
        self._thread.start()
        self.cluster = TopicCluster()
        asyncio.run_coroutine_threadsafe(self.cluster.listen(servers), self._loop).result(10)

    @property
    def hosts(self) -> str:
        return self.cluster.hosts

    def do(self, function: Callable[[TopicCluster], T]) -> T:
        async def done() -> T:
            return function(self.cluster)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(10)

    def stop(self, server: int) -> None:
        asyncio.run_coroutine_threadsafe(self.cluster.stop(server), self._loop).result(10)

    def start(self, server: int) -> None:
        asyncio.run_coroutine_threadsafe(self.cluster.start(server), self._loop).result(10)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.cluster.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def fake_topics() -> Iterator[TopicThread]:
    """Three servers."""
    started = TopicThread(3)
    yield started
    started.close()
