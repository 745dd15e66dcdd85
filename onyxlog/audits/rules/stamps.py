"""S16: a message has one stamp everywhere, the largest proposal of its destinations, and stamps grow in every log. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import define, field

from onyxlog.audits.rules.check import Check, Input, Row, Rule
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.deliveries import DeliveryRow
from onyxlog.audits.tables.multicast import MulticastRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S16"
ONE: Final = "one stamp and content per message"
GROW: Final = "stamps grow with offsets"
REPLICAS: Final = "replicas deliver alike"
LARGEST: Final = "the stamp is the largest proposal"
ROUNDS: Final = "a round's messages are at its stamp"
_LOG: Final = ("server", "instance", "group")
_MESSAGE: Final = ("producer", "number")
_COMMITTED: Final = {"standing": (Standing.COMMITTED.value, Standing.OPEN.value)}
STAMP_SQL: Final = "struct(time, time_group, sub, single)"


def stamp_of(row: DeliveryRow) -> tuple[int, int, int, int]:
    """Return the stamp of a delivery."""
    return row.time, row.time_group, row.sub, row.single


def described(row: DeliveryRow) -> str:
    """Return a delivery's stamp and message as text for a violation."""
    return f"stamp {stamp_of(row)}, message {row.producer}:{row.number} of digest {row.payload_digest.hex()}"


def _one(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    first: DeliveryRow | None = None
    for row in rows:
        if row.destinations is not None and row.group not in row.destinations:
            yield _about(row, ONE, f"delivery at {list(row.destinations)} only", f"one at {row.group}")
        elif first is None:
            first = row
        elif (stamp_of(row), row.payload_digest) != (stamp_of(first), first.payload_digest):
            yield _about(row, ONE, f"{described(first)}, as at group {first.group}", described(row))


def _grow(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    before: DeliveryRow | None = None
    for row in rows:
        if before is not None and stamp_of(row) <= stamp_of(before):
            yield _about(
                row, GROW, f"a stamp above {stamp_of(before)} at {before.offset}", f"{stamp_of(row)}"
            )
        before = row


def _replicas(rows: Iterator[DeliveryRow]) -> Iterator[Violation]:
    first: DeliveryRow | None = None
    for row in rows:
        if first is None:
            first = row
        elif row.chain != first.chain:
            yield _about(
                row,
                REPLICAS,
                f"chain {first.chain.hex()} ({described(first)}), as on server {first.server}",
                f"chain {row.chain.hex()} ({described(row)})",
            )


def _largest(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge a message's proposals as groups logged them, then its deliveries."""
    proposals: dict[int, MulticastRow] = {}
    for row in rows:
        if isinstance(row, MulticastRow):
            if row.sender is None or row.time is None:
                continue
            known = proposals.setdefault(row.sender, row)
            if known.time != row.time:
                yield violation_at(
                    row,
                    rule=RULE,
                    promise=LARGEST,
                    subject=f"proposal of group {row.sender} for message {row.producer}:{row.number}",
                    expected=f"{known.time}, as group {known.group} logged it",
                    found=f"{row.time}",
                )
        elif row.destinations is not None and len(row.destinations) > 1 and proposals:
            largest = max((one.time or 0, sender) for sender, one in proposals.items())
            final = (row.time, row.time_group)
            complete = set(proposals).issuperset(row.destinations)
            if final < largest or (complete and final != largest):
                yield _about(row, LARGEST, f"the largest proposal, {largest}", f"{final}")


@define
class _Round:
    """Round as the groups logged it."""

    first: int = 0
    upto: int = 0
    destinations: tuple[int, ...] = ()
    proposals: dict[int, int] = field(factory=dict)

    def covers(self, row: DeliveryRow) -> bool:
        return self.first <= row.number <= self.upto

    def fits(self, row: DeliveryRow) -> bool:
        final = (row.time, row.time_group)
        largest = max(((time, sender) for sender, time in self.proposals.items()), default=(0, 0))
        complete = set(self.proposals).issuperset(self.destinations) and len(self.destinations) > 1
        return row.sub == row.number - self.first + 1 and (final == largest if complete else final >= largest)


def _rounds(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge what is logged and delivered of one producer, by number.

    A round comes behind the messages that it puts in order.
    """
    waiting: list[tuple[DeliveryRow, list[_Round]]] = []
    number, current = 0, _Round()
    for row in rows:
        if row.number != number:
            waiting, wrong = _judged(waiting, current)
            yield from wrong
            number, current = row.number, _Round()
        if isinstance(row, DeliveryRow):
            if row.sub:
                waiting.append((row, []))
            continue
        if row.round_first is not None:
            current.first, current.upto = row.round_first, row.round_upto
            current.destinations = row.destinations
        if row.sender is not None and row.time is not None:
            current.proposals[row.sender] = row.time
    waiting, wrong = _judged(waiting, current)
    yield from wrong
    yield from _judged(waiting, _Round(first=number + 1))[1]


def _judged(
    waiting: list[tuple[DeliveryRow, list[_Round]]], done: _Round
) -> tuple[list[tuple[DeliveryRow, list[_Round]]], list[Violation]]:
    """Judge what still waits for its round, and what no round fits: a later one does not go back to it."""
    if not done.first:
        return waiting, []
    left: list[tuple[DeliveryRow, list[_Round]]] = []
    wrong: list[Violation] = []
    for row, tried in waiting:
        if done.covers(row):
            # A round that nobody began may be logged, and its messages are then in another one.
            if not done.fits(row):
                left.append((row, [*tried, done]))
        elif row.number > done.upto and done.upto:
            left.append((row, tried))
        elif tried:
            one = tried[-1]
            wrong.append(
                _about(
                    row,
                    ROUNDS,
                    f"place {row.number - one.first + 1} of a round of numbers {one.first} to {one.upto}, at the "
                    f"largest of the proposals {sorted(one.proposals.items())}",
                    f"stamp {stamp_of(row)}",
                )
            )
    return left, wrong


def _about(row: DeliveryRow, promise: str, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=promise,
        subject=f"message {row.producer}:{row.number} at offset {row.offset}",
        index=row.offset,
        expected=expected,
        found=found,
    )


STAMPS: Final = Rule(
    id=RULE,
    title="Stamps of messages",
    claim="a message has one stamp and content at all its destinations and replicas, and stamps grow with offsets",
    checks=(
        Check(
            ONE,
            (Input("deliveries", _MESSAGE, ("group", "server", "offset")),),
            _one,
            suspects=f"SELECT producer, number FROM deliveries GROUP BY ALL HAVING min({STAMP_SQL}) != max({STAMP_SQL}) "
            "OR min(payload_digest) != max(payload_digest) OR bool_or(NOT array_contains(destinations, `group`))",
        ),
        Check(
            GROW,
            (Input("deliveries", _LOG, ("offset",)),),
            _grow,
            suspects="SELECT DISTINCT server, instance, `group` FROM (SELECT server, instance, `group`, "
            f"{STAMP_SQL} AS stamp, lag({STAMP_SQL}) OVER (PARTITION BY server, instance, `group` ORDER BY offset) "
            "AS before FROM deliveries) WHERE stamp <= before",
        ),
        Check(
            REPLICAS,
            (Input("deliveries", ("group", "offset"), ("server",)),),
            _replicas,
            suspects="SELECT `group`, offset FROM deliveries GROUP BY ALL HAVING min(chain) != max(chain)",
        ),
        Check(
            LARGEST,
            (
                Input("multicast", _MESSAGE, (0, "group", "position"), {**_COMMITTED, "kind": ("remote",)}),
                Input("deliveries", _MESSAGE, (1, "group", "offset")),
            ),
            _largest,
            suspects="WITH proposed AS (SELECT producer, number, max(named_struct('t', time, 'g', sender)) AS largest, "
            "count(DISTINCT sender) AS senders, count(DISTINCT struct(sender, time)) AS times FROM multicast "
            "WHERE kind = 'remote' AND standing != 'truncated' GROUP BY producer, number), "
            "final AS (SELECT producer, number, min(named_struct('t', time, 'g', time_group)) AS low, "
            "max(named_struct('t', time, 'g', time_group)) AS high, max(size(destinations)) AS destinations FROM deliveries "
            "WHERE size(destinations) > 1 GROUP BY producer, number) "
            "SELECT p.producer, p.number FROM proposed p LEFT JOIN final f "
            "ON p.producer = f.producer AND p.number = f.number "
            "WHERE senders != times OR low < largest OR (senders >= destinations AND (low != largest OR high != largest))",
            needed=("multicast", "deliveries"),
        ),
        Check(
            ROUNDS,
            (
                Input(
                    "multicast",
                    ("producer",),
                    ("number", 0, "group", "position"),
                    {**_COMMITTED, "kind": ("start", "remote")},
                ),
                Input("deliveries", ("producer",), ("number", 1, "group", "offset"), {"single": (0,)}),
            ),
            _rounds,
            suspects="SELECT DISTINCT producer FROM deliveries WHERE sub > 0 AND single = 0",
            needed=("multicast", "deliveries"),
        ),
    ),
)
