"""S2: logs that agree in one entry agree in all before it. Pure.

An entry names its index and term, and the term of the entry before it stands with it. If equal (index, term)
always have equal contents and an equal term before them, equal prefixes follow by induction: one comparison
per entry replaces one per pair of prefixes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow

RULE: Final = "S2"
CONTENTS: Final = "equal index and term, equal entry and predecessor"


def _contents(rows: Iterator[EntryRow]) -> Iterator[Violation]:
    first: EntryRow | None = None
    for row in rows:
        if first is None:
            first = row
        elif (row.digest, row.previous_term) != (first.digest, first.previous_term):
            yield violation_at(
                row,
                rule=RULE,
                promise=CONTENTS,
                subject=f"entry {row.index} of term {row.term}",
                expected=f"{_described(first)}, as server {first.server} has it ({first.file}:{first.file_offset})",
                found=_described(row),
            )


def _described(row: EntryRow) -> str:
    return f"{row.kind} {row.digest.hex()} after term {row.previous_term}"


LOG_MATCHING: Final = Rule(
    id=RULE,
    title="Log matching",
    claim="entries with equal index and term are equal on all servers, and so is everything before them",
    checks=(
        Check(
            CONTENTS,
            (Input("entries", ("group", "index", "term"), ("server", "frame")),),
            _contents,
            suspects="SELECT `group`, `index`, term FROM entries GROUP BY ALL "
            "HAVING min(digest) != max(digest) OR min(previous_term) != max(previous_term)",
        ),
    ),
)
