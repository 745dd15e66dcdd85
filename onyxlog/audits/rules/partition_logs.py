"""S20: a partition's log has no gap, follows its Raft log in order, and keeps each producer's order. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.deliveries import DeliveryRow

RULE: Final = "S20"
DENSE: Final = "offsets are dense and follow the Raft log"
PRODUCERS: Final = "a producer's messages stay in order"
_LOG: Final = ("server", "instance", "group")


def _dense(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    before: DeliveryRow | None = None
    for row in rows:
        if before is not None and row.offset != before.offset + before.span:
            yield _about(row, DENSE, f"offset {before.offset + before.span}", f"offset {row.offset}")
        elif before is not None and row.index < before.index:
            yield _about(row, DENSE, f"Raft index {before.index} or later", f"{row.index}")
        before = row


def _producers(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    """Judge one producer's messages in one log.

    A round's come behind all earlier ones, and all later ones behind them.
    """
    single: DeliveryRow | None = None
    ordered: DeliveryRow | None = None
    highest: DeliveryRow | None = None
    for row in rows:
        in_round = row.sub > 0 and not row.single
        # A producer that orders nothing may have several messages to several partitions on the way.
        is_single = row.destinations is not None and len(row.destinations) == 1
        before = highest if in_round else single if is_single else ordered
        if before is not None and row.number <= before.number:
            yield _about(
                row,
                PRODUCERS,
                f"a number above {before.number}, which is at offset {before.offset}",
                f"{row.number}",
            )
        if highest is None or row.number > highest.number:
            highest = row
        if in_round:
            single = ordered = row
        elif is_single:
            single = row


def _about(row: DeliveryRow, promise: str, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"message {row.producer}:{row.number} at offset {row.offset} of group {row.group}",
        index=row.offset,
        expected=expected,
        found=found,
    )


PARTITION_LOGS: Final = Rule(
    id=RULE,
    title="Logs of partitions",
    claim="offsets have no gap, deliveries follow the Raft log, and what a producer sends to one partition "
    "or in order stays in order",
    checks=(
        Check(
            DENSE,
            (Input("deliveries", _LOG, ("offset",)),),
            _dense,
            suspects="SELECT DISTINCT server, instance, `group` FROM (SELECT server, instance, `group`, offset, `index`, "
            "lag(offset + span) OVER w AS expected, lag(`index`) OVER w AS index_before FROM deliveries "
            "WINDOW w AS (PARTITION BY server, instance, `group` ORDER BY offset)) "
            "WHERE offset != expected OR `index` < index_before",
        ),
        Check(
            PRODUCERS,
            (Input("deliveries", (*_LOG, "producer"), ("offset",)),),
            _producers,
            suspects="SELECT DISTINCT server, instance, `group`, producer FROM (SELECT server, instance, `group`, producer, "
            "number, lag(number) OVER (PARTITION BY server, instance, `group`, producer ORDER BY offset) AS before "
            "FROM deliveries WHERE size(destinations) = 1) WHERE number <= before "
            "UNION SELECT server, instance, `group`, producer FROM (SELECT server, instance, `group`, producer, number, "
            "max(number) OVER w AS before, max(IF(sub > 0 AND single = 0, number, NULL)) OVER w AS in_round, "
            "sub > 0 AND single = 0 AS is_in_round FROM deliveries WINDOW w AS (PARTITION BY server, instance, `group`, "
            "producer ORDER BY offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) "
            "WHERE number <= in_round OR is_in_round AND number <= before",
        ),
    ),
)
