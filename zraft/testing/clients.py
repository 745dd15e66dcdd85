"""Owns the simulated ZooKeeper clients: what an application's library does, and what it may believe.

A client speaks ZooKeeper's bytes, pipelines, pings every third of its timeout, gives a connection up
after two thirds of silence, resumes its session on any server and, if its library does so, arms its
watches again. It never sends an operation twice: what was in flight when a connection broke has an
unknown outcome. Every answer is handed to the checkers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from zraft.testing import jute
from zraft.testing.jute import Reader
from zraft.testing.profile import SESSION_TIMEOUTS_MS, Profile
from zraft.testing.schedule import Schedule
from zraft.testing.sockets import ServerEnd, Socket

if TYPE_CHECKING:
    from zraft.testing.client_checks import ClientChecks

IN_FLIGHT_MAX: Final = 16
"""Pipelined requests per connection; enough to fill several batches of one origin."""

CONNECT_TIMEOUT_MS: Final = 250

SHARED_PATHS: Final = ("/k0", "/k1", "/k2")
DIRECTORIES: Final = ("/d", "/e", "/q")
"""Ordinary children; named ephemerals; sequential children."""

CHILDREN_MAX: Final = 12
"""A client prefers deleting to creating in its directory above this many remembered children."""


class Watches:
    """What a client believes to be armed on its connection: path to the zxid since which it is.

    `rearming` is what a setWatches in flight asked for (its data and child watches, and the events that
    came since); None when none is in flight.
    """

    __slots__ = ("child", "data", "rearming")

    def __init__(self) -> None:
        self.data: dict[str, int] = {}
        self.child: dict[str, int] = {}
        self.rearming: tuple[dict[str, int], dict[str, int], int, list[tuple[int, str]]] | None = None


class Call:
    """One request: what was asked, and what was known when it was asked."""

    __slots__ = (
        "body",
        "floor",
        "invoked_ms",
        "nth",
        "opcode",
        "operations",
        "path",
        "reply_zxid",
        "signature",
        "watch",
        "xid",
    )

    def __init__(
        self,
        xid: int,
        opcode: int,
        path: str,
        body: bytes,
        *,
        watch: bool = False,
        signature: tuple[object, ...] | None = None,
        operations: Sequence[int] = (),
    ) -> None:
        self.xid = xid
        self.opcode = opcode
        self.path = path
        self.body = body
        self.watch = watch
        self.signature = signature
        """How the write will stand in the log; None for reads."""
        self.operations = operations
        self.floor = 0
        """The highest zxid that any client had seen acknowledged when this was sent."""
        self.invoked_ms = 0
        self.nth = 0
        self.reply_zxid = 0


class SimulatedClient:
    """One application with one session at a time."""

    def __init__(
        self,
        number: int,
        schedule: Schedule,
        profile: Profile,
        rng: random.Random,
        servers: Sequence[ServerEnd],
        checks: ClientChecks,
    ) -> None:
        self.number = number
        self._schedule = schedule
        self._profile = profile
        self._rng = rng
        self._servers = servers
        self._checks = checks
        self.rearms = rng.random() < 0.5
        """Java's library sends setWatches on reconnect; others, such as kazoo, do not."""
        self.dead = False
        self.paused_until_ms = 0
        self.busy = True
        self.finale = False
        self.finale_done = False
        self.session = 0
        self.password = bytes(16)
        self.timeout_ms = rng.choice(SESSION_TIMEOUTS_MS)
        self.negotiated_ms = self.timeout_ms
        self.last_zxid = 0
        self.socket: Socket | None = None
        self.connected = False
        self.connections = 0
        self._sockets = 0
        self._target = rng.randrange(len(servers))
        self._reached = False
        self._retry_ms = rng.randint(0, 100)
        self._heard_ms = self._sent_ms = 0
        self._xid = 0
        self._token = 0
        self._buffer = bytearray()
        self._flight: deque[Call] = deque()
        self._pings: deque[Call] = deque()
        """Ping answers are out of band: libraries accept them at any place in the stream."""
        self._writes = 0
        self._backlog: list[tuple[Socket, bytes | None]] = []
        self._mine: list[str] = []
        self.watches = Watches()
        self._prepared = False
        schedule.at(self._retry_ms, self._step)

    # -- life
    def _step(self) -> None:
        """The application's and the library's turn; schedules itself."""
        if self.dead:
            return
        now, rng = self._schedule.now_ms, self._rng
        if now < self.paused_until_ms:
            self._schedule.at(self.paused_until_ms, self._step)
            return
        if self._backlog:
            backlog, self._backlog = self._backlog, []
            for socket, data in backlog:
                if socket is not self.socket:
                    continue
                if data is None:
                    self._lost()
                else:
                    self._bytes(data)
        if self.socket is None:
            if now >= self._retry_ms:
                self._connect()
        elif now - self._heard_ms > (self.negotiated_ms * 2 // 3 if self.connected else CONNECT_TIMEOUT_MS):
            self._drop()
        elif self.connected:
            if now - self._sent_ms >= self.negotiated_ms // 3:
                self._request(Call(jute.XID_PING, jute.PING, "", b""))
            if self.finale:
                self._final_step()
            elif self.busy and len(self._flight) < IN_FLIGHT_MAX:
                for _ in range(rng.randint(1, self._profile.burst_max)):
                    if self.connected and len(self._flight) < IN_FLIGHT_MAX:
                        self._operate()
                if self.connected and rng.random() < 0.01:
                    self._drop()
        self._schedule.after(rng.randint(1, self._profile.think_ms_max), self._step)

    def pause(self, until_ms: int) -> None:
        """The application's process stops; what arrives waits in its socket."""
        self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def excuse(self, duration_ms: int) -> None:
        """The machine slept with its clock: the library counts none of it."""
        self._heard_ms += duration_ms
        self._sent_ms += duration_ms
        self._retry_ms += duration_ms

    def die(self, *, silently: bool) -> None:
        """The application is killed: its session must expire."""
        self.dead = True
        if self.socket is not None:
            self.socket.close_from_client(silently=silently)

    def _connect(self) -> None:
        rng = self._rng
        if not self._reached or rng.random() < 0.6:
            self._target = (self._target + 1) % len(self._servers)
        slow = (
            rng.choice((40, 150))
            if not self._profile.gentle and rng.random() < 0.1 and not self.finale
            else 0
        )
        self._sockets += 1
        socket = self.socket = Socket(
            self._schedule,
            rng,
            self.number * 100_000 + self._sockets,
            self,
            self._servers[self._target],
            slow_ms=slow,
            fragment=self._profile.fragment,
        )
        socket.session = self.session
        self._checks.opened(self, socket)
        self._heard_ms = self._sent_ms = self._schedule.now_ms
        self.connected = self._reached = False
        self._buffer.clear()
        self._flight.clear()
        self._pings.clear()
        self._writes = 0
        self._xid = 0
        socket.open()
        socket.to_server(jute.connect_request(self.last_zxid, self.timeout_ms, self.session, self.password))

    def _drop(self) -> None:
        """The client closes its side; what was in flight has an unknown outcome."""
        if self.socket is not None:
            silently = not self._profile.gentle and self._rng.random() < 0.3
            self.socket.close_from_client(silently=silently)
        self._lost()

    def _lost(self) -> None:
        self.socket = None
        self.connected = False
        self._checks.lost(self)
        self._retry_ms = self._schedule.now_ms + self._rng.choice((0, 10, 30, 60))

    # -- asking
    def _request(self, call: Call) -> None:
        assert self.socket is not None
        now = self._schedule.now_ms
        self._sent_ms = call.invoked_ms = now
        if call.signature is not None:
            self._writes += 1
            call.nth = self._writes
        (self._pings if call.opcode == jute.PING else self._flight).append(call)
        self._checks.invoked(self, self.socket, call)
        self.socket.to_server(jute.request(call.xid, call.opcode, call.body))

    def _next_xid(self) -> int:
        self._xid += 1
        return self._xid

    def _data(self) -> bytes:
        """Data that names its write: no two writes of a run carry the same."""
        self._token += 1
        return b"c%d.%d" % (self.number, self._token)

    def _operate(self) -> None:
        rng = self._rng
        if not self._prepared:
            self._prepared = True
            for path in DIRECTORIES + SHARED_PATHS:
                self._create(path, 0)
            return
        roll = rng.random()
        if roll < 0.30:
            self._write(rng)
        elif roll < 0.36:
            self._multi(rng)
        elif roll < 0.40:
            self._request(Call(self._next_xid(), jute.SYNC, "/", jute.text("/")))
        elif roll < 0.404:
            self._request(Call(self._next_xid(), jute.CLOSE, "", b"", signature=(jute.CLOSE,)))
        else:
            self._read(rng)

    def _write(self, rng: random.Random) -> None:
        roll = rng.random()
        if roll < 0.40:
            path = rng.choice(SHARED_PATHS)
            version = -1 if rng.random() < 0.8 else rng.randint(0, 6)
            self._set(path, version)
        elif roll < 0.60 and len(self._mine) < CHILDREN_MAX:
            self._create(self._new_child(), 0)
        elif roll < 0.72 and len(self._mine) < CHILDREN_MAX:
            self._create("/q/n-", 2 | (rng.random() < 0.6))
        elif roll < 0.82:
            self._create(f"/e/c{self.number}", 1)
        elif roll < 0.94 and self._mine:
            self._delete(self._mine.pop(rng.randrange(len(self._mine))), -1)
        elif roll < 0.97:
            self._delete(rng.choice(SHARED_PATHS), -1 if rng.random() < 0.5 else 0)
        else:
            self._create(rng.choice(SHARED_PATHS), 0)

    def _new_child(self) -> str:
        self._token += 1
        path = f"/d/c{self.number}-{self._token}"
        self._mine.append(path)
        return path

    def _create(self, path: str, flags: int) -> None:
        data = self._data()
        opcode = jute.CREATE if self._rng.random() < 0.7 else jute.CREATE2
        signature = (opcode, path, data, flags)
        body = jute.create_body(path, data, flags)
        self._request(Call(self._next_xid(), opcode, path, body, signature=signature))

    def _set(self, path: str, version: int) -> None:
        data = self._data()
        body = jute.set_body(path, data, version)
        signature = (jute.SET_DATA, path, data, version)
        self._request(Call(self._next_xid(), jute.SET_DATA, path, body, signature=signature))

    def _delete(self, path: str, version: int) -> None:
        body = jute.delete_body(path, version)
        self._request(Call(self._next_xid(), jute.DELETE, path, body, signature=(jute.DELETE, path, version)))

    def _multi(self, rng: random.Random) -> None:
        """Set two shared nodes, make a child, perhaps fail on a check: all or nothing."""
        operations: list[tuple[int, bytes]] = []
        signatures: list[tuple[object, ...]] = []
        for path in rng.sample(SHARED_PATHS, 2):
            data = self._data()
            operations.append((jute.SET_DATA, jute.set_body(path, data, -1)))
            signatures.append((jute.SET_DATA, path, data, -1))
        if rng.random() < 0.5 and len(self._mine) < CHILDREN_MAX:
            path, data = self._new_child(), self._data()
            operations.append((jute.CREATE, jute.create_body(path, data, 0)))
            signatures.append((jute.CREATE, path, data, 0))
        if rng.random() < 0.3:
            path = rng.choice(SHARED_PATHS)
            version = rng.randint(0, 30)
            operations.append((jute.CHECK, jute.delete_body(path, version)))
            signatures.append((jute.CHECK, path, version))
        self._request(
            Call(
                self._next_xid(),
                jute.MULTI,
                "",
                jute.multi_body(operations),
                signature=(jute.MULTI, tuple(signatures)),
                operations=[opcode for opcode, _ in operations],
            )
        )

    def _read(self, rng: random.Random) -> None:
        watch = rng.random() < 0.4
        roll = rng.random()
        if roll < 0.55:
            opcode, path = jute.GET_DATA, rng.choice(SHARED_PATHS)
        elif roll < 0.8:
            others = ("/e/c0", "/e/c1", f"/e/c{self.number}", "/k0")
            opcode, path = jute.EXISTS, rng.choice(others)
        elif roll < 0.9:
            opcode, path = jute.GET_CHILDREN, rng.choice(DIRECTORIES)
        else:
            opcode, path = jute.GET_CHILDREN2, rng.choice(DIRECTORIES)
        self._request(Call(self._next_xid(), opcode, path, jute.watch_body(path, watch), watch=watch))

    def _final_step(self) -> None:
        """After healing: a write and a sync must complete; the sync's reply flushes every watch event."""
        if not self._flight and not self.finale_done:
            self._set("/k0", -1)
            self._request(Call(self._next_xid(), jute.SYNC, "/", jute.text("/")))

    # -- being answered
    def received(self, socket: Socket, data: bytes) -> None:
        if socket is not self.socket or self.dead:
            return
        if self._schedule.now_ms < self.paused_until_ms or self._backlog:
            self._backlog.append((socket, data))
        else:
            self._bytes(data)

    def closed(self, socket: Socket) -> None:
        if socket is not self.socket or self.dead:
            return
        if self._schedule.now_ms < self.paused_until_ms or self._backlog:
            self._backlog.append((socket, None))
        else:
            self._lost()

    def _bytes(self, data: bytes) -> None:
        self._heard_ms = self._schedule.now_ms
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4 and self.socket is not None:
            length = int.from_bytes(buffer[:4], "big")
            if len(buffer) < 4 + length:
                return
            body = bytes(buffer[4 : 4 + length])
            del buffer[: 4 + length]
            if self.connected:
                self._reply(Reader(body))
            else:
                self._connect_reply(Reader(body))

    def _connect_reply(self, reader: Reader) -> None:
        timeout, session, password = reader.connect_response()
        reader.finish()
        assert self.socket is not None
        if timeout <= 0:
            self._checks.told_expired(self)
            self._forget_session()
            self._drop()
            return
        self._checks.attached(self, self.socket, session)
        self.session, self.password, self.negotiated_ms = session, password, timeout
        self.socket.session = session
        self.connected = self._reached = True
        self.connections += 1
        if self.rearms and (self.watches.data or self.watches.child):
            data, exist, child = self._checks.rearming(self)
            body = jute.set_watches_body(self.last_zxid, data, exist, child)
            self._request(Call(jute.XID_SET_WATCHES, jute.SET_WATCHES, "", body))

    def _forget_session(self) -> None:
        self.session, self.password = 0, bytes(16)
        self.watches = Watches()

    def _reply(self, reader: Reader) -> None:
        xid, zxid, err = reader.header()
        if xid == jute.XID_EVENT:
            kind, _, path = reader.integer(), reader.integer(), reader.text()
            reader.finish()
            self._checks.event(self, zxid, kind, path)
            return
        waiting = self._pings if xid == jute.XID_PING else self._flight
        if not waiting:
            self._checks.fail("fifo", f"C{self.number} gets reply {xid} without a request")
        call = waiting.popleft()
        if call.xid != xid:
            self._checks.fail("fifo", f"C{self.number} gets reply {xid}, the next is {call.xid}")
        call.reply_zxid = zxid
        self._checks.reply(self, call, zxid, err, reader)
        self.last_zxid = max(self.last_zxid, zxid)
        if call.opcode == jute.SYNC and self.finale:
            self.finale_done = True
        if call.opcode == jute.CLOSE and err == 0:
            self._forget_session()
            self._drop()
