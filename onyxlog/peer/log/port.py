"""Interface of the log to a peer; docs/explanation/onyxlog.md describes the znodes below it.

There are three implementations: over zraft's own protocol (tail subscription, exactly-once append, truncation
with the origin in one step, wills); over any ZooKeeper's protocol (a watch on the next entry), which is
slower, and weaker where it says so; and in memory, for tests (`tests.onyxlog.simulation.memory_log`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Protocol

from attrs import fields_dict, frozen

from onyxlog.errors import ParametersError
from onyxlog.ids import BEFORE_ALL, GroupId, JobId, Position
from onyxlog.replica.commands import Entry, Record
from onyxlog.replica.digests import CHAIN_START
from onyxlog.replica.replica import Parameters, Replica


@frozen
class Origin:
    """Origin of the log: the replica as of `position` (-1: nothing yet), and the digest chain there."""

    position: Position
    replica: Replica
    chain: bytes


def first_origin(parameters: Parameters) -> Origin:
    """Return the origin with which a log is begun."""
    return Origin(BEFORE_ALL, Replica(parameters=parameters), CHAIN_START)


def check_parameters(found: Parameters, expected: Parameters) -> None:
    """Check that the log has these parameters.

    Raises:
        ParametersError: it has others.
    """
    wrong = [
        f"{name} {getattr(found, name)}, not {getattr(expected, name)}"
        for name in fields_dict(Parameters)
        if getattr(found, name) != getattr(expected, name)
    ]
    if wrong:
        raise ParametersError(
            f"the log was begun with {'; '.join(wrong)}: start this peer with the same, or in another tenancy"
        )


@frozen
class LogBounds:
    """The existing entries: `first` <= position < `end`."""

    first: Position
    end: Position
    """The position that the next entry gets."""


@frozen
class Silence:
    """Silence of a group's session, if the service knows it, and the time after which the group is gone."""

    silent_s: float | None
    timeout_s: float


@frozen
class LogStatistics:
    """Counts since the port was opened: what the log's servers had to do for this peer (O-12, O-26)."""

    appends: int
    reads: int
    """Requests that read entries or znodes."""
    pushes: int
    """Messages that the tail subscription brought."""
    watches: int
    """Watches set."""


class LogPort(Protocol):
    """A group's log; it holds the session whose end is the group's end. It is for one event loop.

    All methods may raise what `zraft_client` raises; after the session's end each of them raises
    SessionExpiredError, and `tail` does also while it waits. A port does not recover from that: open another.
    While no server is connected, calls wait up to their deadline, and `tail` as long as it takes.
    """

    async def begin(self, parameters: Parameters) -> Origin:
        """Make the znodes of the tenancy unless they exist; return the newest origin.

        Raises:
            ParametersError: the log was begun with other parameters.
        """
        ...

    async def origin(self) -> Origin:
        """Return the origin."""

    async def bounds(self) -> LogBounds:
        """Return where the log begins and ends now. Everything that was acknowledged before is in it."""
        ...

    async def append(self, record: Record) -> Position:
        """Append a record exactly once, also across reconnects; return its position.

        Appends of one port keep their order.
        """
        ...

    def tail(self, first: Position) -> AsyncIterator[tuple[Entry, ...]]:
        """Yield entries from `first` on, each once, in order, in batches, for ever.

        Raises:
            OvertakenError: entries that were still to come are truncated.
            EntryError: an entry cannot be read, or somebody removed one by hand.
        """
        ...

    async def read(self, first: Position, end: Position) -> tuple[Entry, ...]:
        """Return entries `first` <= position < `end`, as far as they exist: what gossip did not bring.

        Raises:
            OvertakenError: as `tail`.
            EntryError: as `tail`.
        """
        ...

    async def store_origin(self, origin: Origin) -> bool:
        """Replace the origin and forget all entries up to it, in one step; return False if an equal or newer one exists."""
        ...

    async def show_pulse(self, group: GroupId) -> None:
        """Make the group's ephemeral znode."""
        ...

    async def is_alive(self, group: GroupId) -> bool:
        """Return whether the group's pulse stands."""

    async def silences(self) -> Mapping[GroupId, Silence]:
        """Return the silence of each group that shows a pulse; nothing where the service does not tell."""
        ...

    async def watch_pulse(self, group: GroupId, gone: Callable[[], None]) -> Callable[[], None]:
        """Call `gone` once when the pulse is gone, soon if it is already; return what ends the watch.

        After this port's own session has ended it is not called any more.

        Raises:
            DeadlineError: no server took the watch in time.
        """
        ...

    async def set_will(self, record: Record | None) -> None:
        """Let the service append the record when this session ends, however it ends; None takes it back.

        Raises:
            UnsupportedError: the service has no wills.
        """
        ...

    async def put_job(self, job: JobId, parts: bytes) -> None:
        """Store a job's specification, once; repeating the call does nothing.

        Raises:
            EntryError: another job is stored under this id.
        """
        ...

    async def job(self, job: JobId) -> bytes:
        """Return a job's specification.

        Raises:
            NoNodeError: there is no such job.
        """
        ...

    async def forget_job(self, job: JobId) -> None:
        """Remove a job's specification; nothing happens if there is none."""
        ...

    async def put_state(self, path: str, data: bytes) -> None:
        """Write a znode below the tenancy's `state/`, made with its parents if absent: checkpoints, positions of inputs.

        `path`: names joined by "/", without one in front. The data may be of any size.
        """
        ...

    async def state(self, path: str) -> bytes | None:
        """Return the data that is stored under a path, or None."""

    async def states(self, path: str) -> tuple[str, ...]:
        """Return the names directly below a znode of `state/`, sorted; none if there is no such znode."""
        ...

    async def remove_state(self, path: str) -> None:
        """Remove a znode below `state/` and all below it; nothing happens if there is none."""
        ...

    def statistics(self) -> LogStatistics:
        """Return counts of what was asked of the log."""

    async def close(self) -> None:
        """End the session: the pulse goes, and the will is carried out."""
        ...


OpenPort = Callable[[], Awaitable[LogPort]]
"""Opens a port with a session of its own: one per incarnation of a group."""
