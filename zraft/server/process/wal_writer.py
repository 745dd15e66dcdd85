"""Writing and syncing of the write-ahead log, one frame at a time: by the loop itself, or by a thread beside it.

The loop does it while the disk is fast and the frame small (`zraft.server.process.sync_pace`); otherwise it goes on
while the thread waits for the disk. An error of fsync ends the process, because the kernel may have dropped what it
could not write (D-10). A full disk does not: nothing is acknowledged while it lasts, and the same frame is tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from attrs import frozen

from zraft.server.process.sync_pace import SyncPace
from zraft.storage.errors import DiskFullError
from zraft.storage.frames import HEAD_BYTES
from zraft.storage.records import EntryRecord, HardStateRecord, Record, TruncateRecord
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

RETRY_FULL_DISK_S: Final = 0.5

SMALL_BYTES: Final = 64 * 1024
"""The loop writes no frame that may have more bytes: copying them to the disk takes longer than the hand-off."""

RECORD_BYTES: Final = 64
"""What a record takes at most beside an entry's payload: seven integers and the heads of an array and of bytes."""

SMALL_RECORDS: Final = 64
"""The same for records, each of which is packed."""


@frozen
class Compaction:
    """Entries of `group` up to `index` are no longer needed."""

    group: GroupId
    index: int


class WalWriter:
    """Writer of a `Wal`, which is used by the loop or by a thread, and never by both at once.

    The thread works on what it was given, and then notes that it is finished. Only the loop gives it anything, so a
    loop that finds it finished may use the `Wal` until it gives something again. Each of the two counts is changed by
    one of them only, so that needs no lock: the thread changes its own when it is outside of the `Wal`, and before it
    calls back.

    All methods belong to the loop's thread. The callbacks are made in the log's thread, except `on_failed` for what the
    loop wrote; the caller carries them to its loop. `on_written` gets the seconds that the append took. `on_full` is called
    once when the disk fills up, and with None when it is well again.
    """

    def __init__(
        self,
        wal: Wal,
        pace: SyncPace,
        *,
        on_written: Callable[[float], None],
        on_full: Callable[[DiskFullError | None], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._wal = wal
        self._pace = pace
        self._on_written = on_written
        self._on_full = on_full
        self._on_failed = on_failed
        self._frames: SimpleQueue[Sequence[Record] | Compaction | None] = SimpleQueue()
        self._given = 0  # counted by the loop
        self._finished = 0  # counted by the thread
        self._is_small = False  # true if the loop might have written the last frame
        self.by_loop_total = 0
        """Frames that the loop has written."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zraft-wal", daemon=True)
        self._thread.start()

    def submit(self, records: Sequence[Record]) -> float | None:
        """Write one frame; not before the last one was reported as written.

        Returns:
            The seconds that it took, if it is durable now; None if `on_written` or `on_failed` will tell.
        """
        size = _small_bytes(records)
        self._is_small = size is not None
        if (
            size is not None
            and self._pace.is_fast
            and self._given == self._finished
            and size <= self._wal.room
        ):
            began = time.perf_counter()
            try:
                self._wal.append(records)
            except DiskFullError:
                pass  # nothing was written: the thread tries it again until there is room
            except StorageError as error:
                self._on_failed(error)
                return None
            else:
                seconds = time.perf_counter() - began
                self._pace.took(seconds)
                self.by_loop_total += 1
                return seconds
        self._give(records)
        return None

    def took(self, seconds: float) -> None:
        """Take note, in the loop, of what `on_written` told."""
        if self._is_small:
            self._pace.thread_took(seconds)

    def _give(self, work: Sequence[Record] | Compaction) -> None:
        self._given += 1
        self._frames.put(work)

    def compact(self, group: GroupId, index: int) -> None:
        """Free the disk space of entries up to `index`, after what was submitted before."""
        self._give(Compaction(group, index))

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
                    self._finished += 1
                    continue
                began = time.perf_counter()
                if not self._append(records):
                    return
                self._finished += 1  # before the loop hears of it, and may write the next one itself
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


def _small_bytes(records: Sequence[Record]) -> int | None:
    """Return the most bytes that the frame of these records has, if the loop may write it; None if it may not."""
    if len(records) > SMALL_RECORDS:
        return None
    size = HEAD_BYTES
    for record in records:
        size += RECORD_BYTES
        if record.__class__ is EntryRecord:
            size += len(record.entry.payload)
        elif record.__class__ is not HardStateRecord and record.__class__ is not TruncateRecord:
            return None
    return size if size <= SMALL_BYTES else None
