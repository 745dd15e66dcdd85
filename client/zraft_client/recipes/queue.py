"""A queue in the order of arrival.

Items are taken exactly once, or claimed and finished, so a consumer's death loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

from attrs import frozen

from zraft_client import requests
from zraft_client.calls import Request
from zraft_client.client import Client
from zraft_client.errors import BadVersionError, ClientError, LockLostError, NodeExistsError, NoNodeError
from zraft_client.recipes.contenders import make_directory
from zraft_client.subscriptions import Subscription
from zraft_client.values import Check, Created, LogEntry, Receipt

PREFIX: Final = "item-"
PAGE: Final = 16


@frozen
class Claim:
    """An item that this consumer has until it finishes or its session ends. Later claims have higher `token`s."""

    number: int
    data: bytes
    token: int
    path: str
    version: int
    """The item's version: each claim raises it, so that a late `finish` of an earlier claim is refused."""


class Queue:
    """A queue. Items are znodes of `path/items`; claims are ephemeral znodes of `path/claims`."""

    def __init__(self, client: Client, path: str) -> None:
        self._client = client
        self._items = f"{path.rstrip('/')}/items"
        self._claims = f"{path.rstrip('/')}/claims"
        self._made = False

    async def put(self, data: bytes) -> int:
        """Append an item, exactly once; return its number in the queue."""
        await self._make()
        created: Created = await self._client.create(f"{self._items}/{PREFIX}", data, sequential=True)
        return int(created.path[-10:])

    async def take(self) -> bytes:
        """Remove the first item and return it; wait for one.

        Nobody else gets it; if this process dies now, nobody does.
        """
        while True:
            async with aclosing(self._waiting()) as waiting:
                async for entry in waiting:
                    try:
                        await self._client.remove(self._item(entry.position))
                    except NoNodeError:
                        continue  # another consumer was quicker
                    return entry.data

    async def claim(self) -> Claim:
        """Reserve the first item that nobody has claimed; wait for one. `finish` it, or `release` it for others."""
        while True:
            async with aclosing(self._waiting()) as waiting:
                async for entry in waiting:
                    claimed = await self._try_claim(entry)
                    if claimed is not None:
                        return claimed

    async def _try_claim(self, entry: LogEntry) -> Claim | None:
        path = f"{self._claims}/{entry.position:010d}"
        claiming = requests.create(path, b"", ephemeral=True)
        raising = requests.set_data(self._item(entry.position), entry.data)
        try:
            _, item = await self._client.multi([claiming, raising])
        except (NodeExistsError, NoNodeError):
            return None  # another consumer has it, or has finished it just before
        assert isinstance(item, Receipt)
        assert item.version is not None
        return Claim(entry.position, entry.data, item.position, path, item.version)

    async def finish(self, claim: Claim) -> None:
        """Remove a claimed item.

        Raises:
            LockLostError: the claim was lost, and the item is or was another consumer's.
        """
        await self._end(claim, requests.remove(self._item(claim.number), claim.version))

    async def release(self, claim: Claim) -> None:
        """Give a claimed item back, to its old place."""
        await self._end(claim, Check(self._item(claim.number), claim.version))

    async def _end(self, claim: Claim, condition: Request[Receipt] | Check) -> None:
        try:
            await self._client.multi([condition, requests.remove(claim.path)])
        except (NoNodeError, BadVersionError):
            raise LockLostError(f"{claim.path}: the claim was lost before it was given up") from None

    async def size(self) -> int:
        """Return the number of items in the queue, claimed ones included."""
        stat = await self._client.exists(self._items)
        return 0 if stat is None else stat.num_children

    def _item(self, number: int) -> str:
        return f"{self._items}/{PREFIX}{number:010d}"

    async def _make(self) -> None:
        if not self._made:
            await make_directory(self._client, self._items)
            await make_directory(self._client, self._claims)
            self._made = True

    async def _waiting(self) -> AsyncGenerator[LogEntry, None]:
        """Yield the existing items in order; then, once, wait until there may be another."""
        await self._make()
        first = 0
        async with self._client.subscribe_path(self._claims, recursive=True) as freed:
            while True:
                page = await self._client.log(self._items, PREFIX, first, limit=PAGE)
                for entry in page.entries:
                    yield entry
                first = page.next
                if page.next >= page.end:
                    break
            await self._wait_any(first, freed)

    async def _wait_any(self, first: int, freed: Subscription[Any]) -> None:
        """Wait until an item comes, or a claim goes."""
        tail = self._client.subscribe_log(self._items, PREFIX, first)
        waits: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(tail.__anext__()),
            asyncio.ensure_future(freed.__anext__()),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            tail.close()
            for one in waits:
                one.cancel()
            for found in await asyncio.gather(*waits, return_exceptions=True):
                if isinstance(found, BaseException) and not isinstance(
                    found, ClientError | asyncio.CancelledError | StopAsyncIteration
                ):
                    raise found
