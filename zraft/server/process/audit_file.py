"""The audit log's file: lines from the loop, written by a thread of its own, rotated by size or reopened on demand.

The loop never waits for it. Lines gather for a moment and are written at once; what a slow or full disk leaves
waiting is bounded, and beyond that lines are dropped, counted, and a line in the file says how many are missing.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from zraft.server.clients.audit import dropped_line
from zraft_core.errors import ConfigError

GATHER_S: Final = 0.05
"""Lines stand in the file this long after the write at the latest, if the disk is well; a killed process loses these."""

RETRY_S: Final = 1.0
"""The time before another try after an error of the disk."""

MODE: Final = 0o640
"""The file's mode: who wrote what is not for everybody to read."""


class AuditFile:
    """File and thread of the audit log.

    `write`, `reopen` and `dropped` are the loop's; `on_error` is called in the thread.

    `on_error` gets what went wrong when writing begins to fail, and None when it works again.
    """

    def __init__(
        self,
        path: Path,
        *,
        file_bytes_max: int,
        files_kept: int,
        pending_bytes_max: int,
        on_error: Callable[[OSError | None], None],
    ) -> None:
        """Open the file, or make it.

        Raises:
            ConfigError: it cannot be written.
        """
        self._path = path
        self._file_bytes_max = file_bytes_max
        self._files_kept = files_kept
        self._pending_bytes_max = pending_bytes_max
        self._on_error = on_error
        self._condition = threading.Condition()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._missing = 0
        self._reopen = False
        self._stopping = False
        self.dropped = 0
        """Lines dropped since the start."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd, self._size = self._open()
        except OSError as error:
            raise ConfigError(f"audit.file: cannot write {path}: {error.strerror or error}") from error
        self._thread = threading.Thread(target=self._run, name="zraft-audit", daemon=True)
        self._thread.start()

    # -- what the loop calls

    def write(self, lines: bytes) -> None:
        """Hand over whole lines; never blocks for the disk."""
        with self._condition:
            if self._pending_bytes + len(lines) > self._pending_bytes_max:
                count = lines.count(b"\n")
                self.dropped += count
                self._missing += count
                return
            self._pending.append(lines)
            self._pending_bytes += len(lines)
            if len(self._pending) == 1:
                self._condition.notify()

    def reopen(self) -> None:
        """Continue in a new file, since somebody else has renamed the present one."""
        with self._condition:
            self._reopen = True
            self._condition.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Write what is pending and close; a disk that does not take it within `timeout_s` is not waited for."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join(timeout_s)

    # -- the thread

    def _run(self) -> None:
        failed = False
        while True:
            with self._condition:
                while not (self._pending or self._reopen or self._stopping):
                    self._condition.wait()
                if not self._stopping:
                    # A turn's lines would each wake this thread, which takes the interpreter from the loop.
                    self._condition.wait_for(lambda: self._stopping, GATHER_S)
                stopping = self._stopping
                reopen, self._reopen = self._reopen, False
                count = len(self._pending)
                chunk = b"".join(self._pending)
                missing, self._missing = self._missing, 0
            try:
                if reopen:
                    self._renew()
                self._append(chunk + dropped_line(missing, _wall_ms()) if missing else chunk)
            except OSError as error:
                if not failed:
                    self._on_error(error)
                failed = True
                with self._condition:
                    self._missing += missing
                    self._reopen |= reopen
                    if stopping or self._condition.wait_for(lambda: self._stopping, RETRY_S):
                        break
                continue
            if failed:
                self._on_error(None)
                failed = False
            with self._condition:
                del self._pending[:count]
                self._pending_bytes -= len(chunk)
                if stopping and not self._pending:
                    break
        os.close(self._fd)

    def _append(self, data: bytes) -> None:
        if self._files_kept and self._size and self._size + len(data) > self._file_bytes_max:
            self._rotate()
        began = self._size
        view = memoryview(data)
        try:
            while view:
                written = os.write(self._fd, view)
                self._size += written
                view = view[written:]
        except OSError:
            # All of it is tried again: a part of it must not stand there twice.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, began)
                self._size = began
            raise

    def _open(self) -> tuple[int, int]:
        """Return (descriptor, bytes in the file)."""
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
        return fd, os.fstat(fd).st_size

    def _renew(self) -> None:
        old = self._fd
        self._fd, self._size = self._open()
        os.close(old)

    def _rotate(self) -> None:
        for number in range(self._files_kept, 0, -1):
            newer = self._path if number == 1 else self._numbered(number - 1)
            with contextlib.suppress(FileNotFoundError):
                newer.replace(self._numbered(number))
        self._renew()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
