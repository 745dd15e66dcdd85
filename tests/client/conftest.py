"""Fixtures of the client's tests: a fake cluster in a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.client.fake import FakeCluster

T = TypeVar("T")


class ClusterThread:
    """A fake cluster and its loop. `do` runs a function there, so that nothing is touched by two threads."""

    def __init__(self, servers: int) -> None:
        self.cluster = FakeCluster()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake cluster")
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.cluster.listen(servers), self._loop).result(10)

    @property
    def hosts(self) -> str:
        return self.cluster.hosts

    def do(self, function: Callable[[FakeCluster], T]) -> T:
        async def done() -> T:
            return function(self.cluster)

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result(10)

    def requests(self) -> list[str]:
        """Types of what was asked so far, pings left out."""
        return self.do(lambda cluster: [m["type"] for m in cluster.requests if m["type"] != "ping"])

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.cluster.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def fake() -> Iterator[ClusterThread]:
    """Two servers with one state."""
    started = ClusterThread(2)
    yield started
    started.close()
