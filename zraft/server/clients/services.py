"""Interface of the server to a client connection, whatever protocol it speaks.

Connections and their parts know the server only by this; `zraft.server.clients.table` is it. Each protocol adds what only
its own connections ask for: `zookeeper.services` and `native.services`.
"""

from __future__ import annotations

from typing import Protocol

from zraft.server.clients.availability import Availability
from zraft.server.clients.connection import ClientConnection, Watcher
from zraft.server.clients.errands import SyncWaiter
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.sums import Sums
from zraft.server.clients.turn_share import TurnShare
from zraft.server.coordination.touches import TouchReporter
from zraft.tree.machine import Machine
from zraft.tree.watches import WatchTable
from zraft_core.wire.connect import ConnectRequest
from zraft_core.znodes.acl import Ids
from zraft_core.znodes.txn import Command


class ClientServices(Protocol):
    """One server, as its connections know it."""

    # -- what there is to be read

    @property
    def machine(self) -> Machine:
        """The state that is applied here, from which reads are answered."""

    @property
    def settings(self) -> ClientSettings:
        """The bounds of clients."""

    @property
    def availability(self) -> Availability:
        """The flags by which clients are served now or not."""

    # -- what is shared with other connections

    @property
    def turn(self) -> TurnShare:
        """The share of this turn that clients may still use."""

    @property
    def sums(self) -> Sums:
        """The budgets of all connections together."""

    @property
    def touches(self) -> TouchReporter:
        """The reporter of sessions that are to be kept alive."""

    @property
    def watches(self) -> WatchTable[Watcher]:
        """The watches of all clients."""

    # -- what becomes of a connection

    def attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """Attach a connection that asks for a session.

        `attached`, `refuse_session` or `send_elsewhere` follows, sooner or later.
        """

    def log_in(self, connection: ClientConnection, token: bytes) -> tuple[Ids, bytes]:
        """Return one step of a SASL login: the ids of later writes, and the answer.

        Raises:
            AuthenticationError: the client did not prove who it is, or there is no SASL.
        """

    def refuse(self, connection: ClientConnection, why: str) -> None:
        """Close it without a reply, and tell the operator why."""

    def close(self, connection: ClientConnection) -> None:
        """End it without another word. Commands already taken from it still go their way."""

    def forget(self, connection: ClientConnection) -> None:
        """Forget a connection whose socket is closed, everywhere."""

    # -- what it asks for

    def count_requests(self, connection: ClientConnection, requests: int, size: int) -> None:
        """Count the complete requests that arrived in one read of `size` bytes."""

    def submit(self, connection: ClientConnection, commands: list[Command], size: int) -> None:
        """Hand in commands, of `size` bytes; `complete` is called for each of them, in order."""

    def request_sync(self, waiter: SyncWaiter) -> None:
        """Call `waiter.complete_sync()` when all that is committed by now is applied here."""

    def on_follower(self) -> None:
        """Take note that somebody follows what is written from now on."""

    def on_backlog(self, connection: ClientConnection) -> None:
        """Take note that a connection has requests that wait.

        They wait for the next turn, or for room in the origin stream.
        """

    def on_no_room(self, connection: ClientConnection, size: int) -> None:
        """Take note that the next answer, of `size` bytes, waits until others have taken theirs."""

    def mark_dirty(self, connection: ClientConnection) -> None:
        """Take note that a connection has output, and had none."""

    def notice(self, connection: ClientConnection, what: str) -> None:
        """Tell the operator; the connection stays."""
