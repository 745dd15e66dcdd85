"""S18: messages are delivered unchanged, once, where they were sent to, and at all of these or none. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from onyxlog.audits.rules.check import Check, Derived, Input, Row, Rule, Tables
from onyxlog.audits.rules.stamps import STAMP_SQL, stamp_of
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.deliveries import DeliveryRow
from onyxlog.audits.tables.multicast import MulticastRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S18"
ONCE: Final = "delivered once"
AGREEMENT: Final = "delivered at one destination, delivered at all"
INTEGRITY: Final = "delivered as it was sent"
GENUINE: Final = "only destinations take part"
_MESSAGE: Final = ("producer", "number")
_LOGGED: Final = {
    "standing": (Standing.COMMITTED.value, Standing.OPEN.value),
    "kind": ("start", "stage", "remote"),
}


@frozen(kw_only=True)
class MissingRow:
    """A delivery that a destination's log should have between two of its own, with the place of another destination's."""

    producer: int
    number: int
    destination: int
    destination_server: int
    time: int
    time_group: int
    server: int
    group: int
    offset: int
    file: str
    file_offset: int


def _once(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    first: DeliveryRow | None = None
    for row in rows:
        if first is not None:
            yield _about(row, ONCE, f"at offset {first.offset} only", f"again at offset {row.offset}")
        first = first or row


def _agreement(rows: Iterator[MissingRow]) -> Iterator[Violation]:
    for row in rows:
        yield violation_at(
            row,
            rule=RULE,
            promise=AGREEMENT,
            subject=f"message {row.producer}:{row.number}, delivered by group {row.group} at offset {row.offset}",
            index=row.offset,
            expected=f"a delivery by group {row.destination} on server {row.destination_server}, whose log goes past "
            f"its stamp ({row.time}, {row.time_group})",
            found="none",
        )


def _integrity(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge what groups logged of a message, then its deliveries."""
    sent: MulticastRow | None = None
    for row in rows:
        if isinstance(row, MulticastRow):
            if row.payload_digest is None:
                continue
            if sent is None:
                sent = row
            elif row.payload_digest != sent.payload_digest:
                yield violation_at(
                    row,
                    rule=RULE,
                    promise=INTEGRITY,
                    subject=f"message {row.producer}:{row.number} in the log of group {row.group}",
                    expected=f"contents of digest {sent.payload_digest.hex()}, as group {sent.group} has it"
                    if sent.payload_digest
                    else "contents",
                    found=row.payload_digest.hex(),
                )
        elif sent is not None and sent.payload_digest != row.payload_digest:
            expected = (sent.payload_digest or b"").hex()
            yield _about(
                row,
                INTEGRITY,
                f"contents of digest {expected}, as group {sent.group} logged it",
                row.payload_digest.hex(),
            )


def _genuine(rows: Iterator[MulticastRow]) -> Iterator[Violation]:
    """Judge all that groups logged of one message."""
    destinations: tuple[int, ...] | None = None
    waiting: list[MulticastRow] = []
    for row in rows:
        destinations = destinations or row.destinations
        waiting.append(row)
        if destinations is None:
            continue
        for one in waiting:
            outside = {one.group, one.sender if one.sender is not None else one.group} - set(destinations)
            if outside:
                yield violation_at(
                    one,
                    rule=RULE,
                    promise=GENUINE,
                    subject=f"message {one.producer}:{one.number} to {list(destinations)}",
                    expected="groups among its destinations",
                    found=f"{one.kind} in the log of group {one.group}, of group {one.sender or one.group}",
                )
        waiting = []


def _about(row: DeliveryRow, promise: str, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"message {row.producer}:{row.number} at group {row.group}",
        index=row.offset,
        expected=expected,
        found=found,
    )


def _missing(tables: Tables) -> list[MissingRow]:
    logs: dict[tuple[int, str, int], list[DeliveryRow]] = defaultdict(list)
    witnesses: dict[tuple[int, int, int], DeliveryRow] = {}
    for row in tables.get("deliveries", ()):
        logs[row.server, row.instance, row.group].append(row)
        for destination in row.destinations or ():
            key = (row.producer, row.number, destination)
            known = witnesses.setdefault(key, row)
            if (row.group, row.server, row.offset) < (known.group, known.server, known.offset):
                witnesses[key] = row
    found = []
    for (server, _, group), rows in logs.items():
        have = {(row.producer, row.number) for row in rows}
        stamps = [stamp_of(row) for row in rows]
        for (producer, number, destination), row in witnesses.items():
            if destination != group or (producer, number) in have:
                continue
            if min(stamps) < stamp_of(row) < max(stamps):
                found.append(
                    MissingRow(
                        producer=producer,
                        number=number,
                        destination=group,
                        destination_server=server,
                        time=row.time,
                        time_group=row.time_group,
                        server=row.server,
                        group=row.group,
                        offset=row.offset,
                        file=row.file,
                        file_offset=row.file_offset,
                    )
                )
    return found


MISSING: Final = Derived(
    name="missing_deliveries",
    row=MissingRow,
    needs=("deliveries",),
    sql=(
        (
            "delivery_reaches",
            f"SELECT server, instance, `group`, min({STAMP_SQL}) AS first, max({STAMP_SQL}) AS last "
            "FROM deliveries GROUP BY server, instance, `group`",
        ),
        (
            "addressed_messages",
            "SELECT producer, number, destination, min_by(struct(time, time_group, sub, single, server, `group`, offset, "
            "file, file_offset), struct(`group`, server, offset)) AS one FROM deliveries "
            "LATERAL VIEW explode(destinations) AS destination GROUP BY producer, number, destination",
        ),
        (
            "missing_deliveries",
            "SELECT m.producer, m.number, m.destination, r.server AS destination_server, m.one.time, m.one.time_group, "
            "m.one.server, m.one.`group`, m.one.offset, m.one.file, m.one.file_offset "
            "FROM addressed_messages m JOIN delivery_reaches r ON r.`group` = m.destination "
            "AND r.first < struct(m.one.time, m.one.time_group, m.one.sub, m.one.single) "
            "AND struct(m.one.time, m.one.time_group, m.one.sub, m.one.single) < r.last "
            "LEFT ANTI JOIN deliveries d ON d.server = r.server AND d.instance = r.instance AND d.`group` = r.`group` "
            "AND d.producer = m.producer AND d.number = m.number",
        ),
    ),
    rows=_missing,
)

MULTICAST_INTEGRITY: Final = Rule(
    id=RULE,
    title="Integrity and agreement",
    claim="a message is delivered as it was sent, once by each destination or by none, and only destinations handle it",
    checks=(
        Check(
            ONCE,
            (Input("deliveries", ("server", "instance", "group", *_MESSAGE), ("offset",)),),
            _once,
            suspects="SELECT server, instance, `group`, producer, number FROM deliveries GROUP BY ALL HAVING count(*) > 1",
        ),
        Check(
            AGREEMENT,
            (Input("missing_deliveries", _MESSAGE, ("destination", "destination_server")),),
            _agreement,
            derived=(MISSING,),
        ),
        Check(
            INTEGRITY,
            (
                Input("multicast", _MESSAGE, (0, "group", "position"), _LOGGED),
                Input("deliveries", _MESSAGE, (1, "group", "offset")),
            ),
            _integrity,
            suspects="SELECT producer, number FROM (SELECT producer, number, payload_digest FROM multicast "
            "WHERE payload_digest IS NOT NULL AND kind IN ('start', 'stage', 'remote') AND standing != 'truncated' "
            "UNION ALL SELECT producer, number, payload_digest FROM deliveries) GROUP BY producer, number "
            "HAVING min(payload_digest) != max(payload_digest)",
            needed=("multicast", "deliveries"),
        ),
        Check(
            GENUINE,
            (Input("multicast", _MESSAGE, ("group", "position"), _LOGGED),),
            _genuine,
            suspects="WITH logged AS (SELECT producer, number, `group`, sender, destinations FROM multicast "
            "WHERE kind IN ('start', 'stage', 'remote') AND standing != 'truncated') "
            "SELECT l.producer, l.number FROM logged l JOIN (SELECT DISTINCT producer, number, destinations FROM logged "
            "WHERE destinations IS NOT NULL) d ON l.producer = d.producer AND l.number = d.number "
            "WHERE NOT array_contains(d.destinations, l.`group`) OR NOT array_contains(d.destinations, l.sender)",
            needed=("multicast",),
        ),
    ),
)
