"""All client connections of one server: what they may ask, in which turn, and what may be said to whom.

Nothing is said on a session whose last acknowledged touch is older than a third of its timeout (D-14). Who has which
session is in `sessions`, what connections hold together in `sums`. Connections know this module by the interfaces in
`services`.

They speak ZooKeeper's protocol or, told by their first byte, the native one; a `ClientConnection` either way.

Pure: no socket, no clock. The shell feeds connections and writes what `flush` returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from zraft.server.clients.admission import AddressCount
from zraft.server.clients.audit import Denial
from zraft.server.clients.authentication.proofs import logged_in_ids
from zraft.server.clients.authentication.sasl import AuthenticationError, DigestMd5
from zraft.server.clients.availability import Availability
from zraft.server.clients.connection import (
    LARGE_BYTES,
    UNCOUNTED_BYTES,
    ClientConnection,
    Phase,
    Watcher,
)
from zraft.server.clients.errands import SyncWaiter
from zraft.server.clients.native.connection import NativeConnection
from zraft.server.clients.native.feeds import Feeds
from zraft.server.clients.native.listings import Listings
from zraft.server.clients.native.services import NativeSpeaker
from zraft.server.clients.native.view import ClusterView
from zraft.server.clients.output import Output
from zraft.server.clients.sessions import AttachedSessions
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.sums import Sums
from zraft.server.clients.turn_share import EACH_MIN, REQUESTS_PER_TURN_MAX, TurnShare
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.clients.zookeeper.guarded_connection import GuardedConnection
from zraft.server.clients.zookeeper.services import Steps, ZooKeeperSpeaker
from zraft.server.coordination.origin import OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.topics.service import TopicService
from zraft.tree.commands.ordinary import Watched
from zraft.tree.machine import Machine
from zraft.tree.watches import WatchTable
from zraft_core.wire.connect import ConnectRequest
from zraft_core.znodes.acl import READ, Ids, permits
from zraft_core.znodes.events import Event
from zraft_core.znodes.txn import Command

REFUSALS_KEPT_MAX: Final = 64
"""Refused connections, and notices, remembered between two turns, for the log."""

WORD_REQUESTS: Final = 2_048
"""The number of requests that a four-letter word counts as: with ten thousand connections, `mntr` and `cons`
take that long.
"""

TOLD_PER_TURN_MAX: Final = 8_192
"""About 10 ms: however many clients watch what is written, heartbeats and pings are answered between two turns."""

TOLD_PER_PART: Final = 32
"""A part of a subscription to a log or a dictionary takes as long as it takes to tell this many followers of a change."""

PUSHED_PER_TURN_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most bytes that are pushed to all subscriptions together, a few milliseconds; the others come first in
the next turn.
"""


SERVED: Final = (Phase.ATTACHED, Phase.OPEN, Phase.READ_ONLY)


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
        self.settings = settings
        self.touches = touches
        self.turn = TurnShare(origin)
        self.availability = Availability()
        self.sums = Sums(settings, self.turn, self._cut)
        self.sessions = AttachedSessions(
            machine=machine,
            origin=origin,
            touches=touches,
            settings=settings,
            turn=self.turn,
            availability=self.availability,
            entropy=entropy,
            close=self.close,
        )
        self.watches: WatchTable[Watcher] = WatchTable(self._observe)
        self.feeds = Feeds(machine, self._observe)
        """The subscriptions of native clients."""
        self.listings = Listings(machine)
        self.view: ClusterView | None = None
        """The leader, and the rest of the server as clients may see it; set by whoever knows the server."""
        self.topics: TopicService | None = None
        """The partitions of this server; set by whoever has them, None while the cluster has no topics."""
        self.refusals: deque[tuple[ClientConnection, str]] = deque(maxlen=REFUSALS_KEPT_MAX)
        self.notices: deque[tuple[ClientConnection, str]] = deque(maxlen=REFUSALS_KEPT_MAX)
        """Refusals of clients, for the operator: (connection, what and why)."""
        self.tell_denied: Callable[[Denial], None] | None = None
        """Writes a line of the audit log; set by whoever keeps one."""
        self.full_knob = ""
        """The bound that the last refused connection met."""
        self.arrived = 0.0
        """When what is read now arrived, for statistics: the shell may know better than the last turn's time."""
        self.received_total = 0
        self.sent_total = 0
        self.told_total = 0
        """Followers that were told of a change, each time, and what took as long."""
        self._told_before = 0
        """The same when the turn began."""
        self._parts_before = 0
        """The parts of subscriptions that were counted: in `told_total`, or by their bytes at the end of a turn."""
        self.events_total = 0
        self.bytes_received_total = 0
        self.bytes_sent_total = 0
        self.connections_total = 0
        self.rejected_total = 0
        self.refused_total = 0
        self.denied_total = 0
        self.expired_total = 0
        self.native_connections_total = 0
        self._origin = origin
        origin.count_followers = self.count_followers
        self._entropy = entropy
        self.four_letter_word = four_letter_word
        self._connection_class = GuardedConnection if settings.auth.required_schemes else ZooKeeperConnection
        self._addresses = AddressCount(settings.connections_per_address_max)
        self._connections: dict[ClientConnection, None] = {}
        self._dirty: list[ClientConnection] = []
        self._backlogged: dict[ClientConnection, None] = {}
        self._passed_over = False
        """Somebody whose requests are large got nothing of the turn before."""
        self.syncs: list[SyncWaiter] = []
        """The waiters that have asked for a sync which was not taken yet."""
        self._floored: dict[NativeSpeaker, None] = {}
        """Connections with reads that wait for this server to have applied more."""
        self._topical: dict[NativeSpeaker, None] = {}
        """Connections that are to be told something of topics."""
        self._steps: deque[tuple[ZooKeeperSpeaker, Steps]] = deque()
        """Requests that take more than one turn."""
        self._words: deque[ZooKeeperSpeaker] = deque()
        """Connections whose four-letter word waits for its answer."""

    # -- what the shell calls

    def connect(self, address: str, ids: Ids) -> ZooKeeperConnection | None:
        """Return the connection of a new client; None if there are too many, `full_knob` then says of what."""
        if len(self._connections) >= self.settings.connections_max:
            self.full_knob = "client.connections_max"
            self.rejected_total += 1
            return None
        if self._addresses.bounded and not self._addresses.admit(_host(address)):
            self.full_knob = "client.connections_per_address_max"
            self.rejected_total += 1
            return None
        self.connections_total += 1
        connection = self._connection_class(self, address, ids)
        self._connections[connection] = None
        return connection

    def native(self, connection: ZooKeeperConnection) -> NativeConnection:
        """Return the native connection that replaces `connection`, whose client speaks the native protocol."""
        assert connection.phase is Phase.NEW, "it has spoken ZooKeeper's protocol"
        native = NativeConnection(self, connection.address, connection.ids)
        native.handle, connection.handle = connection.handle, None
        connection.phase = Phase.CLOSED
        del self._connections[connection]
        self._connections[native] = None
        self.native_connections_total += 1
        return native

    def opened(self, connection: NativeSpeaker) -> None:
        """Take note that a connection continues without a session."""
        self.sessions.opened(connection)

    @property
    def connections(self) -> Sequence[ClientConnection]:
        """The connections that are open."""
        return tuple(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    # -- what connections call

    def count_requests(self, connection: ClientConnection, requests: int, size: int) -> None:
        """Count the complete requests that arrived in one read of `size` bytes."""
        connection.received += requests
        self.received_total += requests
        self.bytes_received_total += size
        if connection.asked_at is None:
            connection.asked_at = self.arrived

    def mark_dirty(self, connection: ClientConnection) -> None:
        """Take note that the connection has output."""
        connection.dirty = True
        self._dirty.append(connection)

    def on_backlog(self, connection: ClientConnection) -> None:
        """Take note that a connection has requests that wait.

        They wait for the next turn, or for room in the origin stream.
        """
        if not connection.unsent and connection not in self.sums.waiting:
            # Otherwise it is remembered by whoever makes room for its answers: `left_unsent`,
            # `Sums.make_room`.
            self._backlogged[connection] = None

    def on_no_room(self, connection: ClientConnection, size: int) -> None:
        """Take note that the next answer, of `size` bytes, waits until others have taken theirs."""
        self._backlogged.pop(connection, None)
        self.sums.wait(connection, size)

    def left_unsent(self, connection: ClientConnection, size: int) -> bool:
        """Note that the shell could not send `size` bytes; return True if the next turn should come at once."""
        if connection.cut:
            return False
        was_unsent, connection.unsent = connection.unsent > 0, size
        self.sums.count_output(connection)
        if size > self.settings.output_bytes_max:
            self._cut(
                connection,
                f"{size} bytes that its client does not take, expected at most client.output_bytes_max = "
                f"{self.settings.output_bytes_max}",
            )
            return True
        if size:
            if not was_unsent:
                self._backlogged.pop(connection, None)
                connection.on_stalled()
            if self.sums.overdrawn:
                # Whoever has to go is chosen at once, so that no bound is passed from one turn to the next.
                self.sums.relieve_output()
                return True
            return False
        if was_unsent and connection.phase is not Phase.CLOSED:
            self.on_backlog(connection)
            connection.on_taken()
        return was_unsent

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

    def log_in(self, connection: ClientConnection, token: bytes) -> tuple[Ids, bytes]:
        """Do one step of a SASL login, and return the ids after it, and the answer.

        Raises:
            AuthenticationError: the client did not prove who it is.
        """
        auth = self.settings.auth
        login = connection.login
        if login is None:
            if auth.users is None:
                raise AuthenticationError("SASL is not configured; set auth.sasl_users_file")
            # The present users count, as their file may have changed.
            login = DigestMd5(auth.users(), entropy=self._entropy)
        step = login.respond(token)
        if step.user is None:
            connection.login = login
            return connection.ids_of_writes, step.token
        connection.login = None  # a client may log in again, with a new challenge
        ids = logged_in_ids(step.user, connection.ids_of_writes, auth)
        if ids is None:
            raise AuthenticationError("SASL: too many ids on one connection")
        return ids, step.token

    def submit(self, connection: ClientConnection, commands: list[Command], size: int) -> None:
        """Submit commands of an attached session, in order."""
        self._origin.add(connection, connection.session, connection.ids_of_writes, commands, size)

    def request_sync(self, waiter: SyncWaiter) -> None:
        """Call `waiter.complete_sync()` when all that is committed by now is applied here."""
        self.syncs.append(waiter)

    def on_topics(self, connection: NativeSpeaker) -> None:
        """Take note that a connection is to be told of topics at the end of the turn."""
        self._topical[connection] = None

    def on_denied(self, denial: Denial, *, first: bool) -> None:
        """Count a request about topics that an ACL forbids; if it is the `first` of its kind, it has a line as well."""
        self.denied_total += 1
        if first and self.tell_denied is not None:
            self.tell_denied(denial)

    def on_floor(self, connection: NativeSpeaker) -> None:
        """Take note that a connection has reads that wait for this server to apply more.

        They are looked at once per turn.
        """
        self._floored[connection] = None

    def request_steps(self, connection: ZooKeeperSpeaker, steps: Steps) -> None:
        """`connection.complete_steps(steps)` is due when these are done."""
        self._steps.append((connection, steps))

    def take_step(self) -> None:
        """Take one step for one connection of those that wait: the others have their turns next."""
        if self._steps:
            connection, steps = self._steps.popleft()
            if connection.phase is Phase.CLOSED:
                return
            if steps.step():
                connection.complete_steps(steps)
            else:
                self._steps.append((connection, steps))

    def notice(self, connection: ClientConnection, what: str) -> None:
        """Tell the operator something about a connection, which stays."""
        self.notices.append((connection, what))

    def on_follower(self) -> None:
        """Take note that somebody follows what is written from now on."""
        self._origin.on_follower()

    def count_followers(self) -> int:
        """Return how many lasting watches and subscriptions there are."""
        return self.watches.lasting_count + len(self.feeds)

    def bound_watches(self, connection: ZooKeeperSpeaker) -> None:
        """Refuse a connection that has too many watches after some were added."""
        count = self.watches.count_of(connection)
        if count > self.settings.watches_per_connection_max:
            self.refuse(
                connection,
                f"{count} watches, expected at most client.watches_per_connection_max = "
                f"{self.settings.watches_per_connection_max}: they are kept in memory; a recursive watch can replace many",
            )

    def take_syncs(self) -> list[SyncWaiter]:
        """Return those that asked for a sync since the last call."""
        taken, self.syncs = self.syncs, []
        return taken

    def on_word(self, connection: ZooKeeperSpeaker) -> None:
        """Answer a four-letter word now, or when a turn has time for it, since it may take milliseconds."""
        if self.turn.busy or self._words:
            self._words.append(connection)
        else:
            self._answer_word(connection)

    def _answer_word(self, connection: ZooKeeperSpeaker) -> None:
        if connection.phase is not Phase.CLOSED:
            self.turn.taken += WORD_REQUESTS
            connection.answer_word(self.four_letter_word)

    def attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """Attach a connection that asks for a session.

        `attached`, `refuse_session` or `send_elsewhere` follows, sooner or later.
        """
        self.sessions.attach(connection, request)

    def end_read_only(self) -> None:
        """Close the connections that may only read, since there is contact again.

        Their clients get a real session by reconnecting.
        """
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
        """Forget a connection whose socket is closed, everywhere."""
        if connection.phase is not Phase.CLOSED:
            self.release(connection)
        self.sums.forget(connection)
        self._origin.anticipation.forget(connection)

    def release(self, connection: ClientConnection) -> None:
        """Forget a connection that is over, whoever ended it, except what is still to be sent."""
        if connection.phase is Phase.CLOSED:
            return
        self.sessions.release(connection)
        connection.phase = Phase.CLOSED
        if connection in self._connections:
            del self._connections[connection]
            if self._addresses.bounded:
                self._addresses.release(_host(connection.address))
        if connection in self._backlogged:
            del self._backlogged[connection]
        self.sums.release(connection)
        connection.on_release()
        if (self._floored or self._topical) and isinstance(connection, NativeSpeaker):
            self._floored.pop(connection, None)
            self._topical.pop(connection, None)

    def _observe(self) -> None:
        """Let what happens from now on be told: somebody begins to follow it."""
        self.machine.observed = True
        self.machine.watched = None

    # -- what the applier calls

    @property
    def is_followed(self) -> bool:
        """True if anybody here watches znodes or subscribes to changes."""
        return bool(self.watches or self.feeds)

    @property
    def watched(self) -> Watched | None:
        """The paths of which somebody here has to be told; None if it takes more than a path to know that."""
        return None if self.feeds or self.watches.is_recursive else self.watches.paths

    def publish(self, events: Sequence[Event], zxid: int) -> bool:
        """Tell watchers, before any reply of the same or a later zxid is written to them; True if that is enough for now."""
        feeds = self.feeds
        if feeds:
            self.told_total += feeds.note(events)
        if self.watches:
            for event_type, path, acl in events:
                watchers = self.watches.trigger(event_type, path)
                self.told_total += len(watchers)
                for watcher in watchers:
                    # This closes those that only read, too: entries of a leader that does not hear us are applied
                    # meanwhile.
                    if watcher.phase is not Phase.CLOSED and permits(acl, READ, watcher.ids):
                        watcher.on_event(zxid, event_type, path)
                        self.events_total += 1
            if self.sums.overdrawn:
                self.sums.relieve_output()
        # A client is told what has changed elsewhere before it is told of an event, or answered.
        self.told_total += TOLD_PER_PART * (feeds.parts_total - self._parts_before)
        self._parts_before = feeds.parts_total
        return self.told_total - self._told_before >= TOLD_PER_TURN_MAX

    # -- what the driver calls, once per turn

    def begin_turn_alone(self) -> None:
        """Begin a turn of a server that belongs to no cluster yet: it answers four-letter words, and nothing else."""
        self.turn.taken, self.turn.cut_short = 0, False
        if self._words:
            self._answer_word(self._words.popleft())

    def begin_turn(self) -> None:
        """Begin a turn with the requests that waited for it, in the order in which they began to wait."""
        turn, sums = self.turn, self.sums
        turn.taken, turn.cut_short, turn.took_large = 0, False, False
        self._told_before = self.told_total
        self._parts_before = self.feeds.parts_total
        if sums.unfinished.pressed:
            sums.relieve_unfinished()
        if sums.waiting:
            for connection in sums.make_room():
                self.on_backlog(connection)
        if self._words:
            self._answer_word(self._words.popleft())
        if self._steps:
            self.take_step()
        if self.watches.gone:
            self.watches.sweep()
        if self.sessions.paced or self.sessions.waiting:
            self.sessions.begin_turn()
        if self._backlogged:
            self.take_backlog()

    @property
    def stirred(self) -> bool:
        """True if what connections said or did since the last turn gives one something to do, writes left out."""
        sums = self.sums
        return (
            bool(self._dirty or self.syncs or self._floored or self._topical or self.feeds.pending)
            or bool(self.sessions.waiting or sums.waiting or self._backlogged)
            or sums.overdrawn
            or sums.unfinished.pressed
            or self.due_in_ms is not None
        )

    @property
    def wants_turn(self) -> bool:
        """True if something is left that the next turn can do at once."""
        return self.due_in_ms == 0

    @property
    def due_in_ms(self) -> int | None:
        """After how long a turn can do what waits here; None if nothing does, or only somebody else can help."""
        if (
            self.turn.cut_short
            or self._steps
            or self._words
            or self.watches.gone
            or (self._backlogged and self.turn.busy)
        ):
            return 0
        if self.feeds.pending and self.feeds.wants_turn:
            return 0
        due_in_ms = self.sessions.due_in_ms if self.sessions.waiting else None
        if self._backlogged and (rests_ms := self.turn.rests_ms):
            due_in_ms = rests_ms if due_in_ms is None else min(due_in_ms, rests_ms)
        return due_in_ms

    def take_backlog(self) -> None:
        """Take requests that waited for room in the origin stream, or for this turn.

        Whoever asks for little goes first, in the order in which they began to wait: requests of a megabyte take a turn
        each, and those of many clients would make everybody else wait for all of them. Large ones get every second turn
        at least, unless one of them made a turn long.
        """
        waiting = list(self._backlogged)
        if self.turn.rests_ms:
            waiting = [connection for connection in waiting if connection.backlog_bytes <= LARGE_BYTES]
        if not waiting:
            return
        waiting.sort(key=_asks_for_much, reverse=self._passed_over)
        passed_over = not self._passed_over and _asks_for_much(waiting[-1])
        self._passed_over = False
        turn, queue = self.turn, deque(waiting)
        # Whoever asks for more than a share of the turn comes to its next share behind all others.
        turn.each = max(EACH_MIN, REQUESTS_PER_TURN_MAX // len(queue))
        while queue and not turn.full:
            connection = queue.popleft()
            if passed_over and _asks_for_much(connection):
                passed_over = False
            # A new one has sent its first message in a turn that was full.
            if (connection.phase in SERVED or connection.phase is Phase.NEW) and not connection.wants_flush:
                del self._backlogged[connection]
                turn.took_large |= connection.backlog_bytes > LARGE_BYTES
                before = turn.taken
                connection.take_backlog()
                if turn.taken - before >= turn.each and connection in self._backlogged:
                    queue.append(connection)
        self._passed_over = bool(queue) and passed_over
        turn.each = REQUESTS_PER_TURN_MAX

    def reset_statistics(self) -> None:
        """Count packets and bytes anew."""
        self.received_total = self.sent_total = self.events_total = 0
        self.bytes_received_total = self.bytes_sent_total = 0

    def reset_connection_statistics(self) -> None:
        """Reset the counts of each connection."""
        for connection in self._connections:
            connection.reset_statistics()

    def close_all(self, why: str = "") -> None:
        """Close all clients, since this server cannot know what became of their sessions (D-4, D-14).

        The operator is told `why`, unless that is empty.
        """
        for connection in list(self._connections):
            if connection.holds_promises:
                if why:
                    self.refusals.append((connection, why))
                self.close(connection)

    def dismiss_all(self) -> None:
        """Close all clients, since this server is no member any more.

        They get the answers that there are, and ask another one.
        """
        for connection in list(self._connections):
            if connection.holds_promises:
                if self._may_speak(connection, self.turn.now):
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
                if not connection.out or self._may_speak(connection, self.turn.now):
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
        """Return whether its session cannot have ended elsewhere meanwhile (D-14)."""
        return (
            connection.phase is not Phase.ATTACHED
            or self.touches.age(connection.session, now) <= connection.third_ms
        )

    def _push_topics(self) -> None:
        """Tell of topics what was gathered; what is too much for this turn leaves with the next one."""
        topical, self._topical = self._topical, {}
        turn = self.turn
        enough = turn.taken + REQUESTS_PER_TURN_MAX
        for native in topical:
            if native.unsent:
                continue  # `on_taken` brings it back
            if turn.taken >= enough or not native.push_topics():
                self._topical[native] = None
                turn.cut_short = True

    def flush(self, now: int) -> list[Output]:
        """Return what to write now.

        Sessions without a fresh acknowledged touch keep their output, in order (D-14).
        """
        if self.sums.overdrawn:
            self.sums.relieve_output()
        if self._floored:
            for native in list(self._floored):
                if not native.answer_floors():
                    self._floored.pop(native, None)
        if self.feeds.pending:
            self.feeds.push(PUSHED_PER_TURN_BYTES_MAX)
        if self._topical:
            self._push_topics()
        if not self._dirty:
            return []
        dirty, self._dirty = self._dirty, []
        outputs: list[Output] = []
        zxid = self.machine.last_zxid
        sent = sent_bytes = 0
        for connection in dirty:
            if connection.phase is Phase.ATTACHED and (
                not self.availability.serving
                or self.touches.age(connection.session, now) > connection.third_ms
            ):
                self._dirty.append(connection)
                self.touches.hurry()
                if connection.out_bytes > UNCOUNTED_BYTES:
                    self.sums.count_output(connection)
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
                # Requests that are still unanswered arrived later than those that were answered now.
                connection.asked_at = now if connection.queue else None
            connection.out = []
            connection.out_bytes = 0
            if self.sums.output.held:
                self.sums.count_output(connection)
            if connection.closing:
                self.release(connection)
        self.sent_total += sent
        self.bytes_sent_total += sent_bytes
        return outputs


def _asks_for_much(connection: ClientConnection) -> bool:
    """Whether what it asked for and waits for is large."""
    return connection.backlog_bytes > UNCOUNTED_BYTES


def _parts_of(out: Iterable[bytes]) -> list[bytes]:
    """Return the same bytes in fewer parts: large ones as they are, what stands between them as one."""
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
    """Return the host of `host:port`, or `[host]:port`."""
    return address.rpartition(":")[0]
