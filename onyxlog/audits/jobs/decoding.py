"""Decoding of tables by tasks, each of which reads pieces of one table: into Parquet files, or as a frame.

Interpreters of tasks import our packages once for all tables, and Spark plans a single job. Reading each table
by the data source costs a second of CPU time per table on top, whether or not it has rows.
"""

from __future__ import annotations

import os
import pickle
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import frozen

from onyxlog.audits.source.batching import batches
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import Piece, read_piece

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROW_GROUP_ROWS: Final = 1 << 17
"""Rows of a Parquet file's row group, which a task holds as Arrow's columns: some tens of megabytes."""


@frozen
class DecodingTask:
    """A task: it decodes pieces of one table into `file`."""

    options: Options
    pieces: tuple[Piece, ...]
    file: str


@frozen
class Decoded:
    """The rows that a task decoded. It took so many seconds, and computed for `cpu_s` of them."""

    table: str
    rows: int
    seconds: float
    cpu_s: float


def decode(spark: SparkSession, tasks: Sequence[DecodingTask]) -> list[Decoded]:
    """Run all tasks, each on its own: those that come first begin first."""
    if not tasks:
        return []
    found: list[Decoded] = spark.sparkContext.parallelize(tasks, len(tasks)).map(decoded).collect()
    return found


def decoded(task: DecodingTask) -> Decoded:
    """Decode on an executor. A file is there when all of it is: a task that Spark repeats leaves the same file."""
    import pyarrow.parquet as pq

    began, cpu_began = time.perf_counter(), time.process_time()
    made = f"{task.file}.{uuid.uuid4().hex}"
    table = task.options.table
    rows = 0
    try:
        with pq.ParquetWriter(made, table.arrow_schema()) as writer:
            for group in _row_groups(
                batch for piece in task.pieces for batch in batches(task.options, read_piece(piece))
            ):
                writer.write_table(group)
                rows += group.num_rows
        os.replace(made, task.file)
    finally:
        Path(made).unlink(missing_ok=True)
    return Decoded(table.name, rows, time.perf_counter() - began, time.process_time() - cpu_began)


def frame_of(spark: SparkSession, options: Options, parts: Sequence[tuple[Piece, ...]]) -> DataFrame:
    """Return a table that is decoded whenever it is read, and kept nowhere: a task for each part."""
    from pyspark import cloudpickle

    tasks = [(cloudpickle.dumps((options, part)),) for part in parts]
    asked = spark.createDataFrame(spark.sparkContext.parallelize(tasks, len(tasks)), "task BINARY")
    return asked.mapInArrow(_rows_of_tasks, options.ddl)


def _rows_of_tasks(asked: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in asked:
        for task in batch.column("task").to_pylist():
            options, pieces = pickle.loads(task)
            for piece in pieces:
                yield from batches(options, read_piece(piece))


def _row_groups(found: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    import pyarrow as pa

    some: list[pa.RecordBatch] = []
    count = 0
    for batch in found:
        some.append(batch)
        count += batch.num_rows
        if count >= ROW_GROUP_ROWS:
            yield pa.Table.from_batches(some)
            some, count = [], 0
    if some:
        yield pa.Table.from_batches(some)
