"""Interface between a connection that speaks ZooKeeper's protocol and its server, beside what all have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from zraft.server.clients.connection import ClientConnection
from zraft.server.clients.services import ClientServices
from zraft_core.errors import Code


class Steps(Protocol):
    """Work for one request that takes more than one turn."""

    def step(self) -> bool:
        """Go on for a few milliseconds at most; True if it is done."""


class ZooKeeperSpeaker(ClientConnection):
    """A connection that speaks ZooKeeper's protocol, as its server and its answers know it; also a `Watcher`."""

    __slots__ = ("clients",)

    clients: ZooKeeperServices

    # -- what the server calls

    @abstractmethod
    def on_event(self, zxid: int, event_type: int, path: str) -> None:
        """Tell the client that a watch fired."""

    @abstractmethod
    def complete_sync(self) -> None:
        """Answer the sync: all that was committed when it was asked for is applied here."""

    @abstractmethod
    def complete_steps(self, steps: Steps) -> None:
        """Take what it has requested in steps, which is done."""

    @abstractmethod
    def answer_word(self, respond: Callable[[str, bytes], bytes]) -> None:
        """Answer the four-letter word that the connection began with, which is its end.

        Args:
            respond: (word, argument) -> the answer.
        """

    # -- what its answers call, in the order in which they leave

    @abstractmethod
    def emit(self, data: bytes) -> None:
        """Write an answer."""

    @abstractmethod
    def emit_parts(self, parts: Sequence[bytes]) -> None:
        """Write one answer, of which large parts are not to be copied."""

    @abstractmethod
    def failed(self, xid: int, code: Code) -> None:
        """Answer a request with an error, at the zxid of now."""


class ZooKeeperServices(ClientServices, Protocol):
    """One server, as the connections know it that speak ZooKeeper's protocol."""

    def on_word(self, connection: ZooKeeperSpeaker) -> None:
        """Take a four-letter word: `answer_word` is called now, or when a turn has time for it."""

    def request_steps(self, connection: ZooKeeperSpeaker, steps: Steps) -> None:
        """Take these steps, one in a turn and in turn with those of others; `complete_steps` is due after the last."""

    def bound_watches(self, connection: ZooKeeperSpeaker) -> None:
        """Refuse a connection that has too many watches after some were added."""
