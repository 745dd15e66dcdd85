"""Decoding of the source's tables once, into Parquet: then every rule reads columns instead of logs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from onyxlog.audits.costs import Cost, Meter
from onyxlog.audits.jobs.auditing import Progress, no_progress
from onyxlog.audits.measurements import Measurements
from onyxlog.audits.rules.damage import damaged
from onyxlog.audits.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_PARTITION: Final = 500_000
"""Rows of a shuffle's partition: what one task sorts in a few hundred megabytes."""
LARGE: Final = frozenset({"commands", "multicast", "claims", "deliveries", "replica_digests", "histories"})
"""Tables that are decoded for rules alone: of everything else in a report, only latencies need them."""


@frozen(kw_only=True)
class TableRead:
    """A table that was decoded; `cost` if it was asked for."""

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
    clock: Callable[[], float] = time.perf_counter,
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
        progress: called before each table.
        clock: in seconds.
        meter: measures what each table costs, if wanted.

    Raises:
        AuditError: nothing of ours is below the paths.
    """
    from onyxlog.audits.jobs.frames import frames_of_rows, registered

    measured = measurements.by_table()
    frames = frames_of_rows(spark, measured)
    counts = {name: len(rows) for name, rows in measured.items()}
    names = (
        [name for name in TABLES if wanted is None or name not in LARGE or name in wanted] if paths else []
    )
    read = []
    for done, name in enumerate(names):
        progress(done, len(names), f"reading {name}")
        began, end = clock(), None if meter is None else meter.measured()
        target = str(directory / name)
        reader = spark.read.format("zraft").option("table", name).option("entries", "written")
        reader.option("damage", "stop").option("copies", "one" if one_copy else "all")
        reader.option("paths", json.dumps(list(paths))).load().write.mode("overwrite").parquet(target)
        frames[name] = spark.read.parquet(target)
        counts[name] = frames[name].count()
        cost = None if end is None else end()
        read.append(TableRead(table=name, rows=counts[name], seconds=clock() - began, cost=cost))
    if counts.get("entries"):
        reader = (
            spark.read.format("zraft")
            .option("table", "entries")
            .option("entries", "live")
            .option("group", "0")
            .option("damage", "stop")
        )
        frames["entry_payloads"] = (
            reader.option("payloads", "true").option("paths", json.dumps(list(paths))).load()
        )
        counts["entry_payloads"] = counts["entries"]
    hurt = [row.asDict() for row in frames["files"].where("damage IS NOT NULL").collect()]
    for name, condition in damaged(TABLES["files"].rows(hurt)).conditions().items():
        frames[name] = frames[name].where(condition)
        counts[name] = frames[name].count()
    parallel = spark.sparkContext.defaultParallelism
    partitions = max(parallel, max(counts.values()) // ROWS_PER_PARTITION + 1)
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    return Loaded(registered(frames), counts, tuple(read))
