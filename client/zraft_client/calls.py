"""What is asked and how it may be repeated: a request, and a call, which is one request on its way to an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from attrs import define

from zraft_client.errors import ClientError

T = TypeVar("T")

Answer = Mapping[str, Any]


class Kind(Enum):
    """How a request may be repeated."""

    READ = "read"
    """Always: it changes nothing."""
    WRITE = "write"
    """Under one sequence number, within its session."""
    PLAIN = "plain"
    """A write without a session: only if it certainly had no effect."""


# not frozen only because one is made per call; nothing changes it
@define(eq=False)
class Request(Generic[T]):
    """What is asked: the fields of its map but `id`, `seq` and `floor`; how it may be repeated; what comes of its answer."""

    fields: Mapping[str, Any]
    kind: Kind
    convert: Callable[[Answer], T]


class Waiter(Protocol):
    """Who waits for a call, such as an asyncio.Future."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class Place(Enum):
    """Where a call is: with nobody, with a server, waiting to be asked again, over."""

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
    """Its type, for messages."""
    deadline: float
    waiter: Any
    prompt: bool = False
    """Belongs to this connection alone: never repeated on another."""
    id: int = 0
    seq: int = 0
    """0: none yet."""
    attempts: int = 0
    doubt: bool = False
    """Whether a copy may have been carried out, or may yet be, of which no answer will come."""
    place: Place = Place.PENDING

    @property
    def settled(self) -> bool:
        return self.place is Place.SETTLED


class Sink(Protocol):
    """Who takes what a subscription pushes, in order, at once."""

    def pushed(self, message: Answer, size: int) -> None:
        """One message; `size` is its length in bytes."""

    def refused(self, error: ClientError) -> None:
        """The server ended the subscription."""

    def unreadable(self, error: ClientError) -> None:
        """What was pushed cannot be held: end the subscription, and let the server know."""


Settled = tuple[Call, Any, ClientError | None]
"""A call with its answer, or with the error it ended in."""
