"""A request, how it may be repeated, and a call: one request on its way to an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from attrs import define

from zraft_client.errors import ClientError

T = TypeVar("T")

Answer = Mapping[str, Any]


class Kind(Enum):
    """Ways in which a request may be repeated."""

    READ = "read"
    """A read may always be repeated, as it changes nothing."""
    WRITE = "write"
    """A write may be repeated under its sequence number, within its session."""
    PLAIN = "plain"
    """A write without a session may be repeated only if it certainly had no effect."""


# not frozen, only because one is made per call; nothing changes it
@define(eq=False)
class Request(Generic[T]):
    """A request.

    It has the fields of its map without `id`, `seq` and `floor`, how it may be repeated, and how its answer
    is converted.
    """

    fields: Mapping[str, Any]
    kind: Kind
    convert: Callable[[Answer], T]


class Waiter(Protocol):
    """Interface of what waits for a call, such as an asyncio.Future."""

    def done(self) -> bool:
        """Return whether the call has its outcome."""

    def set_result(self, result: Any, /) -> None:
        """Finish the call with its result."""

    def set_exception(self, exception: Any, /) -> None:
        """Finish the call with an exception."""


class Place(Enum):
    """Places where a call can be: not sent, with a server, waiting to be repeated, or finished."""

    PENDING = 0
    FLYING = 1
    DELAYED = 2
    SETTLED = 3


@define(eq=False)
class Call:
    """One request on its way to an outcome."""

    head: bytes
    body: bytes
    kind: Kind
    what: str
    """The call's type, for messages."""
    deadline: float
    waiter: Any
    prompt: bool = False
    """True if the call belongs to this connection alone: it is never repeated on another."""
    id: int = 0
    seq: int = 0
    """The sequence number; 0: none yet."""
    attempts: int = 0
    doubt: bool = False
    """True if a copy may have been carried out, or may yet be, of which no answer will come."""
    place: Place = Place.PENDING

    @property
    def settled(self) -> bool:
        """True when the call has its outcome."""
        return self.place is Place.SETTLED


class Sink(Protocol):
    """Receiver of what a subscription pushes, in order, at once."""

    def pushed(self, message: Answer, size: int) -> None:
        """Take one message; `size` is its length in bytes."""

    def refused(self, error: ClientError) -> None:
        """Note that the server ended the subscription."""

    def unreadable(self, error: ClientError) -> None:
        """Note that what was pushed cannot be held: end the subscription, and tell the server."""


Settled = tuple[Call, Any, ClientError | None]
"""A call with its answer, or with the error it ended in."""
