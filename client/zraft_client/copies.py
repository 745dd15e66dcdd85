"""A copy of a dictionary that the server keeps up to date. Written in the loop's thread, read in any."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import Any, TypeVar

from zraft_client.errors import ClientError, FailedError
from zraft_client.subscriptions import CREDIT_BYTES, Changes, DictionarySubscription, Subscriber
from zraft_client.values import Receipt, Versioned
from zraft_core.errors import Code, MarshallingError, ProtocolError
from zraft_core.messagepack import dict_of
from zraft_core.wire.dictionary import normalised, pack

T = TypeVar("T")

_Entries = dict[str | bytes, tuple[Any, Versioned[Any]]]
"""Entries by what `_mark_of` makes of their keys."""


def _mark_of(key: Any) -> str | bytes:
    """Return what stands for a key: its hash is not known to others.

    So nobody can choose keys with equal hashes.

    Raises:
        MarshallingError: no dictionary has such a key.
    """
    return key if key.__class__ is str else pack(normalised(key))


def held(pairs: Iterable[tuple[Any, T]], dictionary: str) -> dict[Any, T]:
    """Return the entries of a dictionary as a dict.

    Raises:
        FailedError: somebody chose the keys so that a dict would take long, `Code.DATA_INCONSISTENCY`.
    """
    try:
        return dict_of(pairs)
    except ProtocolError as error:
        raise FailedError(f"dictionary {dictionary!r}: {error}", Code.DATA_INCONSISTENCY) from error


class DictionaryCopy(DictionarySubscription):
    """Subscription that applies pushes at once.

    While a new connection sends the state again, reads use the old copy.
    """

    def __init__(self, client: Subscriber, dictionary: str, credit: int = CREDIT_BYTES) -> None:
        super().__init__(client, dictionary, credit)
        self.zxid = 0
        """The copy is the dictionary as of this moment."""
        self.pushes = 0
        self.complete = threading.Event()
        """Set once the first whole state is here."""
        self._entries: _Entries = {}
        self._coming: _Entries | None = None
        self._mutex = threading.Lock()
        self._waiters: list[asyncio.Future[None]] = []

    def take(self, message: Changes, size: int) -> None:
        """Apply a pushed change to the copy, and wake those that wait for one."""
        with self._mutex:
            self._apply(message)
        self.pushes += 1
        self.consumed(size)
        if message.complete:
            self.complete.set()
            for waiter in self._woken():
                waiter.set_result(None)

    def refused(self, error: ClientError) -> None:
        """End the copy with the server's error, also for those that wait for a change."""
        super().refused(error)
        for waiter in self._woken():
            waiter.set_exception(error)

    def _woken(self) -> list[asyncio.Future[None]]:
        waiters, self._waiters = self._waiters, []
        return [waiter for waiter in waiters if not waiter.done()]

    def _apply(self, message: Changes) -> None:
        if message.restarted:
            self._coming = {}
        target = self._entries if self._coming is None else self._coming
        for change in message.changes:
            try:
                mark = _mark_of(change.key)
            except MarshallingError:
                continue  # anybody may write into the directory by other means
            if change.entry is None:
                target.pop(mark, None)
            else:
                target[mark] = change.key, change.entry
        if message.complete:
            self.zxid = message.zxid
            if self._coming is not None:
                self._entries, self._coming = self._coming, None

    def wrote(self, key: Any, value: Any, receipt: Receipt) -> None:
        """Note the client's own acknowledged write, in case its push is still to come.

        A `receipt.version` of None is a removal.
        """
        with self._mutex:
            mark = _mark_of(key)
            known = self._entries.get(mark)
            if self.zxid >= receipt.zxid or (known is not None and known[1].mzxid >= receipt.zxid):
                return
            if receipt.version is None:
                self._entries.pop(mark, None)
            else:
                entry = Versioned(value, receipt.version, receipt.mzxid or receipt.zxid)
                self._entries[mark] = key, entry

    def get(self, key: Any) -> Versioned[Any] | None:
        """Return the entry of a key; None if there is none."""
        try:
            found = self._entries.get(_mark_of(key))
        except MarshallingError:
            return None  # no dictionary has such a key
        return None if found is None else found[1]

    def entries(self) -> dict[Any, Versioned[Any]]:
        """Return all entries, at one moment.

        Raises:
            FailedError: somebody chose the keys so that a dict would take long,
                `Code.DATA_INCONSISTENCY`.
        """
        with self._mutex:
            pairs = list(self._entries.values())
        return held(pairs, self.dictionary)

    def __len__(self) -> int:
        return len(self._entries)

    async def wait_change(self) -> None:
        """Wait until the next push that makes the copy whole."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    async def wait_complete(self) -> None:
        """Wait until the first whole state is here. What the subscription was refused with is raised."""
        await self.started()
        while not self.complete.is_set():
            await self.wait_change()
