"""S5: commit indices only grow, name entries of the log, and leaders commit by entries of their own term. Pure.

A leader may learn of older commits, but what it commits itself is an entry of its own term or follows from
one (Raft, figure 8). Commits are noted now and then, so only what moves between two notes of one leadership
shows that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow

RULE: Final = "S5"
GROWS: Final = "a commit index does not go back"
OWN_TERM: Final = "a leader commits by an entry of its term"
NAMED: Final = "a commit names an entry of the log"
_BOOT: Final = ("server", "instance", "group", "boot")
_PLACE: Final = ("server", "instance", "group", "index")
_COMMITTED: Final = {"kind": ("committed",)}


def _grows(rows: Iterator[EventRow]) -> Iterator[Violation]:
    before: EventRow | None = None
    for row in rows:
        if before is not None and (row.index < before.index or row.term < before.term):
            yield violation_at(
                row,
                rule=RULE,
                promise=GROWS,
                subject=f"commit index of server {row.server}, boot {row.boot}",
                expected=f"{before.index} or higher, of term {before.term} or later",
                found=f"{row.index} of term {row.term}",
            )
        before = row


def _own_term(rows: Iterator[EventRow]) -> Iterator[Violation]:
    """Judge what one process noted: leaderships, each with its first entry, and commits."""
    leading: EventRow | None = None
    older: EventRow | None = None
    for row in rows:
        if row.kind != "committed":
            leading, older = (row if row.kind == "became_leader" else None), None
            continue
        if leading is None:
            continue
        own = row.index >= leading.index
        if (own and row.term != leading.term) or (not own and older is not None and row.index > older.index):
            yield violation_at(
                row,
                rule=RULE,
                promise=OWN_TERM,
                subject=f"commit of {row.index} by the leader of term {leading.term}",
                expected=f"an entry of term {leading.term}, the first of which is {leading.index} "
                f"({leading.file}:{leading.file_offset})",
                found=f"one of term {row.term}",
            )
        # The first note of a leadership may be of what it knew before.
        older = row


def _named(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge commits of one index that a server noted, then the entries that stood in its log there."""
    commits: list[EventRow] = []
    terms: set[int] = set()
    for row in rows:
        if isinstance(row, EntryRow):
            terms.add(row.term)
        else:
            commits.append(row)
    for commit in commits:
        if terms and commit.term not in terms:
            yield violation_at(
                commit,
                rule=RULE,
                promise=NAMED,
                subject=f"commit of {commit.index} on server {commit.server}",
                expected=f"an entry of term {commit.term} in its log",
                found=f"of term {', '.join(map(str, sorted(terms)))}",
            )


COMMIT_RULE: Final = Rule(
    id=RULE,
    title="Commit rule",
    claim="commit indices never go back, and leaders commit older entries only by one of their own term",
    checks=(
        Check(GROWS, (Input("events", _BOOT, ("seq",), _COMMITTED),), _grows),
        Check(
            OWN_TERM,
            (Input("events", _BOOT, ("seq",), {"kind": ("became_leader", "stepped_down", "committed")}),),
            _own_term,
        ),
        Check(
            NAMED,
            (Input("events", _PLACE, (0, "seq"), _COMMITTED), Input("entries", _PLACE, (1, "frame"))),
            _named,
            suspects="SELECT c.server, c.instance, c.`group`, c.`index` FROM events c LEFT ANTI JOIN entries e "
            "ON c.server = e.server AND c.instance = e.instance AND c.`group` = e.`group` AND c.`index` = e.`index` "
            "AND c.term = e.term WHERE c.kind = 'committed'",
            needed=("events", "entries"),
        ),
    ),
)
