"""One group's deliveries on this disk: written from applied entries, read by consumers, cut by retention (D-13).

Nothing here is acknowledged to a client: the write-ahead log holds every entry until `durable_index` has passed it.
What a crash takes is delivered again by the state machine, and recognised.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import zstandard
from attrs import evolve, frozen

from zraft.errors import StorageError
from zraft.ids import GroupId
from zraft.storage.delivery.comparing import compare_marks, count_known
from zraft.storage.delivery.frames import HEAD_BYTES, SEGMENT_ID_BYTES, SegmentHeader
from zraft.storage.delivery.manifest import (
    SEGMENTS_MAX,
    Manifest,
    Segment,
    joined,
    seam,
    store_manifest,
    wanted,
)
from zraft.storage.delivery.open_files import OpenFiles
from zraft.storage.delivery.points import IndexCache, store_points
from zraft.storage.delivery.reading import READ_BYTES_DEFAULT, DeliveryReader, View
from zraft.storage.delivery.recovery import DeliveryReport, directory_of, gone_name, recover
from zraft.storage.delivery.retention import expired_until
from zraft.storage.delivery.settings import DeliverySettings, Retention
from zraft.storage.delivery.tail import Tail
from zraft.storage.delivery.values import Delivery, Mark
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, sync_directory, writing
from zraft.storage.errors import (
    CorruptionError,
    DeliveriesDifferError,
    DeliveriesGoneError,
    DiskFullError,
    SegmentGoneError,
    WriteError,
)
from zraft.storage.filesystem import FileSystem

RECORD_OVERHEAD_BYTES = 96
"""What a record takes beside its payload at most: ten heads, nine numbers, rounded up."""


@frozen
class DeliveryStatistics:
    """For metrics. `bytes` is the length of all segments, `unsynced_bytes` what of it is not durable yet."""

    first_offset: int
    end_offset: int
    durable_index: int
    segments: int
    bytes: int
    unsynced_bytes: int


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
        """Private: use `open`."""
        self._fs = fs
        self._directory = directory
        self.group = group
        self.path = directory_of(directory.path, group)
        self._files = files
        self._indices = indices
        self._settings = settings
        level = settings.compression_level
        self._compressor = zstandard.ZstdCompressor(level=level) if level else None
        self._base = recovered.base
        self._closed = recovered.segments
        self._tail: Tail | None = None
        self._index = self._durable_index = recovered.end.index
        self._removing: list[str] = []
        self._failure: StorageError | None = None
        self._mutex = threading.Lock()
        ends = tuple(segment.end.offset for segment in self._closed)
        self._view = View(0, self._base, self._closed, None, None, ends)
        self.reader = DeliveryReader(fs, files, indices, self.path, group, lambda: self._view)

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
    ) -> tuple[DeliveryLog, DeliveryReport]:
        """Find the group's deliveries, cut what a crash tore, and make durable what there is.

        Closed segments are not read through; `zraft log verify` does that, and readers check all that they read.

        Args:
            expected: what the newest snapshot of the group says of its deliveries (its `index` is not looked at):
            they must
                be here, for the log does not hold them any more.

        Raises:
            CorruptionError: what was durable is damaged or missing; names file, offset and what to do.
            DeliveriesDifferError: the snapshot's digest is another one.
            DiskFullError: the call can be repeated.
            StorageError: the disk failed.
        """
        manifest, report = recover(fs, directory.path, group)
        log = cls(fs, directory, group, files, indices, settings, manifest)
        if expected is not None:
            log._check_expected(expected)
        return log, report

    # --- what is there

    @property
    def base(self) -> Mark:
        """Where it begins: retention removed what came before."""
        return self._view.base

    @property
    def end(self) -> Mark:
        """Where it ends; the next delivery has its offset."""
        return self._view.end

    @property
    def durable_index(self) -> int:
        """Every delivery up to this Raft index survives a power failure: the log beneath may be removed as far."""
        return self._durable_index

    @property
    def dirty(self) -> bool:
        """Whether `sync` has something to do."""
        return self._tail is not None and self._tail.dirty

    def read(self, offset: int, bytes_max: int = READ_BYTES_DEFAULT) -> list[Delivery]:
        """See `DeliveryReader.read`."""
        return self.reader.read(offset, bytes_max)

    def manifest(self) -> Manifest:
        """What is durable, as a list of files that never change as far as it says: what a snapshot lists."""
        with self._mutex:
            durable = self._durable()
        segments = tuple(segment for segment in durable.segments if segment.end.offset > segment.first)
        return evolve(durable, segments=segments, open=False)

    def read_file(self, id: bytes, offset: int, length: int) -> bytes:
        """Bytes of a segment's file, to be sent to another server; empty at its end.

        Raises:
            SegmentGoneError: retention removed it; the manifest is to be asked for anew.
        """
        manifest = self.manifest()
        for segment in manifest.segments:
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
        """Sizes for metrics."""
        with self._mutex:
            view, tail = self._view, self._tail
            segments = (*view.closed, *((view.tail,) if view.tail is not None else ()))
            return DeliveryStatistics(
                view.base.offset,
                view.end.offset,
                self._durable_index,
                len(segments),
                sum(segment.size for segment in segments),
                tail.unsynced_bytes if tail is not None else 0,
            )

    # --- writing

    def append(self, deliveries: Sequence[Delivery], index: int) -> None:
        """Write what applying entries up to Raft index `index` delivered, whole entries at a time.

        Deliveries that are here already, because entries are applied again after a start, are compared and not
        written again. Readers see the new ones at once; they are durable once `durable_index` says so, at the latest
        after `sync`.

        Raises:
            DeliveriesDifferError: what is here at an offset is something else, or offsets are missing: the state
            machine
                and this disk contradict one another.
            DiskFullError: the same call may succeed later; what was written until then is recognised.
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        known = count_known(self.reader, self.path, self.group, self.base, self.end, deliveries)
        with _Failing(self):
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
        tail = self._tail
        if tail is not None and tail.dirty:
            with _Failing(self):
                before, stride = tail.durable.size, self._settings.checkpoint_bytes
                tail.sync()
                self._note_durable()
                if before // stride != tail.durable.size // stride:
                    self._store()
        return self._durable_index

    def close_segment(self) -> None:
        """End the segment that is being written; the next delivery begins another one. Raises like `sync`."""
        self._check_failure()
        with _Failing(self):
            self._close_tail()

    def close(self) -> None:
        """Make everything durable and say so in the manifest, so that the next start has nothing to read."""
        if self._failure is None:
            self.close_segment()
        for segment in self._view.closed:
            self._files.forget(f"{self.path}/{segment.name}")

    # --- removing

    def retain(self, retention: Retention, now_ms: int, *, keep_from: int | None = None) -> int:
        """Remove the segments that have been kept long enough; how many deliveries went.

        The segment that is being written goes, too, if all of it is too old. See `expired_until` for `keep_from`.
        """
        view = self._view
        segments = (*view.closed, *((view.tail,) if view.tail is not None else ()))
        until = expired_until(segments, retention, now_ms, keep_from=keep_from)
        return self.cut(until) if until is not None else 0

    def cut(self, first_offset: int) -> int:
        """Remove the segments that lie wholly before `first_offset`; how many deliveries went.

        Removed is what is durable here, and by the decision of who calls. Consumers below the new beginning are told
        (`DeliveriesGoneError`). Works on a full disk, too: removing files needs no space.

        Raises:
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        with _Failing(self):
            return self._cut(first_offset)

    def _cut(self, first_offset: int) -> int:
        tail = self._tail
        if tail is not None and tail.segment.first < tail.segment.end.offset <= first_offset:
            try:
                self._close_tail()
            except DiskFullError:
                pass  # then it stays for now, and what is closed goes
        count = sum(segment.end.offset <= first_offset for segment in self._closed)
        if not count:
            return 0
        gone, newest = self._closed[:count], self._closed[count - 1]
        marker = f"{self.path}/{gone_name(newest)}"
        with writing(marker):
            # From here on it is decided, whatever a crash leaves of the files; and it took no space to say so.
            self._fs.rename(f"{self.path}/{newest.name}", marker)
        sync_directory(self._fs, self.path)
        removed = newest.end.offset - self._base.offset
        self._publish(newest.end, self._closed[count:], self._tail)
        self._removing.append(marker)
        self._unlink(gone)
        self._empty(marker)
        try:
            self._store()
        except DiskFullError:
            pass  # the marker tells it as well; the next manifest takes its place
        return removed

    def _empty(self, path: str) -> None:
        """Give the file's space back at once, its name later."""
        with writing(path):
            file = self._fs.open(path)
            try:
                self._fs.ftruncate(file, 0)
            finally:
                self._fs.close(file)

    # --- a snapshot from another server

    def missing(self, shipped: Manifest) -> Mark | None:
        """Where our own deliveries reach the shipped ones that we do not have; None if there is a gap between.

        Raises:
            DeliveriesDifferError: at that place the other server has another digest.
        """
        tail = (self._tail.segment,) if self._tail is not None else ()
        place = seam(Manifest(self.group, self._base, (*self._closed, *tail)), shipped)
        if place is not None:
            ours = self.reader.mark_at(place.offset)
            compare_marks(self.path, ours, place, "another server's list of segments")
        return place

    def adopt(self, shipped: Manifest, parts: Mapping[bytes, str]) -> None:
        """Make fetched segments part of this log, after what is here, as far as it reaches them; durable on return.

        A crash leaves what was here or what is there now.

        Args:
            shipped: the list that another server sent. parts: the names of the files that were fetched, verified and
            made durable, by segment: all of `manifest.wanted`.

        Raises:
            DeliveriesDifferError: see `missing`; nothing was changed.
            DiskFullError: nothing was changed; the call can be repeated.
            FsyncError, WriteError: the process has to end.
        """
        self._check_failure()
        with _Failing(self):
            self._close_tail()
            place = self.missing(shipped)
            own = Manifest(self.group, self._base, self._closed)
            manifest, needed = joined(own, shipped, place), wanted(own, shipped)
            if not needed:
                return
            with reading(self.path):
                present = set(self._fs.listdir(self.path))
            for segment in needed:
                part, path = parts[segment.id], f"{self.path}/{segment.name}"
                if part in present:  # else it was renamed when this was tried before, on a full disk
                    with writing(path):
                        self._fs.rename(f"{self.path}/{part}", path)
                # It may have replaced a shorter copy of the same segment, whose beginning is equal.
                self._files.forget(path)
                self._indices.forget(f"{self.path}/{segment.index_name}")
            sync_directory(self._fs, self.path)
            store_manifest(self._fs, self.path, manifest)
            self._publish(manifest.base, manifest.segments, None)
            self._index = max(self._index, manifest.end.index)
            self._note_durable()
            kept = {segment.id for segment in manifest.segments}
            self._unlink([segment for segment in own.segments if segment.id not in kept])
            self._finish_removing()

    # --- inside

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise WriteError(f"{self.path}: an earlier write failed, nothing can follow it: {self._failure}")

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

    def _write(self, deliveries: Sequence[Delivery], index: int) -> None:
        settings = self._settings
        start = 0
        while start < len(deliveries):
            stop, size = start, 0
            while stop < len(deliveries):
                size += len(deliveries[stop].payload) + RECORD_OVERHEAD_BYTES
                if stop > start and size > settings.frame_bytes_max:
                    size -= len(deliveries[stop].payload) + RECORD_OVERHEAD_BYTES
                    break
                stop += 1
            upto = index if stop == len(deliveries) else deliveries[stop].index - 1
            tail = self._room(size + HEAD_BYTES)
            tail.write(deliveries[start:stop], max(upto, tail.segment.end.index))
            with self._mutex:
                self._view = evolve(self._view, tail=tail.segment)
            if tail.unsynced_bytes >= settings.sync_bytes_max:
                self.sync()
            start = stop

    def _room(self, size: int) -> Tail:
        """The segment that a frame of at most that size goes to."""
        tail = self._tail
        if tail is not None and (
            tail.room_for(size, self._settings.segment_bytes_max) or len(self._closed) + 1 >= SEGMENTS_MAX
        ):
            return tail
        self._close_tail()
        start = self.end
        header = SegmentHeader(
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
            stride_bytes=self._settings.index_stride_bytes,
            compressor=self._compressor,
        )
        manifest = Manifest(self.group, self._base, (*self._closed, tail.segment), True)
        try:
            self._store(manifest)
        except DiskFullError:
            self._unlink([tail.segment])
            raise
        self._publish(self._base, self._closed, tail)
        return tail

    def _close_tail(self) -> None:
        """Make the segment that is being written durable and a closed one, also to a start."""
        tail = self._tail
        if tail is None:
            return
        tail.sync()
        segment = tail.segment
        if segment.end.offset == segment.first:
            self._store(Manifest(self.group, self._base, self._closed))
            self._publish(self._base, self._closed, None)
            self._unlink([segment])
            return
        closed = (*self._closed, segment)
        self._store(Manifest(self.group, self._base, closed))
        self._publish(self._base, closed, None)
        self._note_durable()
        self._indices.put(f"{self.path}/{segment.index_name}", tail.points)
        store_points(self._fs, f"{self.path}/{segment.index_name}", segment, tail.points)

    def _store(self, manifest: Manifest | None = None) -> None:
        store_manifest(self._fs, self.path, manifest if manifest is not None else self._durable())
        self._finish_removing()

    def _finish_removing(self) -> None:
        """The manifest tells by now what the markers told."""
        while self._removing:
            with writing(self._removing[-1]):
                self._fs.unlink(self._removing[-1])
            self._removing.pop()

    def _unlink(self, segments: Sequence[Segment]) -> None:
        """Remove files that count no more, and their indices. Not made durable: a start removes what a crash leaves."""
        with reading(self.path):
            present = set(self._fs.listdir(self.path))
        for segment in segments:
            self._files.forget(f"{self.path}/{segment.name}")
            self._indices.forget(f"{self.path}/{segment.index_name}")
            for name in (segment.index_name, segment.name):
                if name not in present:
                    continue
                with writing(f"{self.path}/{name}"):
                    self._fs.unlink(f"{self.path}/{name}")

    def _durable(self) -> Manifest:
        """What is durable, as a start would want to know it."""
        tail = self._tail
        if tail is None:
            return Manifest(self.group, self._base, self._closed)
        return Manifest(self.group, self._base, (*self._closed, tail.durable), True)

    def _note_durable(self) -> None:
        tail = self._tail
        index = self._index if tail is None or not tail.dirty else tail.durable.end.index
        self._durable_index = max(self._durable_index, index)

    def _publish(self, base: Mark, closed: tuple[Segment, ...], tail: Tail | None) -> None:
        """Let everybody see which files there are now."""
        with self._mutex:
            self._base, self._closed, self._tail = base, closed, tail
            self._view = View(
                self._view.version + 1,
                base,
                closed,
                tail.segment if tail is not None else None,
                tail.points if tail is not None else None,
                tuple(segment.end.offset for segment in closed),
            )


class _Failing:
    """Remembers that the disk failed: nothing may be written after it."""

    __slots__ = ("_log",)

    def __init__(self, log: DeliveryLog) -> None:
        self._log = log

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, StorageError) and not isinstance(
            error, DiskFullError | DeliveriesDifferError | DeliveriesGoneError | CorruptionError
        ):
            self._log._failure = error
