"""S14: the invariants of every replica of the peers' log, and of each step to the next. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.onyx_replay import ORIGIN, Played, played
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.onyx_entries import OnyxEntryRow
from onyxlog.replica.codec import decode_record
from onyxlog.replica.commands import Gc
from onyxlog.replica.invariants import step_violations, violations

RULE: Final = "S14"
HOLD: Final = "invariants hold at every position"
COLLECTED: Final = "an origin is that of a garbage collection"


def _hold(rows: Iterator[OnyxEntryRow]) -> Iterator[Violation]:
    for one in played(rows):
        if one.replica is None:
            continue  # S13 says what is wrong with the bytes
        found = list(violations(one.replica))
        if one.before is not None and one.row.kind != ORIGIN:
            found += step_violations(one.before, one.replica)
        for complaint in found:
            yield _about(one, HOLD, "all invariants of a replica", complaint)


def _collected(rows: Iterator[OnyxEntryRow]) -> Iterator[Violation]:
    """Judge that origins begin at the log's beginning, or where a collection stands; those that were played are known."""
    collections: set[int] = set()
    last = -2
    for row in rows:
        if row.kind != ORIGIN:
            last = row.position
            if row.kind == "gc" and isinstance(decode_record(row.entry, row.file).command, Gc):
                collections.add(row.position)
        elif 0 <= row.position <= last and row.position not in collections:
            yield violation_at(
                row,
                rule=RULE,
                promise=COLLECTED,
                subject=f"origin of {row.peer} in {row.tenancy}",
                index=row.position,
                expected="the position of a garbage collection",
                found=f"{row.position}, which holds another entry",
            )


def _about(one: Played, promise: str, expected: str, found: str) -> Violation:
    row = one.row
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"replica after {row.kind} in {row.tenancy}, as {row.peer} plays it",
        index=row.position,
        expected=expected,
        found=found,
    )


ONYX_INVARIANTS: Final = Rule(
    id=RULE,
    title="Invariants of replicas",
    claim="allocations, slots, coordinators, the ring and the gossip pool are sound after every entry",
    checks=(
        Check(HOLD, (Input("onyx_entries", ("tenancy", "peer"), ("seq",)),), _hold),
        Check(COLLECTED, (Input("onyx_entries", ("tenancy", "peer"), ("seq",)),), _collected),
    ),
)
