"""Brings one group's records into the log, in order, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from onyxlog.ids import Position
from onyxlog.peer.log_port import LogPort
from onyxlog.peer.turns import Append


class Outbox:
    """Has no bound of its own: the core refuses to have more than `UNSEEN_MAX` records under way."""

    def __init__(self, port: LogPort, accepted: Callable[[Append, Position, float], None]) -> None:
        """`accepted` is told the position and how long it took, in seconds."""
        self._port = port
        self._accepted = accepted
        self._waiting: asyncio.Queue[Append] = asyncio.Queue()

    def put(self, append: Append) -> None:
        self._waiting.put_nowait(append)

    def __len__(self) -> int:
        return self._waiting.qsize()

    async def drained(self) -> None:
        """Until the log has all that was put."""
        await self._waiting.join()

    async def run(self) -> None:
        """Until cancelled, or until an append fails: the client has then tried for as long as the session can live, and
        whether the record will be in the log is not known, so that only a new incarnation can go on."""
        loop = asyncio.get_running_loop()
        while True:
            append = await self._waiting.get()
            began = loop.time()
            position = await self._port.append(append.record)
            self._accepted(append, position, loop.time() - began)
            self._waiting.task_done()
