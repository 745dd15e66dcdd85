"""The data source `zraft`: files of servers, peers and clients as the tables of `onyxlog.audits.tables`.

    from onyxlog.audits.source import register

    register(spark)
    spark.read.format("zraft").option("table", "commands").load("/var/lib/zraft")

Docs: docs/reference/data-source.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the format `zraft` known to a session; needs the extra `audits`."""
    from onyxlog.audits.source.data_source import ZraftDataSource

    spark.dataSource.register(ZraftDataSource)
