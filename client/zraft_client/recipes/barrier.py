"""A double barrier: a number of parties begin together, and end together."""

from __future__ import annotations

import contextlib
import uuid

from zraft_client.client import Client
from zraft_client.errors import LockLostError, NodeExistsError, NoNodeError
from zraft_client.recipes.contenders import make_directory


class Barrier:
    """`async with Barrier(client, "/barriers/load", parties=8) as generation:` runs in all parties at once.

    A party that dies inside counts as one that left; one that dies before the barrier opens is waited for
    anew.
    """

    def __init__(self, client: Client, path: str, parties: int) -> None:
        self._client = client
        self._path = path.rstrip("/")
        self._members = f"{self._path}/members"
        self._ready = f"{self._path}/ready"
        self._parties = parties
        self._own = f"{self._members}/{uuid.uuid4().hex}"

    async def enter(self) -> int:
        """Wait until all parties are here; return the generation.

        That is the czxid of the moment in which the barrier opened: the same for all parties, and growing.

        Raises:
            LockLostError: the session expired while waiting; enter again.
        """
        await make_directory(self._client, self._members)
        if not (await self._client.children(self._members)).names:
            with contextlib.suppress(NoNodeError):
                await self._client.remove(self._ready)  # all who were inside died before they could close it
        async with self._client.subscribe_path(self._path, recursive=True) as events:
            await self._client.create(self._own, ephemeral=True)
            try:
                while True:
                    ready = await self._client.exists(self._ready)
                    if ready is not None:
                        return ready.czxid
                    names = (await self._client.children(self._members)).names
                    if self._own.rpartition("/")[2] not in names:
                        raise LockLostError(
                            f"{self._own}: the session expired at the barrier", retriable=True
                        )
                    if len(names) >= self._parties:
                        with contextlib.suppress(NodeExistsError):
                            await self._client.create(self._ready)
                        continue
                    await anext(events)
            except BaseException:
                await self._withdraw()
                raise

    async def leave(self) -> None:
        """Wait until all parties have left; the last one closes the barrier behind it."""
        async with self._client.subscribe_path(self._path, recursive=True) as events:
            await self._withdraw()
            while True:
                try:
                    names = (await self._client.children(self._members)).names
                except NoNodeError:
                    return
                if not names:
                    with contextlib.suppress(NoNodeError):
                        await self._client.remove(self._ready)
                    return
                if await self._client.exists(self._ready) is None:
                    return  # all have left, and the next ones are coming
                await anext(events)

    async def _withdraw(self) -> None:
        with contextlib.suppress(NoNodeError):
            await self._client.remove(self._own)

    async def __aenter__(self) -> int:
        return await self.enter()

    async def __aexit__(self, *_: object) -> None:
        await self.leave()
