"""A log of znodes in the place of a topic: appended to as sequential znodes, followed by a subscription.

For comparison.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Generator
from types import TracebackType
from typing import Any, Final, Self

from attrs import frozen

from zraft_bench.multicast.checks import Read
from zraft_bench.multicast.client import Outcome
from zraft_bench.multicast.load import TopicError
from zraft_bench.multicast.plan import Cell, Destinations, Payloads
from zraft_client.client import Client
from zraft_client.errors import ClientError, NodeExistsError
from zraft_client.subscriptions import Entries, LogSubscription

TIMEOUT_S: Final = 60.0
READ_WAIT_S: Final = 0.5
PREFIX: Final = "e-"


class LogClient:
    """A client of its own, with one log. Use it in an `async with` statement."""

    def __init__(self, hosts: str, directory: str, cell: Cell, nonce: int) -> None:
        self._client = Client(hosts, timeout_s=TIMEOUT_S)
        self._directory = f"/{directory}log"
        self._payloads = Payloads(cell, nonce)

    async def __aenter__(self) -> Self:
        try:
            await self._client.connect()
            with contextlib.suppress(NodeExistsError):
                await self._client.create(self._directory)
        except ClientError as error:
            await self._client.close()
            raise TopicError(f"cannot make {self._directory}: {error}") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    @contextlib.asynccontextmanager
    async def sender(self) -> AsyncIterator[LogSender]:
        """Yield a sender of the log's messages."""
        yield LogSender(self._client, f"{self._directory}/{PREFIX}")

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator[LogReader]:
        """Yield a reader of the log, which is closed at the end."""
        entries = self._client.subscribe_log(self._directory, PREFIX)
        async with entries:
            reader = LogReader(entries, self._payloads)
            try:
                yield reader
            finally:
                await reader.close()


class LogSender:
    """Sender that appends messages to the log."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._path = path

    async def send(self, places: Destinations, payload: bytes) -> Outcome:
        """Return what appends a message when it is awaited, until it is committed."""
        assert places == (0,), "there is one log"
        return Outcome(_Appending(self._client, self._path, payload))


@frozen
class _Appending:
    client: Client
    path: str
    payload: bytes

    def __await__(self) -> Generator[Any, None, object]:
        return self.client.create(self.path, self.payload, sequential=True).__await__()


class LogReader:
    """Reader of the log.

    A log has neither stamps nor ids: they are made of an entry's number and its writer's data.
    """

    def __init__(self, entries: LogSubscription, payloads: Payloads) -> None:
        self._entries = entries
        self._payloads = payloads
        self._next: asyncio.Task[Entries] | None = None

    async def read(self) -> dict[int, list[Read]]:
        """Return the next message, after a short wait if there is none.

        Raises:
            TopicError: the subscription ended.
        """
        # This is not a timeout around it: what was taken and then cancelled would be lost.
        if self._next is None:
            self._next = asyncio.ensure_future(anext(self._entries))
        done, _ = await asyncio.wait((self._next,), timeout=READ_WAIT_S)
        if not done:
            return {}
        task, self._next = self._next, None
        try:
            found = task.result()
        except ClientError as error:
            raise TopicError(f"{type(error).__name__}: {error}") from error
        reads = []
        for entry in found.entries:
            header = self._payloads.read(entry.data)
            number = entry.position
            reads.append(
                Read(number, (number + 1, 0, 0, 0), (1 + header.producer, header.number), entry.data)
            )
        return {0: reads}

    async def close(self) -> None:
        """Stop reading."""
        if self._next is not None:
            self._next.cancel()
            await asyncio.gather(self._next, return_exceptions=True)
