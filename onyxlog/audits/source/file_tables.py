"""Tables that are read a file at a time: snapshots, deliveries, and the state of each file. Rows are tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Any

from attrs import frozen

from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.entry_rows import DIGEST_BYTES
from onyxlog.audits.source.following import Follower, PlacedFrame
from onyxlog.audits.source.server_log import fields_of, record_of
from onyxlog.audits.tables.table import signed
from zraft.storage.delivery.inspection import groups_with_deliveries, read_group, verify_deliveries
from zraft.storage.durable import names_if_there, reading, size_if_there
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.inspection import find_cut, segment_numbers
from zraft.storage.journal import DIRECTORY, SUFFIX, JournalHeader, PlacedNote, read_journal
from zraft.storage.records import RecordReader, is_entry
from zraft.storage.segments import segment_path
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import GroupId
from zraft_core.topics.codec import decode_message

Values = tuple[Any, ...]


@frozen
class FilePiece:
    """One file of one table.

    `group` is set where the file is a group's; `first` and `end` are a range of offsets of deliveries.
    `stops`: damage ends the rows, and is no error.
    """

    table: str
    path: str
    directory: ServerDirectory | None = None
    group: int = 0
    first: int = 0
    end: int | None = None
    payloads: bool = False
    stops: bool = False


def snapshot_files(fs: FileSystem, data: str) -> list[tuple[int, str]]:
    """Yield (group, path) of every finished snapshot."""
    with reading(data):
        if "groups" not in fs.listdir(data):
            return []
    found = []
    with reading(f"{data}/groups"):
        groups = [name for name in fs.listdir(f"{data}/groups") if name.isdecimal()]
    for group in sorted(groups, key=int):
        names = names_if_there(fs, f"{data}/groups/{group}/snap")
        found += [
            (int(group), f"{data}/groups/{group}/snap/{name}") for name in names if name.endswith(".snap")
        ]
    return found


def snapshot_values(fs: FileSystem, piece: FilePiece) -> Iterator[Values]:
    """Return one row; none if the file was removed since planning."""
    assert piece.directory is not None
    head = (piece.directory.server, piece.directory.instance, piece.path)
    try:
        with SnapshotFileReader(fs, piece.path) as file:
            for _ in file.verify():
                pass
            info, footer = file.info, file.footer
    except CorruptionError as error:
        index, term = _named(piece.path)
        yield (*(*head, error.offset, piece.group, index, term, 0, 0, 0, 0, b"", 0, "", 0, 0, error.found),)
        return
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    meta, header = info.meta, info.header
    yield (
        *(*head, 0, piece.group, meta.index, meta.term, meta.next_position, info.zxid, info.items, info.size),
        *(footer.digest.to_bytes(DIGEST_BYTES, "big"), int(header.server), header.instance.hex()),
        *(header.wall_time_ms, header.feature_level, None),
    )


def _named(path: str) -> tuple[int, int]:
    """Return index and term from the file's name, for a file that cannot be read."""
    stem = path.rpartition("/")[2].removesuffix(".snap")
    index, _, term = stem.partition("-")
    try:
        return int(index, 16), int(term, 16)
    except ValueError:
        return 0, 0


def delivery_groups(fs: FileSystem, data: str) -> list[int]:
    """Return groups whose deliveries are in a data directory."""
    return [int(group) for group in groups_with_deliveries(fs, data)]


def delivery_values(fs: FileSystem, piece: FilePiece) -> Iterator[Values]:
    """Yield a group's deliveries in the range of the piece, with their digests recomputed.

    Raises:
        CorruptionError: something is damaged.
    """
    assert piece.directory is not None
    head = (piece.directory.server, piece.directory.instance)
    last = None if piece.end is None else piece.end - 1
    if last is not None and last < piece.first:
        return
    try:
        for placed in read_group(
            fs, piece.directory.path, GroupId(piece.group), first=piece.first, last=last
        ):
            one = placed.delivery
            try:
                destinations: tuple[int, ...] | None = tuple(
                    map(int, decode_message(one.payload).destinations)
                )
            except ProtocolError:
                destinations = None
            yield (
                *(*head, placed.path, placed.position, piece.group, one.offset, one.span),
                *map(signed, one.stamp),
                *(one.producer, one.number, one.index, one.time, destinations, len(one.payload)),
                blake2b(one.payload, digest_size=DIGEST_BYTES).digest(),
                placed.chain,
                one.payload if piece.payloads else None,
            )
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        # The partition was removed since planning, or retention removed the segment.


def journal_files(fs: FileSystem, data: str) -> list[str]:
    """Return paths of the files of a server's journal, in the order in which they were written."""
    with reading(data):
        if DIRECTORY not in fs.listdir(data):
            return []
    with reading(f"{data}/{DIRECTORY}"):
        return [
            f"{data}/{DIRECTORY}/{name}"
            for name in fs.listdir(f"{data}/{DIRECTORY}")
            if name.endswith(SUFFIX)
        ]


def read_notes(fs: FileSystem, path: str) -> tuple[JournalHeader, Iterator[PlacedNote]] | None:
    """Read a journal's file; return None if it was removed since it was listed, or its header is not written yet.

    Raises:
        CorruptionError: it is damaged; perhaps only while the notes are read.
    """
    try:
        with reading(path):
            file = fs.open(path)
            try:
                data = fs.pread(file, fs.size(file), 0)
            finally:
                fs.close(file)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    return read_journal(data, path) if data else None


def journal_bytes(fs: FileSystem, piece: FilePiece) -> int:
    """Return the bytes up to behind the beginning of a journal's last whole note.

    If `stops`, it is the last note before damage.
    """
    end = 0
    try:
        found = read_notes(fs, piece.path)
        for placed in () if found is None else found[1]:
            end = placed.offset + 1
    except CorruptionError:
        if not piece.stops:
            raise
    return end


def event_values(fs: FileSystem, piece: FilePiece) -> Iterator[Values]:
    """Yield the notes of one file of a journal."""
    found = read_notes(fs, piece.path)
    if found is None:
        return
    header, notes = found
    for placed in notes:
        if placed.offset < piece.first:
            continue
        if piece.end is not None and placed.offset >= piece.end:
            return
        note = placed.note
        yield (
            *(header.server, header.instance.hex(), piece.path, placed.offset, header.boot, placed.seq),
            *(note.kind.name.lower(), note.group, note.term, note.index, note.votes, note.digest),
            note.wall_ms,
        )


def is_whole(row: Values) -> bool:
    """Return whether a row of `files` is of a file without damage."""
    return row[-1] is None


def read_frames(follower: Follower) -> Iterator[PlacedFrame]:
    """Yield the frames that a follower reads, their records decoded.

    Raises:
        CorruptionError: one is damaged, or holds something else.
        GoneError: as the follower does.
        StorageError: as the follower does.
    """
    reader = RecordReader()
    for placed in follower.frames():
        for fields in fields_of(reader, placed):
            if not is_entry(fields):
                record_of(fields, placed)
        yield placed


def wal_files(fs: FileSystem, directory: ServerDirectory) -> Iterator[Values]:
    """Yield a row of `files` for each segment of the log, which is read whole."""
    head = (directory.server, directory.instance)
    good: dict[str, tuple[int, int]] = {}
    damage: CorruptionError | None = None
    follower = Follower(fs, directory.path, now=lambda: float("inf"))
    try:
        for placed in read_frames(follower):
            _, count = good.get(placed.path, (0, 0))
            good[placed.path] = (placed.frame.end, count + 1)
    except CorruptionError as error:
        damage = error
    cut = find_cut(fs, directory.path)
    for number in segment_numbers(fs, directory.path):
        path = segment_path(f"{directory.path}/wal", number)
        try:
            with reading(path):
                file = fs.open(path)
                try:
                    size = fs.size(file)
                    end, frames = good.get(path, (0, 0))
                    written = len(fs.pread(file, size - end, end).rstrip(b"\0")) if size > end else 0
                finally:
                    fs.close(file)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue
            raise
        hit = damage is not None and damage.path == path
        where = damage.offset if damage is not None and hit else 0
        what = damage.found if damage is not None and hit else None
        if what is None and cut is not None and cut[0] == path:
            where, what = cut[1], f"the file was cut: {cut[1]} bytes are left of {cut[2]}"
        torn = written if damage is None else 0
        yield (*head, path, where, "wal", None, size, end, frames, torn, what)


@frozen
class SizedFile:
    """A file and its length in bytes."""

    path: str
    size: int


def checked_files(
    fs: FileSystem, directory: ServerDirectory, wanted: Callable[[SizedFile], bool] = lambda _: True
) -> Iterator[Values]:
    """Yield rows of `files` for all but the log: snapshots, journals, delivery segments. Wanted files are read whole."""

    def is_wanted(path: str) -> bool:
        size = size_if_there(fs, path)
        return size is not None and wanted(SizedFile(path, size))

    head = (directory.server, directory.instance)
    for group, path in snapshot_files(fs, directory.path):
        if is_wanted(path):
            yield from _snapshot_file(fs, head, group, path)
    for path in journal_files(fs, directory.path):
        if is_wanted(path):
            yield from _journal_file(fs, head, path)
    for group in delivery_groups(fs, directory.path):
        for found in verify_deliveries(
            fs, directory.path, GroupId(group), wanted=lambda path, size: wanted(SizedFile(path, size))
        ):
            torn = 0 if found.torn is None else found.torn.size
            hurt = found.damage
            yield (
                *(*head, found.path, 0 if hurt is None else hurt.offset, "deliveries", group),
                *(found.size + torn, found.size, found.end - found.first, torn),
                None if hurt is None else hurt.found,
            )


def _snapshot_file(fs: FileSystem, head: tuple[Any, ...], group: int, path: str) -> Iterator[Values]:
    try:
        with SnapshotFileReader(fs, path) as file:
            for _ in file.verify():
                pass
            yield (*head, path, 0, "snapshot", group, file.size, file.size, file.footer.blocks, 0, None)
    except CorruptionError as error:
        yield (*head, path, error.offset, "snapshot", group, 0, 0, 0, 0, error.found)
    except StorageError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise


def _journal_file(fs: FileSystem, head: tuple[Any, ...], path: str) -> Iterator[Values]:
    good = items = 0
    try:
        found = read_notes(fs, path)
        if found is None:
            return
        for placed in found[1]:
            good, items = placed.offset, items + 1
    except CorruptionError as error:
        yield (*head, path, error.offset, "journal", None, good, good, items, 0, error.found)
        return
    yield (*head, path, 0, "journal", None, good, good, items, 0, None)
