"""What a peer group asks of whatever runs tasks, and what that may use of its group: the seam between both.

A group makes one runner per incarnation. It is told of starts and stops of each virtual peer one at a time, in order, the
newest only: what was superseded while an earlier one was carried out is never told.
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
    """Counts since the worker began; `pending`: roots of an input that are not acknowledged now."""

    batches: int = 0
    segments: int = 0
    emitted: int = 0
    pending: int = 0
    replayed: int = 0


@frozen
class PlaneStatistics:
    """Of what groups send to each other, counts since the start."""

    items_sent: int = 0
    items_received: int = 0
    bytes_sent: int = 0
    reconnects: int = 0
    rejected: int = 0


class TaskHost(Protocol):
    """A peer group, as the tasks of its virtual peers see it. Belongs to the group's event loop."""

    @property
    def group(self) -> GroupId: ...

    @property
    def port(self) -> LogPort:
        """The group's own; its session ends with this incarnation of the group."""
        ...

    @property
    def replica(self) -> Replica:
        """As of the last entry that was applied here."""
        ...

    def append(self, command: Command) -> None:
        """Have it appended to the log, after what was handed in before; does not wait. Lost if the group restarts."""
        ...

    def failed(self, peer: PeerId, error: BaseException) -> None:
        """The task of this virtual peer cannot go on, and that is not its job's fault: the virtual peer leaves, and begins
        again under a new id."""
        ...


class TaskRunner(Protocol):
    """Runs the tasks of all virtual peers of one group."""

    @property
    def site(self) -> Site:
        """Where this group's virtual peers are reached for segments."""
        ...

    async def start(self, task: StartTask) -> None:
        """Run this task instead of what the virtual peer ran before; returns once it runs (or waits for others).

        Appends SignalReady when the task is ready. An exception is the virtual peer's failure, as with `TaskHost.failed`.
        """
        ...

    async def stop(self, task: StopTask) -> None:
        """Nothing of the virtual peer's task runs any more once this returns; also for one that never started."""
        ...

    def replica_changed(self, replica: Replica) -> None:
        """After each batch of entries, before starts and stops that come of it. Must not block, nor raise."""
        ...

    def statistics(self) -> Mapping[PeerId, WorkerStatistics]:
        """Of the virtual peers that run a task."""
        ...

    def plane_statistics(self) -> PlaneStatistics: ...

    async def close(self) -> None:
        """Everything of this incarnation ends; starts and stops will not be told any more. May be called again."""
        ...


MakeRunner = Callable[[TaskHost], Awaitable[TaskRunner]]
"""Called once per incarnation of a group, after its log is open and before it offers its virtual peers."""
