"""Subscriptions: what a server pushes, in order, as async iterators that survive reconnects.

Flow is controlled by credit: a server sends no more bytes than were granted; more are granted as messages are consumed. A
consumer that stops reading therefore holds at most its credit in memory; what it misses of a dictionary is merged per key.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final, Generic, Protocol, TypeVar

from attrs import frozen

from zraft_client import requests
from zraft_client.calls import Answer, Request
from zraft_client.errors import ClientError, ClosedError, WireError
from zraft_client.values import LogEntry, Versioned, entries_of, listed
from zraft_core.errors import ProtocolError
from zraft_core.layout import NUMBER_MAX
from zraft_core.wire.native.pushes import CHANGES, ENTRIES, EVENT, OF_PUSHED

CREDIT_BYTES: Final = 1_048_576
CREDIT_BYTES_MIN: Final = 4_096

M = TypeVar("M")


@frozen
class Change:
    """A key's newest entry, None if the key is gone."""

    key: Any
    entry: Versioned[Any] | None


@frozen
class Changes:
    """One push of a dictionary.

    After a (re)connection the whole state comes first: `restarted` is set in its first part, where a copy must be emptied,
    `initial` in all, and `complete` in the last one. From then on `complete` is always set: a copy is the
    dictionary as of `zxid`.
    """

    zxid: int
    changes: tuple[Change, ...]
    initial: bool
    complete: bool
    restarted: bool


@frozen
class Entries:
    """One push of a log's tail; the next one begins at `next`. `first` is the lowest number that is still visible."""

    entries: tuple[LogEntry, ...]
    next: int
    first: int


@frozen
class PathEvent:
    """Event of a znode: `kind` is created, deleted, changed or children.

    Kind RESUBSCRIBED: the connection is another one, and something may have happened; read again.
    """

    kind: str
    path: str
    zxid: int


RESUBSCRIBED: Final = "resubscribed"


class Subscriber(Protocol):
    """Interface of a client to its subscriptions."""

    def grant(self, subscription: int, count: int) -> None:
        """Allow the server to push this many more messages."""

    def forget(self, subscription: Subscription[Any]) -> None:
        """Remove a subscription, and tell the server."""

    def again(self, subscription: Subscription[Any]) -> None:
        """Send a subscription once more, on the connection that there is."""


class Subscription(ABC, Generic[M]):
    """An async iterator of what is pushed. Close it, or use it as an async context manager."""

    def __init__(self, client: Subscriber, credit: int) -> None:
        self.id = 0
        """The id of the request on the present connection."""
        self._client = client
        self._credit = max(credit, CREDIT_BYTES_MIN)
        self._owed = 0
        self._queue: deque[tuple[M, int]] = deque()
        self._error: ClientError | None = None
        self._arrival = asyncio.Event()
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._started.add_done_callback(_retrieved)

    @abstractmethod
    def request(self) -> Request[None]:
        """Return the request for a fresh connection, so that nothing is missed."""

    @abstractmethod
    def message(self, answer: Answer) -> M:
        """Return what a push says."""

    def resubscribed(self) -> None:
        """Note that the subscription is made on another connection now."""
        self._owed = 0

    # -- called by the client

    def acknowledged(self) -> None:
        """Take note that the server accepted the subscription."""
        if not self._started.done():
            self._started.set_result(None)

    def pushed(self, message: Answer, size: int) -> None:
        """Decode a pushed message and keep it for the program.

        Raises:
            WireError: the message does not have the expected fields.
        """
        try:
            decoded = self.message(message)
        except ProtocolError as error:
            raise WireError(f"a push of a server: {error}") from error
        self.take(decoded, size)

    def take(self, message: M, size: int) -> None:
        """Keep a message for whoever iterates."""
        self._queue.append((message, size))
        self._arrival.set()

    def refused(self, error: ClientError) -> None:
        """End the subscription with the server's error."""
        if self._error is None:
            self._error = error
        if not self._started.done():
            self._started.set_exception(error)
        self._arrival.set()

    def unreadable(self, error: ClientError) -> None:
        """End the subscription: what was pushed cannot be held, and would be pushed again on every connection."""
        self.refused(error)
        self._client.forget(self)

    # -- called by its user

    @property
    def error(self) -> ClientError | None:
        """The error that the subscription ended with, None while it continues."""
        return self._error

    async def started(self) -> None:
        """Wait until a server took it. What it was refused with is raised."""
        await asyncio.shield(self._started)

    def close(self) -> None:
        """End it; what was pushed and not read is forgotten."""
        if not isinstance(self._error, ClosedError):
            self._error = ClosedError("the subscription was closed")
            self._queue.clear()
            self.refused(self._error)
            self._client.forget(self)

    async def __aenter__(self) -> Subscription[M]:
        await self.started()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> Subscription[M]:
        return self

    async def __anext__(self) -> M:
        """Return the next push.

        Raises:
            StopAsyncIteration: it was closed here.
            ClientError: the server refused it, or the client was closed.
        """
        while not self._queue:
            if isinstance(self._error, ClosedError):
                raise StopAsyncIteration
            if self._error is not None:
                raise self._error
            self._arrival.clear()
            await self._arrival.wait()
        message, size = self._queue.popleft()
        self.consumed(size)
        return message

    def consumed(self, size: int) -> None:
        """Allow so many bytes to be pushed again; the server is told when half of the credit is used."""
        self._owed += size
        if self._owed * 2 >= self._credit and self.id:
            self._client.grant(self.id, self._owed)
            self._owed = 0


def _zxid_of(answer: Answer) -> int:
    zxid = answer.get("zxid")
    # In one call, as every push has one; the layout says what is wrong with it.
    if type(zxid) is int and 0 <= zxid <= NUMBER_MAX:
        return zxid
    return OF_PUSHED.unpack_map(answer, "push").zxid


def _retrieved(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()  # the awaiting caller raises it, or the iteration


class DictionarySubscription(Subscription[Changes]):
    """Subscription to all of a dictionary, then every change."""

    def __init__(self, client: Subscriber, dictionary: str, credit: int = CREDIT_BYTES) -> None:
        super().__init__(client, credit)
        self.dictionary = dictionary
        self._fresh = True

    def request(self) -> Request[None]:
        """Return the request for all of the dictionary."""
        return requests.subscribe_dictionary(self.dictionary, self._credit)

    def resubscribed(self) -> None:
        """Prepare for the whole state, which comes again over the new connection."""
        super().resubscribed()
        self._fresh = True

    def message(self, answer: Answer) -> Changes:
        """Return the changes that a push holds."""
        pushed = CHANGES.unpack_map(answer, "changes")
        changes = tuple(
            Change(row[0], None if len(row) == 1 else Versioned(listed(row[1]), row[2], row[3]))
            for row in pushed.changes
        )
        restarted, self._fresh = self._fresh, False
        return Changes(_zxid_of(answer), changes, pushed.initial, pushed.complete, restarted)


class LogSubscription(Subscription[Entries]):
    """Subscription to the entries of a log from `first` on, each once, also across reconnects."""

    def __init__(
        self, client: Subscriber, directory: str, prefix: str, first: int, credit: int = CREDIT_BYTES
    ) -> None:
        super().__init__(client, credit)
        self.directory = directory
        self.prefix = prefix
        self.next = first
        """The number from which the next connection continues."""

    def request(self) -> Request[None]:
        """Return the request for the entries from the next one on."""
        return requests.subscribe_log(self.directory, self.prefix, self.next, self._credit)

    def message(self, answer: Answer) -> Entries:
        """Return the entries that a push holds."""
        pushed = ENTRIES.unpack_map(answer, "entries")
        found = Entries(entries_of(pushed.entries), pushed.next, pushed.first)
        self.next = found.next
        return found


class PathSubscription(Subscription[PathEvent]):
    """Subscription to the events of a znode, or also of all below it: a lasting watch."""

    def __init__(self, client: Subscriber, path: str, recursive: bool = False) -> None:
        super().__init__(client, CREDIT_BYTES)
        self.path = path
        self.recursive = recursive
        self._connections = 0

    def request(self) -> Request[None]:
        """Return the request for the znode's events."""
        return requests.subscribe_path(self.path, self.recursive)

    def resubscribed(self) -> None:
        """Count the connection, so that the program learns that events may be missing."""
        super().resubscribed()
        self._connections += 1

    def acknowledged(self) -> None:
        """Take note of the server's answer; after a reconnect, tell the program that events may be missing."""
        super().acknowledged()
        if self._connections > 1:
            self.take(PathEvent(RESUBSCRIBED, self.path, 0), 0)

    def consumed(self, size: int) -> None:
        """Do nothing, since events are small and have no credit."""

    def message(self, answer: Answer) -> PathEvent:
        """Return the event that a push holds."""
        event = EVENT.unpack_map(answer, "event")
        return PathEvent(event.kind, event.path, _zxid_of(answer))
