"""`spark.read.format("zraft")`: the data source as Spark calls it. Needs the extra `audits`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from onyxlog.audits.errors import AuditError
from onyxlog.audits.source import directories, options, plan
from onyxlog.audits.source.batching import batches
from onyxlog.audits.source.follow import Following, follow
from onyxlog.audits.source.options import Options
from onyxlog.audits.tables import TABLES

NAME = "zraft"


class PiecesPartition(InputPartition):
    """Pieces that one task reads, in order."""

    def __init__(self, pieces: Sequence[plan.Piece]) -> None:
        self.value = tuple(pieces)


class ZraftDataSource(DataSource):
    """Files of servers, peers and clients as tables; register it with `onyxlog.audits.source.register`."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark knows the source."""
        return NAME

    def schema(self) -> str:
        """Return the table's schema in Spark's DDL."""
        return options.parse(self.options).ddl

    def reader(self, schema: StructType) -> ZraftReader:
        """Return a reader of the table as it is now."""
        return ZraftReader(options.parse(self.options))

    def streamReader(self, schema: StructType) -> ZraftStreamReader:
        """Return the reader of a table that can be followed.

        Raises:
            AuditError: the table or an option is not for streams.
        """
        parsed = options.parse(self.options)
        if not parsed.table.streams:
            following = ", ".join(name for name, table in TABLES.items() if table.streams)
            raise AuditError(f"table {parsed.table.name} cannot be followed; those that can: {following}")
        if parsed.entries == options.LIVE:
            raise AuditError(
                "option 'entries': found 'live', a stream gives what is decided for good: expected 'committed', or "
                "'written' for what was taken back, too"
            )
        if parsed.copies == options.ONE:
            raise AuditError(
                "option 'copies': found 'one', a stream gives each log by itself: expected 'all'"
            )
        return ZraftStreamReader(parsed)


class ZraftReader(DataSourceReader):
    """A table as it is when Spark plans the reading of it."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions of the table, each with pieces for one task."""
        pieces = plan.plan(
            self._options, directories.find(self._options.paths, damaged_too=self._options.stops)
        )
        return [
            PiecesPartition(some) for some in shared_out(pieces, self._options.segments_per_partition)
        ] or [PiecesPartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition in batches of Arrow's."""
        assert isinstance(partition, PiecesPartition)
        for piece in partition.value:
            yield from batches(self._options, plan.read_piece(piece))


class ZraftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A table as it grows. Spark calls it in a process of its own; `read` in tasks."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._live: Following | None = None

    def _following(self) -> Following:
        if self._live is None:
            self._live = follow(
                self._options, directories.find(self._options.paths, damaged_too=self._options.stops)
            )
        return self._live

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which the stream begins."""
        return self._following().initial()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset to which the next batch may read."""
        return self._following().latest(start, limit.max_bytes if isinstance(limit, ReadMaxBytes) else None)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of bytes for a batch."""
        return ReadMaxBytes(self._options.bytes_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the stream end where the files end now."""
        self._following().freeze()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions between two offsets, each with pieces for one task."""
        pieces = self._following().pieces(start, end)
        return [PiecesPartition(some) for some in shared_out(pieces, self._options.segments_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a partition in batches of Arrow's."""
        assert isinstance(partition, PiecesPartition)
        for piece in partition.value:
            yield from batches(self._options, plan.read_piece(piece))

    def commit(self, end: dict[str, Any]) -> None:
        """Forget what is kept for offsets up to this one."""
        self._following().done(end)


def shared_out(pieces: Sequence[plan.Piece], together: int) -> Iterator[tuple[plan.Piece, ...]]:
    """Group so many neighbours at a time, never of two servers: rows of one task are of one log, in its order."""
    some: list[plan.Piece] = []
    for piece in pieces:
        if some and (len(some) == together or _owner(piece) != _owner(some[-1])):
            yield tuple(some)
            some = []
        some.append(piece)
    if some:
        yield tuple(some)


def _owner(piece: plan.Piece) -> object:
    return None if isinstance(piece, plan.RowsPiece) else piece.directory
