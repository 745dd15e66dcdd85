"""Thousands of sessions from one process: they ping, and reconnect when their server goes. Raw frames, no client library.

Knows nothing of how servers run. A steady writer and reader beside, in a process of its own, measures what others feel.
"""

from __future__ import annotations

import asyncio
import json
import random
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from attrs import Factory, define, frozen

from tests.so_far import so_far
from zraft_core.address import Address, parse_address
from zraft_core.wire.connect import (
    NO_PASSWORD,
    ConnectRequest,
    decode_connect_response,
    encode_connect_request,
)
from zraft_core.wire.opcodes import Opcode

PING: Final = struct.pack(">iii", 8, -2, Opcode.PING)
PING_SWEEP_S: Final = 0.05
RECONNECT_PAUSE_S: Final = 0.1
"""What a client waits after an attempt that failed; the first one follows its loss at once."""

CONNECTS_AT_ONCE: Final = 200
"""While the idle sessions are set up; the storm itself has no such bound."""


@define(eq=False)
class Session(asyncio.Protocol):
    """One client's session over all its connections."""

    storm: Storm
    server: int
    id: int = 0
    password: bytes = NO_PASSWORD
    timeout_ms: int = 0
    last_zxid: int = 0
    attached: bool = False
    lost_at: float | None = None
    """When its server went; None while nothing was lost since the last look."""
    back_after_s: float | None = None
    attempts: int = 0
    expired: bool = False
    pings_unanswered: int = 0
    transport: asyncio.Transport | None = None
    _buffer: bytes = b""
    _waiter: asyncio.Future[None] | None = None

    async def connect(self, address: Address) -> bool:
        """Attach at `address`; False if it takes nobody or closes without a word."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._buffer = b""
        self.attempts += 1
        try:
            await loop.create_connection(lambda: self, address.host, address.port)
            await self._waiter
        except OSError:
            return False
        return self.attached

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        request = ConnectRequest(0, self.last_zxid, self.storm.timeout_ms, self.id, self.password, False)
        self.transport.write(encode_connect_request(request))  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            end = 4 + int.from_bytes(self._buffer[:4])
            if len(self._buffer) < end:
                return
            body, self._buffer = self._buffer[4:end], self._buffer[end:]
            if self.attached:
                self._reply(body)
            else:
                self._greeting(body)

    def _reply(self, body: bytes) -> None:
        xid, zxid = struct.unpack_from(">iq", body)
        assert xid == -2, f"session {self.id:x} got a frame with xid {xid}"
        self.last_zxid = max(self.last_zxid, zxid)
        self.pings_unanswered -= 1

    def _greeting(self, body: bytes) -> None:
        response = decode_connect_response(body)
        if response.timeout_ms <= 0:
            self.expired = True
            self._done()
            return
        assert self.id in (0, response.session), "another session came back"
        self.id, self.password, self.timeout_ms = response.session, response.password, response.timeout_ms
        self.attached = True
        self.pings_unanswered = 0
        if self.lost_at is not None:
            self.back_after_s = time.monotonic() - self.lost_at
        self._done()

    def connection_lost(self, exc: Exception | None) -> None:
        was_attached, self.attached, self.transport = self.attached, False, None
        if was_attached:
            self.storm.on_lost(self)
        self._done()

    def _done(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def ping(self) -> None:
        if self.attached and self.transport is not None:
            self.transport.write(PING)
            self.pings_unanswered += 1


@define(eq=False)
class Storm:
    """All sessions. `addresses` by number of server."""

    addresses: dict[int, Address]
    timeout_ms: int
    rng: random.Random
    sessions: list[Session] = Factory(list)
    _tasks: set[asyncio.Task[None]] = Factory(set)
    _stopped: bool = False

    def fresh(self, server: int) -> Session:
        """A session that is to begin at a server."""
        return Session(self, server)

    async def attach(self, count: int, server: int) -> None:
        """`count` more sessions at one server."""
        fresh = [self.fresh(server) for _ in range(count)]
        for begin in range(0, count, CONNECTS_AT_ONCE):
            some = fresh[begin : begin + CONNECTS_AT_ONCE]
            done = await asyncio.gather(*(one.connect(self.addresses[server]) for one in some))
            assert all(done), f"{done.count(False)} sessions could not be begun at server {server}"
            self.sessions += some

    async def keep_alive(self) -> None:
        """Ping every session each third of its timeout, evenly spread."""
        due = 0.0
        place = 0
        while not self._stopped:
            await asyncio.sleep(PING_SWEEP_S)
            due += len(self.sessions) * PING_SWEEP_S * 3_000 / self.timeout_ms
            while due >= 1 and self.sessions:
                place = (place + 1) % len(self.sessions)
                self.sessions[place].ping()
                due -= 1

    @property
    def reconnecting(self) -> set[asyncio.Task[None]]:
        """One for each session that is on its way back."""
        return set(self._tasks)

    def on_lost(self, session: Session) -> None:
        if not self._stopped:
            session.lost_at = time.monotonic()
            session.back_after_s = None
            task = asyncio.get_running_loop().create_task(self._reconnect(session))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _reconnect(self, session: Session) -> None:
        """As client libraries do: another server, and the next one if that fails."""
        servers = [server for server in self.addresses if server != session.server]
        self.rng.shuffle(servers)
        while not self._stopped and not so_far(session.expired):
            for server in servers:
                if await session.connect(self.addresses[server]):
                    session.server = server
                    return
                if session.expired:
                    return
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def stop(self) -> None:
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self.sessions:
            if session.transport is not None:
                session.transport.abort()


@frozen
class Latencies:
    """Of one kind of request in one period, in milliseconds."""

    count: int
    median: float
    p99: float
    slowest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latencies:
        ordered = sorted(seconds)
        assert ordered, "nothing was measured"
        return cls(
            len(ordered),
            ordered[len(ordered) // 2] * 1_000,
            ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1_000,
            ordered[-1] * 1_000,
        )

    def __str__(self) -> str:
        return f"median {self.median:.1f} ms, p99 {self.p99:.1f} ms, max {self.slowest:.1f} ms ({self.count})"


Sample = tuple[str, float, float]
"""(write or read, when it was asked for on the machine's monotonic clock, how long it took), in seconds."""


class SteadyProcess:
    """A steady client in a process of its own: what it measures is the servers', not this process's."""

    def __init__(self, address: Address, path: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.storm", str(address), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> list[Sample]:
        """Stop it; all that it measured.

        Raises:
            AssertionError: one of its requests failed.
        """
        answer, _ = self._process.communicate("stop\n", timeout=30)
        assert self._process.returncode == 0, "the steady client failed, see above"
        return [(kind, at, took) for kind, at, took in json.loads(answer)]

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


class Steady:
    """A client that writes and reads in turn, one request at a time, and notes how long each took."""

    def __init__(self, address: Address, path: str) -> None:
        self.samples: list[Sample] = []
        self._address = address
        self._path = path
        self._xid = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`.

        Raises:
            AssertionError: a request failed, or the connection was closed.
        """
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        try:
            writer.write(encode_connect_request(ConnectRequest(0, 0, 30_000, 0, NO_PASSWORD, False)))
            response = decode_connect_response(await self._frame(reader))
            assert response.timeout_ms > 0, f"the steady client got {response}"
            raw = self._path.encode()
            path = struct.pack(">i", len(raw)) + raw
            acl = struct.pack(">iii", 1, 31, 5) + b"world" + struct.pack(">i", 6) + b"anyone"
            await self._ask(
                reader, writer, Opcode.CREATE, path + struct.pack(">i", 0) + acl + struct.pack(">i", 0)
            )
            data = struct.pack(">i", 100) + bytes(100) + struct.pack(">i", -1)
            while not stop.is_set():
                await self._sample("write", reader, writer, Opcode.SET_DATA, path + data)
                await self._sample("read", reader, writer, Opcode.GET_DATA, path + b"\0")
                await asyncio.sleep(0.002)
        finally:
            writer.close()

    async def _sample(
        self,
        kind: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        opcode: int,
        body: bytes,
    ) -> None:
        began = time.monotonic()
        await self._ask(reader, writer, opcode, body)
        self.samples.append((kind, began, time.monotonic() - began))

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opcode: int, body: bytes
    ) -> None:
        self._xid += 1
        writer.write(struct.pack(">iii", 8 + len(body), self._xid, opcode) + body)
        answer = await self._frame(reader)
        xid, _, code = struct.unpack_from(">iqi", answer)
        assert (xid, code) == (self._xid, 0), f"the steady client's {opcode} was answered with code {code}"

    async def _frame(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
        except asyncio.IncompleteReadError as error:
            raise AssertionError("the steady client's connection was closed") from error


async def _steady(address: Address, path: str) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)
    steady = Steady(address, path)
    await steady.run(stop)
    print(json.dumps(steady.samples))


if __name__ == "__main__":
    asyncio.run(_steady(parse_address(sys.argv[1], "address"), sys.argv[2]))
