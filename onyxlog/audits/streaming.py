"""An audit that follows running servers and peers: each micro-batch is judged together with what earlier ones left open.

Spark reads, on whatever machines it has; a batch is judged where the query runs (`onyxlog.audits.followed`).

After a crash Spark gives the batch that was under way again, with the same rows. All that a batch writes has
its number and is replaced as a whole, and it reads only what batches before it wrote: no violation is missed
or reported twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import field, frozen

from onyxlog.audits.batch_files import BatchFiles, OpenFiles, read_rows
from onyxlog.audits.errors import AuditError
from onyxlog.audits.followed import FOLLOWED, OPEN_ROWS_MAX, Followed, OpenRows, identity, violations_in
from onyxlog.audits.places import check_place
from onyxlog.audits.rules.violation import COLUMNS, Violation
from onyxlog.audits.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

VIOLATIONS: Final = "violations"
INTERVAL_S: Final = 1.0
STARTS_MAX: Final = 5
BEGIN_POLL_S: Final = 0.1
_ABOUT: Final = "paths.json"
_WAITS: Final = "Waiting for"
_TOO_SLOW: Final = "failed to connect back"


@frozen(kw_only=True)
class Live:
    """Settings of an audit that follows: the paths, and where its state is.

    Attributes:
        checkpoint: directory of Spark's checkpoints, what is left open and the violations; to continue
            later.
        on_violations: called with those that are new, in each batch that has some.
        on_given_up: called with a table, and with how many of its rows no longer wait for servers that
            have not told about them.
        open_rows_max: how many rows of a table wait for such servers; beyond, the oldest are given up.
        once: end when everything that exists now was judged, instead of waiting for more.
    """

    paths: tuple[str, ...]
    checkpoint: Path
    on_violations: Callable[[list[Violation]], Any]
    on_given_up: Callable[[str, int], Any] = field(default=lambda *_: None)
    tables: tuple[Followed, ...] = FOLLOWED
    interval_s: float = INTERVAL_S
    open_rows_max: int = OPEN_ROWS_MAX
    once: bool = False
    bytes_per_batch: int | None = None
    written: Callable[[str, int], Any] = field(default=lambda *_: None)
    """Called between the violations of a batch and what it leaves open: where a test can cut it short."""


def follow(spark: SparkSession, live: Live, *, servers: int, recordings: int = 0) -> list[StreamingQuery]:
    """Run one query per table until they are stopped or, with `once`, have judged everything.

    Args:
        spark: the session.
        live: what is followed.
        servers: how many servers are below the paths: a key is done once all have told about it.
        recordings: how many recordings there are, likewise.

    Raises:
        AuditError: nothing exists to be followed, or the checkpoint is of other paths.
    """
    _begin_checkpoint(live)
    # One after the other: each brings a process of its own, which on a busy machine takes long to begin.
    return [_begun(spark, live, one, recordings if one.teller == "peer" else servers) for one in live.tables]


def _begun(spark: SparkSession, live: Live, followed: Followed, tellers: int) -> StreamingQuery:
    """Begin a query; return it when it runs, or has ended in its own way.

    Spark gives a process that reads for it ten seconds to begin, which cannot be configured; so this is tried
    again.
    """
    for attempt in range(1, STARTS_MAX + 1):
        query = _query(spark, live, followed, tellers)
        while query.isActive and query.lastProgress is None and _WAITS not in query.status["message"]:
            time.sleep(BEGIN_POLL_S)
        error = query.exception()
        if error is None or _TOO_SLOW not in str(error) or attempt == STARTS_MAX:
            break
    return query


def violations_so_far(checkpoint: Path) -> list[Violation]:
    """Return all that was found under a checkpoint, each once."""
    found: list[Violation] = []
    for one in sorted(checkpoint.glob(f"{VIOLATIONS}/*/batch=*")):
        found += _as_violations(read_rows(one))
    return found


def check_checkpoint(checkpoint: Path, paths: Iterable[str]) -> None:
    """Check that an audit of these paths can continue there, or begin. This makes nothing.

    Raises:
        AuditError: it is the checkpoint of an audit of other paths, or cannot be used.
    """
    check_place(checkpoint, "--checkpoint")
    wanted = sorted(paths)
    try:
        found = json.loads((checkpoint / _ABOUT).read_text())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise AuditError(f"{checkpoint / _ABOUT}: cannot be read: {error}; use another directory") from error
    if found != wanted:
        raise AuditError(
            f"{checkpoint}: is the checkpoint of an audit of {', '.join(map(str, found))}, asked for was one of "
            f"{', '.join(wanted)}; use another directory"
        )


def _begin_checkpoint(live: Live) -> None:
    check_checkpoint(live.checkpoint, live.paths)
    live.checkpoint.mkdir(parents=True, exist_ok=True)
    (live.checkpoint / _ABOUT).write_text(json.dumps(sorted(live.paths)))


def _query(spark: SparkSession, live: Live, followed: Followed, tellers: int) -> StreamingQuery:
    # Damage is a violation of its own, which the table `files` reports; all that is whole is still judged.
    options = {"table": followed.table, "paths": json.dumps(list(live.paths)), "entries": "written"}
    options["damage"] = "stop"
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
        self._violations = BatchFiles(live.checkpoint, VIOLATIONS, followed.table)
        self._open_files = OpenFiles(live.checkpoint, followed, tellers, live.open_rows_max)
        self._open_rows: OpenRows | None = None
        self._told: set[tuple[Any, ...]] = set()

    def judge(self, new: DataFrame, batch: int) -> None:
        """Judge one batch. After a crash Spark gives it again, to another object of this class, with the same rows.

        Rows come here and are judged in this process: a batch is bounded, and each further Spark job would
        cost an alarm more time than all of this.
        """
        import pyarrow as pa

        from onyxlog.audits.jobs.keyed import as_batch

        live, followed = self._live, self._followed
        if self._open_rows is None:
            self._open_rows = self._open_files.before(batch)
            earlier = (number for number in self._violations.numbers() if number < batch)
            self._told = {
                identity(one) for number in earlier for one in _as_violations(self._violations.read(number))
            }
        # Rows that this batch does not finish are not known any more: they would be read again.
        open_rows, self._open_rows = self._open_rows, None
        rows = TABLES[followed.table].rows(new.where(followed.where).toArrow().to_pylist())
        taken = open_rows.take(rows)
        violations = violations_in(followed, taken.judged, self._told)
        if violations:
            self._told.update(map(identity, violations))
            self._violations.write(batch, pa.Table.from_batches([as_batch(violations)]))
        else:
            self._violations.remove(batch)
        live.written(followed.table, batch)
        self._open_files.note(batch, open_rows, taken.noted)
        self._open_rows = open_rows
        if taken.given_up:
            live.on_given_up(followed.table, taken.given_up)
        if violations:
            live.on_violations(violations)


def _as_violations(rows: Iterable[dict[str, Any]]) -> list[Violation]:
    return [Violation(**{name: row[name] for name in COLUMNS}) for row in rows]


_OF_RECORDINGS: Final = frozenset({"replica_digests"})
_OF_ALL: Final = frozenset({"files"})


def followed_tables(servers: int, recordings: int) -> tuple[Followed, ...]:
    """Return the tables of which there is something below the paths."""
    assert {one.table for one in FOLLOWED} <= TABLES.keys()

    def there(table: str) -> int:
        if table in _OF_ALL:
            return servers + recordings
        return recordings if table in _OF_RECORDINGS else servers

    return tuple(one for one in FOLLOWED if there(one.table))
