"""What every simulated server with partitions does with the disk of deliveries: tasks are done later, a few at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from typing import Any, Final

from tests.simulation.simulated_process import SimulatedProcess
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.delivery_tasks import DeliveryPerformer
from zraft.server.partitions.delivery_reading import ReadTask, perform
from zraft.server.partitions.partitions import Partitions

SYNC_EVERY_MS: Final = 150


class DeliveringProcess(SimulatedProcess[Any, Any]):
    """One server with partitions.

    Attributes:
        partitions: new after each boot.
        performer: does what partitions ask of the disk of deliveries.
    """

    partitions: Partitions
    performer: DeliveryPerformer

    @abstractmethod
    def _delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """Tell who asked for it what a task came to."""

    def _begin_deliveries(self, performer: DeliveryPerformer) -> None:
        """The process starts: nothing is asked for yet."""
        self.performer = performer
        self._reads: deque[ReadTask] = deque()
        self._delivery_tasks: deque[delivery_tasks.Task] = deque()
        self._working = False
        self._later(SYNC_EVERY_MS, self._sync_all)

    def _read(self, task: ReadTask) -> None:
        self._reads.append(task)
        self._schedule.after(self._rng.randint(0, 4), self.wake)

    def _take_reads(self) -> None:
        """What is read by now goes to whoever asked for it."""
        while self._reads:
            read = self._reads.popleft()
            self.partitions.read_done(read, perform(read))

    def _deliver(self, task: delivery_tasks.Task) -> None:
        self._delivery_tasks.append(task)
        if not self._working:
            self._begin_work()

    def _begin_work(self) -> None:
        self._working = True
        self._later(self._rng.randint(0, 6), self._work)

    def _work(self) -> None:
        self._working = False
        for _ in range(self._rng.randint(1, 4)):
            if self._delivery_tasks:
                self._do(self._delivery_tasks.popleft())
        if self._delivery_tasks:
            self._begin_work()
        self.wake()

    def _do(self, task: delivery_tasks.Task) -> delivery_tasks.Result:
        result = self.performer.perform(task)
        self._delivered(task, result)
        return result

    def _sync_all(self) -> None:
        self.partitions.synced(self.performer.disk.sync_all())
        self._later(SYNC_EVERY_MS, self._sync_all)
