"""S1: a term has one leader, and it has the votes of a majority, each of which was given once. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import attrs
from attrs import frozen

from onyxlog.audits.rules.check import Check, Derived, Input, Row, Rule, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.events import EventRow
from onyxlog.audits.tables.hard_states import HardStateRow
from onyxlog.audits.tables.members import MembershipRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S1"
VOTES: Final = "a vote is given once"
LEADERS: Final = "one leader per term"
MAJORITIES: Final = "a majority elects"
LOG: Final = ("server", "instance", "group")


def is_majority(of: Collection[int], votes: Collection[int]) -> bool:
    """Return whether the votes are a majority of these voters."""
    return 2 * len(set(of).intersection(votes)) > len(of)


def can_decide(configuration: MembershipRow, votes: Collection[int]) -> bool:
    """Return whether the votes are a majority of the voters, and of the outgoing ones in a joint configuration."""
    outgoing = configuration.outgoing
    return is_majority(configuration.voters, votes) and (not outgoing or is_majority(outgoing, votes))


def _votes(rows: Iterator[HardStateRow]) -> Iterator[Violation]:
    before: HardStateRow | None = None
    for row in rows:
        if before is not None and row.term < before.term:
            yield violation_at(
                row,
                rule=RULE,
                promise=VOTES,
                subject=f"term of server {row.server}",
                index=row.term,
                expected=f"term {before.term} or higher, which is durable before it",
                found=f"term {row.term}",
            )
        elif before is not None and row.term == before.term and before.voted_for not in (None, row.voted_for):
            yield violation_at(
                row,
                rule=RULE,
                promise=VOTES,
                subject=f"vote of server {row.server} in term {row.term}",
                index=row.term,
                expected=f"server {before.voted_for}, as before",
                found="none" if row.voted_for is None else f"server {row.voted_for}",
            )
        before = row


@frozen(kw_only=True)
class ElectionRow(EventRow):
    """A leadership, with the disks of the members as the leader's log had them: `instances` in order of `servers`.

    Votes are counted by number of server, but given by a disk: a disk that replaced another has given none.
    """

    servers: tuple[int, ...] = ()
    instances: tuple[str, ...] = ()

    def counts(self, row: HardStateRow) -> bool:
        """Return whether that disk's vote was counted; true also if nothing says which disk it was."""
        disk = dict(zip(self.servers, self.instances, strict=False)).get(row.server, "")
        return row.server in self.votes and disk in ("", row.instance)


def _leaders(rows: Iterator[ElectionRow | HardStateRow]) -> Iterator[Violation]:
    leader: ElectionRow | None = None
    other_votes: dict[int, HardStateRow] = {}
    given: set[int] = set()
    for row in rows:
        if isinstance(row, ElectionRow):
            if leader is None:
                leader = row
            elif row.server != leader.server:
                yield violation_at(
                    row,
                    rule=RULE,
                    promise=LEADERS,
                    subject=f"leader of term {row.term}",
                    index=row.term,
                    expected=f"server {leader.server} ({leader.file}:{leader.file_offset}) only",
                    found=f"server {row.server} as well",
                )
        elif leader is not None and leader.counts(row):
            if row.voted_for == leader.server:
                given.add(row.server)
            else:
                other_votes[row.server] = row
    for server, row in other_votes.items():
        if leader is not None and server not in given:
            yield violation_at(
                row,
                rule=RULE,
                promise=LEADERS,
                subject=f"vote of server {server} in term {row.term}",
                index=row.term,
                expected=f"server {leader.server}, which counted this vote",
                found="none" if row.voted_for is None else f"server {row.voted_for}",
            )


def _majorities(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge rows of one server's log and journal, by index: configurations, and its elections with the end of its log."""
    in_force: list[MembershipRow] = []
    for row in rows:
        if isinstance(row, MembershipRow):
            # A configuration that was truncated later may have been in force then, or the one before it.
            in_force = [*in_force[-8:], row] if row.standing == Standing.TRUNCATED else [row]
        elif row.votes and in_force and not any(can_decide(each, row.votes) for each in in_force):
            newest = in_force[-1]
            yield violation_at(
                row,
                rule=RULE,
                promise=MAJORITIES,
                subject=f"leader of term {row.term}",
                index=row.term,
                expected=f"a majority of voters {_names(newest.voters)}"
                + (f" and of {_names(newest.outgoing)}" if newest.outgoing else ""),
                found=f"votes of {_names(row.votes)}",
            )


def _names(servers: Collection[int]) -> str:
    return ", ".join(map(str, sorted(servers))) or "nobody"


def _elections(tables: Tables) -> list[ElectionRow]:
    members: dict[tuple[int, str, int], list[MembershipRow]] = {}
    for row in tables.get("members", ()):
        members.setdefault((row.server, row.instance, row.group), []).append(row)
    found = []
    for row in tables.get("events", ()):
        if row.kind == "became_leader":
            log = members.get((row.server, row.instance, row.group), ())
            known = max(
                (one for one in log if one.index <= row.index),
                key=lambda one: (one.index, one.frame, one.record),
                default=None,
            )
            fields = {each.name: getattr(row, each.name) for each in attrs.fields(EventRow)}
            said = ((), ()) if known is None else (known.servers, known.instances)
            found.append(ElectionRow(**fields, servers=said[0], instances=said[1]))
    return found


_SAME_LOG: Final = "e.server = m.server AND e.instance = m.instance AND e.`group` = m.`group`"
_SAME_NOTE: Final = "e.server = c.server AND e.instance = c.instance AND e.boot = c.boot AND e.seq = c.seq"
ELECTIONS: Final = Derived(
    name="elections",
    row=ElectionRow,
    needs=("events", "members"),
    sql=(
        (
            "election_disks",
            "SELECT e.server, e.instance, e.boot, e.seq, "
            "max_by(struct(m.servers, m.instances), struct(m.`index`, m.frame, m.record)) AS disks "
            f"FROM events e JOIN members m ON {_SAME_LOG} AND m.`index` <= e.`index` "
            "WHERE e.kind = 'became_leader' GROUP BY ALL",
        ),
        (
            "elections",
            f"SELECT {', '.join(f'e.`{each.name}`' for each in attrs.fields(EventRow))}, "
            "coalesce(c.disks.servers, CAST(array() AS ARRAY<BIGINT>)) AS servers, "
            "coalesce(c.disks.instances, CAST(array() AS ARRAY<STRING>)) AS instances "
            f"FROM events e LEFT JOIN election_disks c ON {_SAME_NOTE} WHERE e.kind = 'became_leader'",
        ),
    ),
    rows=_elections,
)

ELECTION_SAFETY: Final = Rule(
    id=RULE,
    title="Election safety",
    claim="a term has one leader, elected by a majority of its configuration whose votes are durable and given once",
    checks=(
        Check(VOTES, (Input("hard_states", LOG, ("frame", "record")),), _votes),
        Check(
            LEADERS,
            (
                Input("elections", ("group", "term"), (0, "server", "seq")),
                Input("hard_states", ("group", "term"), (1, "server", "frame")),
            ),
            _leaders,
            derived=(ELECTIONS,),
            needed=("events",),
        ),
        Check(
            MAJORITIES,
            (
                Input("members", LOG, ("index", 0, "frame", "record")),
                Input("events", LOG, ("index", 1, "seq", 0), {"kind": ("became_leader",)}),
            ),
            _majorities,
            needed=("members", "events"),
        ),
    ),
)
