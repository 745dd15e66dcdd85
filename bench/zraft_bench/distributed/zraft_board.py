"""The board in a zraft cluster: a dictionary whose changes the connected server pushes to this process."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any, Final, Self

from zraft_bench.distributed.board import Board, BoardError
from zraft_bench.distributed.messages import DICTIONARY
from zraft_bench.records import to_plain
from zraft_client.client import Client
from zraft_client.errors import ClientError, NodeExistsError, NoNodeError
from zraft_client.values import ConnectionState

CONNECT_TIMEOUT_S: Final = 60.0
LOST_AFTER_S: Final = 60.0
"""The time without a server after which the benchmark is over for this process."""


class ZraftBoard(Board):
    """A board in a cluster. Use it in an `async with` statement."""

    def __init__(self, hosts: str) -> None:
        super().__init__()
        self.hosts = hosts
        self._client = Client(hosts, timeout_s=CONNECT_TIMEOUT_S)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        try:
            await self._client.connect(CONNECT_TIMEOUT_S)
        except ClientError as error:
            await self._client.close()
            raise BoardError(f"{self.hosts}: {error}") from error
        loop = asyncio.get_running_loop()
        whole: asyncio.Future[None] = loop.create_future()
        self._tasks = [loop.create_task(self._follow(whole)), loop.create_task(self._watch_connection())]
        await whole
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._client.close()

    async def put(self, key: str, value: Any, *, fresh: bool = False) -> bool:
        """Set a key and return True; with `fresh`, return False if it exists already.

        Raises:
            BoardError: no server answered in time.
        """
        try:
            await self._client.put(key, to_plain(value), dictionary=DICTIONARY, version=-1 if fresh else None)
        except NodeExistsError:
            return False
        except ClientError as error:
            raise BoardError(f"{key}: {error}") from error
        return True

    async def remove(self, key: str) -> None:
        """Remove a key, if it exists.

        Raises:
            BoardError: no server answered in time.
        """
        try:
            await self._client.delete(key, dictionary=DICTIONARY)
        except NoNodeError:
            return
        except ClientError as error:
            raise BoardError(f"{key}: {error}") from error

    async def _follow(self, whole: asyncio.Future[None]) -> None:
        """Keep the copy. After a reconnection the whole state comes again, and what is not in it is gone."""
        collected: dict[str, Any] = {}
        try:
            async for push in self._client.subscribe_dictionary(DICTIONARY):
                if push.restarted:
                    collected = dict.fromkeys(self.view)
                for change in push.changes:
                    collected[change.key] = None if change.entry is None else change.entry.value
                if push.complete:
                    self.apply(collected)
                    collected = {}
                    if not whole.done():
                        whole.set_result(None)
        except ClientError as error:
            failure = BoardError(f"{self.hosts}: {error}")
            self.fail(failure)
            if not whole.done():
                whole.set_exception(failure)

    async def _watch_connection(self) -> None:
        while True:
            await self._client.wait_state(ConnectionState.SUSPENDED, ConnectionState.EXPIRED)
            try:
                async with asyncio.timeout(LOST_AFTER_S):
                    await self._client.wait_state(ConnectionState.CONNECTED)
            except TimeoutError:
                self.fail(BoardError(f"{self.hosts}: no server has answered for {LOST_AFTER_S:g} s"))
                return
