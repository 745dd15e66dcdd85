"""A listing as a value: rows for programs and tables for people, and which columns a narrow terminal has room for. Pure."""

from __future__ import annotations

from typing import Final, TypeVar
from unicodedata import east_asian_width

from attrs import evolve, frozen

GAP: Final = 2
"""Blanks between two columns."""

FOLDED: Final = 24
"""Columns that a cell which folds has at least."""

T = TypeVar("T")


@frozen
class Column:
    """One column of a table.

    Attributes:
        name: the heading; a newline in it breaks it.
        right: whether cells stand at the right, as numbers do.
        spare: 0 if the column is always shown. Of the others, the highest is left out first where there is no room.
        folds: whether a cell that is too long is broken into lines.
    """

    name: str
    right: bool = False
    spare: int = 0
    folds: bool = False


@frozen
class Grid:
    """A table: its columns, and rows of as many cells."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


@frozen
class Listing:
    """The findings of one look.

    Attributes:
        values: what programs get, each as one line of JSON.
        parts: what people get: tables, and lines of text between them.
        complaint: why the command fails although it printed something; empty if it does not.
        exit_code: that of the command if there is no complaint.
    """

    values: tuple[object, ...]
    parts: tuple[Grid | str, ...]
    complaint: str = ""
    exit_code: int = 0


def width_of(grid: Grid) -> int:
    """Return how many columns of a terminal the table takes if no cell is broken but those that fold."""
    widths = (
        max(_width(text) for text in (column.name, *(row[place] for row in grid.rows)))
        for place, column in enumerate(grid.columns)
    )
    least = (
        min(width, FOLDED) if column.folds else width
        for column, width in zip(grid.columns, widths, strict=True)
    )
    return sum(least) + GAP * (len(grid.columns) - 1)


def fitted(grid: Grid, width: int) -> tuple[Grid, tuple[str, ...]]:
    """Leave out columns until the table is at most `width` wide; return it, and the names of those left out.

    Columns that are always shown stay, even if they alone are wider.
    """
    left_out: list[str] = []
    while width_of(grid) > width:
        place = max(range(len(grid.columns)), key=lambda one: grid.columns[one].spare)
        if not grid.columns[place].spare:
            break
        left_out.append(grid.columns[place].name.replace("\n", " "))
        grid = evolve(
            grid,
            columns=_without(grid.columns, place),
            rows=tuple(_without(row, place) for row in grid.rows),
        )
    return grid, tuple(left_out)


def _without(cells: tuple[T, ...], place: int) -> tuple[T, ...]:
    return cells[:place] + cells[place + 1 :]


def _width(text: str) -> int:
    return max(sum(2 if east_asian_width(one) in "WF" else 1 for one in line) for line in text.split("\n"))


def bytes_text(count: int) -> str:
    """Return a size as people read it, such as 3.4MiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count}B" if unit == "B" else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}TiB"
