"""A connection that speaks zraft's own protocol, through the client library, to a dictionary."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from zraft_client.client import Client
from zraft_client.errors import ClientError, UnknownOutcomeError
from zraft_client.values import Consistency

from zraft_bench.targets import RequestFailedError

PIPELINED: Final = 500
"""Writes under way while the keys are made."""


class ZraftTarget:
    """One session: every write happens exactly once, also over reconnects, for as long as its deadline."""

    def __init__(self, hosts: str, place: str, linearizable: bool, deadline_s: float) -> None:
        self._client = Client(hosts, timeout_s=deadline_s)
        self._place = place
        self._consistency = Consistency.LINEARIZABLE if linearizable else Consistency.LOCAL

    async def open(self) -> None:
        try:
            await self._client.connect()
        except ClientError as error:
            raise RequestFailedError(str(error)) from error

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        for first in range(0, len(keys), PIPELINED):
            await asyncio.gather(*(self.write(key, value) for key in keys[first : first + PIPELINED]))

    async def write(self, key: int, value: bytes) -> None:
        try:
            await self._client.put(key, value, dictionary=self._place)
        except ClientError as error:
            raise RequestFailedError(str(error), unknown=isinstance(error, UnknownOutcomeError)) from error

    async def read(self, key: int) -> None:
        try:
            found = await self._client.get(key, dictionary=self._place, consistency=self._consistency)
        except ClientError as error:
            raise RequestFailedError(str(error)) from error
        if found is None:
            raise RequestFailedError(f"key {key} was made and is not there")

    async def close(self) -> None:
        await self._client.close()
