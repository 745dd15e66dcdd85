"""`python -m tests.onyxlog.audits.cluster_read MASTER DIRECTORY`: what a session at that master makes of directories."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from onyxlog.audits.session import SessionSettings, close_session, open_session


def where(batches: Iterable[Any]) -> Iterator[Any]:
    """Where a task found our packages."""
    import pandas as pd

    import zraft

    for _ in batches:
        yield pd.DataFrame({"file": [str(zraft.__file__)]})


def main(master: str, directory: str) -> None:
    spark = open_session(SessionSettings(master=master, memory="512m", partitions=2))
    try:
        found: dict[str, Any] = {}
        for table in ("entries", "commands", "truncations"):
            read = spark.read.format("zraft").options(table=table, entries="written").load(directory)
            (row,) = read.selectExpr("count(*)", "bit_xor(xxhash64(*))").collect()
            found[table] = list(row)
        one = spark.range(1).mapInPandas(where, "file string").collect()
        found["shipped"] = [row.file for row in one]
        print(json.dumps(found))
    finally:
        close_session(spark)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
