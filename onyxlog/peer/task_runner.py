"""Interface between a peer group and a runner of tasks.

A group makes one runner per incarnation. It is told of starts and stops of each virtual peer one at a time,
in order, the newest only: what was superseded while an earlier one was carried out is never told.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from attrs import frozen

from onyxlog.ids import GroupId, PeerId, Site
from onyxlog.peer.log.port import LogPort
from onyxlog.replica.commands import Command
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import Replica


@frozen
class WorkerStatistics:
    """Counts since the worker began.

    `pending`: roots of an input that are not acknowledged now. `began_ms`: when the worker began, in ms since 1970;
    0 if nobody noted it. `done`, `total`: how far an input has read its partitions, in their positions; None if the
    task is no input, or does not know where it ends.
    """

    batches: int = 0
    segments: int = 0
    emitted: int = 0
    pending: int = 0
    replayed: int = 0
    began_ms: int = 0
    done: int | None = None
    total: int | None = None


@frozen
class PlaneStatistics:
    """Counts of what groups send to each other, since the start."""

    items_sent: int = 0
    items_received: int = 0
    bytes_sent: int = 0
    reconnects: int = 0
    rejected: int = 0


class TaskHost(Protocol):
    """A peer group, as the tasks of its virtual peers see it. It belongs to the group's event loop."""

    @property
    def group(self) -> GroupId:
        """The group's id."""

    @property
    def port(self) -> LogPort:
        """The group's own port; its session ends with this incarnation of the group."""
        ...

    @property
    def replica(self) -> Replica:
        """The replica as of the last entry that was applied here."""
        ...

    def append(self, command: Command) -> None:
        """Hand a command in for the log, after those handed in before, without waiting.

        It is lost if the group restarts.
        """
        ...

    def failed(self, peer: PeerId, error: BaseException) -> None:
        """Report that a virtual peer's task cannot continue, and that its job is not at fault.

        The virtual peer leaves, and begins again under a new id.
        """
        ...


class TaskRunner(Protocol):
    """Interface of a runner of all virtual peers' tasks in one group."""

    @property
    def site(self) -> Site:
        """The address at which this group's virtual peers receive segments."""
        ...

    async def start(self, task: StartTask) -> None:
        """Run this task instead of what the virtual peer ran before; return once it runs (or waits for others).

        This appends SignalReady when the task is ready. An exception is the virtual peer's failure, as with
        `TaskHost.failed`.
        """
        ...

    async def stop(self, task: StopTask) -> None:
        """Stop the virtual peer's task.

        Nothing of it runs once this returns; a task that never started may be stopped too.
        """
        ...

    def replica_changed(self, replica: Replica) -> None:
        """Note a changed replica, after each batch of entries, before starts and stops that follow from it.

        This must neither block nor raise.
        """
        ...

    def statistics(self) -> Mapping[PeerId, WorkerStatistics]:
        """Return the statistics of the virtual peers that run a task."""
        ...

    def plane_statistics(self) -> PlaneStatistics:
        """Return the statistics of the group's channels."""

    async def close(self) -> None:
        """End everything of this incarnation; no starts and stops follow. May be called again."""
        ...


MakeRunner = Callable[[TaskHost], Awaitable[TaskRunner]]
"""Makes a runner. It is called once per incarnation, after its log is open and before it offers its virtual peers."""
