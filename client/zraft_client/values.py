"""Results of calls: frozen values, made of the maps in servers' answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Any, Generic, TypeVar

from attrs import frozen

from zraft_core.wire.native.results import Member as Member
from zraft_core.wire.stat import Stat as Stat  # the eleven fields of a znode, in ZooKeeper's order

T = TypeVar("T")


class ConnectionState(Enum):
    """States of a session as its client knows it. docs/reference/client.md says what a program can do in each."""

    SUSPENDED = "suspended"
    """No server is connected, or none yet; the session may be alive or not."""
    CONNECTED = "connected"
    EXPIRED = "expired"
    """The session ended, and with it its ephemeral znodes."""
    CLOSED = "closed"


class Consistency(StrEnum):
    """Choices of how recent the state is that a read sees."""

    LINEARIZABLE = "linearizable"
    """The read sees all that was acknowledged, to anybody, before it was sent."""
    LOCAL = "local"
    """The read sees what the connected server has applied, never older than anything this client saw before."""


@frozen
class Receipt:
    """An acknowledged write.

    `position` is its place in the group's log: it grows with every write of anybody, so it is a fencing token.
    `version` and `mzxid` are those of the entry afterwards, None where nothing is left.
    """

    zxid: int
    position: int
    version: int | None = None
    mzxid: int | None = None


@frozen
class Counted:
    """A number after it was incremented; `position` is as in `Receipt`."""

    value: int
    zxid: int
    position: int
    version: int | None = None
    mzxid: int | None = None


@frozen
class Created:
    """A znode that was made; `path` with its number if it is sequential."""

    path: str
    stat: Stat
    zxid: int
    position: int


@frozen
class Versioned(Generic[T]):
    """An entry of a dictionary."""

    value: T
    version: int
    mzxid: int


@frozen
class Znode:
    """A znode as it was read."""

    data: bytes
    stat: Stat


@frozen
class Children:
    """Names of a znode's children, sorted, and its own stat."""

    names: tuple[str, ...]
    stat: Stat


@frozen
class ItemsPage:
    """Entries of a dictionary; `next` is where the following page begins, None if there is none."""

    items: tuple[tuple[Any, Versioned[Any]], ...]
    next: Any


@frozen
class LogEntry:
    """One znode of a log: its number, its data, its czxid."""

    position: int
    data: bytes
    zxid: int


@frozen
class LogPage:
    """Entries from a log; read on from `next`.

    `first` is the lowest number that is still visible, `end` the number that the next entry will have.
    """

    entries: tuple[LogEntry, ...]
    next: int
    first: int
    end: int


@frozen
class Owner:
    """A session that owns an ephemeral znode.

    `silent_s`: how long nothing of it was received, None if the server does not know.
    """

    session: int
    silent_s: float | None
    timeout_s: float


@frozen
class Owners:
    """Owners of a znode's ephemeral children, by name.

    `leads`: the server that answered hears of all sessions; others hear only of those that are connected to
    them.
    """

    by_name: Mapping[str, Owner]
    leads: bool


@frozen
class Check:
    """Part of a `multi`: the znode must be of this version."""

    path: str
    version: int


def listed(value: Any) -> Any:
    """Return a decoded value with lists where MessagePack has arrays; keys of maps stay tuples, which can be hashed."""
    if type(value) is not tuple and type(value) is not dict:
        return value
    whole = [value]
    # This makes no call per level: values are nested more deeply than Python allows calls to be.
    left: list[list[Any] | dict[Any, Any]] = [whole]
    while left:
        one = left.pop()
        for place, part in enumerate(one) if type(one) is list else one.items():  # type: ignore[union-attr]
            if type(part) is tuple:
                part = list(part)
            elif type(part) is dict:
                part = dict(part)
            else:
                continue
            one[place] = part
            left.append(part)
    return whole[0]


def entries_of(rows: Iterable[tuple[int, bytes | None, int]]) -> tuple[LogEntry, ...]:
    """Return a log's entries from their rows on the wire."""
    return tuple(LogEntry(position, data or b"", zxid) for position, data, zxid in rows)
