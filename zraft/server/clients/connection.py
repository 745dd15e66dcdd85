"""Base of all client connections: identity, what is held, what is to be written.

`ZooKeeperConnection` speaks ZooKeeper's protocol, `NativeConnection` ours. `Clients`, the applier and the reads know only
this. What a connection may ask of the server is the other half of the interface: `zraft.server.clients.services`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, Protocol

from zraft.groups.server_statistics import ConnectionLatency
from zraft.server.clients.authentication.sasl import DigestMd5
from zraft.tree.sessions.session import Session
from zraft_core.wire.connect import ConnectRequest
from zraft_core.znodes.acl import Ids

BACKLOG_BYTES_MAX: Final = 1024 * 1024
"""Requests kept while there is no room for them; beyond it the socket is not read."""

ANSWERS_BYTES_MAX: Final = 256 * 1024
"""Answers to reads gathered for one turn; further reads wait. A request of 20 bytes can ask for a megabyte."""

LARGE_BYTES: Final = 64 * 1024
"""Data of this size are sent as they are in the tree, without a copy, and wait for room (`client.output_bytes_sum_max`).
Requests of which more waits may take long, whatever stands in them."""

UNCOUNTED_BYTES: Final = 4 * 1024
"""The bytes that a connection may keep of what its client sent without being counted: as much as the
connection itself costs.
"""

BEGUN_BYTES: Final = 64 * 1024
"""A request of which no more has come may wait for its rest until others have room; one that is further goes on."""

SUBMIT_BYTES_MAX: Final = 128 * 1024
"""Writes handed to the origin stream at once, at least one always; below the size of a batch, which none may exceed."""


Outgoing = list[bytes]
"""All that one connection is told when this turn ends: answers and events, in the order in which they leave.

There is one of them per connection, everything is appended to it when what it tells is applied, and only `Clients.flush`
empties it. So the order of events and replies is the order of this list: an event is in it before the reply of the same
zxid, because applying a command publishes its events before it completes the write (D-15).
"""


class Phase(Enum):
    """Phases in the life of a connection."""

    NEW = "nothing read yet"
    ATTACHING = "its session is being created or resumed through the log"
    ATTACHED = "serving"
    OPEN = "serving without a session, as only the native protocol does"
    READ_ONLY = "serving reads of what this server has, without a quorum and without a session in the log"
    CLOSED = "closed"


class Watcher(Protocol):
    """Interface of those that are told when a watch fires: a connection, or a subscription of a native one."""

    @property
    def phase(self) -> Phase:
        """The connection's phase."""

    @property
    def ids(self) -> Ids:
        """The ids that the client has proved, by which ACLs are checked."""

    @property
    def session(self) -> int:
        """The session, 0 if there is none."""

    def on_event(self, zxid: int, event_type: int, path: str) -> None:
        """Tell the client of an event."""

    def __hash__(self) -> int: ...


class ClientConnection(ABC):
    """One client, fed by the shell; `handle` is the shell's own."""

    __slots__ = (
        "address",
        "asked_at",
        "closing",
        "counted",
        "cut",
        "dirty",
        "due_bytes",
        "ending",
        "established",
        "handle",
        "ids",
        "ids_of_writes",
        "latency",
        "login",
        "out",
        "out_bytes",
        "phase",
        "pieces",
        "queue",
        "received",
        "request",
        "sent",
        "session",
        "third_ms",
        "timeout_ms",
        "unsent",
    )

    queue: Sequence[object]
    """Requests that are not answered yet, as far as they are answered in order; writes first of all."""

    def __init__(self, address: str, ids: Ids, now: int) -> None:
        """`now`: when it was established, in ms of the turn's clock."""
        self.address = address
        self.ids = ids
        self.ids_of_writes = ids
        """The ids of what is sent next; `ids` follow when what was sent before is answered."""
        self.phase = Phase.NEW
        self.session = 0
        self.timeout_ms = 0
        self.third_ms = 0
        self.request: ConnectRequest | None = None
        self.login: DigestMd5 | None = None
        """A SASL login that has begun and is not over."""
        self.out: Outgoing = []
        self.out_bytes = 0
        """The bytes of `out`, answers to writes left out: those are no larger than what the client sent."""
        self.pieces = 0
        """The number of parts of `out` beyond its messages: large data are parts of their own."""
        self.due_bytes = 0
        """The bytes of answers that are known and not encoded yet."""
        self.unsent = 0
        """Bytes that the shell was given and could not send yet: the client does not take them."""
        self.counted = False
        """True if something that the client sent is counted in a budget; see `account`."""
        self.dirty = False
        self.closing = False
        self.cut = False
        """It ends without what is still unsent."""
        self.ending = False
        """Nothing that the client sends from now on is looked at."""
        self.handle: Any = None
        self.received = 0
        self.sent = 0
        # These are for operators, counted per batch, never per request. Times are ms of the turn's clock.
        self.established = now
        self.asked_at: float | None = None
        """When the oldest request that is being measured arrived; None while nothing is unanswered."""
        self.latency = ConnectionLatency()

    def identify(self, ids: Ids) -> None:
        """Add what is known of the client before it asks for a session: whom its certificate names."""
        assert self.phase is Phase.NEW, "its writes may be under way already"
        self.ids = self.ids_of_writes = (*self.ids, *ids)

    def reset_statistics(self) -> None:
        """Count anew what operators see."""
        self.received = self.sent = 0
        self.latency = ConnectionLatency()

    @abstractmethod
    def connection_lost(self) -> None:
        """Take note that the client is gone."""

    @abstractmethod
    def on_stalled(self) -> None:
        """Take note that the client does not take what is written: it is told only what it cannot do without."""

    @abstractmethod
    def on_taken(self) -> None:
        """Take note that the client has taken all that was written: it may be told what was put off."""

    @abstractmethod
    def on_release(self) -> None:
        """Free what the client sent, and what is left of the connection in other tables, since it is over."""

    @property
    def holds_promises(self) -> bool:
        """True if the client has been told, or awaits, what cannot be kept without contact with a quorum."""
        return self.phase is not Phase.NEW

    @property
    @abstractmethod
    def answered(self) -> bool:
        """True if everything that was read from the client is answered, so that it can be closed."""

    @property
    @abstractmethod
    def last_operation(self) -> str:
        """The name of what it asked for last, for operators."""

    @property
    @abstractmethod
    def last_number(self) -> int:
        """The xid or id of the last request; -1 before the first."""

    # -- input

    @property
    @abstractmethod
    def backlog_bytes(self) -> int:
        """Bytes of complete requests that wait for a turn that has time for them."""

    @property
    @abstractmethod
    def wants_read(self) -> bool:
        """False while the shell must not read more from this client."""

    @abstractmethod
    def account(self) -> bool:
        """Count what is kept of what the client sent, and return `wants_read`.

        Called after each read of the socket.
        """

    @property
    def wants_flush(self) -> bool:
        """True while so much is to be written, or not taken by the client, that no more requests are answered."""
        return self.unsent > 0 or self.out_bytes >= ANSWERS_BYTES_MAX

    @abstractmethod
    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""

    @abstractmethod
    def take_backlog(self) -> None:
        """Handle what was kept, since there is room again, unless it stands behind a request that takes longer."""

    # -- what became of what it asked for

    @abstractmethod
    def attached(self, session: Session) -> None:
        """Greet the client, whose session is ours now, and handle what it already sent."""

    def attached_read_only(self, session: int, timeout_ms: int, password: bytes) -> None:
        """Give the client a session that only this server knows, and that lasts as long as the connection."""
        raise AssertionError("only ZooKeeper's clients can ask for it")

    @abstractmethod
    def refuse_session(self, request: ConnectRequest) -> None:
        """Tell the client that the session is gone or not its own, in the form that clients know, then close."""

    @abstractmethod
    def send_elsewhere(self) -> None:
        """Send the client to another server, since this one cannot serve it now."""

    @abstractmethod
    def complete(self, result: Any, zxid: int) -> None:
        """Answer the oldest write, which was applied with this result at this zxid."""

    @property
    @abstractmethod
    def is_interleaved(self) -> bool:
        """True while something else stands among its writes, so that each is to be answered before the next is executed."""

    @abstractmethod
    def complete_run(self, results: Sequence[Any], zxid: int) -> None:
        """Answer as many of the oldest writes, which were applied one behind the other, the last of them at this zxid.

        Args:
            results: of `Machine.execute_ordinary`.
        """
