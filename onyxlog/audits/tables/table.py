"""A table: a row type, its columns, and their types for Spark (DDL) and for Arrow.

A row type is a frozen attrs class whose fields are `int`, `float`, `bool`, `str`, `bytes`, lists of them, and
any of these or None. Field order is column order. Nothing here needs Spark or Arrow until a schema is asked
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin, get_type_hints

import attrs
from attrs import frozen

if TYPE_CHECKING:
    import pyarrow

_DDL: Final[Mapping[Any, str]] = {
    int: "BIGINT",
    float: "DOUBLE",
    bool: "BOOLEAN",
    str: "STRING",
    bytes: "BINARY",
}
U64: Final = 1 << 64
OF_RESULTS: Final = "results of `zraft-bench` (--results PATH)"
I64_MAX: Final = (1 << 63) - 1


def signed(number: int) -> int:
    """Return an unsigned 64-bit number (a session, a stamp's largest group) as the BIGINT of the same bits."""
    return number if number <= I64_MAX else number - U64


@frozen
class Column:
    """One column: `of` is the Python type of a value or, if `many`, of the values in a list."""

    name: str
    of: type
    many: bool
    nullable: bool

    @property
    def ddl(self) -> str:
        """The column's type as Spark's DDL says it."""
        plain = _DDL[self.of]
        return f"ARRAY<{plain}>" if self.many else plain


@frozen
class Table:
    """A table by the name that `option("table", ...)` takes.

    Attributes:
        row: the type of its rows.
        about: one line for people: what a row is.
        comes_from: where rows come from, for who has none.
        streams: whether rows only ever come at the end, so that it can be followed.
    """

    name: str
    row: type[Any]
    about: str
    streams: bool = True
    comes_from: str = "data directories of servers"
    columns: tuple[Column, ...] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "columns", tuple(_columns(self.row)))

    @property
    def ddl(self) -> str:
        """The schema for Spark."""
        return ", ".join(
            f"`{column.name}` {column.ddl}{'' if column.nullable else ' NOT NULL'}" for column in self.columns
        )

    def arrow_schema(self) -> pyarrow.Schema:
        """Return the schema for Arrow; needs the extra `audits`."""
        import pyarrow as pa

        plain: Mapping[Any, Any] = {
            int: pa.int64(),
            float: pa.float64(),
            bool: pa.bool_(),
            str: pa.string(),
            bytes: pa.binary(),
        }
        return pa.schema(
            [
                pa.field(
                    column.name,
                    pa.list_(plain[column.of]) if column.many else plain[column.of],
                    nullable=column.nullable,
                )
                for column in self.columns
            ]
        )

    def batch(self, rows: Iterable[Any]) -> pyarrow.RecordBatch:
        """Return rows as one Arrow batch."""
        import pyarrow as pa

        rows = list(rows)
        schema = self.arrow_schema()
        return pa.record_batch(
            [pa.array([getattr(row, field.name) for row in rows], type=field.type) for field in schema],
            schema=schema,
        )

    def rows(self, values: Iterable[Mapping[str, Any]]) -> Iterator[Any]:
        """Return rows from mappings of column to value, as Arrow and Spark give them (`to_pylist`, `Row.asDict`)."""
        lists = tuple(column.name for column in self.columns if column.many)
        for value in values:
            found = dict(value)
            for name in lists:
                if found[name] is not None:
                    found[name] = tuple(found[name])
            yield self.row(**found)


def _columns(row: type[Any]) -> Iterator[Column]:
    hints = get_type_hints(row)
    for field in attrs.fields(row):
        hint, nullable = hints[field.name], False
        if isinstance(hint, UnionType):
            (hint,) = (one for one in get_args(hint) if one is not NoneType)
            nullable = True
        many = get_origin(hint) is tuple
        if many:
            hint = get_args(hint)[0]
        assert hint in _DDL, f"{row.__name__}.{field.name}: {hint} is no type of a column"
        yield Column(field.name, hint, many, nullable)
