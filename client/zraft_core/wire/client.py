"""The client's side of a connection, without I/O: requests to bytes, bytes to replies and watch events.

Written for the shell, the simulator and the tests, which speak to servers in real bytes. It keeps what a client
must keep: the xids it sent, in order, and the last zxid it saw. Sessions, timeouts and retries are the caller's.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from attrs import frozen

from zraft_core.errors import Code, ProtocolError
from zraft_core.wire.client_requests import Request, encode_acl
from zraft_core.wire.connect import (
    NO_PASSWORD,
    ConnectRequest,
    ConnectResponse,
    decode_connect_response,
    encode_connect_request,
)
from zraft_core.wire.events import EventType
from zraft_core.wire.framing import JUTE_MAXBUFFER, FrameReader, frame
from zraft_core.wire.jute import INT, JuteReader, encode_buffer, encode_texts, encode_ustring
from zraft_core.wire.opcodes import READS, XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, Opcode
from zraft_core.wire.requests import HEADER, MULTI_END, MULTI_HEADER, SetWatches
from zraft_core.wire.stat import decode_stat
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import (
    CHECK,
    CLOSE_SESSION,
    CREATE,
    CREATE2,
    DELETE,
    MULTI,
    SET_ACL,
    SET_DATA,
    Command,
)

PENDING_MAX: Final = 1 << 16
"""Requests without a reply; a caller beyond this is looping, servers stop reading far earlier."""

_XID_MAX: Final = 0x7FFFFFFF
_REPLY_HEADER: Final = Struct(">iqi")
_RELATIVE_ZXID: Final = Struct(">q")


@frozen
class Reply:
    """The answer to request `xid`. `value` is None if `code` is not OK or the operation answers nothing.

    By opcode: setData and exists a `Stat`; getData (data, Stat); create and sync a path; create2 (path,
    Stat); getChildren names; getChildren2 (names, Stat); multi a tuple with one such value per operation,
    which after a failure are `Code`s: OK before the culprit, RUNTIME_INCONSISTENCY after it. What was asked for
    with `ask` is answered as its `Request.value` says.
    """

    xid: int
    zxid: int
    code: Code
    value: Any


@frozen
class WatchEvent:
    """A watch fired; `zxid` is that of the change."""

    zxid: int
    type: EventType
    state: int
    path: str


@frozen
class Pong:
    """The answer to a ping."""

    zxid: int


_Decoder = Callable[[JuteReader], Any]

Received = ConnectResponse | Reply | WatchEvent | Pong


class ZkClientCodec:
    """One connection's worth of client. Not usable after a `ProtocolError`."""

    __slots__ = ("_connected", "_frames", "_next_xid", "_pending", "_pending_auth", "last_zxid_seen")

    def __init__(self, *, last_zxid_seen: int = 0, jute_maxbuffer: int = JUTE_MAXBUFFER) -> None:
        self._frames = FrameReader(jute_maxbuffer)
        self._connected = False
        self._next_xid = 1
        self._pending: deque[tuple[int, _Decoder | None]] = deque()
        self._pending_auth = 0
        self.last_zxid_seen = last_zxid_seen
        """Greatest zxid of any reply so far; what the next connection of the session has to announce."""

    @property
    def pending(self) -> int:
        """Requests sent and not answered, pings aside."""
        return len(self._pending) + self._pending_auth

    def connect(
        self,
        *,
        timeout_ms: int,
        session: int = 0,
        password: bytes = NO_PASSWORD,
        read_only: bool | None = False,
    ) -> bytes:
        """Return the first bytes of the connection; `read_only` None speaks as clients before ZooKeeper 3.4 did."""
        return encode_connect_request(
            ConnectRequest(0, self.last_zxid_seen, timeout_ms, session, password, read_only)
        )

    def ask(self, request: Request[Any]) -> tuple[int, bytes]:
        """Return (xid, bytes) of any request."""
        if request.xid is None:
            return self._request(request.opcode, request.body(), request.value)
        return self._send(request.xid, request.opcode, request.body(), request.value)

    def write(self, command: Command) -> tuple[int, bytes]:
        """Return (xid, bytes) of a write, given as a session's command of `zraft_core.znodes.txn`."""
        return self._request(command[0], _encode_command(command))

    def read(self, opcode: Opcode, path: str, *, watch: bool = False) -> tuple[int, bytes]:
        """Return (xid, bytes) of exists, getData, getChildren or getChildren2."""
        assert opcode in READS, f"{opcode!r} is not a read"
        return self._request(opcode, encode_ustring(path) + (b"\x01" if watch else b"\x00"))

    def sync(self, path: str) -> tuple[int, bytes]:
        """Return a sync request as its xid and its frame."""
        return self._request(Opcode.SYNC, encode_ustring(path))

    def set_watches(self, watches: SetWatches) -> tuple[int, bytes]:
        """Return (-8, bytes) of setWatches, which is answered in turn like any request."""
        body = (
            _RELATIVE_ZXID.pack(watches.relative_zxid)
            + encode_texts(watches.data)
            + encode_texts(watches.exist)
            + encode_texts(watches.child)
        )
        return self._send(XID_SET_WATCHES, Opcode.SET_WATCHES, body)

    def ping(self) -> bytes:
        """Return the bytes of a ping, which is answered by a `Pong`, out of turn."""
        return frame(HEADER.pack(XID_PING, Opcode.PING))

    def receive(self, chunk: bytes) -> list[Received]:
        """Return the replies and events that are complete with this chunk, in order.

        Raises:
            ProtocolError: the bytes do not follow the protocol, or answer a request that is not next in turn.
        """
        return [self._decode(body) for body in self._frames.feed(chunk)]

    def _request(self, opcode: int, body: bytes, decode: _Decoder | None = None) -> tuple[int, bytes]:
        xid = self._next_xid
        self._next_xid = xid + 1 if xid < _XID_MAX else 1
        return self._send(xid, opcode, body, decode)

    def _send(self, xid: int, opcode: int, body: bytes, decode: _Decoder | None = None) -> tuple[int, bytes]:
        assert self.pending < PENDING_MAX, f"{PENDING_MAX} requests are waiting for a reply already"
        if xid == XID_AUTH:
            self._pending_auth += 1
        else:
            self._pending.append((xid, decode or _VALUE_DECODERS.get(opcode)))
        return xid, frame(HEADER.pack(xid, opcode) + body)

    def _decode(self, body: bytes) -> Received:
        if not self._connected:
            self._connected = True
            return decode_connect_response(body)
        reader = JuteReader(body)
        xid, zxid, err = reader.read_struct(_REPLY_HEADER)
        if xid == XID_NOTIFICATION:
            return _decode_event(zxid, reader)
        if xid == XID_PING:
            return Pong(zxid)
        if xid == XID_AUTH and self._pending_auth:
            # ZooKeeper answers auth as soon as it reads it, also ahead of requests that came before; and with
            # zxid 0, which is why it says nothing about what this client has seen.
            self._pending_auth -= 1
            return Reply(xid, zxid, _decode_code(err), None)
        if not self._pending:
            raise ProtocolError(f"reply with xid {xid}, expected none: every request has been answered")
        expected_xid, decode = self._pending.popleft()
        if xid != expected_xid:
            raise ProtocolError(f"reply with xid {xid}, expected {expected_xid}: replies are out of order")
        self.last_zxid_seen = max(self.last_zxid_seen, zxid)
        code = _decode_code(err)
        return Reply(xid, zxid, code, decode(reader) if decode and not code else None)


def _encode_command(command: Command) -> bytes:
    match command:
        case (opcode, path, data, acl, flags, _) if opcode in (CREATE, CREATE2):
            return encode_ustring(path) + encode_buffer(data) + encode_acl(acl) + INT.pack(flags)
        case (opcode, path, version) if opcode in (DELETE, CHECK):
            return encode_ustring(path) + INT.pack(version)
        case (opcode, path, data, version) if opcode == SET_DATA:
            return encode_ustring(path) + encode_buffer(data) + INT.pack(version)
        case (opcode, path, acl, version) if opcode == SET_ACL:
            return encode_ustring(path) + encode_acl(acl) + INT.pack(version)
        case (opcode, operations) if opcode == MULTI:
            parts = [MULTI_HEADER.pack(op[0], 0, -1) + _encode_command(op) for op in operations]
            return b"".join(parts) + MULTI_END
        case (opcode,) if opcode == CLOSE_SESSION:
            return b""
    raise AssertionError(f"{command!r} is not a command of a session")


def _decode_code(err: int) -> Code:
    try:
        return Code(err)
    except ValueError:
        raise ProtocolError(f"error code {err}: ZooKeeper has no such code") from None


def _decode_event(zxid: int, reader: JuteReader) -> WatchEvent:
    number, state, path = reader.read_int(), reader.read_int(), reader.read_text()
    try:
        event_type = EventType(number)
    except ValueError:
        raise ProtocolError(f"watch event of type {number}: servers send 1 to 4") from None
    return WatchEvent(zxid, event_type, state, path)


def _decode_data(reader: JuteReader) -> tuple[bytes | None, Stat]:
    return reader.read_buffer(), decode_stat(reader)


def _decode_create2(reader: JuteReader) -> tuple[str, Stat]:
    return reader.read_text(), decode_stat(reader)


def _decode_children2(reader: JuteReader) -> tuple[tuple[str, ...], Stat]:
    return reader.read_texts(), decode_stat(reader)


def _decode_multi(reader: JuteReader) -> tuple[Any, ...]:
    """Read the results of a multi.

    Their number is bounded by the frame: each takes at least its 9-byte header.
    """
    values: list[Any] = []
    while True:
        opcode, done, _ = reader.read_struct(MULTI_HEADER)
        if done:
            return tuple(values)
        if opcode == Opcode.ERROR:
            values.append(_decode_code(reader.read_int()))
        elif opcode in (DELETE, CHECK):
            values.append(None)
        elif opcode in (CREATE, CREATE2, SET_DATA):
            values.append(_VALUE_DECODERS[opcode](reader))
        else:
            raise ProtocolError(f"result of operation {opcode} in a multi: no such operation was asked for")


_VALUE_DECODERS: Final[dict[int, Callable[[JuteReader], Any]]] = {
    Opcode.SET_DATA: decode_stat,
    Opcode.SET_ACL: decode_stat,
    Opcode.EXISTS: decode_stat,
    Opcode.GET_DATA: _decode_data,
    Opcode.CREATE: JuteReader.read_text,
    Opcode.SYNC: JuteReader.read_text,
    Opcode.CREATE2: _decode_create2,
    Opcode.GET_CHILDREN: JuteReader.read_texts,
    Opcode.GET_CHILDREN2: _decode_children2,
    Opcode.MULTI: _decode_multi,
}
