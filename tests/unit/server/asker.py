"""The least clients: of ZooKeeper's protocol, and of the native one."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import msgpack

from zraft_core.address import Address
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CLOSE_SESSION, Command


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

    async def read(self, opcode: Opcode, *paths: str) -> None:
        """Read at once, and wait for all answers."""
        await self._ask(b"".join(self._codec.read(opcode, path)[1] for path in paths), len(paths))

    async def close_session(self) -> None:
        """End the session, and wait until the server has answered and ended the connection."""
        self._writer.write(self._codec.write((CLOSE_SESSION,))[1])
        while await self._reader.read(65_536):
            pass

    async def _ask(self, requests: bytes, answers: int = 1) -> None:
        self._writer.write(requests)
        while answers > 0:
            answers -= len(self._codec.receive(await self._reader.read(65_536)))


class NativeAsker:
    """A client of the native protocol without a session, inside the context."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._answers = msgpack.Unpacker(strict_map_key=False)
        self._last_id = 0

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, *requests: dict[str, Any]) -> None:
        """Ask at once, and wait for all answers."""
        first = self._last_id + 1
        self._last_id += len(requests)
        self._writer.write(
            b"".join(msgpack.packb({"id": id, **request}) for id, request in enumerate(requests, first))
        )
        left = len(requests)
        while left:
            self._answers.feed(await self._reader.read(65_536))
            for answer in self._answers:
                assert answer["success"], answer
                left -= 1
