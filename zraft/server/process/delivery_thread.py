"""The deliveries' own thread: writes and syncs what partitions delivered while the loop goes on (D-13).

What waits is bounded in bytes; who finds it full applies no further entries of that group for a while. Batches of one
group that wait together become one frame. On a full disk they are tried again, and so is opening a group; retention
goes first, for it gives space back. An error of the disk itself ends the process, as for the write-ahead log (D-10).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from zraft.groups.snapshots.delivery_tasks import (
    AppendDeliveries,
    DeliveryPerformer,
    OpenDeliveries,
    Result,
    RetainDeliveries,
    Task,
)
from zraft.storage.errors import DiskFullError
from zraft_core.ids import GroupId

RETRY_FULL_DISK_S: Final = 0.5
SYNC_INTERVAL_S: Final = 2.0
"""The time that deliveries wait for a sync that nobody asked for; the write-ahead log is kept that much
longer.
"""
WAITING_BYTES_MAX: Final = 32 << 20
WAITING_TASKS_MAX: Final = 4096


class DeliveryThread:
    """Thread of the deliveries; callbacks are made in it, and the caller carries them to its loop.

    `on_performed` gets a task and its result; appends that were written together are told as one, the last.
    `on_synced` gets, by group, the Raft index up to which everything is durable. `on_full` is called once when the
    disk fills up, and with None when it is well again.
    """

    def __init__(
        self,
        performer: DeliveryPerformer,
        *,
        on_performed: Callable[[tuple[Task, Result]], None],
        on_synced: Callable[[dict[GroupId, int]], None],
        on_full: Callable[[DiskFullError | None], None],
        on_failed: Callable[[BaseException], None],
        bytes_max: int = WAITING_BYTES_MAX,
        sync_interval_s: float = SYNC_INTERVAL_S,
    ) -> None:
        self._performer = performer
        self._on_performed = on_performed
        self._on_synced = on_synced
        self._on_full = on_full
        self._on_failed = on_failed
        self._bytes_max = bytes_max
        self._sync_interval_s = sync_interval_s
        self._tasks: deque[Task] = deque()
        self._bytes = 0
        self._stopping = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="zraft-deliveries", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of deliveries that are not written yet; for metrics."""
        return self._bytes

    def offer(self, task: Task) -> bool:
        """Do a task after the earlier ones of its group; return False if too much waits already.

        An append that is larger than the limit is taken when nothing else waits.
        """
        size = task.size if isinstance(task, AppendDeliveries) else 0
        with self._changed:
            too_many = len(self._tasks) >= WAITING_TASKS_MAX
            too_large = size > 0 and self._bytes > 0 and self._bytes + size > self._bytes_max
            if too_many or too_large:
                return False
            self._tasks.append(task)
            self._bytes += size
            self._changed.notify()
            return True

    def stop(self) -> None:
        """Finish the present task, make durable what is written, and end the thread.

        What waits is left: the write-ahead log has it.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        try:
            disk = self._performer.disk
            sync_at: float | None = None
            while not isinstance(task := self._next(sync_at), _Stop):
                if task is not None:
                    self._perform(task)
                if not disk.dirty:
                    sync_at = None
                elif sync_at is None:
                    sync_at = time.monotonic() + self._sync_interval_s
                elif time.monotonic() >= sync_at:
                    sync_at = None
                    self._sync_all()
            try:
                disk.close_all()
            except DiskFullError:
                pass  # deliveries that are not durable are in the write-ahead log
        except BaseException as error:
            # Carried to the loop, which ends the process with it.
            self._on_failed(error)

    def _next(self, sync_at: float | None) -> Task | _Stop | None:
        """Return the next task; None when it is time to sync."""
        with self._changed:
            while not self._tasks and not self._stopping:
                wait = None if sync_at is None else sync_at - time.monotonic()
                if wait is not None and wait <= 0:
                    return None
                self._changed.wait(wait)
            if self._stopping:
                return _STOP
            task = self._tasks.popleft()
            if not isinstance(task, AppendDeliveries):
                return task
            self._bytes -= task.size
            # Others of its group that wait right behind go with it: fewer and larger frames.
            batches = [task]
            kept: deque[Task] = deque()
            while self._tasks and isinstance(self._tasks[0], AppendDeliveries):
                other = self._tasks.popleft()
                assert isinstance(other, AppendDeliveries)
                if other.group == task.group:
                    batches.append(other)
                    self._bytes -= other.size
                else:
                    kept.append(other)
            self._tasks.extendleft(reversed(kept))
        if len(batches) == 1:
            return task
        merged = [one for batch in batches for one in batch.deliveries]
        return AppendDeliveries(task.group, merged, batches[-1].index)

    def _perform(self, task: Task) -> None:
        result = self._performer.perform(task)
        if isinstance(task, AppendDeliveries | OpenDeliveries) and isinstance(result, DiskFullError):
            self._on_full(result)
            while isinstance(result, DiskFullError):
                if self._wait_for_space():
                    return
                result = self._performer.perform(task)
            self._on_full(None)
        self._on_performed((task, result))

    def _wait_for_space(self) -> bool:
        """Let retention go first, which gives space back whatever waits before it; whether the server stops."""
        with self._changed:
            retentions = [task for task in self._tasks if isinstance(task, RetainDeliveries)]
            if not retentions and not self._stopping:
                self._changed.wait(RETRY_FULL_DISK_S)
                retentions = [task for task in self._tasks if isinstance(task, RetainDeliveries)]
            self._tasks = deque(task for task in self._tasks if not isinstance(task, RetainDeliveries))
            stopping = self._stopping
        for task in retentions:
            self._on_performed((task, self._performer.perform(task)))
        return stopping

    def _sync_all(self) -> None:
        try:
            self._on_synced(self._performer.disk.sync_all())
        except DiskFullError as error:
            # Synced deliveries are durable; only the manifest is as before.
            self._on_full(error)
            self._on_full(None)


class _Stop:
    """Task that tells the thread to end."""


_STOP: Final = _Stop()
