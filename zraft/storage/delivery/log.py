"""One group's deliveries on this disk: written from applied entries, read by consumers, cut by retention (D-13).

Nothing here is acknowledged to a client: the write-ahead log holds every entry until `durable_index` has passed it.
What a crash takes is delivered again by the state machine, and recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import zstandard
from attrs import frozen

from zraft.storage.delivery.comparing import compare_marks, count_known
from zraft.storage.delivery.frames import HEAD_BYTES, SEGMENT_ID_BYTES, DeliverySegmentHeader
from zraft.storage.delivery.manifest import (
    SEGMENTS_MAX,
    Manifest,
    joined,
    seam,
    wanted,
)
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache
from zraft.storage.delivery.reading import READ_BYTES_DEFAULT, DeliveryReader
from zraft.storage.delivery.recovery import DeliveryReport, directory_of, recover
from zraft.storage.delivery.retention import expired_until
from zraft.storage.delivery.scanning import first_time
from zraft.storage.delivery.segment_list import SegmentList
from zraft.storage.delivery.settings import DeliveryRetention, DeliverySettings
from zraft.storage.delivery.tail import Tail
from zraft.storage.delivery.values import Mark, StoredDelivery
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading
from zraft.storage.errors import (
    CorruptionError,
    DiskFullError,
    FsyncError,
    SegmentGoneError,
    WriteError,
)
from zraft.storage.filesystem import FileSystem
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

RECORD_OVERHEAD_BYTES = 96
"""The bytes that a record takes beside its payload at most: ten heads, nine numbers, rounded up."""


@frozen
class DeliveryStatistics:
    """Statistics for metrics.

    `bytes` is the length of all segments, `unsynced_bytes` what of it is not durable yet. `oldest_ms` is the wall time of
    the oldest delivery, to within its frame; None if there is none, or if it cannot be read.
    """

    first_offset: int
    end_offset: int
    durable_index: int
    segments: int
    bytes: int
    unsynced_bytes: int
    oldest_ms: int | None


class DeliveryLog:
    """One group's deliveries, opened.

    `reader`, `base`, `end`, `durable_index`, `manifest`, `read_file` and `statistics` may be used by any thread at
    any time. All else blocks, and belongs to one thread.
    """

    def __init__(
        self,
        fs: FileSystem,
        directory: DataDirectory,
        group: GroupId,
        files: OpenFiles,
        indices: IndexCache,
        settings: DeliverySettings,
        recovered: Manifest,
    ) -> None:
        """Take what `open` found; private, use `open`."""
        self._fs = fs
        self._directory = directory
        self.group = group
        self.path = path = directory_of(directory.path, group)
        self._files = files
        self._settings = settings
        level = settings.compression_level
        self._compressor = zstandard.ZstdCompressor(level=level) if level else None
        self._segments = segments = SegmentList(fs, path, files, indices, recovered)
        self._index = self._durable_index = recovered.end.index
        self._failure: StorageError | None = None
        self.reader = DeliveryReader(fs, files, indices, path, group, lambda: segments.view)
        self._oldest_ms: int | None = None
        self._note_oldest()

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: DataDirectory,
        group: GroupId,
        *,
        files: OpenFiles,
        indices: IndexCache,
        settings: DeliverySettings,
        expected: Mark | None = None,
        first_offset: int = 0,
    ) -> tuple[DeliveryLog, DeliveryReport]:
        """Find the group's deliveries, cut what a crash tore, and make durable what there is.

        Closed segments are not read through; `zraft log verify` does that, and readers check all that they read.

        Args:
            expected: what the newest snapshot of the group says of its deliveries; offset and digest are looked at. They
                must be here, for the write-ahead log does not hold them any more.
            first_offset: where they begin, if there are none yet.

        Raises:
            CorruptionError: what was durable is damaged or missing; names file, offset and what to do.
            DeliveriesDifferError: the snapshot's digest is another one.
            DiskFullError: the call can be repeated.
            StorageError: the disk failed.
        """
        manifest, report = recover(fs, directory.path, group, first_offset)
        log = cls(fs, directory, group, files, indices, settings, manifest)
        if expected is not None:
            log._check_expected(expected)
        return log, report

    # --- what is there

    @property
    def base(self) -> Mark:
        """The position at which the deliveries begin: retention removed what came before."""
        return self._segments.view.base

    @property
    def end(self) -> Mark:
        """The position at which the deliveries end; the next one has its offset."""
        return self._segments.view.end

    @property
    def durable_index(self) -> int:
        """Every delivery up to this Raft index survives a power failure: the log beneath may be removed as far."""
        return self._durable_index

    @property
    def dirty(self) -> bool:
        """True if `sync` has something to do."""
        tail = self._segments.tail
        return tail is not None and tail.dirty

    def read(self, offset: int, bytes_max: int = READ_BYTES_DEFAULT) -> list[StoredDelivery]:
        """Return deliveries from an offset on; see `DeliveryReader.read`."""
        return self.reader.read(offset, bytes_max)

    def manifest(self) -> Manifest:
        """Return the durable deliveries as a list of files, which a snapshot lists.

        The files never change as far as the list goes.
        """
        return self._segments.listing()

    def read_file(self, id: bytes, offset: int, length: int) -> bytes:
        """Return bytes of a segment's file, to be sent to another server; empty at its end.

        Raises:
            SegmentGoneError: retention removed it; the manifest is to be asked for anew.
        """
        for segment in self.manifest().segments:
            if segment.id == id:
                path = f"{self.path}/{segment.name}"
                try:
                    with self._files.use(path) as file, reading(path):
                        return self._fs.pread(file, max(0, min(length, segment.size - offset)), offset)
                except StorageError as error:
                    if not isinstance(error.__cause__, FileNotFoundError):
                        raise
        raise SegmentGoneError(
            f"{self.path}: there is no segment {id.hex()} (any more); ask for the list of segments again"
        )

    def statistics(self) -> DeliveryStatistics:
        """Return sizes for metrics. They cost the same however many segments there are."""
        view, tail = self._segments.view, self._segments.tail
        return DeliveryStatistics(
            view.base.offset,
            view.end.offset,
            self._durable_index,
            len(view.closed) + (view.tail is not None),
            view.closed_bytes + (view.tail.size if view.tail is not None else 0),
            tail.unsynced_bytes if tail is not None else 0,
            self._oldest_ms,
        )

    # --- writing

    def append(self, deliveries: Sequence[StoredDelivery], index: int) -> None:
        """Write what applying entries up to Raft index `index` delivered, whole entries at a time.

        Deliveries that are here already, because entries are applied again after a start, are compared and not
        written again. Readers see the new ones at once; they are durable once `durable_index` says so, at the latest
        after `sync`.

        Raises:
            DeliveriesDifferError: what is here at an offset is something else, or offsets are missing: state machine
                and disk contradict one another.
            DiskFullError: the same call may succeed later; what was written until then is recognised.
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        known = count_known(self.reader, self.path, self.group, self.base, self.end, deliveries)
        with self._failing():
            self._write(deliveries[known:], index)
        self._index = max(self._index, index)
        self._note_durable()

    def sync(self) -> int:
        """Make durable what was appended; up to which Raft index everything is.

        Raises:
            DiskFullError: it is durable, but the manifest could not be brought up to date; nothing is lost.
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        tail = self._segments.tail
        if tail is not None and tail.dirty:
            with self._failing():
                before, stride = tail.durable.size, self._settings.checkpoint_bytes
                tail.sync()
                self._note_durable()
                if before // stride != tail.durable.size // stride:
                    self._segments.checkpoint()
        return self._durable_index

    def close_segment(self) -> None:
        """End the segment that is being written; the next delivery begins another one.

        The errors are those of `sync`.
        """
        self._check_failure()
        with self._failing():
            self._close_tail()

    def close(self) -> None:
        """Make everything durable and say so in the manifest, so that the next start has nothing to read."""
        if self._failure is None:
            self.close_segment()
        for segment in self._segments.closed:
            self._files.forget(f"{self.path}/{segment.name}")

    # --- removing

    def retain(self, retention: DeliveryRetention, now_ms: int, *, keep_from: int | None = None) -> int:
        """Remove the segments that have been kept long enough; how many deliveries went.

        The segment that is being written goes, too, if all of it is too old. See `expired_until` for `keep_from`.
        """
        until = expired_until(self._segments.all, retention, now_ms, keep_from=keep_from)
        return self.cut(until) if until is not None else 0

    def cut(self, first_offset: int) -> int:
        """Remove the segments that lie wholly before `first_offset`; how many deliveries went.

        Only what is durable here is removed, so a start finds a log that begins later, never one with a hole. Consumers
        below the new beginning are told (`DeliveriesGoneError`). Works on a full disk, too.

        Raises:
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        with self._failing():
            if self.base.offset < self.end.offset <= first_offset:
                try:
                    self._close_tail()
                except DiskFullError:
                    pass  # then the tail stays for now, and what is closed goes
            before = self.base.offset
            count = sum(segment.end.offset <= first_offset for segment in self._segments.closed)
            if count:
                self._segments.remove(count)
                self._note_oldest()
            return self.base.offset - before

    # --- a snapshot from another server

    def missing(self, shipped: Manifest) -> Mark | None:
        """Return where our own deliveries reach shipped ones that we lack; None if there is a gap.

        Raises:
            DeliveriesDifferError: at that place the other server has another digest.
        """
        place = seam(self._segments.written(), shipped)
        if place is not None:
            ours = self.reader.mark_at(place.offset)
            compare_marks(self.path, ours, place, "another server's list of segments")
        return place

    def adopt(self, shipped: Manifest, parts: Mapping[bytes, str]) -> None:
        """Make fetched segments part of this log, after what is here, as far as it reaches them; durable on return.

        A crash leaves what was here or what is there now.

        Args:
            shipped: the list that another server sent.
            parts: by segment, the names of the files that were fetched, verified and made durable: all of
                `manifest.wanted`.

        Raises:
            DeliveriesDifferError: see `missing`; nothing was changed.
            DiskFullError: nothing was changed; the call can be repeated.
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        with self._failing():
            self._close_tail()
            place = self.missing(shipped)
            own = self._segments.written()
            if shipped.end.offset > own.end.offset:
                self._segments.replace(joined(own, shipped, place), wanted(own, shipped), parts)
                self._index = max(self._index, self.end.index)
                self._note_durable()
                self._note_oldest()

    # --- inside

    def _note_oldest(self) -> None:
        """Read when the oldest delivery was delivered, since another one is the oldest now.

        One that cannot be read has no time here. Whoever reads deliveries is told what is wrong.
        """
        self._oldest_ms = None
        for segment in self._segments.view.from_offset(self.base.offset):
            with suppress(StorageError):
                self._oldest_ms = first_time(self._fs, f"{self.path}/{segment.name}", segment)
            break

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise WriteError(f"{self.path}: an earlier write failed, nothing can follow it: {self._failure}")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Remember an error inside that the process cannot go on after: nothing may be written after it."""
        try:
            yield
        except (FsyncError, WriteError) as error:
            self._failure = error
            raise

    def _check_expected(self, expected: Mark) -> None:
        if expected.offset > self.end.offset:
            raise CorruptionError(
                self.path,
                0,
                f"deliveries end at {self.end.offset}, the newest snapshot of group {self.group} needs them up to "
                f"{expected.offset}",
            )
        if expected.offset >= self.base.offset:
            compare_marks(self.path, self.reader.mark_at(expected.offset), expected, "the group's snapshot")

    def _write(self, deliveries: Sequence[StoredDelivery], index: int) -> None:
        settings = self._settings
        start = 0
        while start < len(deliveries):
            stop, size = start + 1, len(deliveries[start].payload) + RECORD_OVERHEAD_BYTES
            while stop < len(deliveries):
                more = len(deliveries[stop].payload) + RECORD_OVERHEAD_BYTES
                if size + more > settings.frame_bytes_max:
                    break
                size += more
                stop += 1
            upto = index if stop == len(deliveries) else deliveries[stop].index - 1
            tail = self._room(size + HEAD_BYTES)
            tail.write(deliveries[start:stop], max(upto, tail.segment.end.index))
            self._segments.grown()
            if self._oldest_ms is None and not self._segments.closed:
                self._oldest_ms = tail.segment.time
            if tail.unsynced_bytes >= settings.sync_bytes_max:
                self.sync()
            start = stop

    def _room(self, size: int) -> Tail:
        """Return the segment that a frame of at most that size goes to."""
        segments, settings = self._segments, self._settings
        if segments.tail is None or not (
            segments.tail.room_for(size, settings.segment_bytes_max)
            or len(segments.closed) + 1 >= SEGMENTS_MAX
        ):
            self._close_tail()
            start = self.end
            header = DeliverySegmentHeader(
                self.group,
                self._directory.entropy(SEGMENT_ID_BYTES),
                start.offset,
                start.chain,
                self._directory.server,
                self._directory.instance,
            )
            tail = Tail(
                self._fs,
                self._files,
                self.path,
                header,
                start,
                stride_bytes=settings.index_stride_bytes,
                compressor=self._compressor,
            )
            segments.begin(tail)
            return tail
        return segments.tail

    def _close_tail(self) -> None:
        self._segments.close_tail()
        self._note_durable()

    def _note_durable(self) -> None:
        tail = self._segments.tail
        index = self._index if tail is None or not tail.dirty else tail.durable.end.index
        self._durable_index = max(self._durable_index, index)
