"""S5: commit indices only grow, and a leader commits by an entry of its own term (Raft, figure 8). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Derived, Input, Row, Rule, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow

RULE: Final = "S5"
GROWS: Final = "a commit index does not go back"
OWN_TERM: Final = "a leader commits by an entry of its term"
_PLACE: Final = ("server", "instance", "group", "index")


def _grows(rows: Iterator[EventRow]) -> Iterator[Violation]:
    before: EventRow | None = None
    for row in rows:
        if before is not None and (row.index < before.index or row.term < before.term):
            yield violation_at(
                row,
                rule=RULE,
                promise=GROWS,
                subject=f"commit index of server {row.server}, boot {row.boot}",
                expected=f"{before.index} or higher, in term {before.term} or later",
                found=f"{row.index} in term {row.term}",
            )
        before = row


def _own_term(rows: Iterator[Row]) -> Iterator[Violation]:
    """What a leader committed up to, then the entries that stood in its log there."""
    commit: EventRow | None = None
    entries: list[EntryRow] = []
    for row in rows:
        if isinstance(row, EventRow):
            commit = commit or row
        else:
            entries.append(row)
    if commit is not None and entries and all(row.term != commit.term for row in entries):
        yield violation_at(
            entries[-1],
            rule=RULE,
            promise=OWN_TERM,
            subject=f"commit of {commit.index} by the leader of term {commit.term}",
            expected=f"an entry of term {commit.term} ({commit.file}:{commit.file_offset})",
            found=f"one of term {entries[-1].term}",
        )


def _by_leaders(tables: Tables) -> list[EventRow]:
    led = {
        (row.server, row.instance, row.group, row.term)
        for row in tables.get("events", ())
        if row.kind == "became_leader"
    }
    return [
        row
        for row in tables.get("events", ())
        if row.kind == "committed" and (row.server, row.instance, row.group, row.term) in led
    ]


LEADER_COMMITS: Final = Derived(
    name="leader_commits",
    row=EventRow,
    needs=("events",),
    sql=(
        (
            "leader_commits",
            "SELECT c.* FROM events c LEFT SEMI JOIN (SELECT server, instance, `group`, term FROM events "
            "WHERE kind = 'became_leader') l ON c.server = l.server AND c.instance = l.instance "
            "AND c.`group` = l.`group` AND c.term = l.term WHERE c.kind = 'committed'",
        ),
    ),
    rows=_by_leaders,
)

COMMIT_RULE: Final = Rule(
    id=RULE,
    title="Commit rule",
    claim="commit indices never go back, and leaders commit older entries only by one of their own term",
    checks=(
        Check(
            GROWS,
            (Input("events", ("server", "instance", "group", "boot"), ("seq",), {"kind": ("committed",)}),),
            _grows,
        ),
        Check(
            OWN_TERM,
            (Input("leader_commits", _PLACE, (0, "seq")), Input("entries", _PLACE, (1, "frame"))),
            _own_term,
            suspects="SELECT c.server, c.instance, c.`group`, c.`index` FROM leader_commits c LEFT ANTI JOIN entries e "
            "ON c.server = e.server AND c.instance = e.instance AND c.`group` = e.`group` AND c.`index` = e.`index` "
            "AND c.term = e.term",
            derived=(LEADER_COMMITS,),
        ),
    ),
)
