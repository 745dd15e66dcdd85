"""An audit that follows running servers and peers: each micro-batch is judged together with what earlier ones left open.

What is judged is what can be said at once: that servers and peers agree where they have to. The judges are the rules' own.
Rows of a key stay until all servers have told of it, or it is too far behind; so what is kept is what the slowest one lacks.

After a crash Spark gives the batch that was under way again, with the same rows. All that a batch writes has its number
and is replaced as a whole, and it reads only what batches before it wrote: no violation is missed or told twice.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, field, frozen

from onyxlog.audits.errors import AuditError
from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check
from onyxlog.audits.rules.violation import COLUMNS, Violation
from onyxlog.audits.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

INDEXES_KEPT: Final = 100_000
"""How far behind the newest index a key that some server has not told of is given up."""
BATCHES_KEPT: Final = 3
"""Of what is left open: the batch under way reads that of the one before."""
INTERVAL_S: Final = 1.0
STARTS_MAX: Final = 5
BEGIN_POLL_S: Final = 0.1
_WAITS: Final = "Waiting for"
_TOO_SLOW: Final = "failed to connect back"


@frozen
class Followed:
    """A table that is followed, and what is judged in it.

    Attributes:
        promises: (rule, promise) of checks; they are judged by this table's rows alone.
        key: rows with equal values can contradict each other.
        teller: the column by which those are told apart that all have to tell of a key; None: the newest row of each key
            stays, whoever told it.
        position: the column that grows.
        where: SQL that chooses the rows that count.
    """

    table: str
    promises: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    position: str
    teller: str | None = "server"
    where: str = "true"


FOLLOWED: Final = (
    Followed(
        "entries",
        (("S2", "equal index and term, equal entry and predecessor"),),
        ("group", "index", "term"),
        "index",
        where="standing = 'committed'",
    ),
    Followed(
        "events", (("S4", "one state per index"),), ("group", "index"), "index", where="kind = 'digest'"
    ),
    Followed(
        "deliveries",
        (("S16", "replicas deliver alike"),),
        ("group", "offset"),
        "offset",
    ),
    Followed(
        "hard_states",
        (("S1", "a vote is given once"),),
        ("server", "instance", "group"),
        "frame",
        teller=None,
    ),
    Followed(
        "replica_digests",
        (("S13", "one chain per position"),),
        ("tenancy", "position"),
        "position",
        teller="peer",
        where="source = 'recorded'",
    ),
)


@frozen(kw_only=True)
class Live:
    """What is followed, and where its state is.

    Attributes:
        checkpoint: directory of Spark's checkpoints, what is left open and the violations; to go on later.
        on_violations: told of those that are new, in each batch that has some.
        once: end when everything that is there now was judged, instead of waiting for more.
    """

    paths: tuple[str, ...]
    checkpoint: Path
    on_violations: Callable[[list[Violation]], Any]
    tables: tuple[Followed, ...] = FOLLOWED
    interval_s: float = INTERVAL_S
    once: bool = False
    bytes_per_batch: int | None = None
    written: Callable[[str, int], Any] = field(default=lambda table, batch: None)
    """Called between the violations of a batch and what it leaves open: where a test can cut it short."""


def follow(spark: SparkSession, live: Live, *, servers: int, recordings: int = 0) -> list[StreamingQuery]:
    """One query per table; they run until they are stopped, or, with `once`, have judged everything.

    Args:
        servers, recordings: how many there are below the paths: a key of which all have told is done with.

    Raises:
        AuditError: nothing is there to be followed, or the checkpoint is of other paths.
    """
    _check_checkpoint(live)
    # One after the other: each brings a process of its own, which on a busy machine takes long to begin.
    return [_begun(spark, live, one, recordings if one.teller == "peer" else servers) for one in live.tables]


def _begun(spark: SparkSession, live: Live, followed: Followed, tellers: int) -> StreamingQuery:
    """A query that runs, or has ended in its own way.

    Spark gives a process that reads for it ten seconds to begin, and cannot be told otherwise; so this is tried again.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = _query(spark, live, followed, tellers)
        while query.isActive and query.lastProgress is None and _WAITS not in query.status["message"]:
            time.sleep(BEGIN_POLL_S)
        error = query.exception()
        if error is None or _TOO_SLOW not in str(error) or attempt == STARTS_MAX:
            break
    return query


def violations_so_far(spark: SparkSession, checkpoint: Path) -> list[Violation]:
    """All that was found under a checkpoint, each once."""
    found: list[Violation] = []
    for one in sorted(checkpoint.glob("violations/*/batch=*")):
        rows = spark.read.parquet(str(one)).collect()
        found += [Violation(**{name: row[name] for name in COLUMNS}) for row in rows]
    return found


def _check_checkpoint(live: Live) -> None:
    live.checkpoint.mkdir(parents=True, exist_ok=True)
    about = live.checkpoint / "paths.json"
    wanted = sorted(live.paths)
    if not about.exists():
        about.write_text(json.dumps(wanted))
    found = json.loads(about.read_text())
    if found != wanted:
        raise AuditError(
            f"{live.checkpoint}: is the checkpoint of an audit of {', '.join(found)}, asked for was one of "
            f"{', '.join(wanted)}; use another directory"
        )


def _query(spark: SparkSession, live: Live, followed: Followed, tellers: int) -> StreamingQuery:
    options = {"table": followed.table, "paths": json.dumps(list(live.paths)), "entries": "written"}
    if live.bytes_per_batch is not None:
        options["bytes_per_batch"] = str(live.bytes_per_batch)
    batches = _Batches(live, followed, tellers)
    writer = (
        spark.readStream.format("zraft")
        .options(**options)
        .load()
        .writeStream.queryName(f"audit {followed.table}")
        .option("checkpointLocation", str(live.checkpoint / "spark" / followed.table))
        .foreachBatch(batches.judge)
    )
    if live.once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{live.interval_s} seconds").start()


class _Batches:
    """The batches of one table."""

    def __init__(self, live: Live, followed: Followed, tellers: int) -> None:
        self._live = live
        self._followed = followed
        self._tellers = tellers
        wanted = set(followed.promises)
        self._checks = [
            _alone(check, followed.table)
            for rule in RULES.values()
            for check in rule.checks
            if (rule.id, check.promise) in wanted
        ]
        assert len(self._checks) == len(wanted), f"{followed.table}: no such checks: {wanted}"

    def judge(self, new: DataFrame, batch: int) -> None:
        """One batch; Spark calls it again with the same rows if it did not return."""
        from onyxlog.audits.jobs.keyed import violations_of
        from onyxlog.audits.jobs.tables import ROWS

        live, followed = self._live, self._followed
        spark = new.sparkSession
        new = new.where(followed.where)
        before = self._left_open(batch - 1)
        rows = (new if before is None else new.unionByName(spark.read.parquet(str(before)))).persist()
        try:
            frames = {followed.table: rows}
            found = reduce(
                lambda one, other: one.unionByName(other),
                [violations_of(check, spark, frames, ROWS) for check in self._checks],
            )
            told = self._told(spark, batch)
            same = ["rule", "promise", "subject", "group", "index"]
            if told is not None:
                found = found.join(told, [found[name].eqNullSafe(told[name]) for name in same], "left_anti")
            target = self._path("violations", batch)
            found.dropDuplicates(same).write.mode("overwrite").parquet(str(target))
            violations = [
                Violation(**{name: row[name] for name in COLUMNS})
                for row in spark.read.parquet(str(target)).collect()
            ]
            if not violations:
                shutil.rmtree(target)
            live.written(followed.table, batch)
            self._open(rows).write.mode("overwrite").parquet(str(self._path("open", batch)))
        finally:
            rows.unpersist()
        for old in self._numbers("open"):
            if old <= batch - BATCHES_KEPT:
                shutil.rmtree(self._path("open", old))
        if violations:
            live.on_violations(violations)

    def _open(self, rows: DataFrame) -> DataFrame:
        """Rows that later ones may contradict."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        followed = self._followed
        keys = [F.col(f"`{name}`") for name in followed.key]
        position = F.col(f"`{followed.position}`")
        whole = Window.partitionBy(*keys)
        if followed.teller is None:
            newest = whole.orderBy(position.desc(), F.col("file_offset").desc())
            return rows.withColumn("_n", F.row_number().over(newest)).where("_n = 1").drop("_n")
        first = Window.partitionBy(*keys, F.col(f"`{followed.teller}`")).orderBy("file", "file_offset")
        top = rows.agg(F.max(position)).first()
        newest_position = top[0] if top is not None and top[0] is not None else 0
        told = F.size(F.collect_set(F.col(f"`{followed.teller}`")).over(whole))
        return (
            rows.withColumn("_tellers", told)
            .withColumn("_n", F.row_number().over(first))
            .where((F.col("_tellers") < self._tellers) & (F.col("_n") == 1))
            .where(position > newest_position - INDEXES_KEPT)
            .drop("_tellers", "_n")
        )

    def _told(self, spark: SparkSession, batch: int) -> DataFrame | None:
        """What batches before this one found."""
        earlier = [str(self._path("violations", n)) for n in self._numbers("violations") if n < batch]
        return spark.read.parquet(*earlier).select(*COLUMNS) if earlier else None

    def _left_open(self, batch: int) -> Path | None:
        """Of the newest batch up to that one that left something: an empty batch is not given by Spark."""
        numbers = [number for number in self._numbers("open") if number <= batch]
        return self._path("open", max(numbers)) if numbers else None

    def _numbers(self, what: str) -> Sequence[int]:
        top = self._live.checkpoint / what / self._followed.table
        return [int(path.name.removeprefix("batch=")) for path in top.glob("batch=*")]

    def _path(self, what: str, batch: int) -> Path:
        return self._live.checkpoint / what / self._followed.table / f"batch={batch:09d}"


def _alone(check: Check, table: str) -> Check:
    """The check over the rows of one of its tables."""
    return evolve(check, inputs=tuple(one for one in check.inputs if one.table == table), suspects="")


def followed_tables(servers: int, recordings: int) -> tuple[Followed, ...]:
    """Those of which there is something below the paths."""
    assert {one.table for one in FOLLOWED} <= TABLES.keys()
    return tuple(one for one in FOLLOWED if (recordings if one.table == "replica_digests" else servers))
