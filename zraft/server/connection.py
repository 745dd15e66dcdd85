"""One ZooKeeper client's connection, without I/O: bytes in, replies and events out, strictly in order.

Requests of a session are answered in the order in which they came. A write waits until its result is applied
here; reads behind it wait with it, so that a client always reads its own writes, also on a follower. Pings are
answered at once. What is written out, and when, is decided by `zraft.server.clients`.

Source: ZooKeeper's programmer's guide (ordering guarantees); docs/PROTOCOL-ZOOKEEPER.md.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from zraft.errors import Code, MarshallingError, ProtocolError
from zraft.server.authentication import proved_ids
from zraft.server.client_connection import (
    ANSWERS_BYTES_MAX,
    LARGE_BYTES,
    SUBMIT_BYTES_MAX,
    UNCOUNTED_BYTES,
    ClientConnection,
    Phase,
)
from zraft.server.queries import QUERIES
from zraft.server.sasl import AuthenticationError
from zraft.tree import reads, txn
from zraft.tree.acl import Ids
from zraft.tree.node import SHARD_COUNT
from zraft.tree.reads import DescendantCount
from zraft.tree.sessions import Session
from zraft.wire import opcodes, replies, requests
from zraft.wire.connect import (
    ConnectRequest,
    ConnectResponse,
    decode_connect_request,
    encode_connect_response,
    encode_session_refusal,
)
from zraft.wire.events import encode_watch_event
from zraft.wire.framing import FrameReader
from zraft.wire.opcodes import XID_PING, Opcode
from zraft.wire.operation_names import operation_name
from zraft.wire.reconfig import decode_reconfig_command

if TYPE_CHECKING:
    from zraft.server.clients import Clients

HEADER: Final = struct.Struct(">ii").unpack_from
PING_FRAME: Final = struct.pack(">ii", XID_PING, Opcode.PING)

REQUEST_OVERHEAD_BYTES: Final = 128
"""Counted per kept request for its objects, so that a flood of tiny ones cannot cheat."""

REQUESTS_AT_ONCE_MAX: Final = 4_096
"""Of one read of the socket, which can hold more tiny ones than a turn should take."""

READS_BEHIND_WRITES_BYTES: Final = 64 * (REQUEST_OVERHEAD_BYTES + 64)
"""Reads that stand behind a write, about 64 of them: all that stand between two writes are answered in one turn."""

WRITES: Final = frozenset(int(opcode) for opcode in opcodes.WRITES)
RECONFIG: Final = int(Opcode.RECONFIG)
LOGGED: Final = WRITES | {RECONFIG}
"""What is answered when its command was applied. A reconfig is looked at apart: it may be switched off."""
# Plain ints: comparing an int with an IntEnum member costs several times as much, and this is the hot path.
GET_DATA: Final = int(Opcode.GET_DATA)
EXISTS: Final = int(Opcode.EXISTS)
GET_CHILDREN: Final = int(Opcode.GET_CHILDREN)
GET_CHILDREN2: Final = int(Opcode.GET_CHILDREN2)
PING: Final = int(Opcode.PING)
SYNC: Final = int(Opcode.SYNC)
COUNT: Final = int(Opcode.GET_ALL_CHILDREN_NUMBER)
AUTH: Final = int(Opcode.AUTH)
SASL: Final = int(Opcode.SASL)
CLOSE_SESSION: Final = int(Opcode.CLOSE_SESSION)

NEEDS_QUORUM: Final = frozenset({SYNC, RECONFIG})
"""Beside the writes: what a server without a quorum refuses."""

LISTINGS: Final = frozenset(
    {GET_CHILDREN, GET_CHILDREN2, *map(int, (Opcode.GET_EPHEMERALS, Opcode.MULTI_READ))}
)
"""Requests of a few bytes whose answers may take milliseconds and a megabyte. They never stand between two writes."""

HELD: Final = frozenset({SYNC, COUNT, *LISTINGS})
"""Requests that take more than one turn when something stands before them: nothing behind them is looked at before they
are answered."""

ANSWERED: Final = frozenset({GET_DATA, EXISTS, GET_CHILDREN, GET_CHILDREN2, *QUERIES})
"""Requests that are answered from applied state, each by itself."""

SESSION_BOUND: Final = frozenset({AUTH, SASL})
"""Requests that change what the connection may do: they act when they come, and are answered in their turn."""

SPECIAL: Final = frozenset({PING, RECONFIG, SYNC, COUNT, *SESSION_BOUND})
"""What is neither a common write nor answered in its turn from applied state."""

PROVED: Final = 1 << 32
"""Queue marker, no number that the 32 bits of a client's opcode can hold: (ids, reply). The connection has these ids from
its turn on, and the reply is made already."""
LAST: Final = 1 << 33
"""Queue marker: the reply is made already, leaves in its turn, and the connection ends with it."""
FAILED: Final = 1 << 34
"""Queue marker: a request that is answered with the error it carries, at the zxid of its turn."""

ENOUGH: Final = -1
"""Of `Connection._answer`: it is answered, and that took about as long as a turn should."""

LATER: Final = -2
"""Of `Connection._answer`: it takes about as long as a turn should, and this turn has done enough."""

LISTING_SHIFT: Final = 8
"""A list of children costs about as much per 256 bytes as another request."""

QUERY_SHIFT: Final = 6
"""So does a request that names many znodes, per 64 bytes."""

SESSION_EXPIRED: Final = Code.SESSION_EXPIRED
SESSION_MOVED: Final = Code.SESSION_MOVED


class Connection(ClientConnection):
    """One client. Created by `Clients.connect`; fed by the shell; `handle` is the shell's own."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_queued_bytes",
        "_reader",
        "held",
        "last_opcode",
        "last_xid",
    )

    def __init__(
        self, clients: Clients, address: str, ids: tuple[tuple[str, str], ...], frame_bytes_max: int
    ) -> None:
        super().__init__(clients, address, ids)
        self._reader = FrameReader(frame_bytes_max, words=True)
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._queued_bytes = 0
        self.held = False
        """A request at the end of the queue takes more than one turn; what is behind it waits in the backlog."""
        self.last_opcode = 0
        self.last_xid = -1

    @property
    def last_operation(self) -> str:
        return operation_name(self.last_opcode)

    @property
    def last_number(self) -> int:
        return self.last_xid

    # -- input

    @property
    def wants_read(self) -> bool:
        """False while the shell must not read more from this client."""
        return self._clients.may_read(
            self, len(self._reader.partial), self._backlog_bytes + self._queued_bytes
        )

    def account(self) -> bool:
        """Have counted what is kept of what the client sent, and give `wants_read`; after each read of the socket."""
        partial = self._reader.partial
        waiting = self._backlog_bytes + self._queued_bytes
        if partial or waiting > UNCOUNTED_BYTES or self.counted:
            self._clients.count_input(self, len(partial), waiting)
            return self.wants_read
        return True

    @property
    def answered(self) -> bool:
        return not self.queue and not self._backlog

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self.phase is Phase.CLOSED or self.ending or self.closing:
            return
        if self._clients.deaf and self.phase is not Phase.NEW:
            return
        try:
            frames = self._reader.feed(data)
        except ProtocolError as error:
            self._clients.refuse(self, str(error))
            return
        clients = self._clients
        if self.phase is Phase.ATTACHED:
            clients.touches.touch(self.session, clients.now)
        elif self.phase is Phase.NEW and not self._first(frames):
            return
        if not frames:
            return
        count = len(frames)
        self._count(count, len(data))
        if (
            self._backlog
            or self.held
            or self.unsent
            or (clients.full and (self.queue or not clients.lets_pass(len(data))))
        ):
            self._defer(frames)
        elif self.phase is Phase.ATTACHED:
            if count > REQUESTS_AT_ONCE_MAX:
                self._take(frames[:REQUESTS_AT_ONCE_MAX])
                self._defer_behind(frames[REQUESTS_AT_ONCE_MAX:])
            else:
                self._take(frames)
        elif self.phase is Phase.READ_ONLY:
            self._take_read_only(frames)
        else:
            self._defer(frames)

    def _first(self, frames: list[bytes]) -> bool:
        """Take the first frame, which asks for a session, off `frames`; False if there is nothing more to do."""
        word = self._reader.word
        if word is not None:
            self.ending = True
            self._clients.on_word(self)
        elif frames:
            try:
                self.request = decode_connect_request(frames.pop(0))
            except MarshallingError as error:
                self._clients.refuse(self, f"not a connect request: {error}")
                return False
            self._clients.attach(self, self.request)
            return self.phase is not Phase.CLOSED
        return False

    def _defer(self, frames: list[bytes]) -> None:
        """Keep requests for later: the session is not attached yet, or the origin stream is full. Pings pass."""
        for frame in frames:
            if frame == PING_FRAME and self.phase is not Phase.ATTACHING:
                self._pong()
            else:
                self._backlog.append(frame)
                self._backlog_bytes += len(frame) + REQUEST_OVERHEAD_BYTES
        if self._backlog:
            self._clients.on_backlog(self)

    def _put_off(self, wanted: int, frames: list[bytes]) -> None:
        """Go on in another turn: behind the first request if it was answered, else with it; see `_answer`."""
        self._defer(frames[1:] if wanted == ENOUGH else frames)
        if wanted > 0:
            self._clients.on_no_room(self, wanted)
        else:
            self._clients.cut_short = True

    def take_backlog(self) -> None:
        """There is room again: handle what was kept, unless it stands behind a request that takes longer."""
        if self.held or self._queued_bytes > READS_BEHIND_WRITES_BYTES:
            return  # what stands before it brings it back
        assert not self.wants_flush, "more is to be answered before the answers so far are written"
        frames, self._backlog, self._backlog_bytes = self._backlog, [], 0
        room = self._clients.room
        frames, later = frames[:room], frames[room:]
        if frames and not self.closing:
            if self.phase is Phase.READ_ONLY:
                self._take_read_only(frames)
            else:
                self._take(frames)
        self._defer_behind(later)
        if self.counted:
            self.account()

    def _defer_behind(self, frames: list[bytes]) -> None:
        """Keep what comes behind requests that were looked at, some of which may have been put off again just now."""
        if frames and not self.closing and not self.ending:
            self._defer(frames)

    def _take(self, frames: list[bytes]) -> None:
        """Handle requests in order. The hot path: one call for all that one read of the socket brought."""
        queue = self.queue
        commands: list[txn.Command] = []
        size = 0
        answered = self.out_bytes
        xid, opcode = -1, self.last_opcode
        for place, frame in enumerate(frames):
            if len(frame) < 8:
                self._clients.refuse(self, f"request of {len(frame)} bytes, a request header has 8")
                break
            xid, opcode = HEADER(frame)
            try:
                if opcode in WRITES:
                    command = requests.decode_write(opcode, frame)
                    if size + len(frame) > SUBMIT_BYTES_MAX and commands:
                        self._clients.submit(self, commands, size)
                        commands = []
                        size = 0
                    commands.append(command)
                    size += len(frame)
                    queue.append((opcode, xid, command))
                    if opcode == CLOSE_SESSION:
                        self.ending = True
                        break
                elif opcode in SPECIAL:
                    if opcode == PING:
                        self._pong()
                        continue
                    if opcode in HELD:
                        path = requests.decode_path(frame)
                        self._hold(opcode, xid, path, frames[place + 1 :])
                        break
                    if opcode == RECONFIG:
                        command = decode_reconfig_command(frame)
                        if not self._clients.reconfig_enabled:
                            self._fail(xid, Code.RECONFIG_DISABLED)
                            continue
                        if size + len(frame) > SUBMIT_BYTES_MAX and commands:
                            self._clients.submit(self, commands, size)
                            commands = []
                            size = 0
                        commands.append(command)
                        size += len(frame)
                        queue.append((opcode, xid, command))
                        continue
                    if commands:
                        # They were sent before, so they go with the ids of before.
                        self._clients.submit(self, commands, size)
                        commands = []
                        size = 0
                    self._prove(opcode, xid, frame)
                    if self.ending:
                        break
                elif queue:
                    if opcode in LISTINGS:
                        self._hold(opcode, xid, frame, frames[place + 1 :])
                        break
                    queue.append((opcode, xid, frame))
                    self._queued_bytes = queued = self._queued_bytes + len(frame) + REQUEST_OVERHEAD_BYTES
                    if queued > READS_BEHIND_WRITES_BYTES or opcode not in ANSWERED:
                        # What this server does not know ends the connection in its turn: nothing behind it is carried out.
                        self.ending = opcode not in ANSWERED
                        if not self.ending:
                            self._defer(frames[place + 1 :])
                        break
                elif wanted := self._answer(opcode, xid, frame):
                    self._put_off(wanted, frames[place:])
                    break
                elif self.closing:
                    break
                elif self.out_bytes >= ANSWERS_BYTES_MAX:
                    self._put_off(ENOUGH, frames[place:])
                    break
            except MarshallingError:
                self._fail(xid, Code.MARSHALLING_ERROR)
        self.last_opcode = opcode
        if xid >= 0:
            self.last_xid = xid
        if commands:
            self._clients.submit(self, commands, size)
        self._clients.taken += place + 1 + (self.out_bytes - answered >> 10)

    def _pong(self) -> None:
        self._emit(replies.encode_empty_reply(XID_PING, self._clients.machine.last_zxid))

    def _take_read_only(self, frames: list[bytes]) -> None:
        """Handle requests while this server has no quorum: reads and pings; the rest is NOT_READ_ONLY."""
        self._clients.taken += len(frames)
        answered = self.out_bytes
        for place, frame in enumerate(frames):
            if len(frame) < 8:
                self._clients.refuse(self, f"request of {len(frame)} bytes, a request header has 8")
                return
            xid, opcode = HEADER(frame)
            try:
                if opcode == PING:
                    self._pong()
                elif opcode == CLOSE_SESSION:
                    self._end_in_turn(replies.encode_empty_reply(xid, self._clients.machine.last_zxid))
                elif opcode in WRITES or opcode in NEEDS_QUORUM:
                    self._failed(xid, Code.NOT_READ_ONLY)
                elif opcode == COUNT:
                    self._answer_count(xid, frame)
                elif opcode in SESSION_BOUND:
                    self._prove(opcode, xid, frame)
                elif wanted := self._answer(opcode, xid, frame):
                    self._put_off(wanted, frames[place:])
                    break
            except MarshallingError:
                self._failed(xid, Code.MARSHALLING_ERROR)
            if self.closing:
                break
            if self.out_bytes >= ANSWERS_BYTES_MAX:
                self._put_off(ENOUGH, frames[place:])
                break
        self._clients.taken += self.out_bytes - answered >> 10

    def _answer_count(self, xid: int, frame: bytes) -> None:
        """In one step: without a quorum this server has nobody to keep waiting."""
        machine = self._clients.machine
        path = requests.decode_path(frame)
        code = reads.countable(machine, path, self.ids)
        if code is not Code.OK:
            self._failed(xid, code)
            return
        count = DescendantCount(machine, path)
        while not count.step(SHARD_COUNT):
            pass
        self._emit(replies.encode_int_reply(xid, machine.last_zxid, count.number))

    def _prove(self, opcode: int, xid: int, frame: bytes) -> None:
        """The client says who it is. Later requests have the new ids; a lie ends the connection, in its turn."""
        if opcode == AUTH:
            offer = requests.decode_auth(frame)
            ids = proved_ids(offer, self.ids_of_writes, self._clients.auth)
            if ids is not None:
                self._proved(ids, replies.encode_empty_reply(xid, 0))
                return
            self._turn_away(xid, Code.AUTH_FAILED, f"authentication with scheme {offer.scheme!r} failed")
            return
        try:
            ids, token = self._log_in(requests.decode_sasl(frame))
        except AuthenticationError as error:
            self._turn_away(xid, Code.AUTH_FAILED, str(error))
        else:
            self._proved(ids, replies.encode_token_reply(xid, 0, token))

    def _turn_away(self, xid: int, code: Code, why: str) -> None:
        """The last answer of this connection, in its turn."""
        self._clients.notice(self, why)
        self._end_in_turn(replies.encode_error_reply(xid, 0, code))

    def _proved(self, ids: Ids, reply: bytes) -> None:
        """Writes that follow have these ids; reads, too, once what was asked before is answered."""
        self.ids_of_writes = ids
        if self.queue:
            self.queue.append((PROVED, 0, (ids, reply)))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self.ids = ids
            self._emit(reply)

    def _end_in_turn(self, reply: bytes) -> None:
        """Send this last reply in its turn; nothing that comes after it is looked at."""
        self.ending = True
        if self.queue:
            self.queue.append((LAST, 0, reply))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self._emit(reply)
            self.closing = True

    def _fail(self, xid: int, code: Code) -> None:
        """Answer a request with an error, in its turn."""
        if self.queue:
            self.queue.append((FAILED, xid, code))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self._failed(xid, code)

    def _failed(self, xid: int, code: Code) -> None:
        self._emit(replies.encode_error_reply(xid, self._clients.machine.last_zxid, code))

    def _emit(self, data: bytes) -> None:
        self.out.append(data)
        self.out_bytes += len(data)
        if not self.dirty:
            self._clients.mark_dirty(self)

    def _emit_parts(self, parts: Sequence[bytes]) -> None:
        """One answer, of which large parts are not to be copied."""
        self.out += parts
        self.pieces += len(parts) - 1
        self.out_bytes += sum(map(len, parts))
        if not self.dirty:
            self._clients.mark_dirty(self)

    def answer_word(self) -> None:
        """Answer the four-letter word that the connection began with, which is its end."""
        word = self._reader.word
        assert word is not None, "it began with something else"
        self._emit(self._clients.four_letter_word(word, self._reader.argument))
        self.closing = True

    # -- answers

    def attached(self, session: Session) -> None:
        """The session is ours now: greet the client and handle what it already sent."""
        assert self.request is not None
        self.phase = Phase.ATTACHED
        self.session = session.id
        self.timeout_ms = session.timeout_ms
        self.third_ms = session.timeout_ms // 3
        flag = None if self.request.read_only is None else False
        self._emit(
            encode_connect_response(
                ConnectResponse(0, session.timeout_ms, session.id, session.password, flag)
            )
        )
        self.take_backlog()

    def attached_read_only(self, session: int, timeout_ms: int, password: bytes) -> None:
        """Without a quorum: a session that only this server knows, for as long as the connection lasts."""
        self.phase = Phase.READ_ONLY
        self.session = session
        self.timeout_ms = timeout_ms
        self._emit(encode_connect_response(ConnectResponse(0, timeout_ms, session, password, True)))
        self.take_backlog()

    def refuse_session(self, request: ConnectRequest) -> None:
        """The session is gone or not this client's: say so in the form that clients know, then close."""
        self._emit(encode_session_refusal(request))
        self.closing = True

    def send_elsewhere(self) -> None:
        # Without a word, which every client takes as "try the next one".
        self._clients.close(self)

    def on_stalled(self) -> None:
        """Nothing is pushed to it but events, and these cannot wait."""

    def on_taken(self) -> None:
        """Its requests are brought back by `Clients`."""

    def on_release(self) -> None:
        self._clients.watches.remove_watcher(self)
        self._reader.clear()
        self._backlog = []
        self.queue.clear()
        self._backlog_bytes = self._queued_bytes = 0

    def on_event(self, zxid: int, event_type: int, path: str) -> None:
        """A watch of this client fired."""
        event = encode_watch_event(zxid, event_type, path)
        self.out.append(event)
        self.out_bytes += len(event)
        if not self.dirty:
            self._clients.mark_dirty(self)
        if self.out_bytes >= ANSWERS_BYTES_MAX:
            self._clients.count_output(self)

    def complete(self, result: Any, zxid: int) -> None:
        """The oldest write was applied with this result at this zxid."""
        if self.closing:
            return  # something before it ended the connection: nothing more is said
        opcode, xid, command = self.queue.popleft()
        self.out.append(replies.encode_write_reply(opcode, xid, zxid, command, result))
        if not self.dirty:
            self._clients.mark_dirty(self)
        if opcode == CLOSE_SESSION and result == Code.OK:
            self.closing = True
        elif self.queue and self.queue[0][0] not in LOGGED:
            self._pump()

    def complete_sync(self) -> None:
        """Everything committed before the sync was asked for is applied here."""
        if self.phase is Phase.ATTACHED:
            _, xid, path = self.queue.popleft()
            self._complete_held(replies.encode_create_reply(xid, self._clients.machine.last_zxid, path))

    def complete_count(self, number: int) -> None:
        """The descendants of the znode asked for are counted."""
        if self.phase is Phase.ATTACHED:
            _, xid, _ = self.queue.popleft()
            self._complete_held(replies.encode_int_reply(xid, self._clients.machine.last_zxid, number))

    def _complete_held(self, reply: bytes) -> None:
        self.held = False
        self._emit(reply)
        if self._clients.full or self.wants_flush:
            self._clients.on_backlog(self)
        else:
            self.take_backlog()

    def _pump(self) -> None:
        """Answer what stood behind a write, up to the next write."""
        queue = self.queue
        while queue and not self.closing:
            opcode, xid, request = queue[0]
            if opcode in LOGGED:
                break
            if self.out_bytes >= ANSWERS_BYTES_MAX and all(one[0] in ANSWERED for one in queue):
                self._unqueue()
                break
            if opcode in HELD:
                self._begin_held()
                break
            queue.popleft()
            self._queued_bytes -= REQUEST_OVERHEAD_BYTES
            if opcode == FAILED:
                self._failed(xid, request)
                continue
            if opcode == PROVED:
                self.ids, reply = request
                self._emit(reply)
                continue
            if opcode == LAST:
                self._emit(request)
                self.closing = True
                return
            self._queued_bytes -= len(request)
            try:
                self._answer(opcode, xid, request, now=True)
            except MarshallingError:
                self._failed(xid, Code.MARSHALLING_ERROR)
            if self.out_bytes > self._clients.output_bytes_max:
                # They cannot wait: the results of the writes behind them come in order, and may come now.
                self._clients.refuse(
                    self, "its pipelined reads ask for more than client.output_bytes_max at once"
                )
                return
        if self.out_bytes >= ANSWERS_BYTES_MAX:
            self._clients.count_output(self)
        if self._backlog and not self.held:
            self._clients.on_backlog(self)
        if self.counted:
            self.account()

    def _unqueue(self) -> None:
        """No write stands behind these reads: they can be answered when the client has taken what it has asked for."""
        self._backlog[:0] = [frame for _, _, frame in self.queue]
        self._backlog_bytes += self._queued_bytes
        self._queued_bytes = 0
        self.queue.clear()
        self.held = False
        self._clients.cut_short = True

    def _hold(self, opcode: int, xid: int, request: str | bytes, behind: list[bytes]) -> None:
        """A request that takes more than one turn. It is decoded already: nothing waits for a malformed one.

        Nothing behind a sync may be applied before it is answered: its answer shows a state at least as new as all
        of them, and the client would see its zxids go back. A listing is kept as it came, and answered as any other
        read once nothing stands before it.
        """
        self.held = True
        self.queue.append((opcode, xid, request))
        self._queued_bytes += len(request) + REQUEST_OVERHEAD_BYTES
        if len(self.queue) == 1:
            self._begin_held()
        self._defer(behind)

    def _begin_held(self) -> None:
        """The request at the head of the queue takes more than one turn; what stands behind it waits, in order."""
        opcode, xid, path = self.queue[0]
        self._queued_bytes -= len(path) + REQUEST_OVERHEAD_BYTES
        if opcode == SYNC:
            self._clients.request_sync(self)
            return
        if opcode in LISTINGS:
            self.queue.popleft()
            self.held = False
            self._backlog.insert(0, path)
            self._backlog_bytes += len(path) + REQUEST_OVERHEAD_BYTES
            self._clients.on_backlog(self)
            return
        code = reads.countable(self._clients.machine, path, self.ids)
        if code is Code.OK:
            self._clients.request_count(self, DescendantCount(self._clients.machine, path))
        else:
            self.queue.popleft()
            self.held = False
            self._failed(xid, code)
            self._clients.on_backlog(self)

    def _answer(self, opcode: int, xid: int, frame: bytes, *, now: bool = False) -> int:
        """Answer a request that needs no log entry, from applied state; nothing stands before it.

        Returns:
            0 if it is answered; `ENOUGH` if that took so long that others have their turn first; else nothing has happened:
            `LATER` if it has to wait for the next turn, or how many bytes of room it has to wait for. With `now` it never
            waits.
        """
        machine = self._clients.machine
        zxid = machine.last_zxid
        if opcode == GET_DATA:
            path, watch = requests.decode_read(frame)
            node = reads.get_data(machine, path, self.ids)
            if isinstance(node, int):
                self._emit(replies.encode_error_reply(xid, zxid, node))
                return 0
            data = node.data
            if data is None or len(data) < LARGE_BYTES:
                if watch:
                    self._clients.watch_data(path, self)
                self._emit(replies.encode_get_data_reply(xid, zxid, node))
                return 0
            if not now and not self._clients.output.has_room(self, len(data)):
                return len(data)
            if watch:
                self._clients.watch_data(path, self)
            self._emit_parts(replies.encode_get_data_parts(xid, zxid, node))
        elif opcode == EXISTS:
            path, watch = requests.decode_read(frame)
            node = reads.exists(machine, path, self.ids)
            if isinstance(node, int):
                if watch and node == Code.NO_NODE:
                    self._clients.watch_data(path, self)
                self._emit(replies.encode_error_reply(xid, zxid, node))
                return 0
            if watch:
                self._clients.watch_data(path, self)
            self._emit(replies.encode_exists_reply(xid, zxid, node))
        elif opcode in (GET_CHILDREN, GET_CHILDREN2):
            path, watch = requests.decode_read(frame)
            node = reads.get_children(machine, path, self.ids)
            if isinstance(node, int):
                self._emit(replies.encode_error_reply(xid, zxid, node))
                return 0
            size = reads.listing_bytes(node)
            if size > self._clients.reply_bytes_max:
                self._failed(
                    xid, self._clients.too_long(self, f"getChildren of {path!r}", node.num_children, size)
                )
                return 0
            if size >= LARGE_BYTES:
                if not now:
                    if self._clients.busy:
                        return LATER
                    if not self._clients.output.has_room(self, size):
                        return size
                self._clients.taken += size >> LISTING_SHIFT
            if watch:
                self._clients.watch_children(path, self)
            names = node.children or ()
            if opcode == GET_CHILDREN:
                self._emit(replies.encode_children_reply(xid, zxid, names))
            else:
                self._emit(replies.encode_children2_reply(xid, zxid, names, node))
            if size >= LARGE_BYTES:
                return ENOUGH
        elif opcode in QUERIES:
            if not now:
                if self._clients.busy and (opcode in LISTINGS or len(frame) >= UNCOUNTED_BYTES):
                    return LATER
                if opcode in LISTINGS and not self._clients.output.has_room(self, LARGE_BYTES):
                    return LARGE_BYTES
            self._clients.taken += len(frame) >> QUERY_SHIFT
            answer = QUERIES[opcode](self._clients, self, xid, frame)
            if isinstance(answer, Code):
                self._failed(xid, answer)
            else:
                self._emit(answer)
            if len(frame) >= LARGE_BYTES:
                return ENOUGH
        else:
            # ZooKeeper answers an operation it does not know and closes; nothing after it is looked at. No zxid is known.
            self._emit(replies.encode_error_reply(xid, -1, Code.UNIMPLEMENTED))
            self.ending = self.closing = True
        return 0
