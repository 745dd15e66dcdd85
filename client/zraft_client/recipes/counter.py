"""A counter that many programs change: increments happen exactly once, so nobody has to compare and set."""

from __future__ import annotations

from typing import Any

from zraft_client.client import Client
from zraft_client.requests import DEFAULT
from zraft_client.values import Counted


class Counter:
    """One integer of 64 bits in a dictionary."""

    def __init__(self, client: Client, key: Any, *, dictionary: str = DEFAULT) -> None:
        self._client = client
        self._key = key
        self._dictionary = dictionary

    async def increment(self, amount: int = 1) -> Counted:
        """Add; return the value afterwards and the position of this change, which orders it among all.

        An increment beyond 64 bits is refused.
        """
        return await self._client.increment(self._key, amount, dictionary=self._dictionary)

    async def value(self) -> int:
        """Return the value, linearizable; 0 before the first increment."""
        found = await self._client.get(self._key, dictionary=self._dictionary)
        return 0 if found is None else int(found.value)

    async def next(self) -> int:
        """Return a number that nobody else gets, growing: an id."""
        return (await self.increment()).value
