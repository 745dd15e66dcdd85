"""`python -m tests.onyxlog.audits.killed_audit PATH CHECKPOINT BYTES [BATCH MOMENT]`: an audit that stands still in a batch.

It judges the entries below PATH in batches of so many bytes, and tells each violation as a line on stdout. If a batch is
named, it says so at that MOMENT of it and does nothing more: `written` is between the violations of the batch and what it
leaves open; `told` is after the alarm, before Spark has noted that the batch is done.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from onyxlog.audits.followed import FOLLOWED
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.session import SessionSettings, close_session, open_session
from onyxlog.audits.streaming import Live, follow, violations_so_far

HERE = "standing still"
WRITTEN = "written"
TOLD = "told"
SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def main(path: str, checkpoint: Path, bytes_per_batch: int, stop_at: tuple[int, str] | None) -> None:
    seen = -1

    def at(batch: int, moment: str) -> None:
        if (batch, moment) == stop_at:
            print(HERE, flush=True)
            time.sleep(3_600)

    def written(table: str, batch: int) -> None:
        nonlocal seen
        seen = batch
        at(batch, WRITTEN)

    def alarm(violations: list[Violation]) -> None:
        for one in violations:
            print(one.index, flush=True)
        at(seen, TOLD)

    spark = open_session(SessionSettings(master="local[1]", memory="600m", partitions=2, more=SMALL))
    try:
        live = Live(
            paths=(path,),
            checkpoint=checkpoint,
            on_violations=alarm,
            tables=tuple(one for one in FOLLOWED if one.table == "entries"),
            once=True,
            bytes_per_batch=bytes_per_batch,
            written=written,
        )
        for query in follow(spark, live, servers=3):
            query.awaitTermination()
        found = violations_so_far(checkpoint)
        print("all", *sorted(one.index for one in found if one.index is not None), flush=True)
    finally:
        close_session(spark)


if __name__ == "__main__":
    where, noted, size, *stop = sys.argv[1:]
    main(where, Path(noted), int(size), (int(stop[0]), stop[1]) if stop else None)
