"""Owns the simulated ZooKeeper clients: what an application's library does, and what it may believe.

A client speaks ZooKeeper's bytes, pipelines, pings every third of its timeout, gives a connection up
after two thirds of silence, resumes its session on any server, proves again who it is and, if its library
does so, arms its watches again. It never sends an operation twice: what was in flight when a connection broke has an
unknown outcome. Every answer is handed to the checkers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tests.simulation import jute, operations, rights
from tests.simulation.calls import Call, Watches
from tests.simulation.jute import Reader
from tests.simulation.profile import SESSION_TIMEOUTS_MS, Profile
from tests.simulation.rights import Acl, Ids
from tests.simulation.schedule import Schedule
from tests.simulation.sockets import ServerEnd, Socket

if TYPE_CHECKING:
    from tests.simulation.client_checks import ClientChecks

IN_FLIGHT_MAX: Final = 16
"""Pipelined requests per connection; enough to fill several batches of one origin."""

CONNECT_TIMEOUT_MS: Final = 250

CALM_THINK_MS_MAX: Final = 240

SHARED_PATHS: Final = ("/k0", "/k1", "/k2")
DIRECTORIES: Final = ("/d", "/e", "/q")
"""Ordinary children; named ephemerals; sequential children."""

CHILDREN_MAX: Final = 12
"""A client prefers deleting to creating in its directory above this many remembered children."""

MORE_THAN_BASICS: Final = 0.24
"""How much of what an application asks is `tests.simulation.operations`."""

Part = tuple[int, bytes, tuple[object, ...]]
"""One operation of a multi: opcode, body, and how it will stand in the log."""


class SimulatedClient:
    """One application with one session at a time.

    A `reader` is one that is content with a server that cannot write now: it asks for a new session each time.
    """

    def __init__(
        self,
        number: int,
        schedule: Schedule,
        profile: Profile,
        rng: random.Random,
        servers: Sequence[ServerEnd],
        checks: ClientChecks,
        *,
        reader: bool = False,
    ) -> None:
        self.number = number
        self.reader = reader
        self._schedule = schedule
        self._profile = profile
        self._rng = rng
        self._servers = servers
        self._checks = checks
        self.rearms = rng.random() < 0.5
        """Java's library sends setWatches on reconnect; others, such as kazoo, do not."""
        self.dead = False
        self.paused_until_ms = 0
        self._awakenings = 0
        self.busy = True
        self.calm = False
        """It asks for one thing at a time, and seldom."""
        self.finale = False
        self.finale_done = False
        self.session = 0
        self.password = bytes(16)
        self.timeout_ms = rng.choice(SESSION_TIMEOUTS_MS)
        self.negotiated_ms = self.timeout_ms
        self.last_zxid = 0
        self.answered_zxid = 0
        """Of the last answer in order, which pings and events are not: nothing asked later was looked at before it."""
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
        self.read_only = False
        """Connected to a server without a quorum."""
        self.credentials: list[str] = []
        """What the library sends again on every connection, in order."""
        if rng.random() < 0.6:
            self.credentials.append(rng.choice((f"c{number}:secret", *operations.SHARED_USERS)))
        self.ids: Ids = ()
        """What this connection has proved, as far as it was answered."""
        self.ids_of_next: Ids = ()
        """What this connection will have proved when the next request is looked at."""
        self.doomed = False
        """An auth was sent that ends the connection: nothing that comes after it may happen."""
        self._prepared = reader
        schedule.at(self._retry_ms, self._step)

    # -- life
    def _step(self, awakenings: int = 0) -> None:
        """The application's and the library's turn; schedules itself."""
        if self.dead or awakenings != self._awakenings:
            return
        now, rng = self._schedule.now_ms, self._rng
        if now < self.paused_until_ms:
            self._schedule.at(self.paused_until_ms, self._step, awakenings)
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
            self.drop()
        elif self.connected:
            if now - self._sent_ms >= self.negotiated_ms // 3:
                self.request(Call(jute.XID_PING, jute.PING, "", b""))
            if self.finale:
                self._final_step()
            elif self.busy and len(self._flight) < IN_FLIGHT_MAX:
                for _ in range(1 if self.calm else rng.randint(1, self._profile.burst_max)):
                    if self.connected and len(self._flight) < IN_FLIGHT_MAX:
                        self._operate()
                if self.connected and rng.random() < 0.01:
                    self.drop()
        think_ms_max = self._profile.think_ms_max
        if self.calm and self.connected and not self.finale:
            think_ms_max = max(think_ms_max, CALM_THINK_MS_MAX)
        self._schedule.after(rng.randint(1, think_ms_max), self._step, awakenings)

    @property
    def idle(self) -> bool:
        """It is connected, and everything that it asked for was answered."""
        return self.connected and not self._flight

    def stay_at(self, server: ServerEnd) -> None:
        """Connect to no other server; from the next connection on."""
        self._servers = [server]
        self._target = 0

    def pause(self, until_ms: int) -> None:
        """The application's process stops; what arrives waits in its socket."""
        self.paused_until_ms = max(self.paused_until_ms, until_ms)

    def wake(self) -> None:
        """The pause ends before its time."""
        self._awakenings += 1
        self.paused_until_ms = self._retry_ms = self._schedule.now_ms
        self._step(self._awakenings)

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
        self.ids = self.ids_of_next = (rights.ADDRESS_ID,)
        self.doomed = self.read_only = False
        socket.open()
        socket.to_server(
            jute.connect_request(
                self.last_zxid, self.timeout_ms, self.session, self.password, read_only=self.reader
            )
        )

    def drop(self) -> None:
        """The client closes its side; what was in flight has an unknown outcome."""
        if self.socket is not None:
            silently = not self._profile.gentle and self._rng.random() < 0.3
            self.socket.close_from_client(silently=silently)
        self._lost()

    def _lost(self) -> None:
        self.socket = None
        self.connected = False
        self._checks.lost(self)
        if self.reader:
            self._forget_session()
        self._retry_ms = self._schedule.now_ms + self._rng.choice((0, 10, 30, 60))

    # -- asking
    def request(self, call: Call) -> None:
        """Send it; its answer is checked when it comes."""
        assert self.socket is not None
        now = self._schedule.now_ms
        self._sent_ms = call.invoked_ms = now
        call.ids = self.ids_of_next
        if call.signature is not None:
            self._writes += 1
            call.nth = self._writes
        (self._pings if call.opcode == jute.PING else self._flight).append(call)
        self._checks.invoked(self, self.socket, call)
        self.socket.to_server(jute.request(call.xid, call.opcode, call.body))

    def next_xid(self) -> int:
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
            for path in DIRECTORIES + SHARED_PATHS + operations.DIRECTORIES:
                self.create(path, 0)
            return
        if self.reader:
            self._operate_reader(rng)
            return
        roll = rng.random()
        if roll < MORE_THAN_BASICS:
            operations.ask(self, rng)
            return
        roll = rng.random()
        if roll < 0.30:
            self._write(rng)
        elif roll < 0.36:
            self._multi(rng)
        elif roll < 0.40:
            self._sync()
        elif roll < 0.404:
            self._close_session()
        else:
            self._read(rng)

    def _operate_reader(self, rng: random.Random) -> None:
        """Reads; with a quorum it soon goes, to look for a server that has none."""
        roll = rng.random()
        if roll < 0.4:
            self._read(rng)
        elif roll < 0.8:
            operations.ask_reading(self, rng)
        elif not self.read_only or roll < 0.85:
            self._close_session()
        elif roll < 0.9:
            self._sync()
        else:
            self._write(rng)

    def _write(self, rng: random.Random) -> None:
        roll = rng.random()
        if roll < 0.40:
            path = rng.choice(SHARED_PATHS)
            version = -1 if rng.random() < 0.8 else rng.randint(0, 6)
            self.set(path, version)
        elif roll < 0.60 and len(self._mine) < CHILDREN_MAX:
            self.create(self._new_child(), 0)
        elif roll < 0.72 and len(self._mine) < CHILDREN_MAX:
            self.create("/q/n-", 2 | (rng.random() < 0.6))
        elif roll < 0.82:
            self.create(f"/e/c{self.number}", 1)
        elif roll < 0.94 and self._mine:
            self.delete(self._mine.pop(rng.randrange(len(self._mine))), -1)
        elif roll < 0.97:
            self.delete(rng.choice(SHARED_PATHS), -1 if rng.random() < 0.5 else 0)
        else:
            self.create(rng.choice(SHARED_PATHS), 0)

    def _new_child(self) -> str:
        self._token += 1
        path = f"/d/c{self.number}-{self._token}"
        self._mine.append(path)
        return path

    def write(self, opcode: int, path: str, body: bytes, signature: tuple[object, ...]) -> None:
        self.request(Call(self.next_xid(), opcode, path, body, signature=signature))

    def creation(
        self,
        opcode: int,
        path: str,
        flags: int,
        *,
        acl: Acl | None = None,
        ttl_ms: int | None = None,
        data: bytes | None = None,
    ) -> Part:
        """A create of any kind, alone or as a part; `data` names the write unless it is given."""
        data = self._data() if data is None else data
        return (
            opcode,
            jute.create_body(path, data, flags, acl, ttl_ms),
            (opcode, path, data, acl, flags, ttl_ms or 0),
        )

    def deletion(self, path: str) -> Part:
        return jute.DELETE, jute.delete_body(path, -1), (jute.DELETE, path, -1)

    def setting(self, path: str) -> Part:
        data = self._data()
        return jute.SET_DATA, jute.set_body(path, data, -1), (jute.SET_DATA, path, data, -1)

    def checking(self, path: str, version: int) -> Part:
        return jute.CHECK, jute.delete_body(path, version), (jute.CHECK, path, version)

    def create(
        self,
        path: str,
        flags: int,
        *,
        opcode: int | None = None,
        acl: Acl | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        if opcode is None:
            opcode = jute.CREATE if self._rng.random() < 0.7 else jute.CREATE2
        _, body, signature = self.creation(opcode, path, flags, acl=acl, ttl_ms=ttl_ms)
        self.write(opcode, path, body, signature)

    def set(self, path: str, version: int, data: bytes | None = None) -> None:
        data = self._data() if data is None else data
        body = jute.set_body(path, data, version)
        self.write(jute.SET_DATA, path, body, (jute.SET_DATA, path, data, version))

    def delete(self, path: str, version: int) -> None:
        self.write(jute.DELETE, path, jute.delete_body(path, version), (jute.DELETE, path, version))

    def multi(self, parts: Sequence[Part]) -> None:
        """All or nothing."""
        self.request(
            Call(
                self.next_xid(),
                jute.MULTI,
                "",
                jute.multi_body([(opcode, body) for opcode, body, _ in parts]),
                signature=(jute.MULTI, tuple(signature for _, _, signature in parts)),
                operations=[opcode for opcode, _, _ in parts],
            )
        )

    def _multi(self, rng: random.Random) -> None:
        """Set two shared nodes, make a child, perhaps fail on a check."""
        parts = [self.setting(path) for path in rng.sample(SHARED_PATHS, 2)]
        if rng.random() < 0.5 and len(self._mine) < CHILDREN_MAX:
            parts.append(self.creation(jute.CREATE, self._new_child(), 0))
        if rng.random() < 0.3:
            parts.append(self.checking(rng.choice(SHARED_PATHS), rng.randint(0, 30)))
        self.multi(parts)

    def _sync(self) -> None:
        self.query(jute.SYNC, "/")

    def _close_session(self) -> None:
        """A session that only a server without a quorum knows is not in the log, nor is its end."""
        signature = None if self.read_only else (jute.CLOSE,)
        self.request(Call(self.next_xid(), jute.CLOSE, "", b"", signature=signature))

    def query(self, opcode: int, path: str) -> None:
        """A request with nothing but a path."""
        self.request(Call(self.next_xid(), opcode, path, jute.text(path)))

    def read(self, opcode: int, path: str, *, watch: bool) -> None:
        self.request(Call(self.next_xid(), opcode, path, jute.watch_body(path, watch), watch=watch))

    def on_watches(self, opcode: int, path: str, number: int) -> None:
        """addWatch, checkWatches, removeWatches."""
        body = jute.path_and_number(path, number)
        self.request(Call(self.next_xid(), opcode, path, body, number=number))

    def learn(self, credentials: str) -> None:
        """Be one more user, on this connection and on those that follow."""
        if credentials not in self.credentials:
            self.credentials.append(credentials)
        self.authenticate(credentials)

    def authenticate(self, credentials: str, scheme: str = "digest") -> None:
        self.doomed |= scheme != "digest"
        if not self.doomed:
            self.ids_of_next = tuple(dict.fromkeys(self.ids_of_next + rights.proved_by(credentials)))
        body = jute.auth_body(scheme, credentials.encode())
        self.request(Call(jute.XID_AUTH, jute.AUTH, scheme, body))

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
        self.read(opcode, path, watch=watch)

    def _final_step(self) -> None:
        """After healing: a write and a sync must complete; the sync's reply flushes every watch event."""
        if not self._flight and not self.finale_done:
            self.set("/k0", -1)
            self._sync()

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
        timeout, session, password, read_only = reader.connect_response()
        reader.finish()
        assert self.socket is not None
        if timeout <= 0:
            self._checks.told_expired(self)
            self._forget_session()
            self.drop()
            return
        self._checks.attached(self, self.socket, session, read_only=read_only)
        self.read_only = read_only
        self.answered_zxid = self.last_zxid
        self.session, self.password, self.negotiated_ms = session, password, timeout
        self.socket.session = session
        self.connected = self._reached = True
        self.connections += 1
        # In the order of Java's library: who this is first, then its watches, then what the application asks.
        for credentials in self.credentials:
            self.authenticate(credentials)
        watches = self.watches
        if self.rearms and watches:
            lasting = watches.lasting
            persistent, recursive = list(watches.persistent), list(watches.recursive)
            body = jute.set_watches_body(self.last_zxid, *self._checks.rearming(self))
            if lasting:
                body += jute.texts(persistent) + jute.texts(recursive)
            opcode = jute.SET_WATCHES2 if lasting else jute.SET_WATCHES
            self.request(Call(jute.XID_SET_WATCHES, opcode, "", body))

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
        if xid != jute.XID_PING:
            self.answered_zxid = max(self.answered_zxid, zxid)
        if call.opcode == jute.SYNC and self.finale and err == 0:
            self.finale_done = True
        if call.opcode == jute.CLOSE and err == 0:
            self._forget_session()
            self.drop()
