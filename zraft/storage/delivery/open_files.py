"""Bound on the number of open delivery files, however many groups a server has and consumers read.

Thread-safe. A file in use is not closed; when all are in use there are more, for as long as that lasts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from zraft.storage.durable import reading
from zraft.storage.filesystem import FileSystem


class _Open:
    __slots__ = ("file", "forgotten", "users")

    def __init__(self, file: int) -> None:
        self.file = file
        self.users = 0
        self.forgotten = False


class OpenFiles:
    """The open files of all groups by path, least recently used first."""

    __slots__ = ("_files", "_fs", "_max", "_mutex")

    def __init__(self, fs: FileSystem, files_max: int) -> None:
        self._fs = fs
        self._max = files_max
        self._files: OrderedDict[str, _Open] = OrderedDict()
        self._mutex = threading.Lock()

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._files)

    @contextmanager
    def use(self, path: str) -> Iterator[int]:
        """Return the file, opened if it is not; it stays open inside.

        Raises:
            StorageError: it cannot be opened.
        """
        opened = self._acquire(path)
        try:
            yield opened.file
        finally:
            self._release(opened)

    def grip(self, path: str) -> int:
        """Open the file and keep it open until `let_go`."""
        return self._acquire(path).file

    def let_go(self, path: str) -> None:
        """End what `grip` began."""
        with self._mutex:
            opened = self._files.get(path)
        if opened is not None:
            self._release(opened)

    def forget(self, path: str) -> None:
        """Close a file that has another name now, or none, as soon as nobody uses it."""
        with self._mutex:
            opened = self._files.pop(path, None)
            if opened is not None:
                opened.forgotten = True
                if not opened.users:
                    self._fs.close(opened.file)

    def close(self) -> None:
        """Close all of them; nobody may use one any more."""
        with self._mutex:
            while self._files:
                _, opened = self._files.popitem()
                self._fs.close(opened.file)

    def _acquire(self, path: str) -> _Open:
        with self._mutex:
            opened = self._files.get(path)
            if opened is None:
                with reading(path):
                    opened = _Open(self._fs.open(path))
                self._files[path] = opened
            else:
                self._files.move_to_end(path)
            opened.users += 1
            self._shrink()
            return opened

    def _release(self, opened: _Open) -> None:
        with self._mutex:
            opened.users -= 1
            if not opened.users and opened.forgotten:
                self._fs.close(opened.file)
            self._shrink()

    def _shrink(self) -> None:
        if len(self._files) <= self._max:
            return
        for path, opened in list(self._files.items()):
            if not opened.users:
                del self._files[path]
                self._fs.close(opened.file)
                if len(self._files) <= self._max:
                    return
