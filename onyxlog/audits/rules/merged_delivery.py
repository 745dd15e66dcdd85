"""S19: all consumers that merge partitions see one order. Pure.

A merger hands out the message with the smallest stamp once no partition can have a smaller one. Logs whose
stamps grow (S16) merge to the deliveries sorted by stamp, in whatever order partitions are read, if and only
if no two messages share a stamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.stamps import stamp_of
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.deliveries import DeliveryRow

RULE: Final = "S19"
UNIQUE: Final = "a stamp is one message's"


def _unique(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    first: DeliveryRow | None = None
    for row in rows:
        if first is None:
            first = row
        elif (row.producer, row.number) != (first.producer, first.number):
            yield violation_at(
                row,
                rule=RULE,
                promise=UNIQUE,
                subject=f"stamp {stamp_of(row)}",
                index=row.offset,
                expected=f"message {first.producer}:{first.number}, as group {first.group} has it at {first.offset}",
                found=f"message {row.producer}:{row.number}",
            )


MERGED_DELIVERY: Final = Rule(
    id=RULE,
    title="Merged order",
    claim="whoever merges partitions gets the order of stamps, because no two messages share one",
    checks=(
        Check(
            UNIQUE,
            (Input("deliveries", ("time", "time_group", "sub", "single"), ("group", "server", "offset")),),
            _unique,
            suspects="SELECT time, time_group, sub, single FROM deliveries GROUP BY ALL "
            "HAVING min(struct(producer, number)) != max(struct(producer, number))",
        ),
    ),
)
