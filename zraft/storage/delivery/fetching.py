"""Fetching of the delivery segments that another server's snapshot lists: piece by piece, then ours in one step.

A file that arrives is named `.part` until all of them are here, verified and durable; then the manifest is replaced.
A start removes what was on its way.
"""

from __future__ import annotations

from attrs import frozen

from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import Manifest, Segment, wanted
from zraft.storage.delivery.recovery import PART_SUFFIX
from zraft.storage.delivery.scanning import SegmentVerifier
from zraft.storage.durable import reserve, sync_file, writing
from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotRejectedError
from zraft.storage.filesystem import FileSystem


@frozen
class Piece:
    """Piece to ask the other server for: from `offset` on, of the `size` bytes of segment `id`."""

    id: bytes
    offset: int
    size: int


class SegmentFetch:
    """The segments of one list on their way. Belongs to the thread that writes the log; blocks."""

    def __init__(self, fs: FileSystem, log: DeliveryLog, shipped: Manifest) -> None:
        """Look what of the list is missing here.

        Raises:
            SnapshotRejectedError: it is another group's.
            DeliveriesDifferError: what we have is not what the other server has.
        """
        if shipped.group != log.group:
            raise SnapshotRejectedError(
                f"{log.path}: a list of group {shipped.group}'s delivery segments, expected one of group {log.group}"
            )
        log.missing(shipped)
        self._fs = fs
        self._log = log
        self._shipped = shipped
        # The log may get further meanwhile; what it does not need then is removed in the end.
        self._wanted = wanted(log.manifest(), shipped)
        self._here: dict[bytes, str] = {}  # names of the files that are whole, by segment
        self._length = 0  # the length of the file that arrives now
        self._file: int | None = None
        self._verifier: SegmentVerifier | None = None

    @property
    def next(self) -> Piece | None:
        """The piece to fetch next; None once everything is here."""
        segment = self._current()
        return None if segment is None else Piece(segment.id, self._length, segment.size)

    @property
    def missing_bytes(self) -> int:
        """The number of bytes that are still missing."""
        missing = sum(segment.size for segment in self._wanted if segment.id not in self._here)
        return missing - self._length

    def store(self, id: bytes, offset: int, data: bytes) -> Piece | None:
        """Add bytes of a file; what is to be fetched then. Bytes that do not continue what is here are ignored.

        Raises:
            SnapshotRejectedError: the file is complete and is not what the list says; it has to be fetched again.
            DiskFullError: everything that was fetched is given up, because others need the space.
            FsyncError, WriteError: the process has to end.
        """
        segment = self._current()
        if segment is None or (segment.id, self._length) != (id, offset) or not data:
            return self.next
        if offset + len(data) > segment.size:
            raise SnapshotRejectedError(
                f"{self._log.path}: {offset + len(data)} bytes of segment {id.hex()}, it has {segment.size}"
            )
        path = f"{self._log.path}/{_part_name(segment)}"
        try:
            with writing(path):
                if self._file is None:
                    self._file = self._fs.create(path)
                    # A disk that is too small says so before anything was transferred.
                    reserve(self._fs, self._file, segment.size)
                    at = self._shipped.segments.index(segment)
                    start, group = self._shipped.start_of(at), self._shipped.group
                    self._verifier = SegmentVerifier(self._fs, self._file, path, group, start, segment)
                self._fs.pwrite(self._file, data, offset)
        except DiskFullError:
            self.give_up()
            raise
        self._length += len(data)
        self._check(segment, path)
        return self.next

    def complete(self) -> None:
        """Make the segments part of the log once all are here; durable on return.

        The errors are those of `DeliveryLog.adopt`.
        """
        assert self.next is None, f"{self.next} is missing"
        self._log.adopt(self._shipped, self._here)
        self.give_up()

    def give_up(self) -> None:
        """Remove what was fetched and is not part of the log."""
        self._end_file()
        present = set(self._fs.listdir(self._log.path))
        for segment in self._shipped.segments:
            name = _part_name(segment)
            if name in present:
                with writing(f"{self._log.path}/{name}"):
                    self._fs.unlink(f"{self._log.path}/{name}")
        self._here.clear()

    def _current(self) -> Segment | None:
        return next((segment for segment in self._wanted if segment.id not in self._here), None)

    def _check(self, segment: Segment, path: str) -> None:
        """Check what is here of it, a piece at a time: all of it at its end would hold up others for seconds."""
        assert self._file is not None
        assert self._verifier is not None
        try:
            if self._length < segment.size:
                self._verifier.advance(self._length)
                return
            sync_file(self._fs, self._file, path)
            self._verifier.finish()
            self._here[segment.id] = _part_name(segment)
        except CorruptionError as error:
            self._end_file()
            raise SnapshotRejectedError(
                f"{self._log.path}: segment {segment.id.hex()} arrived damaged (at offset {error.offset}: {error.found}); "
                "it is fetched again; if that goes on, check the disk of the server that sends it"
            ) from error
        self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            self._fs.close(self._file)
        self._file = self._verifier = None
        self._length = 0


def _part_name(segment: Segment) -> str:
    return segment.name + PART_SUFFIX
