"""Inspection of a data directory that may belong to a running server.

It takes no lock, changes nothing, and shows only what is valid by now.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final

from attrs import frozen

from zraft.storage.directory import read_meta
from zraft.storage.durable import reading, size_if_there
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import (
    HEADER_BYTES,
    Frame,
    LogFrameReader,
    SegmentHeader,
    decode_header,
    inspect_rest,
)
from zraft.storage.records import BaseRecord, Record, RecordFormatError, RecordReader, decode_record
from zraft.storage.recovery import Replay, replay
from zraft.storage.segments import SegmentSpan, in_use, numbers_of, segment_path
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotFileReader, SnapshotInfo
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

_ATTEMPTS: Final = 3
"""A running server removes segments and writes frames while we read; what looks wrong is looked at again."""
_READER_SETTINGS: Final = WalSettings(tail_bytes_max=0, index_points_max=1)


@frozen
class Placed:
    """A record and where it stands."""

    segment: int
    offset: int
    frame: int
    record: Record | BaseRecord


@frozen
class SnapshotFinding:
    """A snapshot file and what is wrong with it, if anything."""

    group: GroupId
    path: str
    info: SnapshotInfo | None
    damage: CorruptionError | None


def segment_numbers(fs: FileSystem, data: str) -> list[int]:
    """Return the numbers of the segments that are there now.

    Raises:
        StorageError: this is no data directory, or it cannot be read.
    """
    with reading(data):
        names = fs.listdir(data)
    if "wal" not in names:
        raise StorageError(
            f"{data}: is not a data directory, or nothing was written yet; there is no {data}/wal"
        )
    with reading(f"{data}/wal"):
        found = fs.listdir(f"{data}/wal")
    return numbers_of(found)


def read_records(fs: FileSystem, data: str) -> Iterator[Placed]:
    """Yield all records in the order in which they were written, up to the last valid frame.

    Streams.

    Raises:
        CorruptionError: a frame is not valid and it is not the end of the log.
        StorageError: the directory cannot be read.
    """
    numbers = segment_numbers(fs, data)
    records = RecordReader()
    at = 0
    before: tuple[str, LogFrameReader] | None = None
    while at < len(numbers):
        number = numbers[at]
        at += 1
        path = segment_path(f"{data}/wal", number)
        try:
            with reading(path):
                file = fs.open(path)
        except StorageError as error:
            if before is None and isinstance(error.__cause__, FileNotFoundError):
                continue  # compacted since we looked
            raise
        try:
            with reading(path):
                header = decode_header(fs.pread(file, HEADER_BYTES, 0), path)
            if before is not None and header.first_frame != before[1].number:
                raise CorruptionError(
                    before[0],
                    before[1].end,
                    f"{before[1].damage or 'zeros'}, yet the log goes on with frame {header.first_frame} "
                    f"in segment {number}",
                )
            reader = yield from _records_of(fs, file, path, header, records)
            before = path, reader
            if at == len(numbers):
                # The server may have gone on in another segment.
                numbers += [later for later in segment_numbers(fs, data) if later > number]
            if at == len(numbers) and reader.damage is not None:
                with reading(path):
                    rest = inspect_rest(fs, file, seed=header.seed, start=reader.end, size=fs.size(file))
                if rest.frame_offset is not None:
                    raise CorruptionError(
                        path,
                        reader.end,
                        f"{reader.damage}, yet a valid frame follows at offset {rest.frame_offset}",
                    )
        finally:
            fs.close(file)


def _records_of(
    fs: FileSystem, file: int, path: str, header: SegmentHeader, records: RecordReader
) -> Generator[Placed, None, LogFrameReader]:
    start, number = HEADER_BYTES, header.first_frame
    while True:
        with reading(path):
            size = fs.size(file)
        reader = LogFrameReader(fs, file, seed=header.seed, start=start, size=size, number=number)
        with reading(path):
            for frame in reader:
                for record in _decode(records, frame, path):
                    yield Placed(header.segment, frame.offset, frame.number, record)
        if (reader.end, reader.number) == (start, number):
            # Twice nothing at the same place: the end, or a frame that is being written.
            return reader
        start, number = reader.end, reader.number


def _decode(records: RecordReader, frame: Frame, path: str) -> Iterator[Record | BaseRecord]:
    try:
        for fields in records.arrays(frame.body):
            yield decode_record(fields)
    except RecordFormatError as error:
        raise CorruptionError(path, frame.offset, f"frame {frame.number}: {error}") from error


def verify_log(
    fs: FileSystem, data: str, *, on_segment: Callable[[SegmentSpan], None] = lambda _: None
) -> tuple[Replay, list[int]]:
    """Read the whole log as a start would: every checksum, every rule. Changes nothing; memory is bounded.

    Args:
        on_segment: called for each segment when it was read.

    Returns:
        What the log holds, which may be cut short, and the segments that lie before a gap: left of a compaction that was
        interrupted, if snapshots cover them.

    Raises:
        CorruptionError: what a start would stop at.
        StorageError: the directory cannot be read.
    """
    attempt = 0
    while True:
        attempt += 1
        try:
            meta = read_meta(fs, data)
            numbers, leftovers = in_use(segment_numbers(fs, data), meta.newest_segment, f"{data}/wal")
            replayed = replay(
                fs,
                f"{data}/wal",
                numbers,
                server=meta.server,
                instance=meta.instance,
                settings=_READER_SETTINGS,
                newest=meta.newest_segment,
                newest_bytes=meta.newest_bytes,
                on_segment=on_segment,
            )
        except StorageError:
            if attempt == _ATTEMPTS:
                raise
        else:
            # A server that closes a segment tells `meta` before: what was read of that may be older than the file.
            if replayed.cut is None or attempt == _ATTEMPTS:
                return replayed, leftovers


def find_cut(fs: FileSystem, data: str) -> tuple[str, int, int] | None:
    """Return the last segment's path, bytes, and bytes that it was made, if it has fewer; without reading it.

    Raises:
        StorageError: this is no data directory, or it cannot be read.
    """
    cut = None
    for _ in range(_ATTEMPTS):
        # A running server tells `meta` first when it closes a segment, and may have begun another since.
        meta = read_meta(fs, data)
        path = segment_path(f"{data}/wal", meta.newest_segment)
        size = size_if_there(fs, path) or 0
        if meta.newest_bytes is None or size >= meta.newest_bytes:
            return None
        cut = path, size, meta.newest_bytes
    return cut


def find_snapshots(
    fs: FileSystem, data: str, *, on_bytes: Callable[[int], None] = lambda _: None
) -> Iterator[SnapshotFinding]:
    """Yield every finished snapshot of every group, verified whole; oldest first within a group.

    Raises:
        StorageError: the directory cannot be read.
    """
    with reading(data):
        if "groups" not in fs.listdir(data):
            return
        groups = [name for name in fs.listdir(f"{data}/groups") if name.isdecimal()]
    for group in sorted(groups, key=int):
        directory = f"{data}/groups/{group}/snap"
        with reading(directory):
            names = fs.listdir(directory) if "snap" in fs.listdir(f"{data}/groups/{group}") else []
        for name in names:
            if name.endswith(".snap"):
                finding = _find_snapshot(fs, GroupId(int(group)), f"{directory}/{name}", on_bytes)
                if finding is not None:
                    yield finding


def _find_snapshot(
    fs: FileSystem, group: GroupId, path: str, on_bytes: Callable[[int], None]
) -> SnapshotFinding | None:
    try:
        with SnapshotFileReader(fs, path) as file:
            for done in file.verify():
                on_bytes(done)
            return SnapshotFinding(group, path, file.info, None)
    except CorruptionError as error:
        return SnapshotFinding(group, path, None, error)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None  # purged since we looked
        raise
