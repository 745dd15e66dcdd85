"""Sessions of the connections on this server, and how a connection gets one.

An older connection of a session is closed before a new one is attached (D-3a). An attach always goes through the log,
and a client that is ahead of this server is sent elsewhere.

Pure: time and chance are handed in.
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable
from typing import Final

from zraft.server.clients.admission import Admission
from zraft.server.clients.availability import Availability
from zraft.server.clients.connection import ClientConnection, Phase
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.turn_share import TurnShare
from zraft.server.coordination.origin import OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.tree.machine import Machine
from zraft.tree.sessions.session import Session
from zraft_core.wire.connect import PASSWORD_BYTES, ConnectRequest
from zraft_core.znodes.txn import ATTACH, CREATE_SESSION, Command

ATTACH_BYTES: Final = 64

OPEN_TIMEOUT_MS: Final = 10_000
"""The session timeout that a connection without a session counts as: it is given up after a third of it
without contact with a quorum.
"""


class AttachedSessions:
    """The sessions whose connections are here.

    Attributes:
        timeout_ms_min: the smallest negotiated timeout of them, in ms; None while there are none.
        paced: whether only so many clients are attached per second, so that every turn counts.
        waiting: clients that asked for a session and wait for their turn, in order; only to be read.
    """

    def __init__(
        self,
        *,
        machine: Machine,
        origin: OriginStream,
        touches: TouchReporter,
        settings: ClientSettings,
        turn: TurnShare,
        availability: Availability,
        entropy: Callable[[int], bytes],
        close: Callable[[ClientConnection], None],
    ) -> None:
        """Begin with no session. `close` ends a connection without another word."""
        self._machine = machine
        self._origin = origin
        self._touches = touches
        self._is_read_only_enabled = settings.read_only_mode_enabled
        self._turn = turn
        self._availability = availability
        self._entropy = entropy
        self._close = close
        self._admission: Admission[ClientConnection] = Admission(
            per_second_max=settings.connects_per_second_max
        )
        self.paced = settings.connects_per_second_max > 0
        self.waiting = self._admission.waiting
        self._by_session: dict[int, ClientConnection] = {}
        self._attaching: dict[int, ClientConnection] = {}
        self._timeouts: Counter[int] = Counter()
        self.timeout_ms_min: int | None = None

    def __len__(self) -> int:
        """Return the number of sessions whose connection is here."""
        return len(self._by_session)

    # -- the way in

    def attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """Attach a connection that asks for a session; in a storm it waits for its turn, and so do its requests."""
        connection.phase = Phase.ATTACHING
        availability = self._availability
        if availability.leaving or not availability.serving or self._admission.ask(connection):
            self._attach(connection, request)

    @property
    def due_in_ms(self) -> int | None:
        """The time in ms after which a turn can attach a waiting connection.

        None if none waits, or only others can help.
        """
        return self._admission.due_in_ms()

    def begin_turn(self) -> None:
        """Attach those who waited and are admitted now. Due while somebody waits, or if `paced`."""
        for connection in self._admission.begin_turn(self._turn.now):
            assert connection.request is not None
            self._attach(connection, connection.request)

    def _attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """Attach a connection.

        This is always decided through the log, also when the session resumes here (D-3).
        """
        machine = self._machine
        if self._is_read_only_enabled and self._may_read_only(request):
            self._attach_read_only(connection, request)
            return
        if (
            self._availability.leaving
            or not self._availability.serving
            or request.last_zxid_seen > machine.last_zxid
        ):
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
                    self._close(older)
            self._attaching[request.session] = connection
            command = (ATTACH, request.session, request.timeout_ms, request.password)
        self._origin.add(connection, 0, connection.ids, [command], ATTACH_BYTES)

    def on_attach(self, connection: ClientConnection, result: object, cut_at: int) -> None:
        """Take the result of a connection's attach, which was applied."""
        request = connection.request
        assert request is not None
        self._admission.finish(connection)
        if request.session and self._attaching.get(request.session) is connection:
            del self._attaching[request.session]
        if connection.phase is not Phase.ATTACHING:
            return
        if result.__class__ is not Session:
            connection.refuse_session(request)
            return
        self._by_session[result.id] = connection
        self._touches.attached(result.id, cut_at)
        self._count_timeout(result.timeout_ms)
        connection.attached(result)

    def opened(self, connection: ClientConnection) -> None:
        """Take note that the connection continues without a session."""
        connection.phase = Phase.OPEN
        connection.timeout_ms = OPEN_TIMEOUT_MS
        self._count_timeout(OPEN_TIMEOUT_MS)

    # -- without a quorum

    @property
    def is_read_only(self) -> bool:
        """True if reads are served although there is no contact with a quorum.

        Not by a removed server: it will never know more, and whoever it serves would stay there for ever.
        """
        return (
            self._is_read_only_enabled
            and not self._availability.serving
            and not self._availability.removed
            and self._machine.position > 0
        )

    def _may_read_only(self, request: ConnectRequest) -> bool:
        """Return whether a connection may read only: a new session of a client that asks for it.

        Something must have been applied since this start.

        What a log holds beyond that may never have been committed.
        """
        return (
            self.is_read_only
            and request.read_only is True
            and request.session == 0
            and request.last_zxid_seen <= self._machine.last_zxid
        )

    def _attach_read_only(self, connection: ClientConnection, request: ConnectRequest) -> None:
        # Bit 55 keeps it apart from the sessions of the log, whose ids are zxids there.
        number = int.from_bytes(self._entropy(6), "big") | 1 << 55
        timeout_ms = self._machine.settings.clamped_timeout_ms(request.timeout_ms)
        connection.attached_read_only(number, timeout_ms, self._entropy(PASSWORD_BYTES))

    # -- the way out

    def on_session_moved(self, session: int, to: ClientConnection | None) -> None:
        """Close an older connection of a session that was attached through `to`, or has ended (None)."""
        if session in self._by_session and self._by_session[session] is not to:
            self._close(self._by_session[session])

    def release(self, connection: ClientConnection) -> None:
        """Forget a connection that is about to be closed: it has, and waits for, no session any more."""
        if connection.phase is Phase.ATTACHED:
            session = connection.session
            if session in self._by_session and self._by_session[session] is connection:
                del self._by_session[session]
                self._touches.forget(session)
            self._forget_timeout(connection.timeout_ms)
            return  # its admission ended when it was attached
        if connection.phase is Phase.OPEN:
            self._forget_timeout(connection.timeout_ms)
        elif connection.request is not None and self._attaching.get(connection.request.session) is connection:
            del self._attaching[connection.request.session]
        self._admission.finish(connection)

    def _count_timeout(self, timeout_ms: int) -> None:
        self._timeouts[timeout_ms] += 1
        least = self.timeout_ms_min
        if least is None or timeout_ms < least:
            self.timeout_ms_min = timeout_ms

    def _forget_timeout(self, timeout_ms: int) -> None:
        self._timeouts[timeout_ms] -= 1
        if not self._timeouts[timeout_ms]:
            del self._timeouts[timeout_ms]
            self.timeout_ms_min = min(self._timeouts, default=None)
