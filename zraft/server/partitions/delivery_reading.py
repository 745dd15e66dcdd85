"""Reads of deliveries that are no longer in memory: what is asked, and the threads that do it beside the loop (D-13)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Final

from attrs import field, frozen

from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import StoredDelivery
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

READ_THREADS: Final = 2
"""They wait for the disk more than they compute."""


@frozen(eq=False)
class ReadDeliveries:
    """Read from `offset` on, about `bytes_max`."""

    group: GroupId
    log: DeliveryLog = field(repr=False)
    offset: int
    bytes_max: int


@frozen(eq=False)
class FindOffset:
    """Find the first delivery with the wall time `time_ms` or a later one."""

    group: GroupId
    log: DeliveryLog = field(repr=False)
    time_ms: int


ReadTask = ReadDeliveries | FindOffset
ReadResult = Sequence[StoredDelivery] | int | StorageError
"""Deliveries, or the offset of the one that was to be found, which is the end if there is none.

An error concerns this read, or this group's files: `DeliveriesGoneError` says where the log begins now.
"""


def perform(task: ReadTask) -> ReadResult:
    """Read; blocks for the disk."""
    try:
        if isinstance(task, FindOffset):
            return task.log.reader.offset_of_time(task.time_ms)
        return task.log.read(task.offset, task.bytes_max)
    except StorageError as error:
        return error


class DeliveryReaders:
    """Readers in threads; `on_read` is called in them, and the caller carries it to its loop.

    How many reads wait is for the caller to bound.
    """

    def __init__(
        self,
        on_read: Callable[[ReadTask, ReadResult], None],
        on_failed: Callable[[BaseException], None],
        threads: int = READ_THREADS,
    ) -> None:
        self._on_read = on_read
        self._on_failed = on_failed
        self._tasks: queue.SimpleQueue[ReadTask | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"zraft-reads-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, task: ReadTask) -> None:
        """Do this, after what waits already."""
        self._tasks.put(task)

    def stop(self) -> None:
        """Finish what is under way and what waits, and end the threads."""
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                self._on_read(task, perform(task))
        except BaseException as error:
            # Carried to the loop, which ends the process with it.
            self._on_failed(error)
