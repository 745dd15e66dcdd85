"""The segment files of a write-ahead log: their names, which there are, and what is known of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, reserve, sync_directory, sync_file, writing
from zraft.storage.errors import CorruptionError, FsyncError
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import HEADER_BYTES, SegmentHeader
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

MISSING_ADVICE = (
    "put the file back if it was moved; otherwise move the data directory aside and let the server join again "
    "with an empty one, so that it is a new instance"
)
_TEMPORARY_SUFFIX: Final = ".seg.tmp"
_SEGMENT_NAME: Final = re.compile(r"(\d{10})\.seg")


class SegmentSpan:
    """One segment as far as it holds frames; `end` grows while it is the last.

    `bases` is where each group's log stood when it was begun, None if it does not say. `frames` leaves the frame out
    that says so. `truncated` is the lowest index that a truncation in it names, by group.
    """

    __slots__ = ("bases", "end", "first_frame", "frames", "log_bytes", "number", "seed", "truncated")

    def __init__(self, header: SegmentHeader, log_bytes: int) -> None:
        self.number = header.segment
        self.seed = header.seed
        self.first_frame = header.first_frame
        self.log_bytes = log_bytes  # length of all segments before it, since the start of the process
        self.end = HEADER_BYTES
        self.frames = 0
        self.bases: dict[GroupId, SnapshotMeta] | None = {} if header.first_frame == 1 else None
        self.truncated: dict[GroupId, int] = {}

    def note_truncation(self, group: GroupId, from_index: int) -> None:
        """Note that entries from `from_index` on were truncated by a record of this segment."""
        self.truncated[group] = min(from_index, self.truncated.get(group, from_index))


def segment_path(wal_path: str, number: int) -> str:
    """Return the path of segment `number`; numbers have ten digits, so that names sort."""
    return f"{wal_path}/{number:010d}.seg"


def existing_segments(fs: FileSystem, directory: DataDirectory, path: str) -> tuple[list[int], list[int]]:
    """Return the segments' numbers, without gaps, and those that an interrupted compaction left before them.

    The traces of an interrupted start or roll are removed.

    Raises:
        CorruptionError: a segment or the whole directory is missing.
        StorageError: `meta` is older than the segments.
    """
    with reading(path):
        present = "wal" in fs.listdir(directory.path)
    if not present:
        if directory.newest_segment:
            raise CorruptionError(path, 0, "the directory is missing", advice=MISSING_ADVICE)
        with writing(path):
            fs.mkdir(path)
    # The process before may have been killed between making a name and fsyncing it.
    sync_directory(fs, directory.path)
    sync_directory(fs, path)
    with reading(path):
        names = fs.listdir(path)
    for name in names:
        if name.endswith(_TEMPORARY_SUFFIX):
            with writing(f"{path}/{name}"):
                fs.unlink(f"{path}/{name}")
    return in_use(numbers_of(names), directory.newest_segment, path)


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the segments among the files of a log's directory, in order."""
    return sorted(int(match[1]) for match in map(_SEGMENT_NAME.fullmatch, names) if match)


def in_use(numbers: Sequence[int], newest: int, path: str) -> tuple[list[int], list[int]]:
    """Return the numbers of the log's segments, and those that an interrupted compaction left before them.

    `newest`: the highest number that was ever given, as far as `meta` knows.

    Raises:
        CorruptionError: the newest one is missing.
        StorageError: `meta` is older than the segments.
    """
    if newest and (not numbers or numbers[-1] < newest):
        raise CorruptionError(segment_path(path, newest), 0, "the file is missing", advice=MISSING_ADVICE)
    if numbers and numbers[-1] > newest + 1:
        raise StorageError(
            f"{path}: has segments up to {numbers[-1]}, but {path.removesuffix('/wal')}/meta knows {newest}: "
            f"it was restored from a copy; {MISSING_ADVICE}"
        )
    # Segments before a gap were being compacted; whether they could be is for the snapshots to say.
    gap = max((at for at, number in enumerate(numbers) if at and numbers[at - 1] != number - 1), default=0)
    return list(numbers[gap:]), list(numbers[:gap])


def create_segment(fs: FileSystem, path: str, number: int, start: bytes, size: int) -> tuple[int, bool]:
    """Return a new segment of `size` bytes in the directory `path`.

    It is open; its name, length and first bytes are durable.

    Returns:
        The file, and whether it has that length: not every file system can reserve space.

    Raises:
        DiskFullError: no space; nothing is left of it.
        FsyncError, WriteError: whether it is there is unknown; the process has to end.
    """
    final = segment_path(path, number)
    temporary = f"{path}/{number:010d}{_TEMPORARY_SUFFIX}"
    with writing(final):
        file = fs.create(temporary)
        try:
            reserved = reserve(fs, file, size)
            fs.pwrite(file, start, 0)
            sync_file(fs, file, temporary)
            fs.rename(temporary, final)
        except FsyncError:
            fs.close(file)
            raise
        except OSError:
            fs.close(file)
            # Give back what it did get: on a full disk that is what others need to recover.
            fs.unlink(temporary)
            raise
    try:
        sync_directory(fs, path)
    except StorageError:
        fs.close(file)
        raise
    return file, reserved
