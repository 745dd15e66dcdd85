"""Choice of the way in which each table is followed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source import live_damage
from onyxlog.audits.source.directories import Found
from onyxlog.audits.source.file_tables import FilePiece, journal_bytes
from onyxlog.audits.source.growing_files import GrowingFiles
from onyxlog.audits.source.live_damage import LiveDamage
from onyxlog.audits.source.live_deliveries import LiveDeliveries
from onyxlog.audits.source.live_logs import LiveLogs
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import SURVEYED, Piece, file_pieces
from onyxlog.audits.source.recording_rows import RECORDED, recorded_bytes
from onyxlog.audits.source.wal_rows import WAL_TABLES
from zraft.storage.filesystem import FileSystem, ReadOnlyFileSystem


class Following(Protocol):
    """Interface of a source to a stream; offsets are plain values that Spark stores as JSON."""

    def freeze(self) -> None:
        """Let `latest` return no more than what exists now."""

    def initial(self) -> dict[str, Any]:
        """Return the offset at which the stream begins."""

    def latest(self, start: dict[str, Any], bytes_max: int | None) -> dict[str, Any]:
        """Return the offset behind what can be read now, at most `bytes_max` bytes further."""

    def pieces(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Piece]:
        """Return what is to be read between two offsets."""

    def done(self, end: dict[str, Any]) -> None:
        """Forget what is kept for offsets up to this one."""


def follow(options: Options, found: Found, fs: FileSystem | None = None) -> Following:
    """Return the way of following that serves the table.

    Raises:
        AuditError: there is nothing to follow below the paths.
    """
    reader = ReadOnlyFileSystem() if fs is None else fs
    name = options.table.name
    if name in WAL_TABLES or name in SURVEYED:
        if not found.servers:
            raise AuditError(
                f"table {name}: {', '.join(options.paths)}: no data directory of a server is there"
            )
        return LiveLogs(options, found.servers, reader)
    if name == "deliveries":
        return LiveDeliveries(options, found.servers, reader)
    if name == live_damage.TABLE:
        return LiveDamage(found, reader)

    def pieces_now() -> Sequence[FilePiece]:
        return [piece for piece in file_pieces(options, found, reader) if isinstance(piece, FilePiece)]

    def whole_bytes(piece: FilePiece, known: int) -> int:
        return recorded_bytes(piece, known) if name in RECORDED else journal_bytes(reader, piece)

    return GrowingFiles(options, pieces_now, whole_bytes)
