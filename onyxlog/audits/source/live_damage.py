"""Following of files of running servers and peers for damage: the table `files` as a stream.

Knows no Spark.

A file is given once, when two looks one after the other find the same damage in it: a server that removes a
group meanwhile leaves files without those that belong to them, for moments. What was read and is whole is not
read again: a log is read on, other files are read again when they have grown. So it finds damage in what is
new, as in any stream; an audit that reads everything finds what goes bad later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onyxlog.audits.source.directories import Found, ServerDirectory
from onyxlog.audits.source.file_tables import (
    SizedFile,
    Values,
    checked_files,
    is_whole,
    read_frames,
    wal_files,
)
from onyxlog.audits.source.following import Follower, GoneError
from onyxlog.audits.source.plan import RowsPiece, unreadable_rows
from onyxlog.audits.source.recording_rows import recording_file, recording_size
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem

Offsets = dict[str, list[Any]]
"""The row of `files` by damaged file, so that what a batch gives follows from its offsets alone."""
TABLE: Final = "files"
PATH: Final = 2
"""The column `file`."""
GROWTH: Final = 1.1
SMALL_BYTES: Final = 256 << 10
"""A larger file is read again when it has grown by GROWTH: all of it then costs ten times its bytes at most."""


class LiveDamage:
    """Follower of several servers and recordings."""

    def __init__(self, found: Found, fs: FileSystem) -> None:
        self._found = found
        self._fs = fs
        self._logs = [_Log(fs, directory) for directory in found.servers]
        self._sizes: dict[str, int] = {}
        """Sizes of files when they were last read."""
        self._damaged: Offsets = {str(row[PATH]): list(row) for row in unreadable_rows(found)}
        self._suspects: set[str] = set()
        """The files that the last look found damaged for the first time."""
        self._frozen = False

    def freeze(self) -> None:
        """Give only what exists now."""
        for _ in range(2):
            self._look()
        self._frozen = True

    def initial(self) -> Offsets:
        """Return that nothing was told: a stream that begins with what is new also tells what is damaged now."""
        return {}

    def latest(self, start: Offsets, bytes_max: int | None) -> Offsets:
        """Return all that is damaged by now. It is little, so `bytes_max` does not divide it."""
        if not self._frozen:
            self._look()
        return {**self._damaged, **start}

    def pieces(self, start: Mapping[str, Any], end: Offsets) -> Sequence[RowsPiece]:
        """Return one piece, with the files that were not told before."""
        rows = tuple(tuple(row) for path, row in sorted(end.items()) if path not in start)
        return [RowsPiece(TABLE, rows)] if rows else []

    def done(self, end: Offsets) -> None:
        """Do nothing, since nothing is kept."""

    def _look(self) -> None:
        found = {str(row[PATH]): row for row in self._damaged_now()}
        for path in found.keys() & self._suspects:
            self._damaged.setdefault(path, list(found[path]))
        self._suspects = found.keys() - self._damaged.keys()

    def _damaged_now(self) -> Iterator[Values]:
        for log in self._logs:
            if log.damaged_path not in self._damaged:
                yield from log.damaged()
        for directory in self._found.servers:
            for row in checked_files(self._fs, directory, self._is_due):
                if not is_whole(row):
                    yield row
        for path in self._found.recordings:
            if self._is_due(SizedFile(path, recording_size(path))):
                row = recording_file(path)
                if not is_whole(row):
                    yield row

    def _is_due(self, file: SizedFile) -> bool:
        """Return whether a file is to be read; from then on it counts as read."""
        if file.path in self._damaged:
            return False
        if file.path in self._suspects:
            return True
        known = self._sizes.get(file.path)
        if known is not None and file.size <= (known if known < SMALL_BYTES else GROWTH * known):
            return False
        self._sizes[file.path] = file.size
        return True


class _Log:
    """One server's log, as far as it was read."""

    def __init__(self, fs: FileSystem, directory: ServerDirectory) -> None:
        self._fs = fs
        self._directory = directory
        self._follower = Follower(fs, directory.path)
        self.damaged_path = ""
        """The segment that was found damaged last."""

    def damaged(self) -> Iterator[Values]:
        """Return the row of the segment that is damaged."""
        try:
            for _ in read_frames(self._follower):
                pass
        except GoneError:
            # It was compacted before it was read: what is left is read from its beginning.
            self._follower = Follower(self._fs, self._directory.path)
        except CorruptionError:
            for row in wal_files(self._fs, self._directory):
                if not is_whole(row):
                    self.damaged_path = str(row[PATH])
                    yield row
