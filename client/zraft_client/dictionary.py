"""A dictionary by its name, for asyncio: versions, compare-and-set, and a copy that is kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from zraft_client.api import LINEARIZABLE
from zraft_client.copies import DictionaryCopy
from zraft_client.errors import BadVersionError, DeadlineError, NodeExistsError, NoNodeError
from zraft_client.requests import DEFAULT
from zraft_client.subscribing import SubscribingCalls
from zraft_client.subscriptions import CREDIT_BYTES, DictionarySubscription
from zraft_client.values import Consistency, Counted, Receipt, Versioned

ITEMS_PER_PAGE: Final = 1000


class AsyncDictionary:
    """One dictionary of a cluster. Every method but `items` is one atomic step."""

    def __init__(self, client: SubscribingCalls, name: str = DEFAULT) -> None:
        self.client = client
        self.name = name

    async def get(self, key: Any, default: Any = None, *, consistency: Consistency = LINEARIZABLE) -> Any:
        """Return the key's value, or `default` if there is none."""
        found = await self.client.get(key, dictionary=self.name, consistency=consistency)
        return default if found is None else found.value

    async def get_versioned(
        self, key: Any, *, consistency: Consistency = LINEARIZABLE
    ) -> Versioned[Any] | None:
        """Return the entry with its version, for `replace`; None if there is none."""
        return await self.client.get(key, dictionary=self.name, consistency=consistency)

    async def contains(self, key: Any) -> bool:
        """Return whether the key has a value."""
        return await self.client.get(key, dictionary=self.name) is not None

    async def put(self, key: Any, value: Any) -> Receipt:
        """Set the key's value, whatever it was."""
        return await self.client.put(key, value, dictionary=self.name)

    async def put_if_absent(self, key: Any, value: Any) -> Receipt:
        """Set the key's value, but only if the key has none.

        Raises:
            NodeExistsError: the key has a value.
        """
        return await self.client.put(key, value, dictionary=self.name, version=-1)

    async def replace(self, key: Any, value: Any, version: int) -> Receipt:
        """Set the key's value, but only if its version is still `version`.

        Raises:
            BadVersionError: the entry was changed meanwhile.
            NoNodeError: the key has no value.
        """
        return await self.client.put(key, value, dictionary=self.name, version=version)

    async def delete(self, key: Any, *, version: int | None = None) -> Receipt:
        """Remove the key.

        Raises:
            NoNodeError: there is no such key; it is also a KeyError.
            BadVersionError: `version` is given, and the entry has another one.
        """
        return await self.client.delete(key, dictionary=self.name, version=version)

    async def increment(self, key: Any, amount: int = 1) -> Counted:
        """Add `amount` to the key's number in one step; a missing key counts as 0."""
        return await self.client.increment(key, amount, dictionary=self.name)

    async def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value there is, or `default`, which is there then."""
        async for _ in self._attempts(f"setdefault of {key!r}"):
            found = await self.get_versioned(key)
            if found is not None:
                return found.value
            try:
                await self.put_if_absent(key, default)
            except NodeExistsError:
                continue
            return default
        raise AssertionError("attempts end by an error")

    async def pop(self, key: Any) -> Any:
        """Remove an entry and return its value.

        Raises:
            NoNodeError: there is no such key.
        """
        async for _ in self._attempts(f"pop of {key!r}"):
            found = await self.get_versioned(key)
            if found is None:
                raise NoNodeError(f"{key!r}: there is no such key in dictionary {self.name!r}")
            try:
                await self.delete(key, version=found.version)
            except (BadVersionError, NoNodeError):
                continue
            return found.value
        raise AssertionError("attempts end by an error")

    async def update(self, key: Any, change: Callable[[Any], Any], default: Any = None) -> Receipt:
        """Set an entry to what `change` makes of its value, or of `default`; again if somebody else was quicker."""
        async for _ in self._attempts(f"update of {key!r}"):
            found = await self.get_versioned(key)
            try:
                if found is None:
                    return await self.put_if_absent(key, change(default))
                return await self.replace(key, change(found.value), found.version)
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
        raise AssertionError("attempts end by an error")

    async def _attempts(self, what: str) -> AsyncIterator[None]:
        """Yield again and again until the deadline of a call has passed: others change the entry all the time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.client.timeout_s
        yield
        while loop.time() < end:
            yield
        raise DeadlineError(
            f"{what}: other clients changed the entry each time, for {self.client.timeout_s:g} s"
        )

    async def size(self) -> int:
        """Return the number of keys."""
        return await self.client.size(dictionary=self.name)

    async def snapshot(self) -> dict[Any, Any]:
        """Return all of it, of one moment and in no order; refused if larger than the servers' client.reply_bytes_max."""
        return await self.client.snapshot(dictionary=self.name)

    async def items(self, *, limit: int = ITEMS_PER_PAGE) -> AsyncIterator[tuple[Any, Versioned[Any]]]:
        """Yield all entries, `limit` per request; each page is of a later moment.

        The order depends on the keys alone, so that it is the same each time, at every server.
        """
        after: Any = None
        while True:
            page = await self.client.items(dictionary=self.name, after=after, limit=limit)
            for item in page.items:
                yield item
            if page.next is None:
                return
            after = page.next

    def subscribe(self, *, credit: int = CREDIT_BYTES) -> DictionarySubscription:
        """Return the whole state, then every change, as an async iterator."""
        return self.client.subscribe_dictionary(self.name, credit=credit)

    async def watch(self, *, credit: int = CREDIT_BYTES) -> DictionaryCopy:
        """Return a copy that the server keeps up to date; whole when it is returned. Close it after use."""
        copy = self.client.subscribe(DictionaryCopy(self.client, self.name, credit))
        try:
            await copy.wait_complete()
        except BaseException:
            copy.close()
            raise
        return copy
