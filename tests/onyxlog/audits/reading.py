"""Reads tables without Spark, through the same planning and the same pieces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onyxlog.audits.source import directories, options
from onyxlog.audits.source.options import Options
from onyxlog.audits.source.plan import Piece, plan, read_piece


def chosen(path: Path, table: str, **given: str) -> Options:
    return options.parse({"path": str(path), "table": table, **given})


def rows_of(opts: Options, pieces: Sequence[Piece]) -> list[Any]:
    names = [column.name for column in opts.table.columns]
    values = (dict(zip(names, row, strict=True)) for piece in pieces for row in read_piece(piece))
    return list(opts.table.rows(values))


def read(path: Path, table: str, **given: str) -> list[Any]:
    """All rows of a table, as rows."""
    opts = chosen(path, table, **given)
    return rows_of(opts, plan(opts, directories.find(opts.paths)))
