"""Sessions of ZooKeeper's protocol that keep requests under way, for comparisons in which the generator must cost little.

A request is made of bytes that are ready, and has no coroutine and no future: what arrives at a time is answered by one
write. A session sees that answers come in the order of its requests and that zxids do not go back; it is lost
otherwise. A session that is lost is not opened again, and what it had under way has failed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import cycle, islice, repeat
from struct import Struct
from typing import Any, Final, cast

from zraft_bench.load.workers import FAILURE_PAUSE_S, Clock, Recorder
from zraft_bench.load.workload import Operation, Share, Values, Workload
from zraft_bench.results import Part
from zraft_bench.targets.target import RequestFailedError
from zraft_core.address import Address, parse_address
from zraft_core.errors import Code
from zraft_core.wire.client_requests import CloseSession, Create, Delete, GetData, Request, SetData
from zraft_core.wire.connect import (
    NO_PASSWORD,
    ConnectRequest,
    decode_connect_response,
    encode_connect_request,
)
from zraft_core.wire.jute import INT

SESSION_TIMEOUT_MS: Final = 30_000
PREPARED_UNDER_WAY: Final = 200
"""Requests that are under way while znodes are made and removed."""

VALUES_PER_KEY: Final = 4
"""Different values that are written to a key in turn."""

MIXED_REQUESTS: Final = 1_000
"""The length of the random order in which a session reads and writes, before it comes again."""

_SIZE: Final = Struct(">i")
_REQUEST: Final = Struct(">ii")
"""Length of what follows, xid."""
_ANSWER: Final = Struct(">iiqi")
"""Length of what follows, xid, zxid, error."""
_SIZE_BYTES: Final = 4


def made(request: Request[Any]) -> bytes:
    """Return what a request's frame holds after its xid."""
    return INT.pack(request.opcode) + request.body()


class Session(asyncio.Protocol):
    """One session.

    Attributes:
        recorder: is told of each answer.
        answered: the number of answers to what it was last given to carry out, errors among them.
    """

    def __init__(self, recorder: Recorder, clock: Clock) -> None:
        self.recorder = recorder
        self.answered = 0
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._requests: Iterator[bytes] = iter(())
        self._sent: deque[float] = deque()
        self._rest = b""
        self._xid = 0
        self._zxid = 0

    @property
    def lost(self) -> bool:
        """True if nothing more can be asked."""
        return self._transport is None

    async def open(self, address: Address, deadline_s: float) -> None:
        """Connect and ask for a session.

        Raises:
            RequestFailedError: it was not granted in time; the message says why.
        """
        loop = asyncio.get_running_loop()
        self._opening = loop.create_future()
        try:
            async with asyncio.timeout(deadline_s):
                await loop.create_connection(lambda: self, address.host, address.port)
                await self._opening
        except TimeoutError:
            self.abort()
            raise RequestFailedError(f"{address}: no session within {deadline_s:g} s") from None
        except OSError as error:
            raise RequestFailedError(f"{address}: {error}") from error

    async def carry_out(self, requests: Iterable[bytes], under_way: int, deadline_s: float) -> None:
        """Send requests, so many under way at a time, and return when all are answered or the session is lost.

        Raises:
            RequestFailedError: they were not answered within the deadline after `stop`, or after the call.
        """
        self._requests = iter(requests)
        self._idle = asyncio.get_running_loop().create_future()
        self._send(under_way, self._clock())
        if not self._sent:
            return
        try:
            async with asyncio.timeout(deadline_s):
                await self._idle
        except TimeoutError:
            raise RequestFailedError(f"no answer within {deadline_s:g} s", unknown=True) from None

    def stop(self) -> None:
        """Send nothing more; what is under way is still answered."""
        self._requests = iter(())

    async def close(self, deadline_s: float) -> None:
        """End the session and the connection."""
        await self.carry_out([made(CloseSession())], 1, deadline_s)
        self.abort()

    def abort(self) -> None:
        """End the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, count: int, now: float) -> None:
        transport, xid = self._transport, self._xid
        if transport is None:
            return
        parts: list[bytes] = []
        for body in islice(self._requests, count):
            xid += 1
            parts += (_REQUEST.pack(len(body) + _SIZE_BYTES, xid), body)
        if parts:
            self._sent.extend(repeat(now, xid - self._xid))
            self._xid = xid
            transport.write(b"".join(parts))

    def _lose(self, why: str) -> None:
        error = RequestFailedError(why, unknown=True)
        self.abort()
        self._transport = None
        for _ in self._sent:
            self.recorder.fail(error)
        self._sent.clear()
        self.stop()
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(error)
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a session."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(
            encode_connect_request(ConnectRequest(0, 0, SESSION_TIMEOUT_MS, 0, NO_PASSWORD, False))
        )

    def data_received(self, data: bytes) -> None:
        """Note what is answered, and send as many requests again."""
        now = self._clock()
        data = self._rest + data if self._rest else data
        at = 0
        if self._opening is not None and not self._opening.done():
            at = self._take_session(data)
            if not at:
                self._rest = data
                return
        sent, end = self._sent, len(data)
        durations = self.recorder.durations
        before = len(sent)
        expected = self._xid - before
        zxid = self._zxid
        while end - at >= _ANSWER.size:
            size, xid, new_zxid, code = _ANSWER.unpack_from(data, at)
            if end - at < size + _SIZE_BYTES:
                break
            at += size + _SIZE_BYTES
            expected += 1
            if xid != expected or new_zxid < zxid:
                self._lose(
                    f"found answer {xid} with zxid {new_zxid}, expected {expected} with {zxid} or later"
                )
                return
            zxid = new_zxid
            began = sent.popleft()
            if code:
                self.recorder.fail(RequestFailedError(_name(code)))
            else:
                durations.append(now - began)
        self._zxid = zxid
        self._rest = data[at:]
        answered = before - len(sent)
        self.answered += answered
        self._send(answered, now)
        if not sent and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _take_session(self, data: bytes) -> int:
        """Return where the answer to the request for a session ends; 0 if it is not all here."""
        if len(data) < _SIZE_BYTES or len(data) < _SIZE_BYTES + _SIZE.unpack_from(data)[0]:
            return 0
        end: int = _SIZE_BYTES + _SIZE.unpack_from(data)[0]
        assert self._opening is not None
        if decode_connect_response(data[_SIZE_BYTES:end]).timeout_ms > 0:
            self._opening.set_result(None)
        else:
            self._lose("no session was granted")
        return end

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way."""
        if self._transport is not None:
            self._lose(f"the connection was lost: {exc or 'closed by the server'}")


def _name(code: int) -> str:
    try:
        return Code(code).name
    except ValueError:
        return f"error {code}"


class SessionLoad:
    """The sessions of `share`: each keeps `workload.under_way` requests under way for the measured time.

    Sessions begin at different servers. What is answered after the measured time is not counted.
    """

    def __init__(
        self,
        workload: Workload,
        share: Share,
        hosts: str,
        place: str,
        *,
        clock: Clock = time.monotonic,
        cpu_clock: Clock = time.process_time,
    ) -> None:
        assert workload.under_way is not None
        self._workload = workload
        self._under_way = workload.under_way
        self._addresses = [parse_address(part, "hosts") for part in hosts.split(",")]
        self._place = f"/{place}"
        self._parent = f"{self._place}/of-{share.first_worker}"
        """The parent of this process' sequential znodes, which has no others: so their numbers are known."""
        first, count = share.first_worker // self._under_way, share.workers // self._under_way
        self._numbers = Share(first, count, share.all_workers // self._under_way)
        self._values = Values(workload.value_bytes, workload.seed + share.first_worker)
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._cpu_ended = 0.0
        self._recorder = Recorder()
        self._sessions: list[Session] = []
        self._visiting = False

    async def prepare(self) -> None:
        """Open the sessions, make the znodes, and warm up.

        Raises:
            RequestFailedError: a session was not granted or was lost, or a znode could not be made.
        """
        if self._workload.operation is not Operation.VISIT:
            for number in self._numbers:
                self._sessions.append(await self._open(number))
            await self._alone([self._made(self._place)], Code.NODE_EXISTS)
            await self._alone([self._made(path) for path in self._made_before()], Code.NODE_EXISTS)
        if self._workload.warm_up_s:
            await self._for(self._workload.warm_up_s)
        if lost := sum(session.lost for session in self._sessions):
            raise RequestFailedError(f"{lost} of {len(self._sessions)} sessions were lost while it warmed up")

    async def run(self) -> Part:
        """Run the load for the measured time, and return what was seen in it."""
        began, cpu = self._clock(), self._cpu_clock()
        recorder = await self._for(self._workload.seconds_min)
        return recorder.part(
            workers=self._numbers.workers * self._under_way,
            connections=self._numbers.workers,
            began=began,
            ended=recorder.last_answer,
            cpu_s=self._cpu_ended - cpu,
            open_loop=False,
        )

    async def finish(self) -> None:
        """Remove the sequential znodes, so that the tests after this one have no more to hold than those before it.

        Raises:
            RequestFailedError: they could not be removed.
        """
        if self._workload.operation is Operation.CREATE_SEQUENTIAL:
            created = sum(session.answered for session in self._sessions)
            names = (f"{self._parent}/n-{number:010}" for number in range(created))
            await self._alone((made(Delete(name)) for name in names), Code.NO_NODE)

    async def close(self) -> None:
        """End all sessions."""
        deadline_s = self._workload.deadline_s
        held = (session for session in self._sessions if not session.lost)
        await asyncio.gather(*(session.close(deadline_s) for session in held), return_exceptions=True)

    # -- load

    async def _for(self, seconds: float) -> Recorder:
        """Let all sessions work for so long, and return what was answered meanwhile."""
        recorder = self._recorder = Recorder()
        for session in self._sessions:
            session.recorder = recorder
        self._visiting = self._workload.operation is Operation.VISIT
        deadline_s = seconds + self._workload.deadline_s
        if self._visiting:
            work = [self._visit(number) for number in self._numbers]
        else:
            work = [
                session.carry_out(self._requests(number), self._under_way, deadline_s)
                for number, session in zip(self._numbers, self._sessions, strict=True)
            ]
        working = asyncio.gather(*work)
        await asyncio.wait([working], timeout=seconds)
        recorder.last_answer, self._cpu_ended = self._clock(), self._cpu_clock()
        self._visiting = False
        self._recorder = Recorder()
        for session in self._sessions:
            session.recorder = self._recorder
            session.stop()
        await working
        return recorder

    async def _visit(self, number: int) -> None:
        """Open and close one session after the other."""
        while self._visiting:
            began, recorder = self._clock(), self._recorder
            try:
                session = await self._open(number)
                await session.close(self._workload.deadline_s)
            except RequestFailedError as error:
                recorder.fail(error)
                await asyncio.sleep(FAILURE_PAUSE_S)
                continue
            if recorder is self._recorder:
                recorder.durations.append(self._clock() - began)

    async def _open(self, number: int) -> Session:
        session = Session(Recorder(), self._clock)
        await session.open(self._addresses[number % len(self._addresses)], self._workload.deadline_s)
        return session

    async def _alone(self, requests: Iterable[bytes], expected: Code) -> None:
        """Let the first session carry out what is not measured; `expected` is no failure."""
        session = self._sessions[0]
        recorder = session.recorder = Recorder()
        await session.carry_out(requests, PREPARED_UNDER_WAY, self._workload.deadline_s)
        session.answered = 0
        if failed := recorder.failures.keys() - {expected.name}:
            raise RequestFailedError(", ".join(sorted(failed)))

    # -- requests

    def _keys(self, number: int) -> list[str]:
        return [f"{self._place}/{key}" for key in self._numbers.entries_of(self._workload, number)]

    def _made_before(self) -> list[str]:
        if self._workload.operation is Operation.CREATE_SEQUENTIAL:
            return [self._parent]
        return [path for number in self._numbers for path in self._keys(number)]

    def _made(self, path: str) -> bytes:
        return made(Create(path, self._values.next()))

    def _requests(self, number: int) -> Iterator[bytes]:
        """Return what a session asks for, without an end."""
        operation = self._workload.operation
        if operation is Operation.CREATE_SEQUENTIAL:
            return repeat(made(Create(f"{self._parent}/n-", self._values.next(), sequential=True)))
        paths = self._keys(number)
        reads = [made(GetData(path)) for path in paths]
        if operation is Operation.READ:
            return cycle(reads)
        writes = [made(SetData(path, self._values.next())) for _ in range(VALUES_PER_KEY) for path in paths]
        if operation is Operation.WRITE:
            return cycle(writes)
        rng = random.Random(f"{self._workload.seed}/{number}")
        share = self._workload.read_share
        return cycle([rng.choice(reads if rng.random() < share else writes) for _ in range(MIXED_REQUESTS)])
