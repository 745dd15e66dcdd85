"""S6: logs have no gap, nothing committed is truncated, and every file is what was written. Pure.

Re-execution judges that a snapshot is the fold of the log before it (`onyxlog.audits.rules.reexecution`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.leader_completeness import LEADER_COMMITS, Frontier
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.files import FileRow
from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.snapshots import SnapshotRow
from onyxlog.audits.tables.truncations import TruncationRow

RULE: Final = "S6"
CONTIGUOUS: Final = "a log has no gap and its terms do not go back"
KEPT: Final = "nothing committed is truncated"
FILES: Final = "files are whole"
LOG: Final = ("server", "instance", "group")


def _contiguous(rows: Iterator[EntryRow | TruncationRow]) -> Iterator[Violation]:
    """Judge one server's log in the order in which it was written."""
    before: EntryRow | None = None
    shortened: TruncationRow | None = None
    for row in rows:
        if isinstance(row, TruncationRow):
            shortened = row
            continue
        expected: str | None = None
        if shortened is not None:
            # The log ends before from_index now; the entry before it, and so its position, was read long ago.
            if shortened.cause == "truncate" and row.index != shortened.from_index:
                expected = f"index {shortened.from_index}, after the truncation"
            elif shortened.cause == "restore" and row.index != shortened.from_index:
                expected = f"index {shortened.from_index}, after the snapshot"
        elif before is not None:
            if row.index != before.index + 1:
                expected = f"index {before.index + 1}"
            elif row.term < before.term:
                expected = f"term {before.term} or higher"
            elif row.position != before.position + before.count:
                expected = f"position {before.position + before.count}"
        if row.term < row.previous_term:
            expected = f"term {row.previous_term} or higher"
        if expected is not None:
            yield violation_at(
                row,
                rule=RULE,
                promise=CONTIGUOUS,
                subject=f"entry {row.index} of the log of server {row.server}",
                expected=expected,
                found=f"index {row.index}, term {row.term}, position {row.position}",
            )
        before, shortened = row, None


def _kept(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge what the server itself committed as a leader, by term; then its terms and truncations in order of writing."""
    frontier = Frontier()
    term = 0
    for row in rows:
        if isinstance(row, EventRow):
            frontier.add(row.term, row.index)
        elif isinstance(row, HardStateRow):
            term = row.term
        else:
            known = frontier.term_of(row.from_index)
            if known is not None and known < term:
                yield violation_at(
                    row,
                    rule=RULE,
                    promise=KEPT,
                    subject=f"truncation of the log of server {row.server} in term {term}",
                    index=row.from_index,
                    expected=f"entry {row.from_index} kept: this server led term {known} and committed it",
                    found=f"entries {row.from_index} to {row.last_index} truncated",
                )


def _files(rows: Iterator[FileRow | SnapshotRow]) -> Iterator[Violation]:
    told: set[int] = set()
    for row in rows:
        # A snapshot is a row of both tables.
        if row.damage is not None and row.file_offset not in told:
            told.add(row.file_offset)
            yield violation_at(
                row,
                rule=RULE,
                promise=FILES,
                subject=f"{row.kind if isinstance(row, FileRow) else 'snapshot'} file",
                expected="checksums and format that hold",
                found=row.damage,
            )


LOG_INTEGRITY: Final = Rule(
    id=RULE,
    title="Log integrity",
    claim="logs are contiguous, committed entries stay, and files are as they were written",
    checks=(
        Check(
            CONTIGUOUS,
            (
                Input("truncations", LOG, ("frame", "record", "from_index")),
                Input("entries", LOG, ("frame", "record", "index")),
            ),
            _contiguous,
            suspects="SELECT DISTINCT server, instance, `group` FROM (SELECT server, instance, `group`, `index`, term, "
            "position, previous_term, lag(`index`) OVER w AS index_before, lag(term) OVER w AS term_before, "
            "lag(position + `count`) OVER w AS position_next FROM entries WINDOW w AS "
            "(PARTITION BY server, instance, `group` ORDER BY frame, record, `index`)) "
            "WHERE `index` != index_before + 1 OR term < term_before OR position != position_next "
            "OR term < previous_term UNION SELECT DISTINCT server, instance, `group` FROM truncations",
            needed=("entries",),
        ),
        Check(
            KEPT,
            (
                Input("leader_commits", LOG, (0, "term", "index")),
                Input("hard_states", LOG, (1, "frame", "record")),
                Input("truncations", LOG, (1, "frame", "record"), {"cause": ("truncate",)}),
            ),
            _kept,
            derived=(LEADER_COMMITS,),
            needed=("events",),
        ),
        Check(
            FILES,
            (
                Input("files", ("server", "file"), ("file_offset",)),
                Input("snapshots", ("server", "file"), ("file_offset",)),
            ),
            _files,
        ),
    ),
)
