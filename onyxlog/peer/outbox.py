"""Outbox of one group's records for the log, in order; those that wait together go together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from onyxlog.ids import Position
from onyxlog.peer.log.port import LogPort
from onyxlog.peer.turns import Append
from zraft_client.errors import FailedError

BATCH_MAX: Final = 64
RETRY_S: Final = 0.2

log = structlog.get_logger()


class Outbox:
    """An outbox without a bound of its own: the core refuses to have more than `UNSEEN_MAX` records under way."""

    def __init__(self, port: LogPort, accepted: Callable[[Append, Position, float], None]) -> None:
        """Begin empty. `accepted` is told the position and how long it took, in seconds."""
        self._port = port
        self._accepted = accepted
        self._waiting: asyncio.Queue[Append] = asyncio.Queue()

    def put(self, append: Append) -> None:
        """Add a record behind those that wait."""
        self._waiting.put_nowait(append)

    def __len__(self) -> int:
        return self._waiting.qsize()

    async def drained(self) -> None:
        """Wait until the log has all that was put."""
        await self._waiting.join()

    async def run(self) -> None:
        """Append until cancelled, or until appends fail for good.

        Then some records may be in the log and some not, so only a new incarnation can continue. What
        certainly did not happen, as no server could be asked, is tried again.
        """
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < BATCH_MAX and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            began = loop.time()
            for append, position in zip(batch, await self._bring(batch), strict=True):
                self._accepted(append, position, loop.time() - began)
                self._waiting.task_done()

    async def _bring(self, batch: Sequence[Append]) -> Sequence[Position]:
        while True:
            # Tasks begin in the order in which they are made, and the port keeps that of its appends.
            found = await asyncio.gather(
                *(self._port.append(append.record) for append in batch), return_exceptions=True
            )
            errors = [one for one in found if isinstance(one, BaseException)]
            if not errors:
                return [one for one in found if not isinstance(one, BaseException)]
            if len(errors) < len(batch) or not all(_may_be_repeated(error) for error in errors):
                raise errors[0]
            log.warning("no server takes appends", records=len(batch), error=str(errors[0]))
            await asyncio.sleep(RETRY_S)


def _may_be_repeated(error: BaseException) -> bool:
    return isinstance(error, FailedError) and error.retriable
