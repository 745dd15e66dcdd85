"""S3: what was committed is in the log of every later leader. Pure.

A leader notes what it commits: from its first entry on, that is committed in its own term, so every later
leader must have it. What others note of commits, or it noted of those before its own, may have been committed
later than its entry's term.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import attrs

from onyxlog.audits.rules.check import Check, Derived, Input, Row, Rule, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.entries import EntryRow
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S3"
REACH: Final = "a leader's log reaches what was committed"
CONFLICTS: Final = "no later leader has another entry"


def _reach(rows: Iterator[EventRow]) -> Iterator[Violation]:
    """Judge commits and elections of one group, by term."""
    committed: EventRow | None = None
    for _, of_term in groupby(rows, key=lambda row: row.term):
        newest = committed
        for row in of_term:
            if row.kind == "committed":
                if newest is None or row.index > newest.index:
                    newest = row
            elif committed is not None and row.index <= committed.index:
                yield violation_at(
                    row,
                    rule=RULE,
                    promise=REACH,
                    subject=f"leader of term {row.term}",
                    expected=f"a log up to {committed.index} at least, committed in term {committed.term} "
                    f"({committed.file}:{committed.file_offset})",
                    found=f"its own first entry at {row.index}",
                )
        committed = newest


class Frontier:
    """Steps in which the committed index grew: terms ascend, and so do the indices that count."""

    def __init__(self) -> None:
        self._terms: list[int] = []
        self._indices: list[int] = []

    def add(self, term: int, index: int) -> None:
        """Add a commit. Terms come in order; one that does not go further than before says nothing new."""
        if not self._indices or index > self._indices[-1]:
            if self._terms and self._terms[-1] == term:
                self._indices[-1] = index
            else:
                self._terms.append(term)
                self._indices.append(index)

    def term_of(self, index: int) -> int | None:
        """Return the first term in which `index` is known to have been committed, None if that is not known."""
        at = bisect_left(self._indices, index)
        return self._terms[at] if at < len(self._terms) else None


def _conflicts(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge commits of a group by term, then the entries of indices where terms differ, by index."""
    frontier = Frontier()
    for is_entry, some in groupby(rows, key=lambda row: isinstance(row, EntryRow)):
        if not is_entry:
            for row in some:
                frontier.add(row.term, row.index)
            continue
        for index, at_index in groupby(some, key=lambda row: row.index):
            entries = list(at_index)
            yield from _judge_index(entries, frontier.term_of(index))


def _judge_index(entries: Sequence[EntryRow], term: int | None) -> Iterator[Violation]:
    committed = next((row for row in entries if row.standing == Standing.COMMITTED), None)
    if committed is None or term is None:
        return
    since = max(term, committed.term)
    for row in entries:
        if row.term != committed.term and row.durable_term > since and row.standing != Standing.COMMITTED:
            yield violation_at(
                row,
                rule=RULE,
                promise=CONFLICTS,
                subject=f"entry {row.index}, written in term {row.durable_term}",
                expected=f"the entry of term {committed.term}, committed by term {since} "
                f"({committed.file}:{committed.file_offset})",
                found=f"one of term {row.term}",
            )


def _contested(tables: Tables) -> list[EntryRow]:
    terms: dict[tuple[int, int], set[int]] = {}
    for row in tables.get("entries", ()):
        terms.setdefault((row.group, row.index), set()).add(row.term)
    return [row for row in tables.get("entries", ()) if len(terms[row.group, row.index]) > 1]


CONTESTED: Final = Derived(
    name="contested_entries",
    row=EntryRow,
    needs=("entries",),
    sql=(
        (
            "contested_entries",
            "SELECT e.* FROM entries e LEFT SEMI JOIN (SELECT `group`, `index` FROM entries GROUP BY ALL "
            "HAVING min(term) != max(term)) c ON e.`group` = c.`group` AND e.`index` = c.`index`",
        ),
    ),
    rows=_contested,
)


def _by_leaders(tables: Tables) -> list[EventRow]:
    found: list[EventRow] = []
    leading: dict[tuple[int, str, int, int], EventRow] = {}
    for row in sorted(tables.get("events", ()), key=lambda row: row.seq):
        boot = (row.server, row.instance, row.group, row.boot)
        if row.kind == "became_leader":
            leading[boot] = row
        elif row.kind == "stepped_down":
            leading.pop(boot, None)
        elif row.kind == "committed" and boot in leading:
            own = leading[boot]
            if row.term == own.term and row.index >= own.index:
                found.append(row)
    return found


LEADER_COMMITS: Final = Derived(
    name="leader_commits",
    row=EventRow,
    needs=("events",),
    sql=(
        (
            "noted_leaderships",
            "SELECT *, last_value(if(kind IN ('became_leader', 'stepped_down'), struct(kind, term, `index`), NULL), true) "
            "OVER (PARTITION BY server, instance, `group`, boot ORDER BY seq) AS lead FROM events",
        ),
        (
            "leader_commits",
            f"SELECT {', '.join(f'`{each.name}`' for each in attrs.fields(EventRow))} FROM noted_leaderships "
            "WHERE kind = 'committed' AND lead.kind = 'became_leader' AND term = lead.term AND `index` >= lead.`index`",
        ),
    ),
    rows=_by_leaders,
)
"""The commits that leaders noted in their own term, while they led."""

LEADER_COMPLETENESS: Final = Rule(
    id=RULE,
    title="Leader completeness",
    claim="an entry that was committed is in the logs of the leaders of all later terms",
    checks=(
        Check(
            REACH,
            (
                Input("leader_commits", ("group",), ("term", "index")),
                Input("events", ("group",), ("term", "index"), {"kind": ("became_leader",)}),
            ),
            _reach,
            derived=(LEADER_COMMITS,),
            needed=("events",),
        ),
        Check(
            CONFLICTS,
            (
                Input("leader_commits", ("group",), (0, "term", "index")),
                Input("contested_entries", ("group",), (1, "index", "server")),
            ),
            _conflicts,
            derived=(LEADER_COMMITS, CONTESTED),
            needed=("events", "entries"),
        ),
    ),
)
