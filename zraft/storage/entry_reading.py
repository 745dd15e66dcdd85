"""Reading of one group's entries back from the segments, as far as nothing in the log took them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import HEADER_BYTES, Frame, LogFrameReader
from zraft.storage.records import (
    FORGET_KIND,
    RESTORE_KIND,
    TRUNCATE_KIND,
    EntryFields,
    RecordFormatError,
    RecordReader,
    is_entry,
)
from zraft.storage.segments import segment_path
from zraft.storage.sparse_index import Place
from zraft_core.ids import GroupId


@frozen
class Span:
    """A segment as far as it held frames when reading was planned: what is appended meanwhile is not of it."""

    number: int
    seed: int
    end: int


def entries_between(
    fs: FileSystem, wal_path: str, group: GroupId, place: Place, lo: int, hi: int, spans: Sequence[Span]
) -> Iterator[EntryFields]:
    """Yield entries [lo, hi) of one stretch without a seam, from the frame at `place` on.

    Blocks for the disk.

    Args:
        spans: the segments from that of `place` on.

    Raises:
        CorruptionError: the bytes are no longer what was written, or the entries are not there.
        StorageError: the disk cannot be read.
    """
    records = RecordReader()
    offset, number = place.offset, place.frame
    for span in spans:
        path = segment_path(wal_path, span.number)
        with reading(path):
            file = fs.open(path)
        try:
            reader = LogFrameReader(fs, file, seed=span.seed, start=offset, size=span.end, number=number)
            with reading(path):
                for frame in reader:
                    for fields in _surviving(records, frame, group, path):
                        if fields[2] < lo:
                            continue
                        if fields[2] != lo:
                            raise CorruptionError(
                                path,
                                frame.offset,
                                f"group {group}: entry {fields[2]}, expected entry {lo}",
                            )
                        yield fields
                        lo += 1
                        if lo == hi:
                            return
            if reader.end != span.end:
                raise CorruptionError(path, reader.end, reader.damage or "zeros where a frame was written")
            number = reader.number
        finally:
            fs.close(file)
        offset = HEADER_BYTES
    raise CorruptionError(wal_path, 0, f"group {group}: entry {lo} is in none of its segments")


def _surviving(records: RecordReader, frame: Frame, group: GroupId, path: str) -> list[EntryFields]:
    """Return the group's entries in a frame, without those that the same frame truncates."""
    found: list[EntryFields] = []
    try:
        for fields in records.arrays(frame.body):
            if is_entry(fields):
                if fields[1] == group:
                    found.append(fields)
            elif fields[0] == TRUNCATE_KIND and fields[1] == group:
                found = [entry for entry in found if entry[2] < fields[2]]
            elif fields[0] in (RESTORE_KIND, FORGET_KIND) and fields[1] == group:
                found = []
    except RecordFormatError as error:
        raise CorruptionError(path, frame.offset, f"frame {frame.number}: {error}") from error
    return found
