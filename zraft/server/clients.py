"""All client connections of one server: who owns which session here, what may be said to whom, and when.

Holds the rules that protect a session against itself and against servers that lost touch: an older connection
of a session is closed before a new one is attached (D-3a); nothing is said on a session whose last acknowledged
touch is older than a third of its timeout (D-14); a client that is ahead of this server is sent elsewhere.

They speak ZooKeeper's protocol or, told by their first byte, the native one; a `ClientConnection` either way.

Pure: no socket, no clock. The shell feeds connections and writes what `flush` returns.
"""

from __future__ import annotations

import hmac
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import field, frozen

from zraft.errors import Code
from zraft.server.admission import AddressCount, Admission
from zraft.server.authentication import AuthSettings
from zraft.server.budget import Bound, Budget, Excess
from zraft.server.client_connection import (
    BACKLOG_BYTES_MAX,
    BEGUN_BYTES,
    LARGE_BYTES,
    UNCOUNTED_BYTES,
    ClientConnection,
    Phase,
    Watcher,
)
from zraft.server.connection import Connection
from zraft.server.guarded_connection import GuardedConnection
from zraft.server.native_connection import NativeConnection
from zraft.server.native_feeds import Feeds
from zraft.server.native_reads import Listings
from zraft.server.native_view import ClusterView
from zraft.server.origin import OriginStream
from zraft.server.reads import SyncWaiter
from zraft.server.sasl import DigestMd5
from zraft.server.topic_service import TopicService
from zraft.server.touches import TouchReporter
from zraft.tree.acl import READ, permits
from zraft.tree.events import Event
from zraft.tree.machine import Machine
from zraft.tree.reads import DescendantCount
from zraft.tree.sessions import Session
from zraft.tree.txn import ATTACH, CREATE_SESSION, Command
from zraft.tree.watches import WatchTable
from zraft.wire.connect import PASSWORD_BYTES, ConnectRequest

ATTACH_BYTES: Final = 64
REFUSALS_KEPT_MAX: Final = 64
"""Refused connections, and notices, remembered between two turns, for the log."""

REQUESTS_PER_TURN_MAX: Final = 4_096
"""About 20 ms: however many clients send at once, heartbeats and pings are answered between two turns. A kibibyte of
answers counts as one more."""

WORD_REQUESTS: Final = 2_048
"""As so many requests counts a four-letter word: with ten thousand connections, `mntr` and `cons` take that long."""

TOLD_PER_TURN_MAX: Final = 8_192
"""About 10 ms: however many clients watch what is written, heartbeats and pings are answered between two turns."""

PUSHED_PER_TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""To all subscriptions together, a few milliseconds; the others come first in the next turn."""

SHARDS_PER_COUNT_STEP: Final = 8
"""Of the 256 of the tree: with a million znodes a step takes about 3 ms."""


@frozen
class ClientSettings:
    """Bounds per server; names as in the configuration's `client` section."""

    jute_maxbuffer: int = 0xFFFFF
    connections_max: int = 20_000
    output_bytes_max: int = 16 * 1024 * 1024
    output_bytes_per_address_max: int = 32 * 1024 * 1024
    output_bytes_sum_max: int = 64 * 1024 * 1024
    input_bytes_per_address_max: int = 16 * 1024 * 1024
    input_bytes_sum_max: int = 32 * 1024 * 1024
    unfinished_bytes_per_address_max: int = 16 * 1024 * 1024
    unfinished_bytes_sum_max: int = 32 * 1024 * 1024
    reply_bytes_max: int = 0xFFFFF
    auth: AuthSettings = field(factory=AuthSettings)
    read_only_mode_enabled: bool = False
    reconfig_enabled: bool = False
    watches_per_connection_max: int = 1_000_000
    connections_per_address_max: int = 0
    connects_per_second_max: int = 0


SERVED: Final = (Phase.ATTACHED, Phase.OPEN, Phase.READ_ONLY)

OPEN_TIMEOUT_MS: Final = 10_000
"""As what a connection without a session counts: it is given up after a third of it without contact with a quorum."""

Output = tuple[ClientConnection, bytes, bool]
"""Bytes to write to one connection now, and whether to close it after them."""


class Clients:
    """The connections of one server, and the services they use."""

    def __init__(
        self,
        *,
        machine: Machine,
        origin: OriginStream,
        touches: TouchReporter,
        settings: ClientSettings,
        entropy: Callable[[int], bytes],
        four_letter_word: Callable[[str, bytes], bytes],
    ) -> None:
        self.machine = machine
        self.watches: WatchTable[Watcher] = WatchTable()
        self.feeds = Feeds(machine)
        """What native clients subscribed to."""
        self.listings = Listings(machine)
        self.view: ClusterView | None = None
        """Who leads, and the rest of the server as clients may see it; set by whoever knows the server."""
        self.topics: TopicService | None = None
        """The partitions of this server; set by whoever has them, None while the cluster has no topics."""
        self.four_letter_word = four_letter_word
        self.auth = settings.auth
        self._connection_class = GuardedConnection if settings.auth.required_schemes else Connection
        self.reply_bytes_max = settings.reply_bytes_max
        self.reconfig_enabled = settings.reconfig_enabled
        self.refusals: deque[tuple[ClientConnection, str]] = deque(maxlen=REFUSALS_KEPT_MAX)
        self.notices: deque[tuple[ClientConnection, str]] = deque(maxlen=REFUSALS_KEPT_MAX)
        """What clients were refused, for the operator: (connection, what and why)."""
        self.now = 0
        self.arrived = 0.0
        """When what is read now arrived, for statistics: the shell may know better than the last turn's time."""
        self.received_total = 0
        self.sent_total = 0
        self.taken = 0
        """Requests taken from clients since the turn began; further ones wait, in order, for the next."""
        self.told_total = 0
        """Followers that were told of a change, each time."""
        self._told_before = 0
        """The same when the turn began."""
        self.cut_short = False
        """Whether something is left that the next turn can answer, though this one had enough."""
        self.events_total = 0
        self.bytes_received_total = 0
        self.bytes_sent_total = 0
        self.connections_total = 0
        self.rejected_total = 0
        self.refused_total = 0
        self.expired_total = 0
        self.native_connections_total = 0
        self.serving = False
        """Whether sessions may be attached now; set every turn by the driver."""
        self.removed = False
        """This server belongs to the cluster no longer: it serves nobody, not even reads."""
        self.leaving = False
        """This server is about to stop, or to be removed: nobody is attached any more."""
        self.deaf = False
        """What clients send is not looked at any more, so that those that ask all the time come to an end, too."""
        self._origin = origin
        self.touches = touches
        self._settings = settings
        self.output_bytes_max = settings.output_bytes_max
        self.output: Budget[ClientConnection] = Budget(
            "bytes of answers and events that its client does not take",
            per_address=Bound("client.output_bytes_per_address_max", settings.output_bytes_per_address_max),
            together=Bound("client.output_bytes_sum_max", settings.output_bytes_sum_max),
        )
        self.input: Budget[ClientConnection] = Budget(
            "bytes of requests that wait for their turn",
            per_address=Bound("client.input_bytes_per_address_max", settings.input_bytes_per_address_max),
            together=Bound("client.input_bytes_sum_max", settings.input_bytes_sum_max),
        )
        self.unfinished: Budget[ClientConnection] = Budget(
            "bytes of a request without its end",
            per_address=Bound(
                "client.unfinished_bytes_per_address_max", settings.unfinished_bytes_per_address_max
            ),
            together=Bound("client.unfinished_bytes_sum_max", settings.unfinished_bytes_sum_max),
        )
        self.is_wide = True
        """Whether much may be read at once of what a client sends."""
        self._overdrawn = False
        """Whether the bounds of `output` are passed."""
        self._no_room: dict[ClientConnection, int] = {}
        """Connections whose next answer is large, and waits for room: how large, in the order in which they began to."""
        self._no_room_at = -1
        """What `output` held when there was no room for them."""
        self._entropy = entropy
        self._admission: Admission[ClientConnection] = Admission(
            per_second_max=settings.connects_per_second_max
        )
        self._paced = settings.connects_per_second_max > 0
        self._addresses = AddressCount(settings.connections_per_address_max)
        self.full_knob = ""
        """The bound that the last refused connection met."""
        self._connections: dict[ClientConnection, None] = {}
        self._by_session: dict[int, ClientConnection] = {}
        self._attaching: dict[int, ClientConnection] = {}
        self._timeouts: Counter[int] = Counter()
        self.timeout_ms_min: int | None = None
        """The smallest negotiated timeout of the sessions attached here."""
        self._dirty: list[ClientConnection] = []
        self._backlogged: dict[ClientConnection, None] = {}
        self._syncs: list[SyncWaiter] = []
        self._floored: dict[NativeConnection, None] = {}
        """Connections with reads that wait for this server to have applied more."""
        self._topical: dict[NativeConnection, None] = {}
        """Connections that are to be told something of topics."""
        self._counts: deque[tuple[Connection, DescendantCount]] = deque()
        self._words: deque[Connection] = deque()
        """Connections whose four-letter word waits for its answer."""

    # -- what the shell calls

    def connect(self, address: str, ids: tuple[tuple[str, str], ...]) -> Connection | None:
        """A client connected; None if there are too many already, `full_knob` then says of what."""
        if len(self._connections) >= self._settings.connections_max:
            self.full_knob = "client.connections_max"
            self.rejected_total += 1
            return None
        if not self._addresses.admit(_host(address)):
            self.full_knob = "client.connections_per_address_max"
            self.rejected_total += 1
            return None
        self.connections_total += 1
        connection = self._connection_class(self, address, ids, self._settings.jute_maxbuffer)
        self._connections[connection] = None
        return connection

    def native(self, connection: Connection) -> NativeConnection:
        """The client that `connection` was made for speaks the native protocol: what stands for it from now on."""
        assert connection.phase is Phase.NEW, "it has spoken ZooKeeper's protocol"
        native = NativeConnection(self, connection.address, connection.ids, self._settings.jute_maxbuffer)
        native.handle, connection.handle = connection.handle, None
        connection.phase = Phase.CLOSED
        del self._connections[connection]
        self._connections[native] = None
        self.native_connections_total += 1
        return native

    def opened(self, connection: NativeConnection) -> None:
        """It goes on without a session."""
        connection.phase = Phase.OPEN
        connection.timeout_ms = OPEN_TIMEOUT_MS
        self._timeouts[OPEN_TIMEOUT_MS] += 1
        self.timeout_ms_min = min(self._timeouts)

    @property
    def connections(self) -> Sequence[ClientConnection]:
        return tuple(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    # -- what connections call

    @property
    def full(self) -> bool:
        """Whether requests have to wait: for room in the origin stream, or for the next turn."""
        return self.taken >= REQUESTS_PER_TURN_MAX or self._origin.full

    def lets_pass(self, size: int) -> bool:
        """Whether `size` bytes from a client that waits for nothing are taken although `full`.

        Else whoever fills the origin stream, or all turns, would make everybody else wait for all that it asks for. What
        takes long does not pass; see `busy`.
        """
        return size <= UNCOUNTED_BYTES and self.taken < 2 * REQUESTS_PER_TURN_MAX

    @property
    def busy(self) -> bool:
        """Whether this turn has no time left for a request that takes milliseconds."""
        return self.taken >= REQUESTS_PER_TURN_MAX

    @property
    def room(self) -> int:
        """How many more requests this turn may take."""
        return max(0, REQUESTS_PER_TURN_MAX - self.taken)

    def mark_dirty(self, connection: ClientConnection) -> None:
        """The connection has output."""
        connection.dirty = True
        self._dirty.append(connection)

    def on_backlog(self, connection: ClientConnection) -> None:
        """It has requests that wait for the next turn, or for room in the origin stream."""
        if not connection.unsent and connection not in self._no_room:
            # Else it is remembered by whoever makes room for its answers: `left_unsent`, `_make_room`.
            self._backlogged[connection] = None

    def on_no_room(self, connection: ClientConnection, size: int) -> None:
        """Its next answer, of `size` bytes, waits until others have taken theirs."""
        self._backlogged.pop(connection, None)
        self._no_room[connection] = size
        self._no_room_at = -1

    def may_read(self, connection: ClientConnection, unfinished: int, waiting: int) -> bool:
        """Whether more is read from a connection that has sent so much of an unfinished request, and of complete ones."""
        if waiting > UNCOUNTED_BYTES and (waiting >= BACKLOG_BYTES_MAX or self.input.is_pressed(connection)):
            return False
        return not UNCOUNTED_BYTES < unfinished <= BEGUN_BYTES or not self.unfinished.is_pressed(connection)

    def count_input(self, connection: ClientConnection, unfinished: int, waiting: int) -> None:
        """It keeps so much of what its client sent: of an unfinished request, and of complete ones."""
        if connection.phase is Phase.CLOSED:
            return
        counts = (self.unfinished, unfinished), (self.input, waiting)
        connection.counted = unfinished > UNCOUNTED_BYTES or waiting > UNCOUNTED_BYTES
        over = [
            budget
            for budget, size in counts
            if budget.hold(connection, size if size > UNCOUNTED_BYTES else 0, self.now)
        ]
        for budget in over:
            self._relieve(budget.excess(self.now))
        self.is_wide = self.unfinished.wide and self.input.wide

    def count_output(self, connection: ClientConnection) -> None:
        """What is to be written to it, or its client does not take, has become more or less."""
        size = connection.unsent + connection.out_bytes + connection.due_bytes
        if not connection.cut and self.output.hold(connection, size, self.now):
            self._overdrawn = True

    def left_unsent(self, connection: ClientConnection, size: int) -> bool:
        """The shell could not send `size` bytes of what it was given; True if the next turn should come at once."""
        if connection.cut:
            return False
        was_unsent, connection.unsent = connection.unsent > 0, size
        self.count_output(connection)
        if size > self.output_bytes_max:
            self._cut(
                connection,
                f"{size} bytes that its client does not take, expected at most client.output_bytes_max = "
                f"{self.output_bytes_max}",
            )
            return True
        if size:
            if not was_unsent:
                self._backlogged.pop(connection, None)
                connection.on_stalled()
            return self._overdrawn
        if was_unsent and connection.phase is not Phase.CLOSED:
            self.on_backlog(connection)
            connection.on_taken()
        return was_unsent

    @property
    def evicted_total(self) -> int:
        """Connections that were closed for what all of them together may hold."""
        return self.output.evicted_total + self.input.evicted_total + self.unfinished.evicted_total

    def _relieve(self, gone: Sequence[Excess[ClientConnection]]) -> None:
        for excess in gone:
            self._cut(excess.one, excess.why)

    def _cut(self, connection: ClientConnection, why: str) -> None:
        """End a connection at once, whatever it has not taken yet: what it holds is needed."""
        self.refusals.append((connection, why))
        self.refused_total += 1
        connection.cut = True
        if connection.phase is Phase.CLOSED:
            # Its end waits until its client takes the rest.
            connection.closing = True
            if not connection.dirty:
                self.mark_dirty(connection)
        else:
            self.close(connection)

    def _make_room(self) -> None:
        """Large answers wait: those who keep them waiting for too long go, and those for whom there is room go on."""
        self._relieve(self.output.overdue(self.now))
        if self.output.held == self._no_room_at:
            return
        self._no_room_at = self.output.held
        promised = 0
        for connection, size in list(self._no_room.items()):
            if self.output.has_room(connection, promised + size):
                promised += size
                del self._no_room[connection]
                self.on_backlog(connection)

    def begin_login(self) -> DigestMd5 | None:
        """A SASL login with the users of now; None if there is no SASL."""
        users = self.auth.users
        return DigestMd5(users(), entropy=self._entropy) if users is not None else None

    def submit(self, connection: ClientConnection, commands: list[Command], size: int) -> None:
        """Commands of an attached session, in order."""
        self._origin.add(connection, connection.session, connection.ids_of_writes, commands, size)

    def request_sync(self, waiter: SyncWaiter) -> None:
        """`waiter.complete_sync()` is due when all that is committed by now is applied here."""
        self._syncs.append(waiter)

    def on_topics(self, connection: NativeConnection) -> None:
        """It is told of topics at the end of the turn."""
        self._topical[connection] = None

    def on_floor(self, connection: NativeConnection) -> None:
        """It has reads that wait for this server to have applied more; they are looked at once per turn."""
        self._floored[connection] = None

    def request_count(self, connection: Connection, count: DescendantCount) -> None:
        """`connection.complete_count()` is due when this is counted."""
        self._counts.append((connection, count))

    def step_count(self) -> None:
        """Count on, for one connection of those that wait: the others have their turns next."""
        if self._counts:
            connection, count = self._counts.popleft()
            if connection.phase is not Phase.ATTACHED:
                return
            if count.step(SHARDS_PER_COUNT_STEP):
                connection.complete_count(count.number)
            else:
                self._counts.append((connection, count))

    def notice(self, connection: ClientConnection, what: str) -> None:
        """Have the operator told; the connection stays."""
        self.notices.append((connection, what))

    def watch_data(self, path: str, connection: Connection) -> None:
        """A data watch of getData or exists."""
        self.watches.add_data(path, connection)
        self.bound_watches(connection)

    def watch_children(self, path: str, connection: Connection) -> None:
        """A child watch of getChildren."""
        self.watches.add_child(path, connection)
        self.bound_watches(connection)

    def on_follower(self) -> None:
        """Somebody follows what is written from now on."""
        self._origin.on_follower()

    def bound_watches(self, connection: Connection) -> None:
        """Watches were added; a connection with too many of them is refused."""
        count = self.watches.count_of(connection)
        if count > self._settings.watches_per_connection_max:
            self.refuse(
                connection,
                f"{count} watches, expected at most client.watches_per_connection_max = "
                f"{self._settings.watches_per_connection_max}: they are kept in memory; a recursive watch can replace many",
            )

    def too_long(self, connection: Connection, what: str, count: int, size: int) -> Code:
        """The code for an answer longer than clients accept, which they would meet with an endless reconnect."""
        self.notice(
            connection,
            f"{what}: {count} entries in {size} bytes or more, expected at most client.reply_bytes_max = "
            f"{self.reply_bytes_max}; raise it, and jute.maxbuffer in the clients, or spread the znodes",
        )
        return Code.MARSHALLING_ERROR

    @property
    def has_syncs(self) -> bool:
        return bool(self._syncs)

    def take_syncs(self) -> list[SyncWaiter]:
        """Who asked for a sync since the last call."""
        taken, self._syncs = self._syncs, []
        return taken

    def on_word(self, connection: Connection) -> None:
        """It asks one four-letter word, whose answer may take milliseconds: now, or when a turn has time for it."""
        if self.busy or self._words:
            self._words.append(connection)
        else:
            self._answer_word(connection)

    def _answer_word(self, connection: Connection) -> None:
        if connection.phase is not Phase.CLOSED:
            self.taken += WORD_REQUESTS
            connection.answer_word()

    def attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """A connection asks for a session; in a storm it waits for its turn, and so do its requests."""
        connection.phase = Phase.ATTACHING
        if self.leaving or not self.serving or self._admission.ask(connection):
            self._attach(connection, request)

    @property
    def attaches_waiting(self) -> int:
        """Clients that asked for a session and wait for their turn."""
        return len(self._admission)

    def take_attaches(self) -> None:
        """A turn begins: those who waited and are admitted now."""
        for connection in self._admission.begin_turn(self.now):
            assert connection.request is not None
            self._attach(connection, connection.request)

    def _attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """Always decided through the log, also when the session resumes here (D-3)."""
        machine = self.machine
        if self._may_read_only(request):
            self._attach_read_only(connection, request)
            return
        if self.leaving or not self.serving or request.last_zxid_seen > machine.last_zxid:
            # About to go, without contact, or behind what the client has seen, another server answers better.
            connection.send_elsewhere()
            return
        command: Command
        if request.session == 0:
            command = (CREATE_SESSION, request.timeout_ms, self._entropy(PASSWORD_BYTES))
        else:
            known = machine.sessions.get(request.session)
            if known is not None and not hmac.compare_digest(known.password, request.password):
                connection.refuse_session(request)
                return
            for older in (self._by_session.get(request.session), self._attaching.get(request.session)):
                if older is not None:
                    self.close(older)
            self._attaching[request.session] = connection
            command = (ATTACH, request.session, request.timeout_ms, request.password)
        self._origin.add(connection, 0, connection.ids, [command], ATTACH_BYTES)

    def _may_read_only(self, request: ConnectRequest) -> bool:
        """Only for a new session of a client that asks for it, and of what was applied since this start.

        What a log holds beyond that may never have been committed.
        """
        return (
            self.is_read_only
            and request.read_only is True
            and request.session == 0
            and request.last_zxid_seen <= self.machine.last_zxid
        )

    @property
    def is_read_only(self) -> bool:
        """Whether reads are served although there is no contact with a quorum.

        Not by a removed server: it will never know more, and whoever it serves would stay there for ever.
        """
        return (
            self._settings.read_only_mode_enabled
            and not self.serving
            and not self.removed
            and self.machine.position > 0
        )

    def _attach_read_only(self, connection: ClientConnection, request: ConnectRequest) -> None:
        # Bit 55 keeps it apart from the sessions of the log, whose ids are zxids there.
        number = int.from_bytes(self._entropy(6), "big") | 1 << 55
        timeout_ms = self.machine.settings.clamped_timeout_ms(request.timeout_ms)
        connection.attached_read_only(number, timeout_ms, self._entropy(PASSWORD_BYTES))

    def end_read_only(self) -> None:
        """There is contact again: those that had to read only find that out, and a real session, by reconnecting."""
        for connection in list(self._connections):
            if connection.phase is Phase.READ_ONLY:
                self.close(connection)

    def refuse(self, connection: ClientConnection, why: str) -> None:
        """Close without a reply, and tell the operator why."""
        self.refusals.append((connection, why))
        self.refused_total += 1
        self.close(connection)

    def close(self, connection: ClientConnection) -> None:
        """End a connection without another word. Commands already taken from it still go their way."""
        if connection.phase is not Phase.CLOSED:
            self.release(connection)
            connection.closing = True
            connection.out.clear()
            connection.out_bytes = connection.pieces = 0
            if not connection.dirty:
                self.mark_dirty(connection)

    def forget(self, connection: ClientConnection) -> None:
        """Its socket is closed: nobody has anything of it any more."""
        self.release(connection)
        connection.unsent = 0
        self.output.hold(connection, 0, self.now)

    def release(self, connection: ClientConnection) -> None:
        """The connection is over, whoever ended it: nothing here may keep it, but for what is still to be sent."""
        if connection.phase is Phase.CLOSED:
            return
        if connection.phase is Phase.ATTACHED:
            self._detach(connection)
        elif connection.phase is Phase.OPEN:
            self._forget_timeout(connection)
        elif connection.request is not None and self._attaching.get(connection.request.session) is connection:
            del self._attaching[connection.request.session]
        connection.phase = Phase.CLOSED
        if connection in self._connections:
            del self._connections[connection]
            self._addresses.release(_host(connection.address))
            self._admission.finish(connection)
        self._backlogged.pop(connection, None)
        self._no_room.pop(connection, None)
        connection.due_bytes = 0
        if connection.counted:
            connection.counted = False
            self.unfinished.hold(connection, 0, self.now)
            self.input.hold(connection, 0, self.now)
            self.is_wide = self.unfinished.wide and self.input.wide
        connection.on_release()

    def release_native(self, connection: NativeConnection) -> None:
        """What only the native protocol has."""
        self._floored.pop(connection, None)
        self._topical.pop(connection, None)
        self.feeds.forget(connection)

    def _detach(self, connection: ClientConnection) -> None:
        if self._by_session.get(connection.session) is connection:
            del self._by_session[connection.session]
            self.touches.forget(connection.session)
        self._forget_timeout(connection)

    def _forget_timeout(self, connection: ClientConnection) -> None:
        self._timeouts[connection.timeout_ms] -= 1
        if not self._timeouts[connection.timeout_ms]:
            del self._timeouts[connection.timeout_ms]
            self.timeout_ms_min = min(self._timeouts, default=None)

    # -- what the applier calls

    def on_attach(self, connection: ClientConnection, result: object, cut_at: int) -> None:
        """The attach of one of our connections was applied."""
        request = connection.request
        assert request is not None
        self._admission.finish(connection)
        if self._attaching.get(request.session) is connection:
            del self._attaching[request.session]
        if connection.phase is not Phase.ATTACHING:
            return
        if not isinstance(result, Session):
            connection.refuse_session(request)
            return
        self._by_session[result.id] = connection
        self.touches.attached(result.id, cut_at)
        self._timeouts[result.timeout_ms] += 1
        self.timeout_ms_min = min(self._timeouts)
        connection.attached(result)

    def on_session_moved(self, session: int, to: ClientConnection | None) -> None:
        """The session was attached through connection `to`, or ended (None): no other connection may keep it."""
        connection = self._by_session.get(session)
        if connection is not None and connection is not to:
            self.close(connection)

    def publish(self, events: Sequence[Event], zxid: int) -> bool:
        """Tell watchers, before any reply of the same or a later zxid is written to them; True if that is enough for now."""
        if self.feeds:
            self.told_total += self.feeds.note(events)
        if not self.watches:
            return self.told_total - self._told_before >= TOLD_PER_TURN_MAX
        for event_type, path, acl in events:
            watchers = self.watches.trigger(event_type, path)
            self.told_total += len(watchers)
            for watcher in watchers:
                # Also those that only read: what comes from a leader who does not hear us is applied meanwhile.
                if watcher.phase is not Phase.CLOSED and permits(acl, READ, watcher.ids):
                    watcher.on_event(zxid, event_type, path)
                    self.events_total += 1
        if self._overdrawn:
            self._overdrawn = False
            self._relieve(self.output.excess(self.now))
        return self.told_total - self._told_before >= TOLD_PER_TURN_MAX

    # -- what the driver calls, once per turn

    def begin_turn(self) -> None:
        """What waited for this turn, in the order in which it began to wait."""
        self.taken = 0
        self._told_before = self.told_total
        self.cut_short = False
        if self.unfinished.pressed:
            # Whoever has sent less waits for the others, not they for it; see `may_read`.
            self._relieve(self.unfinished.overdue(self.now, above=BEGUN_BYTES))
        if self._no_room:
            self._make_room()
        if self._words:
            self._answer_word(self._words.popleft())
        if self._counts:
            self.step_count()
        if self._paced or self._admission.waiting:
            self.take_attaches()
        if self._backlogged:
            self.take_backlog()

    @property
    def wants_turn(self) -> bool:
        """Whether something is left that the next turn can do at once."""
        return self.due_in_ms == 0

    @property
    def due_in_ms(self) -> int | None:
        """After how long a turn can do what waits here; None if nothing does, or only somebody else can help."""
        if (
            self.cut_short
            or self._counts
            or self._words
            or (self._backlogged and self.taken >= REQUESTS_PER_TURN_MAX)
        ):
            return 0
        if self.feeds.wants_turn:
            return 0
        return self._admission.due_in_ms() if self._admission.waiting else None

    def take_backlog(self) -> None:
        """Requests that waited for room in the origin stream, or for this turn."""
        if not self._backlogged:
            return
        for connection in list(self._backlogged):
            if self.full:
                return
            # A new one has sent its first message in a turn that was full.
            if (connection.phase in SERVED or connection.phase is Phase.NEW) and not connection.wants_flush:
                del self._backlogged[connection]
                connection.take_backlog()

    @property
    def attached(self) -> int:
        """Sessions whose connection is here."""
        return len(self._by_session)

    def reset_statistics(self) -> None:
        """Count packets and bytes anew."""
        self.received_total = self.sent_total = self.events_total = 0
        self.bytes_received_total = self.bytes_sent_total = 0

    def reset_connection_statistics(self) -> None:
        """The same for each connection."""
        for connection in self._connections:
            connection.reset_statistics()

    def close_all(self, why: str = "") -> None:
        """This server cannot know what became of its sessions (D-4, D-14): clients ask another one.

        The operator is told `why`, unless that is empty.
        """
        for connection in list(self._connections):
            if connection.holds_promises:
                if why:
                    self.refusals.append((connection, why))
                self.close(connection)

    def dismiss_all(self) -> None:
        """This server is no member any more: clients get the answers that are there, and ask another one."""
        for connection in list(self._connections):
            if connection.holds_promises:
                if self._may_speak(connection, self.now):
                    self._dismiss(connection)
                else:
                    self.close(connection)

    def let_go(self) -> bool:
        """End the connections that wait for no answer but those that are there. False if some still wait.

        A client gets its last answer and the end of the connection at once, so that its next request goes to another server.
        """
        waits = False
        for connection in list(self._connections):
            if connection.phase in SERVED and connection.answered:
                if not connection.out or self._may_speak(connection, self.now):
                    self._dismiss(connection)
                    continue
                self.touches.hurry()
            waits = waits or connection.phase not in (Phase.NEW, Phase.CLOSED)
        return not waits

    def _dismiss(self, connection: ClientConnection) -> None:
        """End a connection with what there is to be said to it."""
        self.release(connection)
        connection.closing = True
        if not connection.dirty:
            self.mark_dirty(connection)

    def _may_speak(self, connection: ClientConnection, now: int) -> bool:
        """Whether its session cannot have ended elsewhere meanwhile (D-14)."""
        return (
            connection.phase is not Phase.ATTACHED
            or self.touches.age(connection.session, now) <= connection.third_ms
        )

    def flush(self, now: int) -> list[Output]:
        """What to write now. Sessions without a fresh acknowledged touch keep their output, in order (D-14)."""
        if self._overdrawn:
            self._overdrawn = False
            self._relieve(self.output.excess(self.now))
        if self._floored:
            for native in list(self._floored):
                if not native.answer_floors():
                    self._floored.pop(native, None)
        if self.feeds.pending:
            self.feeds.push(PUSHED_PER_TURN_BYTES_MAX)
        if self._topical:
            topical, self._topical = self._topical, {}
            for native in topical:
                # What is put off is brought back by `on_taken`.
                if not native.unsent and not native.push_topics():
                    self._topical[native] = None
                    self.cut_short = True
        if not self._dirty:
            return []
        dirty, self._dirty = self._dirty, []
        outputs: list[Output] = []
        zxid = self.machine.last_zxid
        sent = sent_bytes = 0
        for connection in dirty:
            if connection.phase is Phase.ATTACHED and (
                not self.serving or self.touches.age(connection.session, now) > connection.third_ms
            ):
                self._dirty.append(connection)
                self.touches.hurry()
                if connection.out_bytes > UNCOUNTED_BYTES:
                    self.count_output(connection)
                continue
            connection.dirty = False
            out = connection.out
            messages = len(out)
            if connection.pieces:
                messages -= connection.pieces
                connection.pieces = 0
                *before, data = _parts_of(out)
                outputs += [(connection, part, False) for part in before]
                sent_bytes += sum(map(len, before))
            else:
                data = out[0] if messages == 1 else b"".join(out)
            connection.sent += messages
            sent += messages
            sent_bytes += len(data)
            outputs.append((connection, data, connection.closing))
            asked_at = connection.asked_at
            if asked_at is not None and out:
                connection.latency.add(now - asked_at if now > asked_at else 0.0, now, zxid)
                # What is still unanswered arrived later than what was answered now.
                connection.asked_at = now if connection.queue else None
            out.clear()
            connection.out_bytes = 0
            if self.output.held:
                self.count_output(connection)
            if connection.closing:
                self.release(connection)
        self.sent_total += sent
        self.bytes_sent_total += sent_bytes
        return outputs


def _parts_of(out: Iterable[bytes]) -> list[bytes]:
    """The same bytes in fewer parts: large ones as they are, what stands between them as one."""
    parts: list[bytes] = []
    small: list[bytes] = []
    for part in out:
        if len(part) >= LARGE_BYTES:
            if small:
                parts.append(b"".join(small))
                small = []
            parts.append(part)
        else:
            small.append(part)
    if small:
        parts.append(b"".join(small))
    return parts


def _host(address: str) -> str:
    """Of `host:port`, or `[host]:port`."""
    return address.rpartition(":")[0]
