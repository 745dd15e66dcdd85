"""The least client of ZooKeeper's protocol: it asks for one thing after the other."""

from __future__ import annotations

import asyncio
from typing import Self

from zraft_core.address import Address
from zraft_core.wire.client import ZkClientCodec
from zraft_core.znodes.txn import Command


class Asker:
    """A client with a session, inside the context."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._codec = ZkClientCodec()

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        await self._ask(self._codec.connect(timeout_ms=60_000))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def write(self, command: Command) -> None:
        """Write, and wait for the answer."""
        await self._ask(self._codec.write(command)[1])

    async def _ask(self, request: bytes) -> None:
        self._writer.write(request)
        while not self._codec.receive(await self._reader.read(65_536)):
            pass
