"""Interface between a connection of the native protocol and its server, beside what all have."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from zraft.server.clients.audit import Denial
from zraft.server.clients.connection import ClientConnection
from zraft.server.clients.native.feeds import Feeds
from zraft.server.clients.native.listings import Listings
from zraft.server.clients.native.view import ClusterView
from zraft.server.clients.services import ClientServices
from zraft.topics.service import TopicService
from zraft.tree.machine import Machine
from zraft_core.errors import Code
from zraft_core.wire.native.requests import Read
from zraft_core.znodes.acl import Ids


class NativeSpeaker(ClientConnection):
    """A connection that speaks the native protocol, as its server and its own parts know it; also a `Subscriber`."""

    __slots__ = ("clients", "unpushed")

    def __init__(self, clients: NativeServices, address: str, ids: Ids) -> None:
        super().__init__(address, ids, clients.turn.now)
        self.clients = clients
        self.unpushed = False
        """Something was changed that this client subscribed to and was not told yet; see `Feeds`."""

    @property
    def machine(self) -> Machine:
        """The state that is applied on this server."""
        return self.clients.machine

    @property
    def view(self) -> ClusterView:
        """The server as its clients may see it."""
        view = self.clients.view
        assert view is not None, "nobody told the clients what server this is"
        return view

    @property
    def is_overfull(self) -> bool:
        """True if more is to be written than one connection may leave unread."""
        return self.unsent + self.out_bytes > self.clients.settings.output_bytes_max

    # -- what the server calls

    @abstractmethod
    def answer_floors(self) -> bool:
        """Answer reads that waited long enough; return False if none waits any more.

        Such a read waits for this server to apply more, or for its time to be over. Called once per
        turn.
        """

    @abstractmethod
    def push_topics(self) -> bool:
        """Tell what was gathered of topics; False if something is left for the next turn."""

    # -- what its parts call

    @abstractmethod
    def answer(self, number: int, result: object = None) -> None:
        """Answer a request that has succeeded, with a result of one of the declared classes, if it has any."""

    @abstractmethod
    def refuse(self, number: int, code: Code, why: str, *, retriable: bool | None = None) -> None:
        """Answer a request that came to nothing."""

    @abstractmethod
    def answer_zatt(self, read: Read) -> None:
        """Answer a message without id, and close."""

    @abstractmethod
    def on_read_index(self, reads: list[Read]) -> None:
        """Answer reads: all that was committed when they came is applied here."""

    @abstractmethod
    def push(self, message: bytes) -> None:
        """Push an event, after what else was changed before it."""

    @abstractmethod
    def write_pushed(self, message: bytes) -> None:
        """Write a part of a subscription; what must come before it was written."""

    @abstractmethod
    def write_answer(self, message: bytes) -> None:
        """Write a message after everything that the client must be told before it."""

    @abstractmethod
    def write_parts(self, parts: tuple[bytes, ...]) -> None:
        """Write a message of which large parts are not to be copied, after everything before it."""


class NativeServices(ClientServices, Protocol):
    """One server, as the connections know it that speak the native protocol."""

    @property
    def view(self) -> ClusterView | None:
        """The server as its clients may see it; None where nobody knows the server."""

    @property
    def topics(self) -> TopicService | None:
        """The partitions of this server; None while the cluster has no topics."""

    @property
    def feeds(self) -> Feeds:
        """The subscriptions of native clients."""

    @property
    def listings(self) -> Listings:
        """Names of dictionaries that somebody pages through."""

    def opened(self, connection: NativeSpeaker) -> None:
        """Take note that a connection continues without a session."""

    def on_denied(self, denial: Denial, *, first: bool) -> None:
        """Count a request about topics that an ACL forbids; if it is the `first` of its kind, it has a line as well."""

    def on_floor(self, connection: NativeSpeaker) -> None:
        """Take note that a connection has reads that wait for this server to apply more.

        They are looked at once per turn.
        """

    def on_topics(self, connection: NativeSpeaker) -> None:
        """Take note that a connection is to be told of topics at the end of the turn."""
