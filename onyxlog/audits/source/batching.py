"""Tuples of rows as Arrow batches, with the wanted columns only. Needs the extra `audits`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from onyxlog.audits.source.options import Options

if TYPE_CHECKING:
    import pyarrow


def batches(options: Options, rows: Iterable[tuple[Any, ...]]) -> Iterator[pyarrow.RecordBatch]:
    """Yield at most `batch_rows` rows each; none if there are no rows."""
    import pyarrow as pa

    full = options.table.arrow_schema()
    selected = options.selected
    schema = pa.schema([full.field(at) for at in selected])
    types = [field.type for field in schema]
    source = iter(rows)
    while taken := list(islice(source, options.batch_rows)):
        columns = list(zip(*taken, strict=True))
        yield pa.record_batch(
            [pa.array(columns[at], type=type) for at, type in zip(selected, types, strict=True)],
            schema=schema,
        )
