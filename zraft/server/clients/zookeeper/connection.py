"""One ZooKeeper client's connection, without I/O: bytes in, replies and events out, strictly in order.

Requests of a session are answered in the order in which they came. A write waits until its result is applied
here; reads behind it wait with it, so that a client always reads its own writes, also on a follower. Pings are
answered at once. What is written out, and when, is decided by `zraft.server.clients.table`.

Source: ZooKeeper's programmer's guide (ordering guarantees); docs/reference/protocol-zookeeper.md.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, assert_never

from zraft.config.features import LEVEL_OF_MEMBERS
from zraft.server.clients.authentication.proofs import proved_ids
from zraft.server.clients.authentication.sasl import AuthenticationError
from zraft.server.clients.connection import (
    ANSWERS_BYTES_MAX,
    SUBMIT_BYTES_MAX,
    UNCOUNTED_BYTES,
    Phase,
)
from zraft.server.clients.zookeeper.answers import (
    ANSWERED,
    ENOUGH,
    IN_STEPS,
    LISTINGS,
    answer,
    answer_count,
    answer_unknown,
)
from zraft.server.clients.zookeeper.ordinary_reads import COMMON, answer_reads
from zraft.server.clients.zookeeper.queries import RestoredWatches
from zraft.server.clients.zookeeper.services import Steps, ZooKeeperServices, ZooKeeperSpeaker
from zraft.server.clients.zookeeper.waiting import (
    HELD,
    Count,
    Failed,
    Held,
    Last,
    Listing,
    Proved,
    Read,
    Restore,
    Sync,
    Unknown,
    Waiting,
    Write,
)
from zraft.tree import reads
from zraft.tree.node import Znode
from zraft.tree.reads import DescendantCount
from zraft.tree.sessions.session import Session
from zraft_core.errors import Code, MarshallingError, ProtocolError
from zraft_core.wire import opcodes, pipelines, replies, requests
from zraft_core.wire.connect import (
    ConnectRequest,
    decode_connect_request,
    encode_greeting,
    encode_session_refusal,
)
from zraft_core.wire.events import encode_watch_event
from zraft_core.wire.framing import FrameReader
from zraft_core.wire.opcodes import XID_PING, Opcode
from zraft_core.wire.operation_names import operation_name
from zraft_core.wire.reconfig import decode_reconfig_command
from zraft_core.znodes import txn
from zraft_core.znodes.acl import Ids

HEADER: Final = struct.Struct(">ii").unpack_from
PING_FRAME: Final = struct.pack(">ii", XID_PING, Opcode.PING)

REQUEST_OVERHEAD_BYTES: Final = 128
"""Counted per kept request for its objects, so that a flood of tiny ones cannot cheat."""

REQUESTS_AT_ONCE_MAX: Final = 4_096
"""The most requests of one read of the socket, which can hold more tiny ones than a turn should take."""

READS_BEHIND_WRITES_BYTES: Final = 64 * (REQUEST_OVERHEAD_BYTES + 64)
"""Reads that stand behind a write, about 64 of them: all that stand between two writes are answered in one turn."""

WRITES: Final = frozenset(int(opcode) for opcode in opcodes.WRITES)
RECONFIG: Final = int(Opcode.RECONFIG)
"""Answered as a write is. It is looked at apart: it may be switched off."""
# Plain ints: comparing an int with an IntEnum member costs several times as much, and this is the hot path.
PING: Final = int(Opcode.PING)
SYNC: Final = int(Opcode.SYNC)
COUNT: Final = int(Opcode.GET_ALL_CHILDREN_NUMBER)
AUTH: Final = int(Opcode.AUTH)
SASL: Final = int(Opcode.SASL)
CLOSE_SESSION: Final = int(Opcode.CLOSE_SESSION)

NEEDS_QUORUM: Final = frozenset({SYNC, RECONFIG})
"""The operations beside the writes that a server without a quorum refuses."""

SESSION_BOUND: Final = frozenset({AUTH, SASL})
"""Requests that change what the connection may do: they act when they come, and are answered in their turn."""

SPECIAL: Final = frozenset({PING, RECONFIG, SYNC, COUNT, *SESSION_BOUND})
"""The operations that are neither a common write nor answered in their turn from applied state."""


FEW: Final = 8
"""So many requests of one kind, or more, are worth a loop of their own."""


class ZooKeeperConnection(ZooKeeperSpeaker):
    """One client. Created by `Clients.connect`; fed by the shell; `handle` is the shell's own."""

    __slots__ = (
        "_backlog",
        "_backlog_bytes",
        "_came_later",
        "_queued_bytes",
        "_reader",
        "_synced",
        "held",
        "last_opcode",
        "last_xid",
    )

    queue: deque[Waiting]

    def __init__(self, clients: ZooKeeperServices, address: str, ids: Ids) -> None:
        super().__init__(address, ids, clients.turn.now)
        self.clients = clients
        self.queue = deque()
        self._reader = FrameReader(clients.settings.jute_maxbuffer, words=True)
        self._backlog: list[bytes] = []
        self._backlog_bytes = 0
        self._queued_bytes = 0
        # Of the backlog, counted from its end: requests that came after the leader was asked for the last sync.
        self._came_later = 0
        # Of the backlog, counted from its beginning: requests that had come by then, once the leader has answered.
        self._synced = 0
        self.held = False
        """A request at the end of the queue takes more than one turn; what is behind it waits in the backlog."""
        self.last_opcode = 0
        self.last_xid = -1

    @property
    def last_operation(self) -> str:
        """The name of what it asked for last, for operators."""
        return operation_name(self.last_opcode)

    @property
    def last_number(self) -> int:
        """The xid or id of the last request; -1 before the first."""
        return self.last_xid

    def connection_lost(self) -> None:
        """Take note that the client is gone."""
        self.clients.forget(self)

    # -- input

    @property
    def backlog_bytes(self) -> int:
        """Bytes of complete requests that wait for a turn that has time for them."""
        return self._backlog_bytes

    @property
    def wants_read(self) -> bool:
        """False while the shell must not read more from this client."""
        return self.clients.sums.may_read(
            self, len(self._reader.partial), self._backlog_bytes + self._queued_bytes
        )

    def account(self) -> bool:
        """Count what is kept of what the client sent, and return `wants_read`.

        Called after each read of the socket.
        """
        partial = self._reader.partial
        waiting = self._backlog_bytes + self._queued_bytes
        if partial or waiting > UNCOUNTED_BYTES or self.counted:
            self.clients.sums.count_input(self, len(partial), waiting)
            return self.wants_read
        return True

    @property
    def answered(self) -> bool:
        """True if everything that was read from the client is answered, so that it can be closed."""
        return not self.queue and not self._backlog

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        if self.phase is Phase.CLOSED or self.ending or self.closing:
            return
        if self.clients.availability.deaf and self.phase is not Phase.NEW:
            return
        try:
            frames = self._reader.feed(data)
        except ProtocolError as error:
            self.clients.refuse(self, str(error))
            return
        clients = self.clients
        if self.phase is Phase.ATTACHED:
            clients.touches.touch(self.session, clients.turn.now)
        elif self.phase is Phase.NEW and not self._first(frames):
            return
        if not frames:
            return
        count, size = len(frames), len(data)
        clients.count_requests(self, count, size)
        if (
            self._backlog
            or self.held
            or self.unsent
            or ((self.queue or not clients.turn.lets_pass(size)) and clients.turn.full)
        ):
            before = len(self._backlog)
            self._defer(frames)
            self._came_later += len(self._backlog) - before
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
            self.clients.on_word(self)
        elif frames:
            try:
                self.request = decode_connect_request(frames[0])
            except MarshallingError as error:
                self.clients.refuse(self, f"not a connect request: {error}")
                return False
            del frames[0]
            self.clients.attach(self, self.request)
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
            self.clients.on_backlog(self)

    def _put_off(self, wanted: int, frames: list[bytes]) -> None:
        """Go on in another turn: behind the first request if it was answered, else with it; see `answer`."""
        if wanted == IN_STEPS:
            self._restore(frames)
            return
        self._defer(frames[1:] if wanted == ENOUGH else frames)
        if wanted > 0:
            self.clients.on_no_room(self, wanted)
        else:
            self.clients.turn.cut_short = True

    def _restore(self, frames: list[bytes]) -> None:
        """Begin to restore the watches that the first request names; what is behind it waits."""
        xid, _ = HEADER(frames[0])
        try:
            watches = RestoredWatches(self.clients, self, frames[0])
        except MarshallingError:
            self.failed(xid, Code.MARSHALLING_ERROR)
            self._defer(frames[1:])
            return
        self.held = True
        self.queue.append(Restore(xid))
        self.clients.request_steps(self, watches)
        self._defer(frames[1:])

    def take_backlog(self) -> None:
        """Handle what was kept, since there is room again, unless it stands behind a request that takes longer."""
        if self.held or self._queued_bytes > READS_BEHIND_WRITES_BYTES:
            return  # the request in front of it brings it back
        assert not self.wants_flush, "more is to be answered before the answers so far are written"
        frames, self._backlog, self._backlog_bytes = self._backlog, [], 0
        before = len(frames)
        room = self.clients.turn.room
        frames, later = frames[:room], frames[room:]
        if frames and not self.closing:
            if self.phase is Phase.READ_ONLY:
                self._take_read_only(frames)
            else:
                self._take(frames)
        self._defer_behind(later)
        self._synced = max(0, self._synced - (before - len(self._backlog)))
        if self.counted:
            self.account()

    def _defer_behind(self, frames: list[bytes]) -> None:
        """Keep what comes behind requests that were looked at, some of which may have been put off again just now."""
        if frames and not self.closing and not self.ending:
            self._defer(frames)

    def _take(self, frames: list[bytes]) -> None:
        """Handle requests in order: those that came with others of their kind together, the rest one by one."""
        if not self._synced:  # otherwise it matters where in the backlog each stood
            taken = FEW
            while taken >= FEW:
                # Where kinds alternate, going one by one costs less than a loop for each.
                taken = self._take_common(frames)
                if taken:
                    if taken == len(frames):
                        return
                    frames = frames[taken:]
        self._take_each(frames)

    def _take_common(self, frames: list[bytes]) -> int:
        """Handle the common requests of one kind that `frames` begin with; return how many are done with."""
        opcode = frames[0][pipelines.OPCODE]
        if opcode in pipelines.DECODERS:
            return self._take_writes(frames, pipelines.DECODERS[opcode](frames))
        if opcode in COMMON and not self.queue:
            return self._take_reads(frames)
        return 0

    def _take_writes(self, frames: list[bytes], writes: list[Write]) -> int:
        """Handle the writes that `frames` begin with."""
        count = len(writes)
        size = sum(map(len, frames if count == len(frames) else frames[:count]))
        if not count or size > SUBMIT_BYTES_MAX:
            return 0
        self.last_opcode, self.last_xid, _ = writes[-1]
        self.queue += writes
        clients = self.clients
        clients.submit(self, [command for _, _, command in writes], size)
        clients.turn.taken += count
        return count

    def _take_reads(self, frames: list[bytes]) -> int:
        """Answer the common reads that `frames` begin with, nothing standing before them."""
        before = self.out_bytes
        count = answer_reads(self, self.clients.machine, frames)
        if not count:
            return 0
        self.last_xid, self.last_opcode = HEADER(frames[count - 1])
        self.clients.turn.taken += count + (self.out_bytes - before >> 10)
        if self.out_bytes >= ANSWERS_BYTES_MAX:
            self._put_off(ENOUGH, frames[count - 1 :])
            return len(frames)
        return count

    def _take_each(self, frames: list[bytes]) -> None:
        """Handle requests one by one."""
        queue = self.queue
        commands: list[txn.Command] = []
        size = 0
        answered = self.out_bytes
        xid, opcode = -1, self.last_opcode
        for place, frame in enumerate(frames):
            length = len(frame)
            if length < 8:
                self.clients.refuse(self, f"request of {length} bytes, a request header has 8")
                break
            xid, opcode = HEADER(frame)
            try:
                if opcode in WRITES:
                    command = requests.decode_write(opcode, frame)
                    if size + length > SUBMIT_BYTES_MAX and commands:
                        self.clients.submit(self, commands, size)
                        commands = []
                        size = 0
                    commands.append(command)
                    size += length
                    queue.append((opcode, xid, command))
                    if opcode == CLOSE_SESSION:
                        self.ending = True
                        break
                elif opcode in SPECIAL:
                    if opcode == PING:
                        self._pong()
                        continue
                    if opcode == SYNC:
                        sync = Sync(xid, requests.decode_path(frame), frame)
                        if place >= self._synced:
                            self._hold(sync, len(frame), frames[place + 1 :])
                            break
                        if not queue:
                            self._synchronised(sync)
                            continue
                        queue.append(sync)
                        self._queued_bytes += len(frame) + REQUEST_OVERHEAD_BYTES
                        if self._queued_bytes > READS_BEHIND_WRITES_BYTES:
                            self._defer(frames[place + 1 :])
                            break
                        continue
                    if opcode == COUNT:
                        path = requests.decode_path(frame)
                        self._hold(Count(xid, path), len(path), frames[place + 1 :])
                        break
                    if opcode == RECONFIG:
                        command = decode_reconfig_command(frame)
                        if not self.clients.settings.reconfig_enabled:
                            self._fail(xid, Code.RECONFIG_DISABLED)
                            continue
                        if self.clients.machine.feature_level < LEVEL_OF_MEMBERS:
                            # A new cluster for its first seconds, or one that is being upgraded: try again.
                            self._fail(xid, Code.RECONFIG_IN_PROGRESS)
                            continue
                        if size + len(frame) > SUBMIT_BYTES_MAX and commands:
                            self.clients.submit(self, commands, size)
                            commands = []
                            size = 0
                        commands.append(command)
                        size += len(frame)
                        queue.append((opcode, xid, command))
                        continue
                    if commands:
                        # They were sent before, so they go with the ids of before.
                        self.clients.submit(self, commands, size)
                        commands = []
                        size = 0
                    self._prove(opcode, xid, frame)
                    if self.ending:
                        break
                elif queue:
                    if opcode in LISTINGS:
                        self._hold(Listing(frame), len(frame), frames[place + 1 :])
                        break
                    self._queued_bytes = queued = self._queued_bytes + len(frame) + REQUEST_OVERHEAD_BYTES
                    if opcode not in ANSWERED:
                        # It ends the connection in its turn: nothing behind it is carried out.
                        queue.append(Unknown(xid, frame))
                        self.ending = True
                        break
                    queue.append(frame)
                    if queued > READS_BEHIND_WRITES_BYTES:
                        self._defer(frames[place + 1 :])
                        break
                elif wanted := answer(self, opcode, xid, frame):
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
            self.clients.submit(self, commands, size)
        self.clients.turn.taken += place + 1 + (self.out_bytes - answered >> 10)

    def _pong(self) -> None:
        self.emit(replies.encode_empty_reply(XID_PING, self.clients.machine.last_zxid))

    def _take_read_only(self, frames: list[bytes]) -> None:
        """Handle requests while this server has no quorum: reads and pings; the rest is NOT_READ_ONLY."""
        self.clients.turn.taken += len(frames)
        answered = self.out_bytes
        for place, frame in enumerate(frames):
            if len(frame) < 8:
                self.clients.refuse(self, f"request of {len(frame)} bytes, a request header has 8")
                return
            xid, opcode = HEADER(frame)
            try:
                if opcode == PING:
                    self._pong()
                elif opcode == CLOSE_SESSION:
                    self._end_in_turn(replies.encode_empty_reply(xid, self.clients.machine.last_zxid))
                elif opcode in WRITES or opcode in NEEDS_QUORUM:
                    self.failed(xid, Code.NOT_READ_ONLY)
                elif opcode == COUNT:
                    answer_count(self, xid, frame)
                elif opcode in SESSION_BOUND:
                    self._prove(opcode, xid, frame)
                elif wanted := answer(self, opcode, xid, frame):
                    self._put_off(wanted, frames[place:])
                    break
            except MarshallingError:
                self.failed(xid, Code.MARSHALLING_ERROR)
            if self.closing:
                break
            if self.out_bytes >= ANSWERS_BYTES_MAX:
                self._put_off(ENOUGH, frames[place:])
                break
        self.clients.turn.taken += self.out_bytes - answered >> 10

    def _prove(self, opcode: int, xid: int, frame: bytes) -> None:
        """Take a client's proof of who it is.

        Later requests have the new ids; a lie ends the connection, in its turn.
        """
        if opcode == AUTH:
            offer = requests.decode_auth(frame)
            ids = proved_ids(offer, self.ids_of_writes, self.clients.settings.auth)
            if ids is not None:
                self._proved(ids, replies.encode_empty_reply(xid, 0))
                return
            self._turn_away(xid, Code.AUTH_FAILED, f"authentication with scheme {offer.scheme!r} failed")
            return
        try:
            ids, token = self.clients.log_in(self, requests.decode_sasl(frame))
        except AuthenticationError as error:
            self._turn_away(xid, Code.AUTH_FAILED, str(error))
        else:
            self._proved(ids, replies.encode_token_reply(xid, 0, token))

    def _turn_away(self, xid: int, code: Code, why: str) -> None:
        """Give the last answer of this connection, in its turn."""
        self.clients.notice(self, why)
        self._end_in_turn(replies.encode_error_reply(xid, 0, code))

    def _proved(self, ids: Ids, reply: bytes) -> None:
        """Give the new ids to writes that follow; to reads, too, once what was asked before is answered."""
        self.ids_of_writes = ids
        if self.queue:
            self.queue.append(Proved(ids, reply))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self.ids = ids
            self.emit(reply)

    def _end_in_turn(self, reply: bytes) -> None:
        """Send this last reply in its turn; nothing that comes after it is looked at."""
        self.ending = True
        if self.queue:
            self.queue.append(Last(reply))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self.emit(reply)
            self.closing = True

    def _fail(self, xid: int, code: Code) -> None:
        """Answer a request with an error, in its turn."""
        if self.queue:
            self.queue.append(Failed(xid, code))
            self._queued_bytes += REQUEST_OVERHEAD_BYTES
        else:
            self.failed(xid, code)

    def failed(self, xid: int, code: Code) -> None:
        """Answer a request with an error, at the zxid of now."""
        self.emit(replies.encode_error_reply(xid, self.clients.machine.last_zxid, code))

    def emit(self, data: bytes) -> None:
        """Write an answer."""
        self.out.append(data)
        self.out_bytes += len(data)
        if not self.dirty:
            self.clients.mark_dirty(self)

    def emit_parts(self, parts: Sequence[bytes]) -> None:
        """Write one answer, of which large parts are not to be copied."""
        self.out += parts
        self.pieces += len(parts) - 1
        self.out_bytes += sum(map(len, parts))
        if not self.dirty:
            self.clients.mark_dirty(self)

    def answer_word(self, respond: Callable[[str, bytes], bytes]) -> None:
        """Answer the four-letter word that the connection began with, which is its end."""
        word = self._reader.word
        assert word is not None, "it began with something else"
        self.emit(respond(word, self._reader.argument))
        self.closing = True

    # -- answers

    def attached(self, session: Session) -> None:
        """Greet the client, whose session is ours now, and handle what it already sent."""
        assert self.request is not None
        self.phase = Phase.ATTACHED
        self.session = session.id
        self.timeout_ms = session.timeout_ms
        self.third_ms = session.timeout_ms // 3
        flag = None if self.request.read_only is None else False
        self.emit(encode_greeting(session.timeout_ms, session.id, session.password, flag))
        if self._backlog:
            self.take_backlog()

    def attached_read_only(self, session: int, timeout_ms: int, password: bytes) -> None:
        """Give the client a session that only this server knows, and that lasts as long as the connection."""
        self.phase = Phase.READ_ONLY
        self.session = session
        self.timeout_ms = timeout_ms
        self.emit(encode_greeting(timeout_ms, session, password, True))
        self.take_backlog()

    def refuse_session(self, request: ConnectRequest) -> None:
        """Tell the client that the session is gone or not its own, in the form that clients know, then close."""
        self.emit(encode_session_refusal(request))
        self.closing = True

    def send_elsewhere(self) -> None:
        """Send the client to another server, since this one cannot serve it now."""
        # It closes without a word, which every client takes as "try the next one".
        self.clients.close(self)

    def on_stalled(self) -> None:
        """Do nothing: nothing is pushed but events, and these cannot wait."""

    def on_taken(self) -> None:
        """Do nothing: `Clients` brings back the requests."""

    def on_release(self) -> None:
        """Free what the client sent, and what is left of the connection in other tables, since it is over."""
        self.clients.watches.remove_watcher(self)
        if self._reader.partial:
            self._reader.clear()
        self._backlog = []
        if self.queue:
            self.queue.clear()
        self._backlog_bytes = self._queued_bytes = 0

    def on_event(self, zxid: int, event_type: int, path: str) -> None:
        """Tell the client that a watch fired."""
        event = encode_watch_event(zxid, event_type, path)
        self.out.append(event)
        self.out_bytes += len(event)
        if not self.dirty:
            self.clients.mark_dirty(self)
        if self.out_bytes >= ANSWERS_BYTES_MAX:
            self.clients.sums.count_output(self)

    def complete(self, result: Any, zxid: int) -> None:
        """Answer the oldest write, which was applied with this result at this zxid."""
        if self.closing:
            return  # something before it ended the connection: nothing more is said
        queue = self.queue
        write = queue.popleft()
        assert write.__class__ is tuple, "a result of something that is no write"
        opcode, xid, command = write
        self.out.append(
            replies.encode_set_data_reply(xid, zxid, result)
            if result.__class__ is Znode and opcode == txn.SET_DATA  # the most frequent ones
            else replies.encode_write_reply(opcode, xid, zxid, command, result)
        )
        if not self.dirty:
            self.clients.mark_dirty(self)
        if opcode == CLOSE_SESSION and result == Code.OK:
            self.closing = True
        elif queue and queue[0].__class__ is not tuple:
            self._pump()

    @property
    def is_interleaved(self) -> bool:
        """True while something else stands among its writes, so that each is to be answered before the next is executed."""
        return self._queued_bytes > 0

    def complete_run(self, results: Sequence[Any], zxid: int) -> None:
        """Answer as many of the oldest writes, which were applied one behind the other, the last of them at this zxid."""
        if self.closing:
            return
        queue, answered = self.queue, len(results)
        self.out += pipelines.encode_replies(queue, results, zxid - answered + 1)  # type: ignore[arg-type]  # all are writes
        if answered == len(queue):
            queue.clear()
        else:
            for _ in range(answered):
                queue.popleft()
        if not self.dirty:
            self.clients.mark_dirty(self)

    def complete_sync(self) -> None:
        """Answer the sync, in its turn: everything committed before it was asked for is applied here."""
        if self.phase is not Phase.ATTACHED or self.closing:
            return
        sync = self.queue[-1]
        assert isinstance(sync, Sync), "nothing is looked at behind a sync that waits"
        self._synced = len(self._backlog) - self._came_later
        if len(self.queue) == 1:
            self._unsync()
        self._go_on()

    def _unsync(self) -> None:
        """Answer the sync at the head of the queue."""
        sync = self.queue.popleft()
        assert isinstance(sync, Sync)
        self._queued_bytes -= len(sync.frame) + REQUEST_OVERHEAD_BYTES
        self._synchronised(sync)

    def _synchronised(self, sync: Sync) -> None:
        self.emit(replies.encode_create_reply(sync.xid, self.clients.machine.last_zxid, sync.path))

    def complete_steps(self, steps: Steps) -> None:
        """Answer the request that took more than one turn, unless its last step has ended the connection."""
        if self.phase is Phase.CLOSED:
            return
        held = self.queue.popleft()
        zxid = self.clients.machine.last_zxid
        if isinstance(steps, DescendantCount):
            assert isinstance(held, Count), "nothing is answered while a count waits"
            self.emit(replies.encode_int_reply(held.xid, zxid, steps.number))
        else:
            assert isinstance(held, Restore), "nothing is answered while watches are restored"
            self.emit(replies.encode_empty_reply(held.xid, zxid))
        self._go_on()

    def _go_on(self) -> None:
        """Handle what stood behind a request that took more than one turn and is answered."""
        self.held = False
        if self.clients.turn.full or self.wants_flush:
            self.clients.on_backlog(self)
        else:
            self.take_backlog()

    def _pump(self) -> None:
        """Answer what stood behind a write, up to the next write."""
        queue = self.queue
        while queue and not self.closing:
            first = queue[0]
            if isinstance(first, tuple):
                break
            if (
                self.out_bytes >= ANSWERS_BYTES_MAX
                and all(isinstance(one, Read | Listing | Sync) for one in queue)
                and not (self.held and isinstance(queue[-1], Sync))
            ):
                self._unqueue()
                break
            if isinstance(first, Read):
                queue.popleft()
                self._queued_bytes -= len(first) + REQUEST_OVERHEAD_BYTES
                xid, opcode = HEADER(first)
                try:
                    answer(self, opcode, xid, first, now=True)
                except MarshallingError:
                    self.failed(xid, Code.MARSHALLING_ERROR)
            elif isinstance(first, Sync):
                if self.held and len(queue) == 1:
                    break
                self._unsync()
            elif isinstance(first, HELD):
                self._begin_held(first)
                break
            else:
                queue.popleft()
                self._queued_bytes -= REQUEST_OVERHEAD_BYTES
                match first:
                    case Unknown():
                        self._queued_bytes -= len(first.frame)
                        answer_unknown(self, first.xid)
                    case Failed():
                        self.failed(first.xid, first.code)
                        continue
                    case Proved():
                        self.ids = first.ids
                        self.emit(first.reply)
                        continue
                    case Last():
                        self.emit(first.reply)
                        self.closing = True
                        return
                    case _:
                        assert_never(first)
            if self.out_bytes > self.clients.settings.output_bytes_max:
                # They cannot wait: the results of the writes behind them come in order, and may come now.
                self.clients.refuse(
                    self, "its pipelined reads ask for more than client.output_bytes_max at once"
                )
                return
        if self.out_bytes >= ANSWERS_BYTES_MAX:
            self.clients.sums.count_output(self)
        if self._backlog and not self.held:
            self.clients.on_backlog(self)
        if self.counted:
            self.account()

    def _unqueue(self) -> None:
        """Take reads, and syncs that wait only for them, out of the queue, since no write stands behind them.

        They can be answered when the client has taken what it has asked for.
        """
        frames = [
            one if isinstance(one, Read) else one.frame
            for one in self.queue
            if isinstance(one, Read | Listing | Sync)
        ]
        self._backlog[:0] = frames
        self._synced += len(frames)
        self._backlog_bytes += self._queued_bytes
        self._queued_bytes = 0
        self.queue.clear()
        self.held = False
        self.clients.turn.cut_short = True

    def _hold(self, held: Held, size: int, behind: list[bytes]) -> None:
        """Hold a request that takes more than one turn.

        It is decoded already: nothing waits for a malformed one.

        Nothing behind a sync may be applied before the leader has answered: the answer shows a state at least as new
        as all of them, and the client would see its zxids go back. The leader is asked at once, also behind a write
        that is on its way. A listing is kept as it came, and answered as any other read once nothing stands before
        it.
        """
        self.held = True
        self.queue.append(held)
        self._queued_bytes += size + REQUEST_OVERHEAD_BYTES
        if isinstance(held, Sync):
            self._came_later = 0
            self.clients.request_sync(self)
        elif len(self.queue) == 1:
            self._begin_held(held)
        self._defer(behind)

    def _begin_held(self, held: Count | Listing | Restore) -> None:
        """Begin the request at the head of the queue, which takes more than one turn.

        What stands behind it waits, in order.
        """
        match held:
            case Count(path=path):
                self._queued_bytes -= len(path) + REQUEST_OVERHEAD_BYTES
                self._begin_count(held.xid, path)
            case Listing(frame=frame):
                self.queue.popleft()
                self._queued_bytes -= len(frame) + REQUEST_OVERHEAD_BYTES
                self.held = False
                self._backlog.insert(0, frame)
                self._backlog_bytes += len(frame) + REQUEST_OVERHEAD_BYTES
                self.clients.on_backlog(self)

    def _begin_count(self, xid: int, path: str) -> None:
        code = reads.countable(self.clients.machine, path, self.ids)
        if code is Code.OK:
            self.clients.request_steps(self, DescendantCount(self.clients.machine, path))
        else:
            self.queue.popleft()
            self.held = False
            self.failed(xid, code)
            self.clients.on_backlog(self)
