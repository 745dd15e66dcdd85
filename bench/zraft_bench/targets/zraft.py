"""A connection that speaks zraft's own protocol, through the client library, to a dictionary."""

from __future__ import annotations

import asyncio
import random
from collections.abc import MutableSequence, Sequence
from typing import Any, Final

from zraft_bench.targets.target import RequestFailedError, in_turn
from zraft_client.client import Client
from zraft_client.errors import ClientError, UnknownOutcomeError
from zraft_client.values import Consistency

PIPELINED: Final = 500
"""The number of writes that are under way while the keys are made."""


class _InTurn(random.Random):
    """Random as usual for jitter, but keeps a list of servers in order.

    So connections begin at the server intended for them.
    """

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


class ZraftTarget:
    """One session: every write happens exactly once, also over reconnects, for as long as its deadline."""

    _spread = 0
    """Connections of one process begin at different servers."""

    def __init__(self, hosts: str, place: str, linearizable: bool, deadline_s: float) -> None:
        self._client = Client(in_turn(hosts, ZraftTarget._spread), timeout_s=deadline_s, rng=_InTurn())
        ZraftTarget._spread += 1
        self._place = place
        self._consistency = Consistency.LINEARIZABLE if linearizable else Consistency.LOCAL

    async def open(self) -> None:
        """Connect and wait for a session.

        Raises:
            RequestFailedError: no server accepted it.
        """
        try:
            await self._client.connect()
        except ClientError as error:
            raise RequestFailedError(str(error)) from error

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        """Write a value to each key."""
        for first in range(0, len(keys), PIPELINED):
            await asyncio.gather(*(self.write(key, value) for key in keys[first : first + PIPELINED]))

    async def write(self, key: int, value: bytes) -> None:
        """Write a value to a key.

        Raises:
            RequestFailedError: the write failed; `unknown` is true if it may have happened.
        """
        try:
            await self._client.put(key, value, dictionary=self._place)
        except ClientError as error:
            raise RequestFailedError(str(error), unknown=isinstance(error, UnknownOutcomeError)) from error

    async def read(self, key: int) -> None:
        """Read a key's value.

        Raises:
            RequestFailedError: no server answered, or the key has no value.
        """
        try:
            found = await self._client.get(key, dictionary=self._place, consistency=self._consistency)
        except ClientError as error:
            raise RequestFailedError(str(error)) from error
        if found is None:
            raise RequestFailedError(f"key {key} was made and is not there")

    async def close(self) -> None:
        """End the session and close the connection."""
        await self._client.close()
