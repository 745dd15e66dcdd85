"""A copy of a dictionary that the server keeps up to date. Written in the loop's thread, read in any."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from zraft_client.subscriptions import CREDIT_BYTES, Changes, DictionarySubscription, Subscriber
from zraft_client.values import Receipt, Versioned


class DictionaryCopy(DictionarySubscription):
    """Consumes what is pushed at once. While a new connection sends the state again, the old copy is what is read."""

    def __init__(self, client: Subscriber, dictionary: str, credit: int = CREDIT_BYTES) -> None:
        super().__init__(client, dictionary, credit)
        self.zxid = 0
        """The copy is the dictionary as of this moment."""
        self.pushes = 0
        self.complete = threading.Event()
        """Set once the first whole state is here."""
        self._entries: dict[Any, Versioned[Any]] = {}
        self._coming: dict[Any, Versioned[Any]] | None = None
        self._mutex = threading.Lock()
        self._waiters: list[asyncio.Future[None]] = []

    def take(self, message: Changes, size: int) -> None:
        with self._mutex:
            self._apply(message)
        self.pushes += 1
        self.consumed(size)
        if message.complete:
            self.complete.set()
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _apply(self, message: Changes) -> None:
        if message.restarted:
            self._coming = {}
        target = self._entries if self._coming is None else self._coming
        for change in message.changes:
            if change.entry is None:
                target.pop(change.key, None)
            else:
                target[change.key] = change.entry
        if message.complete:
            self.zxid = message.zxid
            if self._coming is not None:
                self._entries, self._coming = self._coming, None

    def wrote(self, key: Any, value: Any, receipt: Receipt) -> None:
        """The client's own acknowledged write (`receipt.version` None: a removal), in case its push is still to come."""
        with self._mutex:
            known = self._entries.get(key)
            if self.zxid >= receipt.zxid or (known is not None and known.mzxid >= receipt.zxid):
                return
            if receipt.version is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = Versioned(value, receipt.version, receipt.mzxid or receipt.zxid)

    def get(self, key: Any) -> Versioned[Any] | None:
        return self._entries.get(key)

    def entries(self) -> dict[Any, Versioned[Any]]:
        """All of it, at one moment."""
        with self._mutex:
            return dict(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    async def wait_change(self) -> None:
        """Until the next push that makes the copy whole."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def wait_complete(self) -> None:
        """Until the first whole state is here. Raises what the subscription was refused with."""
        await self.started()
        while not self.complete.is_set():
            await self.wait_change()
