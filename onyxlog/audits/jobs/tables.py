"""Row classes of all tables that rules read, by name: those of the source, and those of results files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onyxlog.audits.measurements import MEASURED_TESTS, MEASURED_TRIALS
from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.table import Table

ALL_TABLES: Final[Mapping[str, Table]] = {
    **TABLES,
    **{table.name: table for table in (MEASURED_TESTS, MEASURED_TRIALS)},
}
ROWS: Final[Mapping[str, type[Any]]] = {name: table.row for name, table in ALL_TABLES.items()}
