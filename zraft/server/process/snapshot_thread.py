"""The snapshot disk's own thread: compresses, writes, reads and syncs snapshots while the loop goes on.

One task at a time, in order; the loop hears of each result. An error of the disk itself ends the process, as for
the write-ahead log (D-10); a full disk or a damaged file is a result like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from zraft.groups.snapshots.tasks import Result, SnapshotDisk, Task


class SnapshotThread:
    """Thread of the snapshots; callbacks are made in it, and the caller carries them to its loop."""

    def __init__(
        self,
        disk: SnapshotDisk,
        *,
        on_performed: Callable[[tuple[Task, Result]], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._disk = disk
        self._on_performed = on_performed
        self._on_failed = on_failed
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="zraft-snapshots", daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> None:
        """Do this after everything submitted before."""
        self._tasks.put(task)

    def stop(self) -> None:
        """Finish the task under way and end the thread; what waits behind it is left."""
        self._stopping = True
        self._tasks.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (task := self._tasks.get()) is not None and not self._stopping:
                self._on_performed((task, self._disk.perform(task)))
        except BaseException as error:
            # Carried to the loop, which ends the process with it.
            self._on_failed(error)
