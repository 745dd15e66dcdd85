"""Limits of what rules may use of damaged files: only that from which nothing wrong can follow.

Pure.

A log, a journal or a recording is read up to its damage. Conclusions from something that was not written
would be wrong then: a truncation or a step down may stand behind the damage. So notes of a server with a
damaged log are left out, and the notes of a boot end at the damage of its journal. Histories of clients are
judged together or not at all, as each value that was read must have been written by somebody.
`onyxlog.audits.source.plan` says what planning leaves out of damaged logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from attrs import frozen

from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.files import FileRow
from onyxlog.audits.tables.histories import HistoryRow

LOG: Final = "wal"
JOURNAL: Final = "journal"
HISTORY: Final = "history"


@frozen
class Damaged:
    """Damaged files as rules know them: (server, instance) of logs, file names of journals."""

    logs: frozenset[tuple[int, str]] = frozenset()
    journals: frozenset[str] = frozenset()
    histories: bool = False

    def keeps(self, row: EventRow | HistoryRow) -> bool:
        """Return whether the row may be judged."""
        if isinstance(row, HistoryRow):
            return not self.histories
        return (row.server, row.instance) not in self.logs and not any(
            row.file > file and row.file.startswith(_boot(file)) for file in self.journals
        )

    def conditions(self) -> dict[str, str]:
        """Return the same as SQL, for the tables of which something is left out."""
        found = {"histories": "false"} if self.histories else {}
        left = [
            f"server = {server} AND instance = '{instance}'" for server, instance in sorted(self.logs)
        ] + [
            f"file > {_quoted(file)} AND startswith(file, {_quoted(_boot(file))})"
            for file in sorted(self.journals)
        ]
        if left:
            found["events"] = " AND ".join(f"NOT ({each})" for each in left)
        return found


def damaged(rows: Iterable[FileRow]) -> Damaged:
    """Return the damage in rows of the table `files`."""
    bad = [row for row in rows if row.damage is not None]
    return Damaged(
        frozenset((row.server, row.instance) for row in bad if row.kind == LOG),
        frozenset(row.file for row in bad if row.kind == JOURNAL),
        any(row.kind == HISTORY for row in bad),
    )


def _boot(journal: str) -> str:
    """Return what the names of a boot's journals begin with, before their numbers."""
    return f"{journal.rpartition('-')[0]}-"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
