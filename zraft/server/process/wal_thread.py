"""The write-ahead log's own thread: one frame at a time is written and synced without stopping the loop.

An error of fsync ends the process, because the kernel may have dropped what it could not write (D-10). A full
disk does not: nothing is acknowledged while it lasts, and the same frame is tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from attrs import frozen

from zraft.storage.errors import DiskFullError
from zraft.storage.records import Record
from zraft.storage.wal import Wal
from zraft_core.ids import GroupId

RETRY_FULL_DISK_S: Final = 0.5


@frozen
class Compaction:
    """Entries of `group` up to `index` are no longer needed."""

    group: GroupId
    index: int


class WalThread:
    """Thread in which `Wal.append` blocks.

    All callbacks are made in that thread; the caller carries them to its loop. `on_written` gets the seconds
    that the append took. `on_full` is called once when the disk fills up, and with None when it is well again.
    """

    def __init__(
        self,
        wal: Wal,
        *,
        on_written: Callable[[float], None],
        on_full: Callable[[DiskFullError | None], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._wal = wal
        self._on_written = on_written
        self._on_full = on_full
        self._on_failed = on_failed
        self._frames: SimpleQueue[Sequence[Record] | Compaction | None] = SimpleQueue()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zraft-wal", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record]) -> None:
        """Write one frame; not before the last one was reported as written."""
        self._frames.put(records)

    def compact(self, group: GroupId, index: int) -> None:
        """Free the disk space of entries up to `index`, after what was submitted before."""
        self._frames.put(Compaction(group, index))

    def stop(self) -> None:
        """Finish the frame under way and end the thread."""
        self._stopping.set()
        self._frames.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (records := self._frames.get()) is not None:
                if isinstance(records, Compaction):
                    self._compact(records)
                    continue
                began = time.perf_counter()
                if not self._append(records):
                    return
                self._on_written(time.perf_counter() - began)
        except BaseException as error:
            # Carried to the loop, which ends the process with it: a server without its log is no server.
            self._on_failed(error)

    def _compact(self, compaction: Compaction) -> None:
        try:
            self._wal.compact(compaction.group, compaction.index)
        except DiskFullError as error:
            # Space is given back all the same the next time; nothing is lost meanwhile.
            self._on_full(error)
            self._on_full(None)

    def _append(self, records: Sequence[Record]) -> bool:
        """Append until the frame is durable, and return True.

        Return False if the server stops while the disk is full.
        """
        full = False
        while True:
            try:
                self._wal.append(records)
            except DiskFullError as error:
                if not full:
                    full = True
                    self._on_full(error)
                if self._stopping.wait(RETRY_FULL_DISK_S):
                    return False
                continue
            if full:
                self._on_full(None)
            return True
