"""A TaskRunner that runs nothing, to test and measure coordination: it says that tasks are ready, and keeps a record."""

from __future__ import annotations

from onyxlog.ids import PeerId, Site
from onyxlog.peer.task_runner import PlaneStatistics, TaskHost, TaskRunner, WorkerStatistics
from onyxlog.replica.commands import SignalReady
from onyxlog.replica.effects import StartTask, StopTask
from onyxlog.replica.replica import Replica


class IdleRunner:
    """Runner that runs nothing.

    `running` is what was started and not stopped; `told` is all that it was told.
    """

    def __init__(self, host: TaskHost, site: Site = "") -> None:
        self.host = host
        self.running: dict[PeerId, StartTask] = {}
        self.told: list[StartTask | StopTask] = []
        self.replica: Replica | None = None
        self.closed = False
        self._site = site

    @property
    def site(self) -> Site:
        """The address that workers of other groups would connect to."""
        return self._site

    async def start(self, task: StartTask) -> None:
        """Record the start, and signal that the task is ready."""
        self.told.append(task)
        self.running[task.peer] = task
        self.host.append(SignalReady(task.peer, task.version))

    async def stop(self, task: StopTask) -> None:
        """Record the stop."""
        self.told.append(task)
        self.running.pop(task.peer, None)

    def replica_changed(self, replica: Replica) -> None:
        """Keep the replica for tests."""
        self.replica = replica

    def statistics(self) -> dict[PeerId, WorkerStatistics]:
        """Return empty statistics for each task."""
        return {peer: WorkerStatistics() for peer in self.running}

    def plane_statistics(self) -> PlaneStatistics:
        """Return empty statistics."""
        return PlaneStatistics()

    async def close(self) -> None:
        """Forget all tasks."""
        self.closed = True
        self.running.clear()


async def run_nothing(host: TaskHost) -> TaskRunner:
    """Return the MakeRunner of peers that only coordinate."""
    return IdleRunner(host)
