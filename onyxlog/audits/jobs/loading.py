"""Decoding of the source's tables once, into Parquet: then every rule reads columns instead of logs."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from onyxlog.audits.costs import Cost, Meter
from onyxlog.audits.jobs.auditing import Progress, no_progress
from onyxlog.audits.jobs.decoding import Decoded, DecodingTask, decode, frame_of
from onyxlog.audits.jobs.tables import ALL_TABLES, ENTRY_PAYLOADS
from onyxlog.audits.measurements import Measurements
from onyxlog.audits.rules.damage import Damaged, damaged
from onyxlog.audits.source.options import ALL, LIVE, ONE, STOP, WRITTEN, Options
from onyxlog.audits.source.plan import Piece
from onyxlog.audits.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_PARTITION: Final = 500_000
"""Rows of a shuffle's partition: what one task sorts in a few hundred megabytes."""
COMPILED_ROWS: Final = 1_000_000
"""Rows of a table from which on Spark compiles each query: for fewer, compiling takes longer than it saves."""
PAYLOADS: Final = Options(
    paths=(), table=TABLES["entries"], entries=LIVE, group=0, payloads=True, damage=STOP
)
"""The options with which the table `entry_payloads` is read."""
LARGE: Final = frozenset({"commands", "multicast", "claims", "deliveries", "replica_digests", "histories"})
"""Tables that are decoded for rules alone: of everything else in a report, only latencies need them."""


@frozen
class Planned:
    """A table that will be read: each task reads the pieces of one part."""

    options: Options
    parts: tuple[tuple[Piece, ...], ...]


@frozen(kw_only=True)
class TableRead:
    """A table that was decoded.

    Attributes:
        seconds: of all its tasks, of which several ran at a time.
        cost: if it was asked for: its tasks' CPU time, and the memory of all that was read together.
    """

    table: str
    rows: int
    seconds: float
    cost: Cost | None = None


@frozen
class Loaded:
    """All tables, as frames and views, how many rows each has, and what was decoded for that."""

    frames: Mapping[str, DataFrame]
    counts: Mapping[str, int]
    read: tuple[TableRead, ...] = ()


def load(
    spark: SparkSession,
    paths: Sequence[str],
    measurements: Measurements,
    directory: Path,
    *,
    wanted: Collection[str] | None = None,
    one_copy: bool = False,
    progress: Progress = no_progress,
    meter: Meter | None = None,
) -> Loaded:
    """Read everything below the paths, truncated entries included, into `directory`; of damaged files what is whole.

    Args:
        spark: the session.
        paths: what to read.
        measurements: rows of results files, which are tables, too.
        directory: where decoded tables go.
        wanted: tables that will be read; all if None. Those that are small are there in any case.
        one_copy: decode the content of a committed entry from one server only.
        progress: called with the tasks that are done.
        meter: measures what reading costs, if wanted.

    Raises:
        AuditError: nothing of ours is below the paths.
        StorageError: it cannot be read.
    """
    from onyxlog.audits.jobs.frames import frames_of_rows, registered

    progress(0, 1, "looking at the logs")
    measured = measurements.by_table()
    counts = {name: len(rows) for name, rows in measured.items()}
    names = (
        [name for name in TABLES if wanted is None or name not in LARGE or name in wanted] if paths else []
    )
    others = ALL_TABLES.keys() - ({*names, ENTRY_PAYLOADS.name} if names else set())
    if not any(measured.values()):
        others -= measured.keys()  # S22 alone reads them, which has nothing to judge then
    frames = frames_of_rows(spark, measured, others)
    read: tuple[TableRead, ...] = ()
    damage = Damaged()
    if names:
        # What takes longest begins first, so that no core waits for it at the end.
        tables = _tables(sorted(names, key=lambda name: name not in LARGE), one_copy)
        *planned, payloads = _planned(paths, [*tables, PAYLOADS])
        read = _decoded(spark, planned, names, directory, progress, meter)
        for one in read:
            frames[one.table] = spark.read.schema(TABLES[one.table].ddl).parquet(str(directory / one.table))
            counts[one.table] = one.rows
        frames[ENTRY_PAYLOADS.name] = frame_of(spark, payloads.options, payloads.parts)
        counts[ENTRY_PAYLOADS.name] = counts["entries"]
        damage = _damage(directory)
    for name, condition in damage.conditions().items():
        frames[name] = frames[name].where(condition)
        counts[name] = frames[name].count()
    _suit(spark, max(counts.values()))
    return Loaded(registered(frames), counts, read)


def _suit(spark: SparkSession, rows: int) -> None:
    """Set what depends on how many rows the largest table has."""
    partitions = max(spark.sparkContext.defaultParallelism, rows // ROWS_PER_PARTITION + 1)
    compiles = rows > COMPILED_ROWS
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    spark.conf.set("spark.sql.codegen.wholeStage", str(compiles).lower())
    spark.conf.set("spark.sql.codegen.factoryMode", "FALLBACK" if compiles else "NO_CODEGEN")


def _tables(names: Sequence[str], one_copy: bool) -> list[Options]:
    copies = ONE if one_copy else ALL
    return [
        Options(paths=(), table=TABLES[name], entries=WRITTEN, damage=STOP, copies=copies) for name in names
    ]


def _planned(paths: Sequence[str], tables: Sequence[Options]) -> list[Planned]:
    """Return how each table is read, all as they are at one moment."""
    from onyxlog.audits.source.data_source import shared_out
    from onyxlog.audits.source.directories import find
    from onyxlog.audits.source.plan import plan_together

    pieces = plan_together(tables, find(paths, damaged_too=True))
    return [
        Planned(options, tuple(shared_out(some, options.segments_per_partition)) or ((),))
        for options, some in zip(tables, pieces, strict=True)
    ]


def _decoded(
    spark: SparkSession,
    planned: Sequence[Planned],
    names: Sequence[str],
    directory: Path,
    progress: Progress,
    meter: Meter | None,
) -> tuple[TableRead, ...]:
    """Decode into a directory of each table, and return what was read, in the order of `names`."""
    from onyxlog.audits.session import ProgressReporter

    tasks = []
    for table in planned:
        target = directory / table.options.table.name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        tasks += [
            DecodingTask(table.options, part, str(target / f"part-{number:05d}.parquet"))
            for number, part in enumerate(table.parts)
        ]
    progress(0, len(tasks), "reading")
    end = None if meter is None else meter.measured()
    with ProgressReporter(spark, lambda seen: progress(seen.done, len(tasks), "reading")):
        done = decode(spark, tasks)
    peak_mb = 0.0 if end is None else end().peak_mb
    of: dict[str, list[Decoded]] = {name: [] for name in names}
    for one in done:
        of[one.table].append(one)
    return tuple(
        TableRead(
            table=name,
            rows=sum(one.rows for one in some),
            seconds=sum(one.seconds for one in some),
            cost=None if meter is None else Cost(sum(one.cpu_s for one in some), peak_mb),
        )
        for name, some in of.items()
    )


def _damage(directory: Path) -> Damaged:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    hurt = pq.read_table(directory / "files", filters=pc.field("damage").is_valid()).to_pylist()
    return damaged(TABLES["files"].rows(hurt))
