"""The least client of ZooKeeper's protocol."""

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

    async def write(self, *commands: Command) -> None:
        """Write at once, and wait for all answers."""
        await self._ask(b"".join(self._codec.write(command)[1] for command in commands), len(commands))

    async def _ask(self, requests: bytes, answers: int = 1) -> None:
        self._writer.write(requests)
        while answers > 0:
            answers -= len(self._codec.receive(await self._reader.read(65_536)))
