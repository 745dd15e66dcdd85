"""The options of `spark.read.format("zraft")`, checked at once and together, with what was expected."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from onyxlog.audits.errors import AuditError
from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.placed import Standing
from onyxlog.audits.tables.table import Table

BATCH_ROWS: Final = 16_384
BATCH_ROWS_MAX: Final = 1 << 20
STREAM_BYTES: Final = 64 << 20
COMMITTED: Final = "committed"
LIVE: Final = "live"
WRITTEN: Final = "written"
FAIL: Final = "fail"
STOP: Final = "stop"
ALL: Final = "all"
ONE: Final = "one"
ENTRIES: Final[Mapping[str, frozenset[str]]] = {
    COMMITTED: frozenset({Standing.COMMITTED.value}),
    LIVE: frozenset({Standing.COMMITTED.value, Standing.OPEN.value}),
    WRITTEN: frozenset(standing.value for standing in Standing),
}
"""The standings that each value of `entries` gives."""
NAMES: Final = (
    *("path", "paths", "table", "entries", "group", "payloads", "columns", "batch_rows"),
    *("segments_per_partition", "starting", "bytes_per_batch", "damage", "copies"),
)


@frozen
class Options:
    """Options in force.

    Attributes:
        entries: `committed` (the default), `live` (also what may be truncated yet) or `written` (also
            what was).
        columns: those that are wanted, in this order; all of the table's if empty.
        segments_per_partition: of a write-ahead log, how many one task reads.
        starting: a stream's: `earliest` or `latest`.
        bytes_per_batch: a stream's: how much of logs one batch takes, about.
        damage: `fail`, or `stop`: what is damaged is read up to there, and only the table `files` tells
            of it.
        copies: `all`, or `one`: what committed entries hold is given of the first server that has them.
    """

    paths: tuple[str, ...]
    table: Table
    entries: str = COMMITTED
    group: int | None = None
    payloads: bool = False
    columns: tuple[str, ...] = ()
    batch_rows: int = BATCH_ROWS
    segments_per_partition: int = 1
    starting: str = "earliest"
    bytes_per_batch: int = STREAM_BYTES
    damage: str = FAIL
    copies: str = ALL

    @property
    def standings(self) -> frozenset[str]:
        """The standings of the entries that are read."""
        return ENTRIES[self.entries]

    @property
    def stops(self) -> bool:
        """True if damage ends the reading of a log or file, instead of failing it."""
        return self.damage == STOP

    @property
    def selected(self) -> tuple[int, ...]:
        """The places of the wanted columns in the table's."""
        names = [column.name for column in self.table.columns]
        return tuple(names.index(name) for name in self.columns) if self.columns else tuple(range(len(names)))

    @property
    def ddl(self) -> str:
        """The schema of what is given."""
        found = [self.table.columns[at] for at in self.selected]
        return ", ".join(f"`{c.name}` {c.ddl}{'' if c.nullable else ' NOT NULL'}" for c in found)


def parse(given: Mapping[str, str]) -> Options:
    """Parse the options of a reader, whose keys Spark compares without case.

    Raises:
        AuditError: an option is unknown, missing, or has a value that means nothing; the message names
            all that are wrong.
    """
    found = {name.lower(): value for name, value in given.items()}
    problems = [_unknown(name) for name in sorted(found.keys() - set(NAMES))]
    reader = _Values(found, problems)
    paths = reader.paths()
    table = reader.table()
    columns = reader.columns(table)
    options = Options(
        paths=paths,
        table=table,
        entries=reader.choice("entries", COMMITTED, tuple(ENTRIES)),
        group=reader.number("group", None, 0, (1 << 63) - 1),
        payloads=reader.choice("payloads", "false", ("true", "false")) == "true",
        columns=columns,
        batch_rows=reader.number("batch_rows", BATCH_ROWS, 1, BATCH_ROWS_MAX) or BATCH_ROWS,
        segments_per_partition=reader.number("segments_per_partition", 1, 1, 10_000) or 1,
        starting=reader.choice("starting", "earliest", ("earliest", "latest")),
        bytes_per_batch=reader.number("bytes_per_batch", STREAM_BYTES, 1 << 10, 1 << 40) or STREAM_BYTES,
        damage=reader.choice("damage", FAIL, (FAIL, STOP)),
        copies=reader.choice("copies", ALL, (ALL, ONE)),
    )
    if problems:
        raise AuditError("; ".join(problems))
    return options


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, NAMES, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NAMES)}"
    return f"option {name!r} is unknown: {hint}"


class _Values:
    """Reader of values, which notes what is wrong with them instead of stopping at the first."""

    def __init__(self, found: Mapping[str, str], problems: list[str]) -> None:
        self._found = found
        self._problems = problems

    def paths(self) -> tuple[str, ...]:
        one, many = self._found.get("path"), self._found.get("paths")
        if many is None:
            if not one:
                self._problems.append(
                    "no path: expected .load(DIRECTORY), a data directory, one that holds several, or a pattern"
                )
            return (one,) if one else ()
        try:
            listed = json.loads(many)
        except ValueError:
            listed = None
        if not isinstance(listed, list) or not listed or not all(isinstance(each, str) for each in listed):
            self._problems.append(f"option 'paths': expected a JSON list of directories, found {many!r}")
            return ()
        return (*((one,) if one else ()), *listed)

    def table(self) -> Table:
        name = self._found.get("table")
        if name is not None and name in TABLES:
            return TABLES[name]
        near = difflib.get_close_matches(name or "", TABLES, 1)
        asked = "no table: expected option 'table'" if name is None else f"option 'table': found {name!r}"
        hint = f"; did you mean {near[0]!r}?" if near else ""
        self._problems.append(f"{asked}, one of {', '.join(TABLES)}{hint}")
        return TABLES["entries"]

    def columns(self, table: Table) -> tuple[str, ...]:
        text = self._found.get("columns")
        if text is None:
            return ()
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        known = [column.name for column in table.columns]
        for name in names:
            if name not in known:
                self._problems.append(
                    f"option 'columns': table {table.name} has no {name!r}; it has {', '.join(known)}"
                )
        if len(set(names)) < len(names) or not names:
            self._problems.append(f"option 'columns': expected names of columns, each once, found {text!r}")
        return tuple(name for name in names if name in known)

    def choice(self, name: str, default: str, values: tuple[str, ...]) -> str:
        found = self._found.get(name, default)
        if found.lower() not in values:
            self._problems.append(f"option {name!r}: found {found!r}, expected one of {', '.join(values)}")
            return default
        return found.lower()

    def number(self, name: str, default: int | None, low: int, high: int) -> int | None:
        text = self._found.get(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            self._problems.append(
                f"option {name!r}: found {text!r}, expected an integer from {low} to {high}"
            )
            return default
        return number
