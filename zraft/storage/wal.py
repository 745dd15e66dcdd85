"""The write-ahead log of a server: one for all its groups, one fsync per append (D-10, D-13).

See docs/explanation/storage.md for the files. Nothing is overwritten: a truncation is a record, and what a crash tore
off is cut, never written over.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from attrs import frozen

from zraft.raft.messages import NO_INDEX, Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.compaction import bytes_from, is_worth_rolling, oldest_needed
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import fsync_error, reserve, sync_directory, sync_file, write_error, writing
from zraft.storage.entry_reading import Span, entries_between
from zraft.storage.errors import (
    CompactedError,
    CorruptionError,
    CutShortError,
    DiskFullError,
    WriteError,
)
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    SEGMENT_ID_BYTES,
    SegmentHeader,
    encode_frame,
    encode_header,
)
from zraft.storage.group_log import NO_BASE, GroupLog
from zraft.storage.records import (
    BaseRecord,
    EntryRecord,
    ForgetRecord,
    HardStateRecord,
    OtherRecord,
    Record,
    RestoreRecord,
    TruncateRecord,
    encode_records,
    entry_of,
)
from zraft.storage.recovery import GroupRecovered, Recovered, RecoveryReport, Replay, replay
from zraft.storage.segments import (
    MISSING_ADVICE,
    SegmentSpan,
    create_segment,
    existing_segments,
    segment_path,
)
from zraft.storage.settings import WalSettings
from zraft.storage.sparse_index import Place, SparseIndex
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId


@frozen
class WalStatistics:
    """Statistics of the log.

    `length` is the bytes of all segments up to their last frames, preallocated zeros left out;
    `frames` counts those that were ever written.
    """

    segments: int
    frames: int
    length: int


class Wal:
    """An open write-ahead log.

    `append`, `room`, `compact` and `close` belong to one thread at a time (most of them block for the disk).
    `read_entries`, `base`, `held_after` and `statistics` may be called from another at any time; they see what was
    durable when they were called.

    Attributes:
        room: a frame of so many bytes, or fewer, is written and synced by `append`, which does no more then: the segment
            is long enough, and all that has to be known of it is.
    """

    __slots__ = (
        "_allocated",
        "_compacted",
        "_directory",
        "_doomed",
        "_failure",
        "_file",
        "_fs",
        "_indexes",
        "_logs",
        "_mutex",
        "_next_frame",
        "_path",
        "_recorded",
        "_reserved",
        "_roll_due",
        "_scraps",
        "_segments",
        "_settings",
        "room",
    )

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, settings: WalSettings, replayed: Replay
    ) -> None:
        """Take what `open` found; private, use `open`."""
        self._fs = fs
        self._directory = directory
        self._path = f"{directory.path}/wal"
        self._settings = settings
        self._logs: dict[GroupId, GroupLog] = {id: group.log for id, group in replayed.groups.items()}
        self._indexes: dict[GroupId, SparseIndex] = {id: group.index for id, group in replayed.groups.items()}
        self._segments: list[SegmentSpan] = replayed.segments
        self._next_frame = replayed.next_frame
        # The torn frame's number will be used again, so it gets a segment with other checksums: whatever
        # the disk still brings up of the torn bytes can then never pass for a frame.
        self._roll_due = replayed.torn_tail is not None
        self._file: int | None = None  # the open file of the last segment
        self._allocated = 0  # the length of that file
        self._reserved = True  # true if the file system made it so long
        self._recorded = (
            directory.newest_bytes is not None
        )  # true if `meta` knows the length, as far as it can
        self._scraps = False  # true if parts of a frame that was refused stand behind the last one
        self._failure: StorageError | None = None
        self._compacted: dict[GroupId, int] = {}  # the index that `compact` was given, by group
        self._doomed: list[int] = []  # segments that are no longer of the log, but may still be files
        self._mutex = threading.Lock()
        self.room = 0  # `_count_room` counts it whenever that on which it depends has changed

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        directory: DataDirectory,
        *,
        settings: WalSettings | None = None,
        snapshots: Mapping[GroupId, SnapshotMeta] | None = None,
        read_only: bool = False,
    ) -> tuple[Wal, Recovered]:
        """Recover the log of this data directory, or begin one. Blocks; memory is bounded by frame and tail sizes.

        All that is recovered is durable on return, also if the process before was killed before its fsync
        or ended by an fsync error.

        Args:
            read_only: no segment is changed, and nothing can be appended or compacted; also what is left of a log that was
                cut can be read.
            snapshots: the newest durable and good snapshot of each group. A log that ends before it, or has an entry of
                another term in its place, is dropped and begins after it: such a snapshot was installed, and the
                process ended before its log said so. Hard state is kept.

        Raises:
            CorruptionError: acknowledged bytes are damaged or missing; names file, offset and what to do. A `CutShortError`
                if they may be, because the last segment is shorter than it was made.
            DiskFullError: no space to begin a segment.
            StorageError: the files are another server's, or the disk failed.
        """
        settings = settings if settings is not None else WalSettings()
        path = f"{directory.path}/wal"
        numbers, leftovers = existing_segments(fs, directory, path)
        replayed = replay(
            fs,
            path,
            numbers,
            server=directory.server,
            instance=directory.instance,
            settings=settings,
            newest=directory.newest_segment,
            newest_bytes=directory.newest_bytes,
        )
        if replayed.cut is not None and not read_only:
            raise CutShortError(replayed.cut)
        wal = cls(fs, directory, settings, replayed)
        try:
            wal._check_snapshots(snapshots or {})
            records, restored = wal._restorations(snapshots or {}, replayed)
            if read_only:
                wal._failure = WriteError(f"{path}: was opened to be read")
                wal._pretend(records)
            else:
                wal._doomed = leftovers
                wal._unlink_doomed()
                wal._settle(replayed)
                if records:
                    wal.append(records)
            recovered = wal._recovered(replayed, restored)
        except BaseException:
            wal._close_file()
            raise
        return wal, recovered

    def append(self, records: Sequence[Record]) -> None:
        """Write the records as one frame and make it durable. Blocks; one call at a time.

        Either all of them are in the log on return, or, after an error, none counts. A crash in between leaves
        all or none.

        Raises:
            DiskFullError: no space; nothing was written and a later call may succeed.
            FsyncError, WriteError: whether it was written is unknown; the process has to end.
        """
        assert records, "an empty frame says nothing"
        if self._failure is not None:
            raise self._nothing_can_follow()
        # Tried on copies: what breaks a rule is our own mistake, and must not reach the disk.
        logs: dict[GroupId, GroupLog] = {}
        for record in records:
            group = record.group
            if group not in logs:
                logs[group] = GroupLog(self._logs[group]) if group in self._logs else GroupLog()
            log = logs[group]
            if type(record) is EntryRecord:
                entry = record.entry
                problem = log.append(entry.index, entry.term, entry.position, entry.count)
                if entry.kind is EntryKind.MEMBERSHIP:
                    log.memberships = (*log.memberships, entry)
            else:
                problem = log.problem(record)
                if problem is None:
                    log.apply(record)
            assert problem is None, f"group {group}: {problem}"
        try:
            size = self._write(encode_records(records))
        except DiskFullError:
            raise
        except StorageError as error:
            self._failure = error
            raise
        self._commit(records, logs, size)

    def compact(self, group: GroupId, index: int) -> int:
        """Remove what no group needs any more, since entries up to `index` are in a durable snapshot.

        Removes whole segments; how many is returned. Segments can go when the next one was begun after
        all of their entries were covered, so the log may go on beginning somewhat before `index` (see `base`).
        Closes the last segment if covered entries are what fills it, so that it can go next time. Blocks for two
        fsyncs, a few more if it closes one; belongs to the thread that appends.

        Raises:
            DiskFullError: nothing is lost and a later call goes on.
            FsyncError, WriteError: the process has to end.
        """
        if self._failure is not None:
            raise self._nothing_can_follow()
        log = self._logs.get(group)
        if log is None:
            return 0
        assert NO_INDEX <= index <= log.last_index, f"{index=} of a log that ends at {log.last_index}"
        self._compacted[group] = max(self._compacted.get(group, NO_INDEX), index)
        try:
            removed = self._unlink_covered()
            last = self._segments[-1]
            if last.frames and (
                self._roll_due or is_worth_rolling(last, self._compacted, self._settings.segment_bytes_max)
            ):
                try:
                    self._roll(0)
                except DiskFullError:
                    self._roll_due = True
                removed += self._unlink_covered()
        except DiskFullError:
            raise
        except StorageError as error:
            self._failure = error
            raise
        finally:
            self._count_room()
        return removed

    def base(self, group: GroupId) -> SnapshotMeta | None:
        """Return where the group's log begins: earlier entries are no longer on this disk.

        None if it is whole.
        """
        with self._mutex:
            log = self._logs.get(group)
            return log.base if log is not None and log.base != NO_BASE else None

    def held_after(self, group: GroupId, index: int) -> int:
        """Return the bytes of the log from the segment on in which the group's first entry after `index` stands.

        0 if there is none.

        They are on the disk for as long as the group needs that entry, whatever they hold.
        """
        with self._mutex:
            log = self._logs.get(group)
            if log is None or log.last_index <= max(index, log.base.index):
                return 0
            return bytes_from(self._segments, group, index)

    def read_entries(self, group: GroupId, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        """Return the group's entries with lo <= index < hi, as far as they are in the log, in order.

        Stops before the entry whose payload would make it more than `bytes_max` bytes of payload, but gives at least
        one if `lo` exists. Blocks for the disk; reads up to `index_stride_bytes` and one frame more than it returns.

        Raises:
            CompactedError: the log begins after `lo`, or does so since this call began.
            CorruptionError: the bytes are no longer what was written.
            StorageError: the disk cannot be read.
        """
        assert 1 <= lo <= hi, f"{lo=} {hi=}"
        try:
            return self._read_entries(group, lo, hi, bytes_max)
        except StorageError:
            # Segments may have been removed under the reader.
            base = self.base(group)
            if base is not None and base.index >= lo:
                raise CompactedError(self._path, group, lo, base.index + 1) from None
            raise

    def _read_entries(self, group: GroupId, lo: int, hi: int, bytes_max: int) -> list[Entry]:
        # The whole plan is made under the lock, so that a truncation meanwhile cannot mix old and new entries.
        plan: list[tuple[Place, int]] = []
        with self._mutex:
            log = self._logs.get(group)
            if log is not None and lo <= log.base.index:
                raise CompactedError(self._path, group, lo, log.base.index + 1)
            hi = min(hi, log.last_index + 1) if log is not None else lo
            at = lo
            while at < hi:
                place, seam = self._indexes[group].find(at)
                at = hi if seam is None else min(hi, seam)
                plan.append((place, at))
            if not plan:
                return []
            first = plan[0][0].segment
            spans = [
                Span(span.number, span.seed, span.end)
                for span in self._segments[first - self._segments[0].number :]
            ]
        found: list[Entry] = []
        size = 0
        for place, limit in plan:
            rest = spans[place.segment - first :]
            for fields in entries_between(self._fs, self._path, group, place, lo, limit, rest):
                size += len(fields[7])
                if found and size > bytes_max:
                    return found
                found.append(entry_of(fields))
            lo = limit
        return found

    def statistics(self) -> WalStatistics:
        """Return counts for metrics."""
        with self._mutex:
            last = self._segments[-1]
            length = last.log_bytes + last.end - self._segments[0].log_bytes
            return WalStatistics(len(self._segments), self._next_frame - 1, length)

    def close(self) -> None:
        """Cut the last segment to its length and close it. After a failed write the file is only closed."""
        try:
            if self._failure is None:
                with suppress(DiskFullError):  # it stays as long as it was
                    self._shorten()
        finally:
            self._close_file()

    # --- opening

    def _settle(self, replayed: Replay) -> None:
        """Make what was read durable, cut what was torn, and begin the first segment if there is none."""
        if not self._segments:
            self._create_segment(0)
        else:
            last = self._segments[-1]
            path = segment_path(self._path, last.number)
            with writing(path):
                self._file = self._fs.open(path)
                self._allocated = self._fs.size(self._file)
            if replayed.torn_tail is not None:
                self._shorten()
            with writing(path):
                if replayed.last_frame is not None:
                    # The last frame may be in the page cache only: its writer was killed before the fsync, or its
                    # fsync failed and the kernel now calls the page clean. Writing the same bytes again makes
                    # it dirty, so that this fsync is about it. Earlier frames were fsynced before it was written.
                    start, end = replayed.last_frame
                    self._fs.pwrite(self._file, self._fs.pread(self._file, end - start, start), start)
            sync_file(self._fs, self._file, path)
        self._announce_segment()
        self._close_segment()
        self._count_room()

    def _check_snapshots(self, snapshots: Mapping[GroupId, SnapshotMeta]) -> None:
        """Check that every log that does not begin with its first entry has a snapshot of what precedes it."""
        for group, log in self._logs.items():
            snapshot = snapshots.get(group, NO_BASE)
            if log.base.index > snapshot.index:
                held = f"the newest good one ends at {snapshot.index}" if snapshot.index else "there is none"
                raise CorruptionError(
                    segment_path(self._path, max(1, self._segments[0].number - 1)),
                    0,
                    f"the file is missing, or a snapshot of group {group} is: the log begins after entry {log.base.index} "
                    f"and needs a snapshot that reaches there, but {held}",
                    advice=MISSING_ADVICE,
                )

    def _restorations(
        self, snapshots: Mapping[GroupId, SnapshotMeta], replayed: Replay
    ) -> tuple[list[OtherRecord], tuple[GroupId, ...]]:
        """Return what lets logs begin after snapshots that they end before or contradict, and which logs these are."""
        records: list[OtherRecord] = []
        restored: list[GroupId] = []
        for group, meta in snapshots.items():
            if group in replayed.forgotten:
                continue  # the process ended before the files were removed
            log = self._logs.get(group)
            if log is not None and log.last_index >= meta.index and log.term_at(meta.index) == meta.term:
                continue
            if log is None or log.hard_state.term < meta.term:
                # A log of a term means that this server has heard of the term; it did not vote in it.
                records.append(HardStateRecord(group, HardState(meta.term, None)))
            records.append(RestoreRecord(group, meta))
            restored.append(group)
            if group in replayed.groups:
                replayed.groups[group].tail.clear()
        return records, tuple(restored)

    def _pretend(self, records: Sequence[OtherRecord]) -> None:
        """Change the logs as if these records were written."""
        for record in records:
            log = self._logs.setdefault(record.group, GroupLog())
            log.apply(record)
            index = self._indexes.get(record.group)
            if index is not None and isinstance(record, RestoreRecord):
                index.reset()

    def _recovered(self, replayed: Replay, restored: tuple[GroupId, ...]) -> Recovered:
        groups: dict[GroupId, GroupRecovered] = {}
        for id, log in self._logs.items():
            tail: tuple[Entry, ...] = ()
            if id in replayed.groups:
                tail = tuple(entry_of(fields) for fields in replayed.groups[id].tail)
                replayed.groups[id].tail.clear()
            if not tail and log.last_index > log.base.index:
                # The tail was truncated, and what precedes it no longer in memory.
                tail = tuple(self.read_entries(id, log.last_index, log.last_index + 1, 0))
                log.next_position = tail[-1].next_position
            assert log.next_position is not None
            groups[id] = GroupRecovered(
                log.hard_state,
                log.roster,
                log.last_index,
                log.term_runs,
                tail,
                log.next_position,
                log.base if log.base != NO_BASE else None,
                log.memberships,
            )
        report = RecoveryReport(
            replayed.torn_tail,
            len(replayed.segments),
            replayed.next_frame - replayed.segments[0].first_frame if replayed.segments else 0,
            replayed.entries,
            restored,
            replayed.unrecorded,
            replayed.cut,
        )
        return Recovered(groups, report, frozenset(replayed.forgotten))

    # --- writing

    def _write(self, body: bytes) -> int:
        """Make the next frame durable behind the last one; return its size."""
        size = HEAD_BYTES + len(body)
        if size > self.room:
            # This comes first: a frame is encoded with the seed of the segment that it goes to.
            self._make_room(size)
        span = self._segments[-1]
        frame = encode_frame(self._next_frame, body, span.seed)
        assert self._file is not None
        try:
            self._fs.pwrite(self._file, frame, span.end)
        except OSError as error:
            problem = write_error(segment_path(self._path, span.number), error)
            if isinstance(problem, DiskFullError):
                # This happens only on file systems that do not keep the promise of fallocate. Part of the frame
                # may stand there, and what follows may be shorter: leave nothing of it behind.
                self._scraps = True
                self.room = 0
                self._shorten()
            raise problem from error
        try:
            self._fs.fdatasync(self._file)
        except OSError as error:
            raise fsync_error(segment_path(self._path, span.number), error) from error
        return size

    def _commit(self, records: Sequence[Record], logs: dict[GroupId, GroupLog], size: int) -> None:
        """Let readers see the frame, which is durable and has `size` bytes."""
        span, indexes = self._segments[-1], self._indexes
        log_bytes = span.log_bytes + span.end
        with self._mutex:
            self._logs |= logs
            for record in records:
                group = record.group
                if group not in indexes:
                    indexes[group] = SparseIndex(
                        self._settings.index_stride_bytes, self._settings.index_points_max
                    )
                if type(record) is not EntryRecord:
                    self._note(record, span)
                elif log_bytes >= indexes[group].due_at:
                    place = Place(span.number, span.end, self._next_frame)
                    indexes[group].add(record.entry.index, place, log_bytes)
            span.end += size
            span.frames += 1
            self._next_frame += 1
        self.room -= size

    def _note(self, record: OtherRecord, span: SegmentSpan) -> None:
        """Take note of what a durable record of this segment changes beside its group's log."""
        group = record.group
        index = self._indexes[group]
        if isinstance(record, TruncateRecord):
            index.truncate(record.from_index)
            span.note_truncation(group, record.from_index)
        elif isinstance(record, RestoreRecord):
            index.reset()
            span.note_truncation(group, NO_INDEX)
            # The next segment begins after what was dropped, so that the older ones can go.
            self._roll_due = True
            self.room = 0
        elif isinstance(record, ForgetRecord):
            index.reset()
            log = self._logs.get(group)  # as it is after the whole frame
            if log is None or log.is_blank:
                del self._indexes[group]
                self._logs.pop(group, None)
                self._compacted.pop(group, None)

    def _nothing_can_follow(self) -> WriteError:
        return WriteError(f"{self._path}: an earlier write failed, nothing can follow it: {self._failure}")

    def _count_room(self) -> None:
        """Count what fits the last segment as it stands; nothing does if something has to be done there first."""
        span = self._segments[-1]
        is_ready = (
            self._recorded
            and not self._roll_due
            and not self._scraps
            and span.number <= self._directory.newest_segment
        )
        end = min(self._allocated, self._settings.segment_bytes_max)
        self.room = end - span.end if is_ready else 0

    def _make_room(self, frame_bytes: int) -> None:
        """Let the last segment be one to which a frame of this size can be written, its bytes allocated there."""
        try:
            if self._scraps:
                self._shorten()
            span = self._segments[-1]
            if span.number > self._directory.newest_segment:
                self._announce_segment()
            end = span.end + frame_bytes
            if self._roll_due or (end > self._settings.segment_bytes_max and span.frames):
                self._roll(frame_bytes)
            elif end > self._allocated or not self._recorded:
                self._reserve(max(self._settings.segment_bytes_max, end, self._allocated))
        finally:
            self._count_room()

    def _reserve(self, size: int) -> None:
        """Make the last segment so long, and let `meta` know it when that is durable: who cuts it then is noticed."""
        assert self._file is not None
        path = segment_path(self._path, self._segments[-1].number)
        with writing(path):
            reserved = reserve(self._fs, self._file, size)
        self._allocated = size
        if reserved:
            sync_file(self._fs, self._file, path)
            self._directory.note_length(size)
        self._recorded = True

    def _roll(self, frame_bytes: int) -> None:
        """Close the last segment and begin the next, with room for a frame of that size."""
        self._announce_segment()
        self._create_segment(frame_bytes)
        self._roll_due = False
        self._announce_segment()

    def _create_segment(self, frame_bytes: int) -> None:
        """Begin the next segment, with room for a frame of that size.

        Header, base and name are durable before it is used: so a segment that can be found always says what every
        group stood at, and an older one that said so can go.
        """
        last = self._segments[-1] if self._segments else None
        number = last.number + 1 if last else 1
        header = SegmentHeader(
            number,
            self._directory.entropy(SEGMENT_ID_BYTES),
            self._next_frame,
            self._directory.server,
            self._directory.instance,
        )
        bases = self._bases() if header.begins_with_base else []
        start = encode_header(header)
        if bases:
            start += encode_frame(self._next_frame, encode_records(bases), header.seed)
        size = max(self._settings.segment_bytes_max, len(start) + frame_bytes)
        file, self._reserved = create_segment(self._fs, self._path, number, start, size)
        self._close_file()
        self._file = file
        self._allocated = size
        span = SegmentSpan(header, last.log_bytes + last.end if last else 0)
        span.end = len(start)
        if bases:
            span.bases = {record.group: record.log for record in bases}
        with self._mutex:
            self._segments.append(span)
            if bases:
                self._next_frame += 1

    def _bases(self) -> list[BaseRecord]:
        """Return what every group stands at.

        It reads a log's last entry if that was uncovered by a truncation just now.
        """
        bases = []
        for group, log in sorted(self._logs.items()):
            if log.next_position is None:
                last = self.read_entries(group, log.last_index, log.last_index + 1, 0)[-1]
                log.next_position = last.next_position
            bases.append(BaseRecord(group, log.hard_state, log.roster, log.end))
        return bases

    # --- compacting

    def _unlink_covered(self) -> int:
        """Remove the segments that nobody needs any more; how many were."""
        newest = self._directory.newest_segment
        gone = oldest_needed(self._segments, self._logs, self._compacted, newest) - self._segments[0].number
        if gone:
            self._forget_segments(gone)
        return self._unlink_doomed()

    def _unlink_doomed(self) -> int:
        removed = 0
        while self._doomed:
            path = segment_path(self._path, self._doomed[-1])
            with writing(path):
                self._fs.unlink(path)
            self._doomed.pop()
            removed += 1
            if removed == 1 or not self._doomed:
                # The newest goes first, for good, and leaves a gap: so a start after a crash sees which ones
                # are leftovers, whatever subset of the others it still finds.
                sync_directory(self._fs, self._path)
        return removed

    def _forget_segments(self, count: int) -> None:
        """Let the log begin with another segment from now on; nobody is to begin reading in the `count` oldest ones."""
        with self._mutex:
            self._doomed += [span.number for span in self._segments[:count]]
            del self._segments[:count]
            first = self._segments[0]
            assert first.bases is not None
            place = Place(first.number, HEADER_BYTES, first.first_frame)
            for group, base in first.bases.items():
                if group not in self._logs:
                    continue  # forgotten since
                log = self._logs[group]
                if base.index <= log.base.index:
                    continue
                log = GroupLog(log)
                log.compact(base)
                self._logs[group] = log
                self._indexes[group].compact(base.index + 1, place, exists=log.last_index > base.index)

    def _announce_segment(self) -> None:
        """Let `meta` know the newest segment before it holds a frame, so that the loss of its file is noticed."""
        newest = self._segments[-1].number
        if newest > self._directory.newest_segment:
            self._directory.note_segment(newest, self._allocated if self._reserved else None)
            self._recorded = True
            self._close_segment()

    def _shorten(self) -> None:
        """Cut the last segment to its frames. After a power failure zeros may still follow them; readers stop there.

        `meta` is told before: a crash in between leaves a file that is longer than it says.
        """
        span = self._segments[-1]
        if self._allocated > span.end or self._scraps:
            assert self._file is not None
            if span.number == self._directory.newest_segment and self._directory.newest_bytes is not None:
                self._directory.note_length(span.end)
            with writing(segment_path(self._path, span.number)):
                self._fs.ftruncate(self._file, span.end)
            self._allocated = span.end
            self._scraps = False

    def _close_segment(self) -> None:
        """Cut the segment before the last to its frames: `meta` is about the last one, which says where this one ends."""
        if len(self._segments) > 1:
            span = self._segments[-2]
            path = segment_path(self._path, span.number)
            with writing(path):
                file = self._fs.open(path)
                try:
                    if self._fs.size(file) > span.end:
                        self._fs.ftruncate(file, span.end)
                finally:
                    self._fs.close(file)

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            self._fs.close(file)
