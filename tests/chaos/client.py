"""One ZooKeeper session over asyncio that writes down everything it asks, gets and sees. One request at a time.

Reconnects to any server, restores one-shot watches, begins a new session when one has expired. Nothing is retried: what
has no answer is recorded as unknown.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from attrs import evolve

from zraft.checkers.history import (
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
)
from zraft_core.address import Address
from zraft_core.errors import Code, ProtocolError, ZraftError
from zraft_core.wire.client import Pong, Received, Reply, WatchEvent, ZkClientCodec
from zraft_core.wire.client_requests import (
    AddWatch,
    CloseSession,
    Create,
    Delete,
    GetChildren2,
    GetData,
    Request,
    RestoreWatches,
    SetData,
    Sync,
)
from zraft_core.wire.connect import NO_PASSWORD, ConnectResponse
from zraft_core.znodes.events import AddWatchMode
from zraft_core.znodes.txn import MULTI, SET_DATA

CONNECT_S: Final = 2.0
RETRY_S: Final = 0.1
OPERATION_S: Final = 10.0
READ_BYTES: Final = 65_536
REFUSED: Final = frozenset(
    {Code.SESSION_EXPIRED, Code.SESSION_MOVED, Code.CONNECTION_LOSS, Code.REQUEST_TIMEOUT}
)
"""Codes that say nothing certain about the operation itself."""


class ConnectionEndedError(ZraftError):
    """There is no answer, and will be none."""

    retriable = True


def now_us() -> int:
    return time.monotonic_ns() // 1000


class Client:
    """A recording client. `records` grows as things are seen; `sink` is called with each."""

    def __init__(
        self,
        number: int,
        servers: Mapping[int, Address],
        rng: random.Random,
        timeout_ms: int,
        sink: Callable[[Record], None] = lambda record: None,
    ) -> None:
        self.number = number
        self.rng = rng
        self.session = 0
        self.server = 0
        self.records: list[Record] = []
        self.answered = 0
        """How many operations had an answer that says what became of them."""
        self.mistakes: list[str] = []
        """What no server may say: bytes that are no answer, answers to what was not asked."""
        self.generation = 0
        """Counts sessions."""
        self.connections = 0
        self._servers = servers
        self._timeout_ms = timeout_ms
        self._granted_ms = timeout_ms
        self._password = NO_PASSWORD
        self._zxid = 0
        self._codec = ZkClientCodec()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._pending: list[tuple[Operation | None, asyncio.Future[tuple[Reply, Operation | None]]]] = []
        self._once: set[str] = set()
        self._heard_us = 0
        self._ping_us: list[int] = []
        self._answered_s = 0.0
        self._sink = sink

    def record(self, record: Record) -> None:
        self.records.append(record)
        if isinstance(record, Operation) and record.outcome is not Outcome.UNKNOWN:
            self.answered += 1
        self._sink(record)

    # -- connection

    async def connect(self, only: int | None = None) -> None:
        """Be connected, whatever it takes; to server `only`, if given."""
        while self._writer is None:
            number = only if only is not None else self.rng.choice(sorted(self._servers))
            try:
                await self._greet(number)
            except (OSError, TimeoutError, ProtocolError, ConnectionEndedError):
                await self._drop()
                await asyncio.sleep(RETRY_S * (0.5 + self.rng.random()))

    async def _greet(self, number: int) -> None:
        address = self._servers[number]
        resumes = self.session != 0
        asked_us = now_us()
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            self._reader, self._writer, self.server = reader, writer, number
            self._codec = ZkClientCodec(last_zxid_seen=self._zxid, jute_maxbuffer=1 << 24)
            writer.write(
                self._codec.connect(
                    timeout_ms=self._timeout_ms, session=self.session, password=self._password
                )
            )
            received: list[Received] = []
            while not received:
                chunk = await reader.read(READ_BYTES)
                if not chunk:
                    raise ConnectionResetError
                received = self._codec.receive(chunk)
        greeting = received.pop(0)
        if not isinstance(greeting, ConnectResponse):
            raise ProtocolError(f"expected a connect response, found {greeting}")
        if greeting.timeout_ms <= 0:
            self.record(
                Expired(
                    client=self.number,
                    session=self.session,
                    server=number,
                    at_us=now_us(),
                    heard_us=self._heard_us,
                    timeout_ms=self._granted_ms,
                )
            )
            self._forget_session()
            raise ConnectionResetError
        if not resumes:
            self.generation += 1
        self.connections += 1
        self.session, self._password, self._granted_ms = (
            greeting.session,
            greeting.password,
            greeting.timeout_ms,
        )
        self._heard_us = asked_us
        self.record(
            Connected(
                client=self.number,
                session=self.session,
                server=number,
                at_us=now_us(),
                timeout_ms=greeting.timeout_ms,
                resumed=resumes,
            )
        )
        self._answered_s = time.monotonic()
        self._tasks = [
            asyncio.ensure_future(self._read(reader)),
            asyncio.ensure_future(self._keep_alive(writer)),
        ]
        self._dispatch(received)
        if self._once:
            restore = RestoreWatches(self._zxid, data=tuple(sorted(self._once)))
            await self._ask(restore, self._operation(Kind.RESTORE_WATCHES, "/"))

    def _forget_session(self) -> None:
        self.session, self._password, self._zxid = 0, NO_PASSWORD, 0
        self._once.clear()

    async def _drop(self) -> None:
        """The connection is over; what waits will have no answer."""
        writer, self._writer, self._reader = self._writer, None, None
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._ping_us.clear()
        if tasks:
            self.record(
                Disconnected(client=self.number, session=self.session, server=self.server, at_us=now_us())
            )
        pending, self._pending = self._pending, []
        for _, future in pending:
            if not future.done():
                future.set_exception(ConnectionEndedError("connection lost"))
        if writer is not None:
            writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(0.5):
                    await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while chunk := await reader.read(READ_BYTES):
                self._answered_s = time.monotonic()
                self._dispatch(self._codec.receive(chunk))
        except OSError:
            pass
        except ProtocolError as error:
            self.mistakes.append(
                f"client {self.number}, session {self.session:x}, of server {self.server}: {error}"
            )
        if reader is self._reader:
            await self._drop()

    async def _keep_alive(self, writer: asyncio.StreamWriter) -> None:
        timeout_s = self._granted_ms / 1000
        while writer is self._writer:
            self._ping_us.append(now_us())
            writer.write(self._codec.ping())
            await asyncio.sleep(timeout_s / 4)
            if time.monotonic() - self._answered_s > timeout_s * 2 / 3:
                writer.transport.abort()
                return

    async def move(self) -> None:
        """Leave the connection without a word, and take the session to any server."""
        await self._drop()
        await self.connect()

    async def close(self) -> None:
        """End the session, if a server is there; then the connection."""
        if self._writer is not None:
            with suppress(ConnectionEndedError):
                await self._ask(CloseSession(), self._operation(Kind.CLOSE, "/"))
            self._forget_session()
        await self._drop()

    async def abandon(self) -> None:
        """Leave without closing the session."""
        await self._drop()

    async def settle(self) -> None:
        """Learn what became of a session that was left: without that, nobody knows whether another may hold its lock."""
        if self._writer is None and self.session:
            with suppress(TimeoutError):
                async with asyncio.timeout(OPERATION_S):
                    await self.connect()

    # -- answers

    def _dispatch(self, received: Sequence[Received]) -> None:
        for one in received:
            match one:
                case Reply():
                    self._on_reply(one)
                case WatchEvent():
                    self._once.discard(one.path)
                    self.record(
                        Event(
                            client=self.number,
                            session=self.session,
                            server=self.server,
                            at_us=now_us(),
                            type=int(one.type),
                            path=one.path,
                            zxid=one.zxid,
                        )
                    )
                case Pong():
                    if self._ping_us:
                        self._heard_us = max(self._heard_us, self._ping_us.pop(0))
                case ConnectResponse():
                    pass
        self._zxid = max(self._zxid, self._codec.last_zxid_seen)

    def _on_reply(self, reply: Reply) -> None:
        if not self._pending:
            raise ProtocolError(f"{reply} answers nothing that was asked")
        asked, future = self._pending.pop(0)
        done = None
        if asked is not None:
            done = _answered(asked, reply)
            self._heard_us = max(self._heard_us, asked.invoked_us)
            if done.watch and done.outcome is Outcome.OK:
                self._once.add(done.path)
            self.record(done)
        if not future.done():
            future.set_result((reply, done))

    # -- requests

    def _operation(self, kind: Kind, path: str, **more: Any) -> Operation:
        return Operation(
            client=self.number,
            session=self.session,
            server=self.server,
            kind=kind,
            path=path,
            invoked_us=now_us(),
            returned_us=None,
            outcome=Outcome.UNKNOWN,
            **more,
        )

    async def _ask(
        self, request: Request[Any] | bytes, operation: Operation | None
    ) -> tuple[Reply, Operation | None]:
        """Raises ConnectionEndedError; then `operation` was recorded as unknown."""
        writer = self._writer
        if writer is None:
            raise ConnectionEndedError("not connected")
        raw = request if isinstance(request, bytes) else self._codec.ask(request)[1]
        future: asyncio.Future[tuple[Reply, Operation | None]] = asyncio.get_running_loop().create_future()
        self._pending.append((operation, future))
        try:
            writer.write(raw)
        except RuntimeError:
            # What uvloop says of a transport whose loss was not told yet; that it was not sent makes it no more certain.
            self._pending.remove((operation, future))
            if operation is not None:
                self.record(operation)
            if writer is self._writer:
                await self._drop()
            raise ConnectionEndedError("connection lost") from None
        try:
            async with asyncio.timeout(OPERATION_S):
                return await future
        except (ConnectionEndedError, TimeoutError) as error:
            if operation is not None:
                self.record(operation)
            if isinstance(error, TimeoutError):
                # Its answer may still come, and must not be taken for another's.
                if writer is self._writer:
                    self._pending = [(None, f) if f is future else (o, f) for o, f in self._pending]
                    await self._drop()
                raise ConnectionEndedError("no answer in time") from None
            raise

    async def _run(self, request: Request[Any] | bytes, operation: Operation) -> Operation:
        _, done = await self._ask(request, operation)
        assert done is not None, "an operation that was handed in is handed back"
        return done

    async def create(
        self, path: str, value: str, *, ephemeral: bool = False, sequential: bool = False
    ) -> Operation:
        return await self._run(
            Create(path, value.encode(), ephemeral=ephemeral, sequential=sequential),
            self._operation(Kind.CREATE, path, value=value, ephemeral=ephemeral),
        )

    async def set(self, path: str, value: str, expected: int = -1) -> Operation:
        return await self._run(
            SetData(path, value.encode(), expected),
            self._operation(Kind.SET, path, value=value, expected=expected),
        )

    async def delete(self, path: str, expected: int = -1) -> Operation:
        return await self._run(Delete(path, expected), self._operation(Kind.DELETE, path, expected=expected))

    async def get(self, path: str, *, watch: bool = False) -> Operation:
        return await self._run(GetData(path, watch), self._operation(Kind.GET, path, watch=watch))

    async def sync_get(self, path: str) -> Operation:
        """The sync and the read go out together, on one connection."""
        return await self._synced(path, GetData(path), self._operation(Kind.SYNC_GET, path))

    async def children(self, path: str) -> Operation:
        return await self._run(GetChildren2(path), self._operation(Kind.CHILDREN, path))

    async def sync_children(self, path: str) -> Operation:
        return await self._synced(path, GetChildren2(path), self._operation(Kind.SYNC_CHILDREN, path))

    async def _synced(self, path: str, request: Request[Any], operation: Operation) -> Operation:
        sync = asyncio.ensure_future(self._ask(Sync(path), None))
        await asyncio.sleep(0)  # it is written first
        try:
            done = await self._run(request, operation)
        except ConnectionEndedError:
            await asyncio.gather(sync, return_exceptions=True)
            raise
        reply, _ = await sync
        if reply.code != Code.OK:
            raise ConnectionEndedError(f"sync was refused: {reply.code!r}")
        return done

    async def multi_set(self, path: str, further: Sequence[str], value: str, expected: int) -> Operation:
        commands = [(SET_DATA, path, value.encode(), expected)]
        commands += [(SET_DATA, other, value.encode(), -1) for other in further]
        operation = self._operation(
            Kind.MULTI_SET, path, value=value, expected=expected, further=tuple(further)
        )
        if self._writer is None:
            raise ConnectionEndedError("not connected")
        return await self._run(self._codec.write((MULTI, commands))[1], operation)

    async def watch_recursively(self, path: str) -> Operation:
        return await self._run(
            AddWatch(path, AddWatchMode.PERSISTENT_RECURSIVE), self._operation(Kind.ADD_WATCH, path)
        )


def _answered(asked: Operation, reply: Reply) -> Operation:
    """The operation with its answer."""
    if reply.code in REFUSED:
        return asked  # unknown: the server itself may not know
    done = evolve(asked, returned_us=now_us(), zxid=reply.zxid)
    value = reply.value
    if asked.kind is Kind.MULTI_SET and isinstance(value, tuple):
        codes = [
            one for one in value if isinstance(one, Code) and one not in (Code.OK, Code.RUNTIME_INCONSISTENCY)
        ]
        if codes:
            return evolve(done, outcome=Outcome.FAIL, code=int(codes[0]))
    if reply.code != Code.OK:
        return evolve(done, outcome=Outcome.FAIL, code=int(reply.code))
    done = evolve(done, outcome=Outcome.OK)
    match asked.kind:
        case Kind.CREATE:
            return evolve(done, created=value, version=0)
        case Kind.SET:
            return evolve(done, version=value.version, mzxid=value.mzxid)
        case Kind.MULTI_SET:
            return evolve(done, version=value[0].version, mzxid=value[0].mzxid)
        case Kind.GET | Kind.SYNC_GET:
            data, stat = value
            return evolve(
                done,
                value=None if data is None else data.decode(),
                version=stat.version,
                mzxid=stat.mzxid,
                owner=stat.ephemeral_owner,
            )
        case Kind.CHILDREN | Kind.SYNC_CHILDREN:
            return evolve(done, names=tuple(sorted(value[0])))
    return done
