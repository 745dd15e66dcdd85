"""Sources of a group's entries: the log's tail, or gossip, which brings most of them beside the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

from onyxlog.gossip.outputs import GossipCounters
from onyxlog.ids import GroupId, Position
from onyxlog.peer.log.port import LogPort
from onyxlog.replica.commands import Entry
from onyxlog.replica.replica import Replica


class EntrySource(Protocol):
    """Interface of what brings entries to one incarnation of a group.

    The log alone defines the order, whoever brings the entries.
    """

    def entries(self, first: Position, chain: bytes) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield entries from `first` on, each once, in the log's order, in batches, for ever.

        `chain` is the digest chain's value before `first`. After OvertakenError this is called again, from
        behind the newer origin.

        Raises:
            OvertakenError: entries that were still to come are gone from the log.
        """
        ...

    def appended(self, entry: Entry) -> None:
        """Note that the log has accepted an entry of this group, at this position; others may be told."""
        ...

    def applied(self, replica: Replica, chain: bytes) -> None:
        """Note that the group has played all up to `replica.version`; `chain` is the digest chain's value there."""
        ...

    def jumped(self, replica: Replica) -> None:
        """Note that the group continues from a newer origin, with this replica; `entries` is called again."""
        ...

    @property
    def counters(self) -> GossipCounters | None:
        """The counts of gossip; None where there is none."""
        ...

    async def close(self) -> None:
        """Stop bringing entries."""


class LogSource:
    """Source that brings entries from the log itself, by a tail subscription."""

    def __init__(self, port: LogPort) -> None:
        self._port = port

    def entries(self, first: Position, chain: bytes) -> AsyncIterator[tuple[Entry, ...]]:
        """Return the log's entries from `first` on, as it pushes them."""
        return self._port.tail(first)

    def appended(self, entry: Entry) -> None:
        """Do nothing: the log brings the entry itself."""

    def applied(self, replica: Replica, chain: bytes) -> None:
        """Do nothing: nobody else needs to know."""

    def jumped(self, replica: Replica) -> None:
        """Do nothing: the next subscription says where it begins."""

    @property
    def counters(self) -> None:
        """None: nothing is counted."""
        return None

    async def close(self) -> None:
        """Do nothing: the subscription ends with its iterator."""


MakeSource = Callable[[LogPort, GroupId], Awaitable[EntrySource]]


async def from_log(port: LogPort, _group: GroupId) -> EntrySource:
    """Return the source of a group without gossip; this is a `MakeSource`."""
    return LogSource(port)
