"""A connection that speaks ZooKeeper's protocol: for ZooKeeper, and for zraft beside it, with the same load generator.

Keys are znodes `/<place>/<key>`. Requests of one loop turn leave in one write. Linearizable reads are a sync
and a read, sent together; what ZooKeeper answers is as new as its leader's state was, unless leadership
changes in that moment.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, cast

from zraft_bench.targets.target import RequestFailedError, in_turn
from zraft_core.address import Address, parse_address
from zraft_core.errors import Code, ProtocolError
from zraft_core.wire.client import Pong, Reply, WatchEvent, ZkClientCodec
from zraft_core.wire.client_requests import CloseSession, Create, GetData, Request, SetData, Sync

SESSION_TIMEOUT_MS: Final = 30_000
PIPELINED: Final = 200
"""The number of creates that are under way while the keys are made."""


class ZooKeeperTarget(asyncio.Protocol):
    """One session. Failed connections are not resumed: what was under way has failed, later requests connect again."""

    _spread = 0
    """Connections of one process start at different servers."""

    def __init__(self, hosts: str, place: str, linearizable: bool, deadline_s: float) -> None:
        turned = in_turn(hosts, ZooKeeperTarget._spread)
        self._hosts = [parse_address(part, "hosts") for part in turned.split(",")]
        self._turn = 0
        ZooKeeperTarget._spread += 1
        self._place = f"/{place}"
        self._linearizable = linearizable
        self._deadline_s = deadline_s
        self._codec = ZkClientCodec()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._connected: asyncio.Future[None] | None = None
        self._output: list[bytes] = []
        self._pinging: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    # -- the target

    async def open(self) -> None:
        """Connect to the first server that accepts a session.

        Raises:
            RequestFailedError: no server did; the message says why.
        """
        complaints = []
        for attempt in range(len(self._hosts)):
            address = self._hosts[(self._turn + attempt) % len(self._hosts)]
            try:
                await self._open_to(address)
                return
            except (OSError, TimeoutError, RequestFailedError) as error:
                complaints.append(f"{address}: {error}")
                self._drop()
        self._turn += 1
        raise RequestFailedError("cannot connect: " + "; ".join(complaints))

    async def prepare(self, keys: Sequence[int], value: bytes) -> None:
        """Create a znode with the value for each key."""
        await self._make(self._place, b"")
        for first in range(0, len(keys), PIPELINED):
            await asyncio.gather(
                *(self._make(self._path(key), value) for key in keys[first : first + PIPELINED])
            )

    async def write(self, key: int, value: bytes) -> None:
        """Set the data of a key's znode."""
        _expect(await self._ask(SetData(self._path(key), value)))

    async def read(self, key: int) -> None:
        """Read the data of a key's znode, after a sync if reads are linearizable."""
        path = self._path(key)
        if self._linearizable:
            # Two requests of one connection are answered in order: waiting for the read is enough.
            await self._ready()
            self._send(Sync(path))
        _expect(await self._ask(GetData(path)))

    async def close(self) -> None:
        """End the session and close the connection."""
        if self._transport is not None and not self._transport.is_closing():
            with contextlib.suppress(RequestFailedError, TimeoutError):
                async with asyncio.timeout(2):
                    await self._ask(CloseSession())
        self._drop()

    # -- one connection

    async def _open_to(self, address: Address) -> None:
        loop = asyncio.get_running_loop()
        self._codec = ZkClientCodec()
        async with asyncio.timeout(self._deadline_s):
            await loop.create_connection(lambda: self, address.host, address.port)
            assert self._transport is not None
            self._connected = loop.create_future()
            self._transport.write(self._codec.connect(timeout_ms=SESSION_TIMEOUT_MS))
            await self._connected
        self._pinging = loop.create_task(self._ping())

    async def _ping(self) -> None:
        while self._transport is not None:
            await asyncio.sleep(SESSION_TIMEOUT_MS / 3000)
            if self._transport is not None:
                self._transport.write(self._codec.ping())

    async def _ready(self) -> None:
        if self._transport is None or self._transport.is_closing():
            async with self._opening:
                if self._transport is None or self._transport.is_closing():
                    await self.open()

    async def _make(self, path: str, value: bytes) -> None:
        reply = await self._ask(Create(path, value))
        if reply.code is not Code.NODE_EXISTS:
            _expect(reply)

    async def _ask(self, request: Request[Any]) -> Reply:
        await self._ready()
        waiting = self._send(request)
        try:
            async with asyncio.timeout(self._deadline_s):
                return await waiting
        except TimeoutError:
            raise RequestFailedError(
                f"no answer within {self._deadline_s:g} s", unknown=isinstance(request, SetData)
            ) from None

    def _send(self, request: Request[Any]) -> asyncio.Future[Reply]:
        loop = asyncio.get_running_loop()
        _, data = self._codec.ask(request)
        if not self._output:
            loop.call_soon(self._flush)
        self._output.append(data)
        waiting: asyncio.Future[Reply] = loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def _flush(self) -> None:
        data = b"".join(self._output)
        self._output.clear()
        if self._transport is not None:
            self._transport.write(data)

    def _path(self, key: int) -> str:
        return f"{self._place}/{key}"

    def _drop(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
            self._pinging = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._lose("the connection was closed")

    def _lose(self, why: str) -> None:
        error = RequestFailedError(why, unknown=True)
        connected, self._connected = self._connected, None
        if connected is not None and not connected.done():
            connected.set_exception(error)
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(error)
                waiting.exception()  # nobody may be waiting for the answer to a sync

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio calls this once."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take the server's answers, and give each to its request."""
        try:
            received = self._codec.receive(data)
        except ProtocolError as error:
            self._drop()
            self._lose(str(error))
            return
        for one in received:
            if isinstance(one, Reply):
                waiting = self._waiting.popleft()
                if not waiting.done():
                    waiting.set_result(one)
            elif not isinstance(one, Pong | WatchEvent) and self._connected is not None:
                if one.timeout_ms > 0:
                    self._connected.set_result(None)
                else:
                    self._connected.set_exception(RequestFailedError("no session was granted"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests that are under way."""
        self._transport = None
        self._lose(f"the connection was lost: {exc or 'closed by the server'}")


def _expect(reply: Reply) -> None:
    if reply.code:
        raise RequestFailedError(reply.code.name)
