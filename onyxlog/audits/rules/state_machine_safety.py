"""S4: nobody applies another entry at an index, and equal indices have equal states. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.placed import Standing
from onyxlog.audits.tables.snapshots import SnapshotRow

RULE: Final = "S4"
ENTRIES: Final = "one committed entry per index"
STATES: Final = "one state per index"


def _entries(rows: Iterator[EntryRow]) -> Iterator[Violation]:
    first: EntryRow | None = None
    for row in rows:
        if first is None:
            first = row
        elif (row.term, row.digest) != (first.term, first.digest):
            yield violation_at(
                row,
                rule=RULE,
                promise=ENTRIES,
                subject=f"committed entry {row.index}",
                expected=f"term {first.term}, {first.digest.hex()}, as on server {first.server} "
                f"({first.file}:{first.file_offset})",
                found=f"term {row.term}, {row.digest.hex()}",
            )


def _states(rows: Iterator[EventRow | SnapshotRow]) -> Iterator[Violation]:
    first: EventRow | SnapshotRow | None = None
    for row in rows:
        if not row.digest:
            continue  # a damaged snapshot, which S6 reports
        if first is None:
            first = row
        elif row.digest != first.digest:
            yield violation_at(
                row,
                rule=RULE,
                promise=STATES,
                subject=f"state after entry {row.index}",
                expected=f"{(first.digest or b'').hex()}, as on server {first.server} ({first.file}:{first.file_offset})",
                found=row.digest.hex(),
            )


STATE_MACHINE_SAFETY: Final = Rule(
    id=RULE,
    title="State machine safety",
    claim="servers apply the same entry at each index, and have the same state after it",
    checks=(
        Check(
            ENTRIES,
            (
                Input(
                    "entries",
                    ("group", "index"),
                    ("server", "frame"),
                    {"standing": (Standing.COMMITTED.value,)},
                ),
            ),
            _entries,
            suspects="SELECT `group`, `index` FROM entries WHERE standing = 'committed' GROUP BY ALL "
            "HAVING min(term) != max(term) OR min(digest) != max(digest)",
        ),
        Check(
            STATES,
            (
                Input("events", ("group", "index"), ("server", "seq"), {"kind": ("digest",)}),
                Input("snapshots", ("group", "index"), ("server", "file_offset")),
            ),
            _states,
        ),
    ),
)
