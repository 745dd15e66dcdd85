"""One check as a Spark job: rows are brought together by key, sorted within partitions, and judged as they stream by.

A key's rows are never collected: the judge takes them from an iterator over Arrow batches, so memory is a
batch and what the judge keeps. A batch may hold the end of one key and the beginning of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby, islice
from operator import and_, itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from onyxlog.audits.rules.check import Check, Judge
from onyxlog.audits.rules.violation import COLUMNS, Violation, as_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NUMBERS: Final = frozenset({"server", "group", "index", "offset"})
VIOLATIONS: Final = pa.schema([(name, pa.int64() if name in _NUMBERS else pa.string()) for name in COLUMNS])
SPARK_VIOLATIONS: Final = StructType(
    [StructField(name, LongType() if name in _NUMBERS else StringType()) for name in COLUMNS]
)
BATCH_ROWS: Final = 1_000
"""The number of violations in an Arrow batch."""


def violations_of(
    check: Check, spark: SparkSession, frames: Mapping[str, DataFrame], rows: Mapping[str, type[Any]]
) -> DataFrame:
    """Return the job, not yet run.

    Args:
        check: the check.
        spark: the session.
        frames: tables by name, also registered as views under these names.
        rows: the class of each table's rows, whose fields are its columns.
    """
    frames, rows = {**frames}, {**rows}
    for derived in check.derived:
        for view, statement in derived.sql:
            spark.sql(statement).createOrReplaceTempView(view)
        frames[derived.name], rows[derived.name] = spark.table(derived.sql[-1][0]), derived.row
    suspects = spark.sql(check.suspects) if check.suspects else None
    sources = [
        _source(check, number, frames, [rows[each.table] for each in check.inputs], suspects)
        for number in range(len(check.inputs))
    ]
    union = reduce(lambda one, other: one.unionByName(other), sources)
    keys = [F.col(f"k{n}") for n in range(len(check.inputs[0].key))]
    orders = [F.col(f"o{n}") for n in range(len(check.inputs[0].order))]
    gathered = union.repartition(*keys) if keys else union.coalesce(1)
    ordered = gathered.sortWithinPartitions(*keys, *orders, F.col("source"))
    classes = tuple(rows[each.table] for each in check.inputs)
    return ordered.mapInArrow(judging(check.judge, len(keys), classes), SPARK_VIOLATIONS)


def _source(
    check: Check,
    number: int,
    frames: Mapping[str, DataFrame],
    classes: list[type[Any]],
    suspects: DataFrame | None,
) -> DataFrame:
    """Return one input's rows as (k0.., o0.., source, s0.., of which s<number> is the row and the others are null)."""
    each = check.inputs[number]
    frame = frames[each.table]
    for name, values in each.where.items():
        frame = frame.where(F.col(f"`{name}`").isin(*values))
    for name in each.present:
        frame = frame.where(F.col(f"`{name}`").isNotNull())
    if suspects is not None:
        wanted = suspects.toDF(*[f"suspect{n}" for n in range(len(each.key))]).distinct()
        conditions = [F.col(f"`{name}`").eqNullSafe(F.col(f"suspect{n}")) for n, name in enumerate(each.key)]
        frame = frame.join(wanted, reduce(and_, conditions), "left_semi")
    structs = []
    for other, (one, row) in enumerate(zip(check.inputs, classes, strict=True)):
        names = field_names(row)
        if other == number:
            structs.append(F.struct(*[F.col(f"`{name}`") for name in names]).alias(f"s{other}"))
        else:
            form = frames[one.table].select(*[f"`{name}`" for name in names]).schema
            structs.append(F.lit(None).cast(form).alias(f"s{other}"))
    return frame.select(
        *[F.col(f"`{name}`").alias(f"k{n}") for n, name in enumerate(each.key)],
        *[
            (F.lit(at) if isinstance(at, int) else F.col(f"`{at}`")).cast("long").alias(f"o{n}")
            for n, at in enumerate(each.order)
        ],
        F.lit(number).alias("source"),
        *structs,
    )


def first_of_each(frame: DataFrame, promises: Sequence[str], count: int) -> DataFrame:
    """Return at most `count` violations of each promise, any of them."""
    if len(promises) == 1:
        return frame.limit(count)
    numbered = frame.withColumn(
        "number", F.row_number().over(Window.partitionBy("promise").orderBy(F.lit(0)))
    )
    return numbered.where(F.col("number") <= count).drop("number")


def violations_in(frame: DataFrame) -> list[Violation]:
    """Run the job, and bring all it finds to the driver."""
    return [Violation(**row.asDict()) for row in frame.collect()]


def field_names(row: type[Any]) -> tuple[str, ...]:
    """Return the names of a row's fields, in order."""
    return tuple(each.name for each in row.__attrs_attrs__)


def judging(
    judge: Judge, keys: int, classes: tuple[type[Any], ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what runs on executors over one sorted partition."""

    def judge_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _found(judge, _keyed_rows(batches, keys, classes))
        while some := list(islice(found, BATCH_ROWS)):
            yield as_batch(some)

    return judge_partition


def as_batch(violations: Iterable[Violation]) -> pa.RecordBatch:
    """Return violations as a batch of Arrow's."""
    columns = list(zip(*map(as_row, violations), strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, VIOLATIONS, strict=True)],
        schema=VIOLATIONS,
    )


def _found(judge: Judge, rows: Iterator[tuple[tuple[Any, ...], Any]]) -> Iterator[Violation]:
    for _, group in groupby(rows, key=itemgetter(0)):
        yield from judge(row for _, row in group)


def _keyed_rows(
    batches: Iterable[pa.RecordBatch], keys: int, classes: tuple[type[Any], ...]
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for batch in batches:
        names = [f"k{n}" for n in range(keys)]
        key_columns = [batch.column(name).to_pylist() for name in names]
        of_keys = zip(*key_columns, strict=True) if key_columns else iter([()] * batch.num_rows)
        sources = batch.column("source").to_pylist()
        rows = [_rows(batch.column(f"s{number}"), row) for number, row in enumerate(classes)]
        for key, source in zip(of_keys, sources, strict=True):
            yield key, next(rows[source])


def _rows(structs: pa.StructArray, row: type[Any]) -> Iterator[Any]:
    present = structs.drop_null()
    names = field_names(row)
    columns = [
        map(_as_tuple, column.to_pylist()) if pa.types.is_list(column.type) else column.to_pylist()
        for column in present.flatten()
    ]
    for values in zip(*columns, strict=True):
        yield row(**dict(zip(names, values, strict=True)))


def _as_tuple(values: list[Any] | None) -> tuple[Any, ...] | None:
    return None if values is None else tuple(values)
