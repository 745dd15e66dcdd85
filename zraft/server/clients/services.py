"""What a client connection may ask of its server, whatever protocol it speaks.

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
        """What is applied here, from which reads are answered."""

    @property
    def settings(self) -> ClientSettings: ...

    @property
    def availability(self) -> Availability:
        """Whether clients are served now."""

    # -- what is shared with other connections

    @property
    def turn(self) -> TurnShare:
        """What clients may still take of this turn."""

    @property
    def sums(self) -> Sums:
        """What all connections hold together."""

    @property
    def touches(self) -> TouchReporter:
        """Which sessions are to be kept alive."""

    @property
    def watches(self) -> WatchTable[Watcher]:
        """Who is told when a znode changes."""

    # -- what becomes of a connection

    def attach(self, connection: ClientConnection, request: ConnectRequest) -> None:
        """It asks for a session: `attached`, `refuse_session` or `send_elsewhere` follows, sooner or later."""

    def log_in(self, connection: ClientConnection, token: bytes) -> tuple[Ids, bytes]:
        """One step of a SASL login: the ids of later writes, and the answer.

        Raises:
            AuthenticationError: the client did not prove who it is, or there is no SASL.
        """

    def refuse(self, connection: ClientConnection, why: str) -> None:
        """Close it without a reply, and tell the operator why."""

    def close(self, connection: ClientConnection) -> None:
        """End it without another word. Commands already taken from it still go their way."""

    def forget(self, connection: ClientConnection) -> None:
        """Its socket is closed: nobody has anything of it any more."""

    # -- what it asks for

    def count_requests(self, connection: ClientConnection, requests: int, size: int) -> None:
        """So many complete requests arrived in one read of `size` bytes."""

    def submit(self, connection: ClientConnection, commands: list[Command], size: int) -> None:
        """Hand in commands, of `size` bytes; `complete` is called for each of them, in order."""

    def request_sync(self, waiter: SyncWaiter) -> None:
        """`waiter.complete_sync()` is due when all that is committed by now is applied here."""

    def on_follower(self) -> None:
        """Somebody follows what is written from now on."""

    def on_backlog(self, connection: ClientConnection) -> None:
        """It has requests that wait for the next turn, or for room in the origin stream."""

    def on_no_room(self, connection: ClientConnection, size: int) -> None:
        """Its next answer, of `size` bytes, waits until others have taken theirs."""

    def mark_dirty(self, connection: ClientConnection) -> None:
        """It has output, and had none."""

    def notice(self, connection: ClientConnection, what: str) -> None:
        """Tell the operator; the connection stays."""
