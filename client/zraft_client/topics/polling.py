"""Base of consumers: how programs wait for records, whatever order they are returned in."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Final

from zraft_client.errors import ClosedError
from zraft_client.topics.values import Record

RECORDS_MAX: Final = 500
"""The most records of one poll, unless it asks for another number."""


class Polling(ABC):
    """The part of a consumer that waits."""

    def __init__(self) -> None:
        self._arrival = asyncio.Event()
        self._closed = False

    @abstractmethod
    def _taken(self, limit: int) -> list[Record]:
        """Return at most `limit` records that are here."""

    @abstractmethod
    def _raise_failure(self) -> None:
        """Raise what keeps it from continuing, if anything does."""

    def on_arrival(self) -> None:
        """Note that there is something to look at; cursors call this."""
        self._arrival.set()

    async def _polled(self, timeout_s: float, limit: int) -> list[Record]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            self._arrival.clear()
            found = self._taken(limit)
            if found:
                return found
            self._raise_failure()
            left = deadline - loop.time()
            if left <= 0:
                return []
            try:
                async with asyncio.timeout(left):
                    await self._arrival.wait()
            except TimeoutError:
                return self._taken(limit)

    def __aiter__(self) -> AsyncIterator[Record]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Record]:
        """Yield records for ever, until it is closed."""
        while not self._closed:
            try:
                found = await self._polled(60.0, 1)
            except ClosedError:
                return
            for record in found:
                yield record
