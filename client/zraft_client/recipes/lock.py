"""A lock: at most one holder at a time, in the order in which they came.

A lock cannot stop a holder that was paused until its session expired: it continues, unaware, while the next
one holds. So whatever the lock protects must get the token with each write and refuse lower ones than it has
seen. While the client is SUSPENDED the lock may be lost at any moment: `lost` tells when it is certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from zraft_client.client import Client
from zraft_client.recipes.contenders import Contender
from zraft_client.values import ConnectionState


class Lock:
    """`async with Lock(client, "/locks/report") as lock: … lock.token`. Not reentrant; one task at a time."""

    def __init__(self, client: Client, path: str, data: bytes = b"") -> None:
        """Use the directory `path` for the contenders, made if missing. `data` says who this is, for people who look."""
        self._client = client
        self._contender = Contender(client, path, data)
        self._lost: asyncio.Event = asyncio.Event()
        self._forget: Callable[[], None] = _nothing

    async def acquire(self) -> int:
        """Wait in line; return the fencing token.

        Cancel it (`asyncio.timeout`) to stop waiting: the place in the line is given up.

        Raises:
            LockLostError: the session expired while waiting; ask again.
        """
        self._lost.clear()
        await self._contender.enter()
        try:
            await self._contender.wait_turn()
        except BaseException:
            self._contender.give_up()
            raise
        self._forget = self._client.add_listener(self._heard)
        return self._contender.token

    async def release(self) -> None:
        """Let the next one hold it.

        Raises:
            LockLostError: it was lost before.
        """
        self._forget()
        await self._contender.leave()

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every holder before.

        Raises:
            LockLostError: the lock is not held.
        """
        return self._contender.token

    @property
    def lost(self) -> asyncio.Event:
        """An event that is set when the session expired: another one may hold the lock now."""
        return self._lost

    def _heard(self, state: ConnectionState) -> None:
        if state in (ConnectionState.EXPIRED, ConnectionState.CLOSED):
            self._contender.forget()
            self._lost.set()

    async def __aenter__(self) -> Lock:
        await self.acquire()
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._lost.is_set():
            await self.release()
        else:
            self._forget()


def _nothing() -> None:
    """Do nothing: before anything is held there is nothing to forget."""
