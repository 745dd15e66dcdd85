"""What a peer needs of the log; the znodes it stands on are in docs/ONYXLOG.md.

Two implementations: over zraft's own protocol (tail subscription, exactly-once append, truncation with the origin in
one step, wills), and
over any ZooKeeper client (watches on the directory, plain creates), which is slower and weaker where it says so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from attrs import frozen

from onyxlog.ids import GroupId, JobId, Position
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.replica import Parameters, Replica


@frozen
class Origin:
    """Where playing begins: the replica as of `position` (-1: nothing yet), and the digest chain's value there."""

    position: Position
    replica: Replica
    chain: bytes


@frozen
class LogStatistics:
    """Counted since the port was opened: what the log's servers had to do for this peer (O-12, O-26)."""

    appends: int
    reads: int
    """Requests that read entries or znodes."""
    pushes: int
    """Messages that the tail subscription brought."""
    watches: int
    """Watches set."""


class LogPort(Protocol):
    """One per group: it holds the session whose end is the group's end. All methods may raise what `zraft_client` raises."""

    async def begin(self, parameters: Parameters) -> Origin:
        """Make the znodes of the tenancy unless they stand; the newest origin.

        Raises:
            ParametersError: the log was begun with other parameters.
        """
        ...

    async def origin(self) -> Origin: ...

    async def append(self, record: Record) -> Position:
        """Exactly once, also across reconnects; the position it got. Appends of one port keep their order."""
        ...

    def tail(self, first: Position) -> AsyncIterator[tuple[Entry, ...]]:
        """Entries from `first` on, each once, in order, in batches, for ever.

        Raises:
            OvertakenError: entries that were still to come are truncated.
        """
        ...

    async def read(self, first: Position, end: Position) -> tuple[Entry, ...]:
        """Entries `first` <= position < `end`: what gossip did not bring. Raises OvertakenError."""
        ...

    async def store_origin(self, origin: Origin) -> bool:
        """Replace the origin and forget all entries up to it, in one step; False if there is one as new already."""
        ...

    async def show_pulse(self, group: GroupId) -> None:
        """Make the group's ephemeral znode."""
        ...

    async def is_alive(self, group: GroupId) -> bool: ...

    async def watch_pulse(self, group: GroupId, gone: Callable[[], None]) -> Callable[[], None]:
        """Call `gone` once when the pulse is gone, at once if it is already; returns what ends the watch."""
        ...

    async def set_will(self, record: Record | None) -> None:
        """Have the record appended by the service when this session ends, however it ends."""
        ...

    async def put_job(self, job: JobId, parts: bytes) -> None:
        """Store a job's specification, once; the same again does nothing, another is an EntryError."""
        ...

    async def job(self, job: JobId) -> bytes: ...

    async def forget_job(self, job: JobId) -> None: ...

    async def put_state(self, path: str, data: bytes) -> None:
        """Write a znode below the tenancy's `state/`, made with its parents if absent: checkpoints, positions of inputs."""
        ...

    async def state(self, path: str) -> bytes | None: ...

    async def remove_state(self, path: str) -> None:
        """Remove a znode below `state/` and all below it."""
        ...

    def statistics(self) -> LogStatistics: ...

    async def close(self) -> None: ...
