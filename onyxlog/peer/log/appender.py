"""Appends of one port, in order: while some are under way others wait, and then go together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from onyxlog.ids import Position
from zraft_client.errors import ClosedError, NotSentError

BATCH_BYTES_MAX: Final = 512 * 1024
"""The most bytes of records that go together. A larger record goes alone; the servers have their own limit."""
BATCH_ENTRIES_MAX: Final = 256
WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024

Send = Callable[[Sequence[bytes]], Awaitable[Sequence[Position]]]


class Appender:
    """Appender of batches, one at a time: the next must not overtake a refused one that is sent again."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[tuple[bytes, asyncio.Future[Position]]] = deque()
        self._waiting_bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def append(self, data: bytes) -> Position:
        """Append a record; return its position. What `send` raises is raised.

        Raises:
            NotSentError: too many records wait already.
        """
        if len(self._waiting) >= WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX:
            raise NotSentError(
                f"{len(self._waiting)} appends of {self._waiting_bytes} bytes wait already; try again later"
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Position] = loop.create_future()
        self._waiting.append((data, future))
        self._waiting_bytes += len(data)
        if self._task is None:
            self._task = loop.create_task(self._run(), name="appends")
        return await future

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._next_batch()
                try:
                    positions = await self._send([data for data, _ in batch])
                except asyncio.CancelledError:
                    _fail(batch, ClosedError("the port was closed while the record was under way"))
                    raise
                except Exception as error:
                    # an error of ours as well: the waiting caller has to hear of it
                    _fail(batch, error)
                    continue
                for (_, future), position in zip(batch, positions, strict=True):
                    if not future.done():
                        future.set_result(position)
        finally:
            self._task = None

    def _next_batch(self) -> list[tuple[bytes, asyncio.Future[Position]]]:
        batch = [self._waiting.popleft()]
        size = len(batch[0][0])
        while self._waiting and len(batch) < BATCH_ENTRIES_MAX:
            size += len(self._waiting[0][0])
            if size > BATCH_BYTES_MAX:
                break
            batch.append(self._waiting.popleft())
        self._waiting_bytes -= sum(len(data) for data, _ in batch)
        return batch

    async def close(self) -> None:
        """Refuse the records that were not sent. A batch under way ends as its connection does."""
        batch = list(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0
        _fail(batch, ClosedError("the port was closed"))
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _fail(batch: Sequence[tuple[bytes, asyncio.Future[Position]]], error: Exception) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
            future.exception()  # the caller may be gone
