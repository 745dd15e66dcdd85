"""Fuzzes a running server through its sockets, with well-behaved clients beside whose requests must be answered.

What is sent follows from the seed; when it arrives does not, so a failure here is narrowed down in process.
Without the cluster's key, so datagrams are bytes that nobody sealed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from tests.fuzz.frames import HONEST, FrameFuzz, check_beginning
from tests.fuzz.mutation import mutate_bytes
from tests.fuzz.outcome import PROMISE, Outcome, Progress
from tests.fuzz.requests import names_below
from tests.simulation.broken import BrokenPromiseError
from zraft_core.address import Address
from zraft_core.errors import Code, ConfigError
from zraft_core.wire.client import Reply, ZkClientCodec
from zraft_core.wire.connect import ConnectResponse
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.txn import CREATE, DELETE, SET_DATA

ANSWER_S_MAX: Final = 5.0
"""A well-behaved client waits no longer for an answer, by default: half of what clients usually give a request."""

HONEST_CLIENTS: Final = 2
HONEST_PAUSE_S: Final = 0.01
FIRST_S: Final = 2.0
QUIET_S: Final = 0.2
"""A hostile connection waits so long for its first answer, and then reads on until nothing comes for so long."""

STREAMS_PER_ROOT: Final = 2_000
"""Then hostile requests are about other znodes: those of before may be closed to everybody by ACLs, or many."""

DELETES_AT_ONCE: Final = 200
FRAME_BYTES_MAX: Final = 0xFFFFF
"""The server's `client.jute_maxbuffer`, which is taken to be the default."""

READ_S_MAX: Final = 0.5
RECEIVED_BYTES_MAX: Final = 16 * 1024 * 1024
DATAGRAMS_PER_PAUSE: Final = 50
DATAGRAM_PAUSE_S: Final = 0.005
LOOK_S: Final = 0.2
READ_BYTES: Final = 256 * 1024
_DATAGRAM_PREFIX: Final = struct.Struct(">BBBBB4s")


@frozen
class LiveSettings:
    """`pid` is the server's process, whose resident memory may grow by `growth_bytes_max` while it is fuzzed.

    A well-behaved client waits up to `answer_s_max` for an answer; more than the default is for machines that are
    busy with other things.
    """

    address: Address
    connections: int
    pid: int | None
    growth_bytes_max: int
    answer_s_max: float = ANSWER_S_MAX


def require_loopback(address: Address) -> None:
    """Refuse to throw garbage at other people's servers.

    Raises:
        ConfigError: the host is not this machine.
    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(address.host, address.port)}
    except OSError as error:
        raise ConfigError(f"--connect {address}: the host has no address: {error.strerror}") from error
    if not all(ipaddress.ip_address(ip).is_loopback for ip in found):
        raise ConfigError(
            f"--connect {address}: fuzzing is for servers on this machine; for another one that is yours to break, "
            f'say --remote "I may break this server"'
        )


def resident_bytes(pid: int) -> int:
    """VmRSS of a process.

    Raises:
        BrokenPromiseError: there is no such process (any more).
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError as error:
        raise BrokenPromiseError(PROMISE, f"the server's process {pid} is gone") from error
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise BrokenPromiseError(PROMISE, f"the server's process {pid} has ended")


class LiveFuzz:
    """One run against one server: `frames`, `datagrams`, or both."""

    def __init__(self, seed: int, settings: LiveSettings) -> None:
        self._seed = seed
        self._settings = settings
        self._rng = random.Random(f"zraft/fuzz/live/{seed}")
        self._streams = FrameFuzz(seed, settings.connections)
        self._tally: Counter[str] = Counter()
        self._peak_bytes = 0
        self._done = 0
        self._roots = 0
        self._streams_left = 0

    async def run(self, targets: frozenset[str], count: int, progress: Progress) -> Outcome:
        """Send about `count` inputs per target.

        Raises:
            BrokenPromiseError: a well-behaved client got no or a wrong answer, or memory grew beyond its bound.
            OSError: the server does not listen.
        """
        stop = asyncio.Event()
        await self._begin()
        await self._honest_round(1)
        if self._settings.pid is not None:
            self._tally["resident MB before"] = resident_bytes(self._settings.pid) // 1_000_000
        try:
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self._honest(stop)) for _ in range(HONEST_CLIENTS)]
                if self._settings.pid is not None:
                    beside.append(group.create_task(self._watch_memory(self._settings.pid, stop)))
                hostile = []
                if "frames" in targets:
                    share = -(-count // self._settings.connections)
                    hostile += [
                        group.create_task(self._hostile(share, progress))
                        for _ in range(self._settings.connections)
                    ]
                if "datagrams" in targets:
                    hostile.append(group.create_task(self._datagrams(count, progress)))
                await asyncio.wait(hostile)
                stop.set()
                await self._tidy(self._roots)
        except* BrokenPromiseError as broken:
            raise broken.exceptions[0] from None
        await self._honest_round(1)
        if self._settings.pid is not None:
            self._tally["resident MB at most"] = self._peak_bytes // 1_000_000
            self._tally["resident MB after"] = resident_bytes(self._settings.pid) // 1_000_000
        return Outcome("live", self._seed, self._done, self._peak_bytes, self._tally)

    async def _hostile(self, count: int, progress: Progress) -> None:
        address = self._settings.address
        while count > 0:
            if self._streams_left <= 0:
                await self._next_root()
            self._streams_left -= 1
            stream, frames = self._streams.stream()
            received = bytearray()
            try:
                reader, writer = await asyncio.open_connection(address.host, address.port)
            except OSError as error:
                raise BrokenPromiseError(
                    PROMISE, f"{address} takes no connections any more: {error}"
                ) from error
            # A server that closes on garbage resets the connection: that is an answer, too.
            with contextlib.suppress(ConnectionError):
                for chunk in _pieces(stream, self._rng):
                    writer.write(chunk)
                    await writer.drain()
                # Not for ever: a watch on everything is told of what the well-behaved clients do.
                until = time.monotonic() + FIRST_S + READ_S_MAX
                while len(received) < RECEIVED_BYTES_MAX and time.monotonic() < until:
                    chunk = await _read_quietly(reader, QUIET_S if received else FIRST_S)
                    if not chunk:
                        break
                    received += chunk
            check_beginning(bytes(received), stream, FRAME_BYTES_MAX, self._tally)
            self._tally["closed by the server" if reader.at_eof() else "kept by the server"] += 1
            writer.close()
            count -= frames
            self._done += frames
            progress(frames)

    async def _datagrams(self, count: int, progress: Progress) -> None:
        rng = self._rng
        address = self._settings.address
        family, _, _, _, to = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            for number in range(count):
                datagram = _DATAGRAM_PREFIX.pack(
                    0x7A, 1, rng.randrange(4), *rng.choices(range(5), k=2), bytes(4)
                )
                datagram += rng.randbytes(rng.choice((0, 10, 121, 1_300)))
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sock.sendto(mutate_bytes(datagram, rng), to)
                if number % DATAGRAMS_PER_PAUSE == 0:
                    await asyncio.sleep(DATAGRAM_PAUSE_S)
                self._done += 1
                progress(1)

    async def _watch_memory(self, pid: int, stop: asyncio.Event) -> None:
        before = resident_bytes(pid)
        limit = before + self._settings.growth_bytes_max
        while True:
            now = resident_bytes(pid)
            self._peak_bytes = max(self._peak_bytes, now)
            if now > limit:
                raise BrokenPromiseError(PROMISE, f"process {pid} grew from {before} to {now} bytes")
            if stop.is_set():
                return
            await asyncio.sleep(LOOK_S)

    async def _honest(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._honest_round(10)
            except OSError as error:
                raise BrokenPromiseError(
                    PROMISE, f"a well-behaved client lost its server: {error!r}"
                ) from error

    @contextlib.asynccontextmanager
    async def _session(self) -> AsyncIterator[_Session]:
        """A well-behaved client's session."""
        address = self._settings.address
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            session = _Session(ZkClientCodec(), reader, writer, self._settings.answer_s_max)
            writer.write(session.codec.connect(timeout_ms=10_000))
            (greeting,) = await session.answers(1)
            if not isinstance(greeting, ConnectResponse) or greeting.timeout_ms <= 0:
                raise BrokenPromiseError(PROMISE, f"a well-behaved client got {greeting}")
            yield session
        finally:
            writer.close()

    async def _begin(self) -> None:
        """Well-behaved clients work below a znode of their own: the others may change the ACL of any they know."""
        async with self._session() as session:
            (created,) = await session.ask([session.codec.write((CREATE, HONEST, b"", None, 0, 0))])
            if created.code not in (Code.OK, Code.NODE_EXISTS):
                raise ConfigError(
                    f"--connect {self._settings.address}: cannot create {HONEST}, {created.code!r}: the server must let "
                    "everybody create znodes in its root"
                )

    async def _next_root(self) -> None:
        """Hostile requests go on below another znode, and what they made of the last one is deleted."""
        self._streams_left = STREAMS_PER_ROOT
        self._roots += 1
        root = _root(self._roots)
        async with self._session() as session:
            await session.ask([session.codec.write((CREATE, root, b"", None, 0, 0))])
        self._streams.names = names_below(root)
        await self._tidy(self._roots - 1)

    async def _tidy(self, number: int) -> None:
        """Delete as much of a root as may be deleted: the server's memory shall show what it keeps of bad input."""
        if number:
            async with self._session() as session:
                await _delete_below(session, _root(number))

    async def _honest_round(self, znodes: int) -> None:
        """A session that does the usual things and looks at every answer."""
        async with self._session() as session:
            codec = session.codec
            for _ in range(znodes):
                path = f"{HONEST}/{time.monotonic_ns()}"
                began = time.monotonic()
                replies = await session.ask(
                    [
                        codec.write((CREATE, path, b"1", None, 1, 0)),
                        codec.write((SET_DATA, path, b"2", 0)),
                        codec.read(Opcode.GET_DATA, path),
                        codec.write((DELETE, path, 1)),
                    ]
                )
                slowest = max(
                    self._tally["slowest honest answer in ms"], int((time.monotonic() - began) * 1000)
                )
                self._tally["slowest honest answer in ms"] = slowest
                if (
                    [reply.code for reply in replies] != [Code.OK] * 4
                    or replies[0].value != path
                    or replies[1].value.version != 1
                    or replies[2].value[0] != b"2"
                ):
                    raise BrokenPromiseError(PROMISE, f"a well-behaved client was answered {replies}")
                self._tally["honest requests"] += 4
                await asyncio.sleep(HONEST_PAUSE_S)


@frozen
class _Session:
    codec: ZkClientCodec
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    answer_s_max: float

    async def ask(self, requests: Sequence[tuple[int, bytes]]) -> list[Reply]:
        """Send all, and wait for as many replies."""
        self.writer.write(b"".join(request for _, request in requests))
        return [one for one in await self.answers(len(requests)) if isinstance(one, Reply)]

    async def answers(self, count: int) -> list[object]:
        """The next `count` answers, whatever they are."""
        found: list[object] = []
        while len(found) < count:
            try:
                async with asyncio.timeout(self.answer_s_max):
                    chunk = await self.reader.read(READ_BYTES)
            except TimeoutError as error:
                raise BrokenPromiseError(
                    PROMISE, f"a well-behaved client was not answered in {self.answer_s_max:g} s"
                ) from error
            if not chunk:
                raise BrokenPromiseError(PROMISE, "the connection of a well-behaved client was closed")
            found += self.codec.receive(chunk)
        return found


def _root(number: int) -> str:
    return f"/fuzz{number}"


async def _delete_below(session: _Session, path: str) -> None:
    codec = session.codec
    (listed,) = await session.ask([codec.read(Opcode.GET_CHILDREN, path)])
    if listed.code == Code.OK:
        paths = [f"{path}/{name}" for name in listed.value]
        for begin in range(0, len(paths), DELETES_AT_ONCE):
            some = paths[begin : begin + DELETES_AT_ONCE]
            replies = await session.ask([codec.write((DELETE, one, -1)) for one in some])
            for one, reply in zip(some, replies, strict=True):
                if reply.code == Code.NOT_EMPTY:
                    await _delete_below(session, one)
    await session.ask([codec.write((DELETE, path, -1))])


async def _read_quietly(reader: asyncio.StreamReader, patience_s: float) -> bytes:
    """What came; nothing if the server closed, or says nothing for a while."""
    try:
        async with asyncio.timeout(patience_s):
            return await reader.read(READ_BYTES)
    except TimeoutError:
        return b""


def _pieces(stream: bytes, rng: random.Random) -> Iterator[bytes]:
    while stream:
        size = rng.choice((1, 30, 300, len(stream)))
        yield stream[:size]
        stream = stream[size:]
