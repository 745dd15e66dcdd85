"""One of the two systems: its servers, the sessions that the script has on it, and what they are told."""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from tests.compat.differential.protocol import (
    AUTH_FAILED,
    MARSHALLING_ERROR,
    RESERVED_XIDS,
    UNIMPLEMENTED,
    WRITES,
    Closed,
    Connected,
    Event,
    LastZxid,
    Made,
    Observed,
    Op,
    Reader,
    Reply,
    SessionId,
    Silent,
    Zxid,
    ZxidOf,
    decode_body,
    encode_connect,
    encode_request,
    framed,
)
from tests.compat.differential.script import Attach, Requests, Round
from tests.simulation.jute import (
    CLOSE,
    SYNC,
    XID_EVENT,
)
from tests.so_far import so_far

NO_PASSWORD: Final = bytes(16)
ANSWER_S: Final = 10.0
"""How long a server may take for an answer; far more than it does."""
ENDING: Final = (UNIMPLEMENTED, AUTH_FAILED)
"""After these the server closes the connection."""
CONNECT_TRIES: Final = 40
CONNECT_PAUSE_S: Final = 0.25
SYNC_XID: Final = 0x7000_0000
SYNC_STEP: Final = -1
"""The step number of what the run itself asks, to bring every session up to date after a round."""


class SilentError(Exception):
    """A server did not answer in time."""


@define
class Session:
    """A session as its client knows it."""

    server: int
    timeout_ms: int = 0
    number: int = 0
    password: bytes = NO_PASSWORD
    last_zxid: int = 0
    xid: int = 0
    connection: Connection | None = None


class Connection:
    """A socket and what has been asked on it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=ANSWER_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending: deque[tuple[int, int, int]] = deque()
        self._received = b""

    def frame(self) -> bytes | None:
        """The next frame, None at the end of the connection."""
        while True:
            if len(self._received) >= 4:
                (size,) = struct.unpack_from(">i", self._received)
                if len(self._received) >= 4 + size:
                    body = self._received[4 : 4 + size]
                    self._received = self._received[4 + size :]
                    return body
            try:
                chunk = self.socket.recv(1 << 16)
            except TimeoutError:
                raise SilentError from None
            except ConnectionError:
                return None
            if not chunk:
                return None
            self._received += chunk

    def close(self) -> None:
        self.socket.close()


@define
class Side:
    """A system under comparison, by the addresses of its servers."""

    name: str
    servers: Sequence[tuple[str, int]]
    syncs_again: bool = False
    """In ZooKeeper a sync at the leader is answered like a read, perhaps just before what was committed is applied."""
    connects_again: int = 0
    """How often a connection was closed without a word instead of being given a session."""
    sessions: dict[str, Session] = field(factory=dict)
    _made: dict[int, str] = field(factory=dict)
    _zxids: dict[int, int] = field(factory=dict)

    # -- a round

    def begin(self, one: Round) -> None:
        """Send what the round sends, as far as that needs no answer."""
        session = self.sessions.setdefault(one.session, Session(one.server))
        match one:
            case Requests():
                if session.connection is not None:
                    self._send(session, one)
            case Attach():
                if session.connection is not None:
                    session.connection.close()
                    session.connection = None
                session.server = one.server

    def finish(self, one: Round) -> list[Observed]:
        """What the round's session is told, in order."""
        session = self.sessions[one.session]
        told: list[Observed] = []
        match one:
            case Requests():
                if so_far(session.connection) is None:
                    # Closed by the server or by the script before; the same on both sides, or it was reported.
                    told += self._connect(session, 30_000, None)
                    if session.connection is None:
                        return told
                    self._send(session, one)
                told += self._drain(session)
            case Attach():
                told += self._connect(session, one.timeout_ms, one.password)
        return told

    def begin_sync(self, but: str) -> None:
        """Ask every other session to catch up with the leader, which brings its events."""
        for name, session in self.sessions.items():
            if name != but and session.connection is not None:
                self._write(session, [(SYNC_STEP, Op(SYNC, ("/",)))])

    def finish_sync(self, but: str) -> dict[str, list[Observed]]:
        """What the others were told meanwhile."""
        return {
            name: self._caught_up(session)
            for name, session in self.sessions.items()
            if name != but and session.connection is not None
        }

    def _caught_up(self, session: Session) -> list[Observed]:
        told = self._drain(session)
        while (
            self.syncs_again
            and session.connection is not None
            and isinstance(told[-1], Reply)
            and told[-1].zxid < max(one.last_zxid for one in self.sessions.values())
        ):
            del told[-1]
            self._write(session, [(SYNC_STEP, Op(SYNC, ("/",)))])
            told += self._drain(session)
        return told

    def close(self) -> None:
        """End every session."""
        for session in self.sessions.values():
            if session.connection is not None:
                self._write(session, [(SYNC_STEP, Op(CLOSE, ()))])
        for session in self.sessions.values():
            if session.connection is not None:
                session.connection.socket.settimeout(ANSWER_S / 10)
                self._drain(session)
                if session.connection is not None:
                    session.connection.close()
        self.sessions.clear()

    def ask(self, name: str, op: Op) -> Reply | None:
        """One request of the run's own, its answer; events are thrown away."""
        session = self.sessions.setdefault(name, Session(0))
        if session.connection is None:
            told = self._connect(session, 30_000, None)
            if session.connection is None:
                raise SilentError(f"{self.name}: no session for {name}: {told}")
        self._write(session, [(SYNC_STEP, op)])
        return next((one for one in self._drain(session) if isinstance(one, Reply)), None)

    def probe(self, name: str, op: Op) -> Reply | None:
        """One request of the run's own by a session of the script, which must have nothing else to hear."""
        session = self.sessions[name]
        if session.connection is None:
            return None
        self._write(session, [(SYNC_STEP, op)])
        return next((one for one in self._drain(session) if isinstance(one, Reply)), None)

    # -- bytes

    def _send(self, session: Session, one: Requests) -> None:
        self._write(session, one.steps)

    def _write(self, session: Session, steps: Iterable[tuple[int, Op]]) -> None:
        assert session.connection is not None
        out = []
        for step, op in steps:
            xid = RESERVED_XIDS.get(op.opcode)
            if step == SYNC_STEP:
                xid = SYNC_XID
            elif xid is None:
                session.xid += 1
                xid = session.xid
            session.connection.pending.append((step, xid, op.opcode))
            out.append(encode_request(op, xid, self._resolve))
        try:
            session.connection.socket.sendall(b"".join(out))
        except ConnectionError:
            pass  # read on: what the server said before it closed counts

    def _resolve(self, value: Any) -> Any:
        match value:
            case Made(step, instead):
                return self._made.get(step, instead)
            case ZxidOf(step):
                return self._zxids.get(step, 0)
        return value

    def _connect(self, session: Session, timeout_ms: int, password: bytes | None) -> list[Observed]:
        """`password` None is the session's own; with a wrong one it is refused, and lives on.

        Were it forgotten, it would expire later, at another moment on each side.
        """
        asked = encode_connect(
            timeout_ms, session.number, session.password if password is None else password, session.last_zxid
        )
        for _ in range(CONNECT_TRIES):
            connection = Connection(self.servers[session.server])
            connection.socket.sendall(asked)
            body = connection.frame()
            if body is not None:
                break
            # Closed without a word: during an election, or behind this client; clients try again.
            connection.close()
            self.connects_again += 1
            time.sleep(CONNECT_PAUSE_S)
        else:
            return [Closed()]
        reader = Reader(body)
        _, timeout, number = reader.take(">iiq")
        given = reader.buffer() or b""
        told: list[Observed] = [
            Connected(timeout, SessionId(number), len(given), bool(reader.take(">B")), given)
        ]
        if timeout <= 0:
            if password is None:
                session.number, session.password, session.last_zxid = 0, NO_PASSWORD, 0
            assert connection.frame() is None, f"{self.name}: a refused connection stays open"
            connection.close()
            return [*told, Closed()]
        session.timeout_ms, session.number, session.password = timeout, number, given
        session.xid = 0
        session.connection = connection
        return told

    def _drain(self, session: Session) -> list[Observed]:
        """Until all that was asked is answered, or the server closes."""
        connection = session.connection
        assert connection is not None
        told: list[Observed] = []
        closing = ends = any(opcode == CLOSE for _, _, opcode in connection.pending)
        while connection.pending or closing:
            try:
                body = connection.frame()
            except SilentError:
                told.append(Silent(tuple(step for step, _, _ in connection.pending)))
                connection.close()
                session.connection = None
                break
            if body is None:
                told.append(Closed())
                connection.close()
                session.connection = None
                if ends:
                    session.number, session.password, session.last_zxid = 0, NO_PASSWORD, 0
                break
            told.append(self._observe(session, connection, body))
            closing = closing or (isinstance(told[-1], Reply) and told[-1].err in ENDING)
        return told

    def _observe(self, session: Session, connection: Connection, body: bytes) -> Observed:
        reader = Reader(body)
        xid, zxid, err = reader.take(">iqi")
        if xid == XID_EVENT:
            kind, state = reader.take(">ii")
            return Event(Zxid(zxid), kind, state, str(reader.text()))
        if not connection.pending:
            return Reply(SYNC_STEP, xid, LastZxid(zxid), err, ("answers nothing", body))
        step, _, opcode = connection.pending.popleft()
        value = decode_body(opcode, reader) if err == 0 else (body[16:] or None)
        if zxid > 0:
            session.last_zxid = max(session.last_zxid, zxid)
            self._zxids[step] = zxid
        if err == 0 and isinstance(value, str):
            self._made[step] = value
        elif err == 0 and isinstance(value, tuple) and value and isinstance(value[0], str):
            self._made[step] = value[0]
        is_own = opcode in WRITES and err not in (MARSHALLING_ERROR, UNIMPLEMENTED)
        return Reply(step, xid, Zxid(zxid) if is_own else LastZxid(zxid), err, value)


def wait_for_servers(servers: Sequence[tuple[str, int]], deadline_s: float = 90.0) -> None:
    """Until every server gives a session."""
    deadline = time.monotonic() + deadline_s
    for address in servers:
        while True:
            try:
                connection = Connection(address)
                connection.socket.sendall(encode_connect(10_000, 0, NO_PASSWORD, 0))
                if connection.frame() is not None:
                    connection.socket.sendall(framed(struct.pack(">ii", 1, CLOSE)))
                    while connection.frame() is not None:
                        pass
                    connection.close()
                    break
                connection.close()
            except (OSError, SilentError):
                pass
            assert time.monotonic() < deadline, f"no session from {address} within {deadline_s:g} s"
            time.sleep(0.1)
