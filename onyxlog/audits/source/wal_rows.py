"""Rows of one span of a write-ahead log: what a task reads on whichever machine it runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from attrs import frozen

from onyxlog.audits.source.command_rows import command_values
from onyxlog.audits.source.commits import Committed
from onyxlog.audits.source.directories import ServerDirectory
from onyxlog.audits.source.entry_rows import COMMANDS, entry_values
from onyxlog.audits.source.following import PlacedFrame, Position
from onyxlog.audits.source.partition_rows import claim_values, multicast_values
from onyxlog.audits.source.published import published_values
from onyxlog.audits.source.server_log import Span, fields_of, record_of
from onyxlog.audits.source.survey import Cut, Spot, Survey
from onyxlog.audits.tables.placed import Standing
from zraft.storage.durable import reading
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem
from zraft.storage.frames import HEADER_BYTES, LogFrameReader, decode_header
from zraft.storage.records import RecordReader, is_entry
from zraft_core.errors import StorageError

WAL_TABLES: Final = frozenset({"entries", "commands", "multicast", "claims"})
"""Tables that are made where the log is read; others are few and come from planning."""
_COMMITTED: Final = Standing.COMMITTED.value
_OPEN: Final = Standing.OPEN.value
_TRUNCATED: Final = Standing.TRUNCATED.value


Held = tuple[int, int, int, int]
"""Entries `first` to `last` of one term in a group's log: (group, term, first, last)."""


@frozen
class WalPiece:
    """A span, and what its rows need of the rest of the log and of other logs.

    Attributes:
        standings: which entries are wanted.
        group: only this one's, if not None.
        payloads: whether data may be shown.
        elsewhere: committed entries that another piece gives: (group, term, first, last).
    """

    table: str
    directory: ServerDirectory
    span: Span
    cuts: tuple[Cut, ...]
    committed: tuple[tuple[int, Committed], ...]
    standings: frozenset[str]
    group: int | None = None
    payloads: bool = False
    elsewhere: tuple[Held, ...] = ()


def read_wal(fs: FileSystem, piece: WalPiece) -> Iterator[tuple[Any, ...]]:
    """Yield the rows, in the order of the log.

    There are none if the segment was compacted since planning: what it held is in snapshots, and the next
    segments exist.

    Raises:
        CorruptionError: it does not hold what it held when it was planned.
    """
    span = piece.span
    try:
        with reading(span.path):
            file = fs.open(span.path)
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return
        raise
    try:
        with reading(span.path):
            header = decode_header(fs.pread(file, HEADER_BYTES, 0), span.path)
        start = span.start.position
        reader = LogFrameReader(
            fs, file, seed=header.seed, start=start.offset, size=span.end.offset, number=start.frame
        )
        rows = _Rows(piece)
        with reading(span.path):
            for frame in reader:
                after = Position(header.segment, frame.end, frame.number + 1)
                yield from rows.of(PlacedFrame(span.path, header, frame, after))
        if reader.end != span.end.offset:
            raise CorruptionError(
                span.path,
                reader.end,
                f"{reader.damage or 'zeros'}, where frame {reader.number} was read before",
            )
    finally:
        fs.close(file)


class _Rows:
    """Rows of the span's records, which are followed as in planning."""

    def __init__(self, piece: WalPiece) -> None:
        self._piece = piece
        directory = piece.directory
        self._survey = Survey(directory.server, directory.instance)
        self._survey.resume(piece.span.start.order, dict(piece.span.start.standpoints))
        self._records = RecordReader()
        self._committed = dict(piece.committed)
        self._oldest = not piece.span.start.order
        self._cuts: dict[int, list[Cut]] = {}
        for cut in piece.cuts:
            if cut.order > piece.span.start.order:
                self._cuts.setdefault(cut.group, []).append(cut)

    def of(self, placed: PlacedFrame) -> Iterator[tuple[Any, ...]]:
        piece, survey = self._piece, self._survey
        directory, frame = piece.directory, placed.frame
        spot = Spot(placed.path, frame.offset, frame.number)
        head = (directory.server, directory.instance, placed.path, frame.offset)
        oldest = self._oldest and placed.is_base
        for fields in fields_of(self._records, placed):
            if not is_entry(fields):
                survey.take(record_of(fields, placed), spot, oldest=oldest)
                continue
            group = fields[1]
            previous, durable = survey.before(group)
            survey.take_entry(fields, spot)
            if piece.group is not None and group != piece.group:
                continue
            standing = self._standing(group, fields[2], fields[3])
            if standing not in piece.standings:
                continue
            if standing == _COMMITTED and self._is_elsewhere(group, fields[3], fields[2]):
                continue
            if piece.table == "entries":
                yield entry_values(
                    head, fields, previous_term=previous, durable_term=durable, standing=standing,
                    frame=frame.number, record=survey.record, payloads=piece.payloads,
                )  # fmt: skip
            elif fields[4] == COMMANDS:
                if piece.table == "replica_digests":
                    if group == 0:
                        yield from published_values(head, fields)
                elif piece.table == "commands":
                    if group == 0:
                        yield from command_values(head, fields, standing=standing, payloads=piece.payloads)
                elif group != 0:
                    make = multicast_values if piece.table == "multicast" else claim_values
                    yield from make(head, fields, standing=standing)

    def _is_elsewhere(self, group: int, term: int, index: int) -> bool:
        return any(
            of == group and in_term == term and first <= index <= last
            for of, in_term, first, last in self._piece.elsewhere
        )

    def _standing(self, group: int, index: int, term: int) -> str:
        order = self._survey.order
        for cut in self._cuts.get(group, ()):
            if cut.order > order and index >= cut.from_index:
                return _TRUNCATED
        known = self._committed.get(group)
        return _COMMITTED if known is not None and known.holds(index, term) else _OPEN
