"""S13: peers that applied the same positions of the log are the same, at every position. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.onyx_replay import ORIGIN, played
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.onyx_entries import OnyxEntryRow
from onyxlog.audits.tables.replica_digests import ReplicaDigestRow
from onyxlog.replica.digests import digest

RULE: Final = "S13"
EQUAL: Final = "one chain per position"
CONTINUOUS: Final = "no position is skipped or repeated"
RECOMPUTED: Final = "chains and digests follow from the entries"
_RECORDING: Final = ("tenancy", "peer")


def _equal(rows: Iterator[ReplicaDigestRow | OnyxEntryRow]) -> Iterator[Violation]:
    first: Row | None = None
    of_digest: Row | None = None
    for row in rows:
        if first is None:
            first = row
        elif row.chain != first.chain:
            yield _about(row, EQUAL, f"{first.chain.hex()}, as {first.peer} has it", row.chain.hex())
            continue
        if row.digest is None:
            continue
        if of_digest is None:
            of_digest = row
        elif row.digest != of_digest.digest:
            yield _about(
                row, EQUAL, f"replica {of_digest.digest.hex()}, as {of_digest.peer} has it", row.digest.hex()
            )


def _continuous(rows: Iterator[OnyxEntryRow]) -> Iterator[Violation]:
    before: OnyxEntryRow | None = None
    for row in rows:
        if before is not None and row.kind != ORIGIN and row.position != before.position + 1:
            yield _about(row, CONTINUOUS, f"position {before.position + 1}", f"position {row.position}")
        elif before is not None and row.kind == ORIGIN and row.position < before.position:
            yield _about(
                row, CONTINUOUS, f"an origin at {before.position} or later", f"one at {row.position}"
            )
        before = row


def _recomputed(rows: Iterator[OnyxEntryRow]) -> Iterator[Violation]:
    for one in played(rows):
        row = one.row
        if one.replica is None or one.chain is None:
            if row.kind == ORIGIN or "position" not in one.problem:
                yield _about(row, RECOMPUTED, "bytes of an entry", one.problem)
        elif one.chain != row.chain:
            yield _about(row, RECOMPUTED, f"chain {one.chain.hex()}", row.chain.hex())
        elif digest(one.replica) != row.digest:
            yield _about(row, RECOMPUTED, f"replica {digest(one.replica).hex()}", row.digest.hex())


def _about(row: Row, promise: str, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"replica of {row.peer} in {row.tenancy}",
        index=row.position,
        expected=expected,
        found=found,
    )


REPLICA_DIGESTS: Final = Rule(
    id=RULE,
    title="Replicas of peers",
    claim="peers play every position once, and have equal replicas at equal positions, which are what the log makes of it",
    checks=(
        Check(
            EQUAL,
            (
                Input("replica_digests", ("tenancy", "position"), (0, "at_ms")),
                Input("onyx_entries", ("tenancy", "position"), (1, "seq")),
            ),
            _equal,
            suspects="SELECT tenancy, position FROM (SELECT tenancy, position, chain, digest FROM replica_digests "
            "UNION ALL SELECT tenancy, position, chain, digest FROM onyx_entries) GROUP BY tenancy, position "
            "HAVING min(chain) != max(chain) OR min(digest) != max(digest)",
        ),
        Check(CONTINUOUS, (Input("onyx_entries", _RECORDING, ("seq",)),), _continuous),
        Check(RECOMPUTED, (Input("onyx_entries", _RECORDING, ("seq",)),), _recomputed),
    ),
)
