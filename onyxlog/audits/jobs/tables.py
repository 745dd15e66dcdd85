"""Row classes of all tables that rules read, by name: those of the source, and those of results files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onyxlog.audits.measurements import MEASURED
from onyxlog.audits.tables import TABLES
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.table import Table

ENTRY_PAYLOADS: Final = Table("entry_payloads", EntryRow, "entries of group 0 with their payloads")
"""Tables that are read from the logs each time: a second copy of all data would be the largest table of all."""
ALL_TABLES: Final[Mapping[str, Table]] = {
    **TABLES,
    **{table.name: table for table in (ENTRY_PAYLOADS, *MEASURED)},
}
ROWS: Final[Mapping[str, type[Any]]] = {name: table.row for name, table in ALL_TABLES.items()}
