"""Replay of the segments of a write-ahead log: what each group remembers, and whether anything is missing.

Streams: at any time it holds one piece of a segment, one frame, and each group's tail.
Decides between a torn tail and corruption (D-10); changes nothing on disk itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from zraft.raft.messages import NO_INDEX, Entry, EntryKind, HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError, CutSegment
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import (
    HEADER_BYTES,
    Frame,
    LogFrameReader,
    SegmentHeader,
    decode_header,
    inspect_rest,
)
from zraft.storage.group_log import GroupLog
from zraft.storage.records import (
    BaseRecord,
    EntryFields,
    EntryRecord,
    ForgetRecord,
    RecordFormatError,
    RecordReader,
    RestoreRecord,
    Roster,
    TruncateRecord,
    decode_record,
    entry_of,
    is_entry,
)
from zraft.storage.segments import MISSING_ADVICE, SegmentSpan, segment_path
from zraft.storage.settings import WalSettings
from zraft.storage.sparse_index import Place, SparseIndex
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId, Instance, ServerId

ENTRY_OVERHEAD_BYTES = 256
"""The bytes that an entry of a tail costs in memory beside its payload, roughly; so empty entries are bounded
too.
"""


@frozen
class GroupRecovered:
    """State that a group's member starts with.

    Its log begins after `base`, None if it is whole; everything up to there is in a snapshot. `tail` is the end of the log,
    as much as `tail_bytes_max` allows but at least the last entry, if there is one after the base; what lies before
    is read with `Wal.read_entries`. `term_runs` gives (first_index, term) of each run of equal terms, `memberships`
    the MEMBERSHIP entries of the log; what preceded them is the base's.
    """

    hard_state: HardState
    roster: Roster | None
    last_index: int
    term_runs: tuple[tuple[int, int], ...]
    tail: tuple[Entry, ...]
    next_position: int
    base: SnapshotMeta | None = None
    memberships: tuple[Entry, ...] = ()


@frozen
class TornTail:
    """A write that a crash interrupted, and that nobody was told about: `size` bytes cut from `file` at `offset`."""

    file: str
    offset: int
    size: int


@frozen
class RecoveryReport:
    """Report for the log line at start-up.

    `entries` counts truncated ones too, `frames` those that restate groups' states.

    `restored` are the groups whose log ended before their snapshot or contradicted it, and therefore begins after it now:
    the process before ended between installing the snapshot and dropping its log. `unrecorded` is the last segment's file
    if it is not known how long it was made, so that a cut could not be told from an interrupted write. `cut`: it was cut,
    and the log was opened to be read only.
    """

    torn_tail: TornTail | None
    segments: int
    frames: int
    entries: int
    restored: tuple[GroupId, ...] = ()
    unrecorded: str | None = None
    cut: CutSegment | None = None


@frozen
class Recovered:
    """Findings of `Wal.open`.

    Groups without a record are missing from `groups`.

    `forgotten` are groups that are gone for good: what is left of their files can be removed.
    """

    groups: dict[GroupId, GroupRecovered]
    report: RecoveryReport
    forgotten: frozenset[GroupId] = frozenset()


class GroupReplay:
    """One group while its records are read: the shape of its log, where its entries are, and its tail."""

    __slots__ = ("_tail_bytes", "_tail_bytes_max", "index", "log", "tail")

    def __init__(self, settings: WalSettings, group: GroupId, log: GroupLog | None = None) -> None:
        self.log = log if log is not None else GroupLog()
        self.index = SparseIndex(settings.index_stride_bytes, settings.index_points_max)
        self.tail: deque[EntryFields] = deque()
        self._tail_bytes = 0
        self._tail_bytes_max = settings.tail_bytes_max_of(group)

    def push(self, fields: EntryFields) -> None:
        """Append an entry to the tail, and drop old ones beyond its bound."""
        tail = self.tail
        tail.append(fields)
        self._tail_bytes += len(fields[7]) + ENTRY_OVERHEAD_BYTES
        while self._tail_bytes > self._tail_bytes_max and len(tail) > 1:
            self._tail_bytes -= len(tail.popleft()[7]) + ENTRY_OVERHEAD_BYTES

    def truncate(self, from_index: int) -> None:
        """Drop entries from `from_index` on."""
        tail = self.tail
        while tail and tail[-1][2] >= from_index:
            self._tail_bytes -= len(tail.pop()[7]) + ENTRY_OVERHEAD_BYTES
        self.log.truncate(from_index, tail[-1][5] + tail[-1][6] if tail else None)
        self.index.truncate(from_index)

    def restore(self, meta: SnapshotMeta) -> None:
        """Begin anew after a snapshot."""
        self.tail.clear()
        self._tail_bytes = 0
        self.log.restore(meta)
        self.index.reset()


class Replay:
    """Result of replaying: groups and segments, and what the last segment needs before it can be relied on."""

    __slots__ = (
        "cut",
        "entries",
        "forgotten",
        "groups",
        "last_frame",
        "next_frame",
        "segments",
        "torn_tail",
        "unrecorded",
    )

    def __init__(self) -> None:
        self.groups: dict[GroupId, GroupReplay] = {}
        self.forgotten: set[GroupId] = set()
        self.segments: list[SegmentSpan] = []
        self.next_frame = 1
        self.entries = 0
        self.last_frame: tuple[int, int] | None = None  # offset and end, if it is in the last segment
        self.torn_tail: TornTail | None = None
        self.unrecorded: str | None = None
        self.cut: CutSegment | None = None


def replay(
    fs: FileSystem,
    wal_path: str,
    numbers: Sequence[int],
    *,
    server: ServerId,
    instance: Instance,
    settings: WalSettings,
    newest: int,
    newest_bytes: int | None,
    on_segment: Callable[[SegmentSpan], None] | None = None,
) -> Replay:
    """Read segments `numbers`, which have no gaps. What preceded the first of them, it has to say itself.

    Args:
        newest, newest_bytes: the newest segment that `meta` knows, and how long its file is at least. If it is shorter
            the result says so, and holds what is left: that is no error here.

    Raises:
        CorruptionError: something that was durable is damaged or missing.
        StorageError: the segments are another server's, or cannot be read.
    """
    result = Replay()
    records = RecordReader()
    stopped = ""  # why the segment before ended where it did
    log_bytes = 0
    for number in numbers:
        path = segment_path(wal_path, number)
        with reading(path):
            file = fs.open(path)
        try:
            with reading(path):
                size = fs.size(file)
                made = newest_bytes if number == numbers[-1] == newest else None
                if made is not None and size < made:
                    result.cut = CutSegment(path, size, made, 0, result.next_frame - 1, "")
                    if size < HEADER_BYTES:
                        break
                header = decode_header(fs.pread(file, HEADER_BYTES, 0), path)
            _check_header(header, path, number, server, instance)
            if not result.segments:
                _check_first(header, path)
                result.next_frame = header.first_frame
            if header.first_frame != result.next_frame:
                # A segment is begun only when all frames before it are durable, so this is never a torn tail.
                before = result.segments[-1] if result.segments else None
                raise CorruptionError(
                    segment_path(wal_path, before.number) if before else path,
                    before.end if before else 0,
                    f"the log goes on with frame {header.first_frame} in segment {number}, "
                    f"but here ends before frame {result.next_frame}{stopped}",
                )
            span = SegmentSpan(header, log_bytes)
            result.segments.append(span)
            result.last_frame = None
            reader = LogFrameReader(
                fs, file, seed=header.seed, start=HEADER_BYTES, size=size, number=header.first_frame
            )
            with reading(path):
                for frame in reader:
                    if header.begins_with_base and frame.number == header.first_frame:
                        _replay_base(result, records, frame, span, path, settings)
                    else:
                        _replay_frame(result, records, frame, span, path, settings)
                if header.begins_with_base and span.bases is None:
                    if result.cut is not None:
                        result.segments.pop()
                        break
                    # It was durable before the segment had a name, so no crash tore it.
                    raise CorruptionError(
                        path, reader.end, f"{reader.damage or 'zeros'} where the segment's first frame was"
                    )
                if number == numbers[-1]:
                    _judge_end(fs, file, reader, header, size, path, result)
                    if result.cut is not None:
                        result.cut = evolve(
                            result.cut,
                            end=reader.end,
                            frame=reader.number - 1,
                            broken=reader.damage or "",
                        )
                        result.torn_tail = None
                    elif made is None and number == newest:
                        result.unrecorded = path
            stopped = f" ({reader.damage})" if reader.damage else ""
            log_bytes += span.end
        finally:
            fs.close(file)
        if on_segment is not None:
            on_segment(span)
    if numbers and numbers[-1] > newest and result.segments[-1].frames:
        raise StorageError(
            f"{segment_path(wal_path, numbers[-1])}: holds frames, but {wal_path.removesuffix('/wal')}/meta knows segments "
            f"up to {newest} only: it was restored from a copy; {MISSING_ADVICE}"
        )
    return result


def _check_header(
    header: SegmentHeader, path: str, number: int, server: ServerId, instance: Instance
) -> None:
    if (header.server, header.instance) != (server, instance):
        raise StorageError(
            f"{path}: written by server {header.server} instance {header.instance.hex()}, this directory is of "
            f"server {server} instance {instance.hex()}; put each server's files back where they belong"
        )
    if header.segment != number:
        raise CorruptionError(path, 0, f"the header says segment {header.segment}: the file was renamed")


def _check_first(header: SegmentHeader, path: str) -> None:
    """Check that the oldest segment can be understood without those before it."""
    if header.first_frame > 1 and not header.begins_with_base:
        raise CorruptionError(
            segment_path(path.rpartition("/")[0], header.segment - 1),
            0,
            f"the file is missing, and segment {header.segment} cannot be understood without it",
            advice=MISSING_ADVICE,
        )


def _judge_end(
    fs: FileSystem,
    file: int,
    reader: LogFrameReader,
    header: SegmentHeader,
    size: int,
    path: str,
    result: Replay,
) -> None:
    """Decide between a torn tail and corruption.

    Nothing valid follows an interrupted write, because frame n+1 waits for n's fsync.
    """
    rest = inspect_rest(fs, file, seed=header.seed, start=reader.end, size=size)
    if rest.frame_offset is not None:
        raise CorruptionError(
            path,
            reader.end,
            f"{reader.damage or 'zeros'}, yet a valid frame follows at offset {rest.frame_offset}",
        )
    if rest.end > reader.end:
        result.torn_tail = TornTail(path, reader.end, rest.end - reader.end)


def _replay_frame(
    result: Replay, records: RecordReader, frame: Frame, span: SegmentSpan, path: str, settings: WalSettings
) -> None:
    groups = result.groups
    log_bytes = span.log_bytes + frame.offset
    try:
        for fields in records.arrays(frame.body):
            if is_entry(fields):
                group = groups.get(fields[1])
                if group is None:
                    group = groups[fields[1]] = GroupReplay(settings, fields[1])
                _, _, index, term, _, position, count, _ = fields
                problem = group.log.append(index, term, position, count)
                if problem is not None:
                    raise CorruptionError(
                        path, frame.offset, f"frame {frame.number}: group {fields[1]}: {problem}"
                    )
                if log_bytes >= group.index.due_at:
                    group.index.add(index, Place(span.number, frame.offset, frame.number), log_bytes)
                if fields[4] == EntryKind.MEMBERSHIP:
                    group.log.memberships = (*group.log.memberships, entry_of(fields))
                group.push(fields)
                result.entries += 1
                continue
            record = decode_record(fields)
            if isinstance(record, BaseRecord):
                raise RecordFormatError("a group is restated in the middle of a segment")
            assert not isinstance(record, EntryRecord), "`is_entry` has said so"
            group = groups.get(record.group)
            if group is None:
                group = groups[record.group] = GroupReplay(settings, record.group)
            problem = group.log.problem(record)
            if problem is not None:
                raise CorruptionError(
                    path, frame.offset, f"frame {frame.number}: group {record.group}: {problem}"
                )
            if isinstance(record, TruncateRecord):
                group.truncate(record.from_index)
                span.note_truncation(record.group, record.from_index)
            elif isinstance(record, RestoreRecord):
                group.restore(record.meta)
                span.note_truncation(record.group, NO_INDEX)
            elif isinstance(record, ForgetRecord):
                del groups[record.group]
                result.forgotten.add(record.group)
            else:
                group.log.apply(record)
    except RecordFormatError as error:
        raise _wrongly_written(path, frame, error) from error
    _frame_read(result, frame, span)
    span.frames += 1


def _replay_base(
    result: Replay, records: RecordReader, frame: Frame, span: SegmentSpan, path: str, settings: WalSettings
) -> None:
    """Take the first frame of a segment: in the oldest one it is the start, in the others it repeats what is known."""
    oldest = len(result.segments) == 1
    bases: dict[GroupId, SnapshotMeta] = {}
    try:
        for fields in records.arrays(frame.body):
            record = decode_record(fields)
            if not isinstance(record, BaseRecord) or record.group in bases:
                raise RecordFormatError(f"expected each group restated once, found {str(fields)[:80]}")
            bases[record.group] = record.log
            if oldest:
                result.groups[record.group] = GroupReplay(settings, record.group, GroupLog.from_base(record))
                continue
            known = result.groups.get(record.group)
            problem = known.log.problem_with_base(record) if known else "restated, but unknown before"
            if problem is not None or known is None:
                raise RecordFormatError(f"group {record.group}: {problem}")
            known.log.next_position = record.log.next_position
    except RecordFormatError as error:
        raise _wrongly_written(path, frame, error) from error
    missing = sorted(set(result.groups) - set(bases))
    if missing:
        raise _wrongly_written(path, frame, RecordFormatError(f"group {missing[0]} is not restated"))
    span.bases = bases
    _frame_read(result, frame, span)


def _wrongly_written(path: str, frame: Frame, error: RecordFormatError) -> CorruptionError:
    """Return the error for a frame whose checksum is right.

    So this is what was written: by another release, or by a bug.
    """
    return CorruptionError(
        path,
        frame.offset,
        f"frame {frame.number}: {error}",
        advice="start the release that wrote it, and report this if it is this one",
    )


def _frame_read(result: Replay, frame: Frame, span: SegmentSpan) -> None:
    result.next_frame = frame.number + 1
    result.last_frame = (frame.offset, frame.end)
    span.end = frame.end
