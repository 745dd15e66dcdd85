"""Plan of reading a table: a survey of what exists, divided into pieces for independent tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from attrs import astuple, evolve, frozen

from onyxlog.audits.source.commits import Committed, Evidence, committed
from onyxlog.audits.source.directories import RECORDING_SUFFIX, Found, ServerDirectory
from onyxlog.audits.source.file_tables import (
    FilePiece,
    Values,
    checked_files,
    delivery_groups,
    delivery_values,
    event_values,
    journal_files,
    read_notes,
    snapshot_files,
    snapshot_values,
    wal_files,
)
from onyxlog.audits.source.history_rows import history_file, history_values, is_history, was_history
from onyxlog.audits.source.options import COMMITTED, ENTRIES, LIVE, ONE, Options
from onyxlog.audits.source.recording_rows import RECORDED, recording_file, recording_values
from onyxlog.audits.source.server_log import ServerLog, Span
from onyxlog.audits.source.survey import Survey, is_cut, with_committed
from onyxlog.audits.source.wal_rows import WAL_TABLES, Held, WalPiece, read_wal
from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.members import MembershipRow
from onyxlog.audits.tables.placed import Standing
from onyxlog.errors import EntryError
from zraft.storage.errors import CorruptionError
from zraft.storage.filesystem import FileSystem, ReadOnlyFileSystem
from zraft.storage.journal import NoteKind
from zraft.storage.snapshot_format import SnapshotFileReader
from zraft_core.errors import ProtocolError, StorageError

SURVEYED: frozenset[str] = frozenset({"hard_states", "truncations", "members"})
"""Tables whose rows come out of planning itself: they are few."""
OF_LOGS: frozenset[str] = frozenset({*WAL_TABLES, *SURVEYED, "replica_digests"})
"""Tables that need all logs to be read for their plan."""

DECODED: frozenset[str] = frozenset({"commands", "multicast", "claims"})
"""Tables made of what entries hold. Another table checks that equal entries hold the same."""
PARTITIONS_TABLES: frozenset[str] = frozenset({"multicast", "claims"})
"""Tables of groups other than 0."""


@frozen
class RowsPiece:
    """Rows that planning has produced."""

    table: str
    rows: tuple[Values, ...]


Piece = WalPiece | RowsPiece | FilePiece


def read_piece(piece: Piece, fs: FileSystem | None = None) -> Iterator[Values]:
    """Return the rows of a piece, as tuples in column order.

    Raises:
        AssertionError: the piece's table has no reader.
    """
    fs = ReadOnlyFileSystem() if fs is None else fs
    if isinstance(piece, FilePiece) and piece.stops:
        with suppress(CorruptionError, EntryError, ProtocolError):
            yield from read_piece(evolve(piece, stops=False), fs)
        return
    match piece:
        case WalPiece():
            yield from read_wal(fs, piece)
        case RowsPiece(_, rows):
            yield from rows
        case FilePiece("snapshots"):
            yield from snapshot_values(fs, piece)
        case FilePiece("deliveries"):
            yield from delivery_values(fs, piece)
        case FilePiece("events"):
            yield from event_values(fs, piece)
        case FilePiece(table) if table in RECORDED:
            yield from recording_values(piece)
        case FilePiece("histories"):
            yield from history_values(piece.path)
        case FilePiece("files") if piece.directory is not None:
            yield from (wal_files if piece.path == "wal" else checked_files)(fs, piece.directory)
        case FilePiece("files"):
            yield (
                recording_file(piece.path)
                if piece.path.endswith(RECORDING_SUFFIX)
                else history_file(piece.path)
            )
        case FilePiece():
            raise AssertionError(f"no reader of table {piece.table}")


def plan(options: Options, found: Found, fs: FileSystem | None = None) -> list[Piece]:
    """Return the pieces of a whole table as it is now.

    Raises:
        CorruptionError: something that has to be known of all of it is damaged.
        StorageError: it cannot be read.
    """
    return plan_together([options], found, fs)[0]


def plan_together(tables: Sequence[Options], found: Found, fs: FileSystem | None = None) -> list[list[Piece]]:
    """Return the pieces of each table, all of one moment: logs are read once for all of them.

    Args:
        tables: options of each, which agree on what damage does.
        found: where to look.
        fs: the files; the machine's own if None.

    Raises:
        CorruptionError: as `plan`.
        StorageError: as `plan`.
    """
    fs = ReadOnlyFileSystem() if fs is None else fs
    logs: list[ServerLog] = []
    known: dict[int, Committed] = {}
    if any(options.table.name in OF_LOGS for options in tables):
        logs = read_logs(found, fs, stops=tables[0].stops)
        groups = {options.group for options in tables if options.group is not None}
        known = judge(fs, logs, None if any(options.group is None for options in tables) else {*groups, 0})
    return [_pieces(options, found, fs, logs, known) for options in tables]


def _pieces(
    options: Options, found: Found, fs: FileSystem, logs: Sequence[ServerLog], known: dict[int, Committed]
) -> list[Piece]:
    name = options.table.name
    if name in SURVEYED:
        return [surveyed(options, logs, known)]
    if name in WAL_TABLES:
        return [*_wal_pieces(options, logs, known)]
    # Peers published digests of their replicas in the servers' log, beside their own recordings.
    published = _wal_pieces(evolve(options, group=0), logs, known) if name == "replica_digests" else ()
    return [*published, *file_pieces(options, found, fs)]


def read_logs(found: Found, fs: FileSystem, *, stops: bool) -> list[ServerLog]:
    """Return all servers' logs, read whole or, if damage is to end them (`stops`), up to there."""
    logs = [ServerLog(fs, directory) for directory in found.servers]
    for log in logs:
        if stops:
            log.advance_to_damage()
        else:
            log.advance()
    return logs


def judge(
    fs: FileSystem, logs: Sequence[ServerLog], only: Iterable[int] | None = None
) -> dict[int, Committed]:
    """Return how far each group is committed, by all that the logs and snapshots of the servers show."""
    points = {log.directory.path: log.survey.standpoints() for log in logs}
    groups = {group for found in points.values() for group in found} if only is None else set(only)
    noted = {log.directory.path: _known_points(fs, log.directory) for log in logs}
    judged = {}
    for group in groups:
        evidence = [
            Evidence(
                log.directory.server,
                points[log.directory.path][group],
                log.survey.proven(group),
                tuple(noted[log.directory.path].get(group, ())),
            )
            for log in logs
            if group in points[log.directory.path]
        ]
        judged[group] = committed(evidence)
    return judged


def _known_points(fs: FileSystem, directory: ServerDirectory) -> dict[int, list[tuple[int, int]]]:
    """Return (index, term) of entries that a server knows to be committed: of its snapshots, and as its journal says."""
    found: dict[int, list[tuple[int, int]]] = {}
    for group, path in snapshot_files(fs, directory.path):
        try:
            with SnapshotFileReader(fs, path) as file:
                meta = file.header.meta
        except StorageError as error:
            if isinstance(error, CorruptionError) or isinstance(error.__cause__, FileNotFoundError):
                continue  # the tables `snapshots` and `files` report it, or it was purged
            raise
        found.setdefault(group, []).append((meta.index, meta.term))
    for path in journal_files(fs, directory.path):
        newest: dict[int, tuple[int, int]] = {}
        try:
            read = read_notes(fs, path)
            if read is None or read[0].instance.hex() != directory.instance:
                continue
            for placed in read[1]:
                note = placed.note
                if note.kind is NoteKind.COMMITTED and note.term:
                    newest[note.group] = (note.index, note.term)
        except CorruptionError:
            pass  # what was read of it holds; the table `files` reports the rest
        for group, point in newest.items():
            found.setdefault(group, []).append(point)
    return found


def wal_piece(
    options: Options, log: ServerLog, span: Span, known: dict[int, Committed], standings: frozenset[str]
) -> WalPiece:
    """Return the piece for one span of a log, with what is needed to judge its entries."""
    groups = {group for group, _ in log.survey.standpoints().items()}
    if options.group is not None:
        groups &= {options.group}
    return WalPiece(
        options.table.name,
        log.directory,
        span,
        tuple(log.survey.cuts),
        tuple((group, known[group]) for group in sorted(groups & known.keys())),
        standings,
        options.group,
        options.payloads,
    )


def _wal_pieces(options: Options, logs: Sequence[ServerLog], known: dict[int, Committed]) -> Iterator[Piece]:
    once = options.copies == ONE and options.table.name in DECODED
    elsewhere: list[Held] = []
    for log in logs:
        if options.table.name in PARTITIONS_TABLES and not _has_partitions(log.survey):
            continue
        for span in log.spans():
            # An entry that nothing proves to be committed may have been truncated behind the damage.
            sure = log.damaged and options.entries == LIVE
            piece = wal_piece(options, log, span, known, ENTRIES[COMMITTED] if sure else options.standings)
            yield evolve(piece, elsewhere=tuple(elsewhere))
        if once:
            elsewhere += _held(log, known)


def _held(log: ServerLog, known: dict[int, Committed]) -> Iterator[Held]:
    """Return the committed entries that a log has, by term."""
    for group, point in log.survey.standpoints().items():
        judged = known.get(group, Committed())
        ends = [start - 1 for start, _ in point.runs[1:]] + [point.last_index]
        for (start, term), end in zip(point.runs, ends, strict=True):
            first, last = max(start, point.first), min(end, judged.index)
            # Equal index and term: what `Committed.holds` asks for, at either end of a run.
            if first <= last and judged.holds(first, term) and judged.holds(last, term):
                yield group, term, first, last


def surveyed(
    options: Options,
    logs: Sequence[ServerLog],
    known: dict[int, Committed],
    frames: tuple[int, int] | None = None,
) -> RowsPiece:
    """Return rows of the tables that planning knows; only of `frames`, from the first up to the second, if given."""
    rows: list[Any] = []
    for log in logs:
        survey = log.survey
        match options.table.name:
            case "hard_states":
                rows += _before_damage(survey.hard_states) if log.damaged else survey.hard_states
            case "truncations":
                rows += [
                    with_committed(row, cut, dict(known.get(cut.group, Committed()).by_term))
                    for row, cut in survey.truncations
                ]
            case "members":
                rows += [
                    evolve(row, standing=_standing(survey, row, order, known))
                    for row, order in survey.members
                ]
    wanted = options.standings
    return RowsPiece(
        options.table.name,
        tuple(
            astuple(row, recurse=False)
            for row in rows
            if (options.group is None or row.group == options.group)
            and (frames is None or frames[0] <= row.frame < frames[1])
            and (options.table.name != "members" or row.standing in wanted)
        ),
    )


def _has_partitions(survey: Survey) -> bool:
    """Return whether a server has partitions, or had some that are gone."""
    return any(survey.standpoints()) or any(cut.group for cut in survey.cuts)


def _before_damage(rows: Sequence[HardStateRow]) -> list[HardStateRow]:
    """Return notes without the last one of each group: a vote in its term may stand behind the damage."""
    last = {row.group: at for at, row in enumerate(rows)}
    return [row for at, row in enumerate(rows) if last[row.group] != at]


def _standing(survey: Survey, row: MembershipRow, order: int, known: dict[int, Committed]) -> str:
    if row.source == "entry" and is_cut(survey.cuts, row.group, row.index, order):
        return Standing.TRUNCATED.value
    judged = known.get(row.group)
    # The beginning of a log is that of a snapshot, so it is committed whatever is left of it.
    held = row.source != "entry" or (judged is not None and judged.holds(row.index, row.term))
    return (Standing.COMMITTED if held else Standing.OPEN).value


def file_pieces(options: Options, found: Found, fs: FileSystem) -> Iterator[Piece]:
    """Yield the pieces of a table that is read a file at a time."""
    name, wanted, stops = options.table.name, options.group, options.stops
    for directory in found.servers:
        data = directory.path
        match name:
            case "snapshots":
                for group, path in snapshot_files(fs, data):
                    if wanted in (None, group):
                        yield FilePiece(name, path, directory, group)
            case "deliveries":
                for group in delivery_groups(fs, data):
                    if wanted in (None, group):
                        yield FilePiece(name, data, directory, group, payloads=options.payloads, stops=stops)
            case "events":
                for path in journal_files(fs, data):
                    yield FilePiece(name, path, directory, stops=stops)
            case "files":
                yield FilePiece(name, "wal", directory)
                yield FilePiece(name, "other", directory)
    if name in RECORDED:
        for path in found.recordings:
            yield FilePiece(name, path, stops=stops)
    if name == "histories":
        for path in found.histories:
            if is_history(path):
                yield FilePiece(name, path, stops=stops)
    if name == "files":
        for path in found.recordings:
            yield FilePiece(name, path)
        for path in found.histories:
            if is_history(path) or was_history(path):
                yield FilePiece(name, path)
        yield RowsPiece(name, unreadable_rows(found))


def unreadable_rows(found: Found) -> tuple[Values, ...]:
    """Return rows of `files` for files whose server cannot be told."""
    return tuple(
        (0, "", one.path, one.offset, "meta", None, 0, 0, 0, 0, one.found) for one in found.unreadable
    )
