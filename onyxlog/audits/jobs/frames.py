"""Tables as frames of Spark, and as views by which rules' SQL names them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from onyxlog.audits.jobs.tables import ALL_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frames_of_rows(
    spark: SparkSession, tables: Mapping[str, Sequence[Any]], names: Collection[str] = ALL_TABLES.keys()
) -> dict[str, DataFrame]:
    """Return frames, and views, of the named tables: of these rows, and empty where there are none."""
    return registered(
        {
            name: spark.createDataFrame(
                pa.Table.from_batches([table.batch(tables.get(name, ()))]), schema=table.ddl
            )
            for name, table in ALL_TABLES.items()
            if name in names
        }
    )


def registered(frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Return the same frames, each as a view by its name."""
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    return dict(frames)
