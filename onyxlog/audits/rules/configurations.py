"""S7: configurations change one at a time, and any two that follow one another share a quorum. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.members import MembershipRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S7"
FOLLOW: Final = "configurations follow one another by joint ones"
VOTERS: Final = "only voters' votes count"
LOG: Final = ("server", "instance", "group")
_STANDING: Final = {"standing": (Standing.COMMITTED.value, Standing.OPEN.value)}


def _follow(rows: Iterator[MembershipRow]) -> Iterator[Violation]:
    before: MembershipRow | None = None
    for row in rows:
        expected = None if before is None or row.source != "entry" else _objection(before, row)
        if expected is not None:
            yield violation_at(
                row,
                rule=RULE,
                promise=FOLLOW,
                subject=f"configuration at {row.index}",
                expected=expected,
                found=f"voters {list(row.voters)}, outgoing {list(row.outgoing)}",
            )
        before = row


def _objection(before: MembershipRow, row: MembershipRow) -> str | None:
    """Return what had to follow `before`, if `row` may not."""
    if (before.voters, before.outgoing) == (row.voters, row.outgoing):
        return None
    if before.outgoing:
        done = row.voters == before.voters and not row.outgoing
        return (
            None if done else f"voters {list(before.voters)} alone: the change at {before.index} is under way"
        )
    if row.outgoing:
        good = row.outgoing == before.voters
        return None if good else f"outgoing voters {list(before.voters)}, who vote before it"
    return f"voters {list(before.voters)}, or a joint configuration first"


def _voters(rows: Iterator[Row]) -> Iterator[Violation]:
    electorate: set[int] = set()
    for row in rows:
        if isinstance(row, MembershipRow):
            may = {*row.voters, *row.outgoing}
            electorate = electorate | may if row.standing == Standing.TRUNCATED else may
        elif electorate and not electorate.issuperset(row.votes):
            yield violation_at(
                row,
                rule=RULE,
                promise=VOTERS,
                subject=f"votes for server {row.server} in term {row.term}",
                index=row.term,
                expected=f"of {sorted(electorate)} only",
                found=f"one of {sorted(set(row.votes) - electorate)} as well",
            )


CONFIGURATIONS: Final = Rule(
    id=RULE,
    title="Configurations",
    claim="one change of members is under way at a time, neighbouring quorums meet, and learners never vote",
    checks=(
        Check(FOLLOW, (Input("members", LOG, ("index", "frame", "record"), _STANDING),), _follow),
        Check(
            VOTERS,
            (
                Input("members", LOG, ("index", 0, "frame", "record")),
                Input("events", LOG, ("index", 1, "seq", 0), {"kind": ("became_leader",)}),
            ),
            _voters,
            needed=("members", "events"),
        ),
    ),
)
