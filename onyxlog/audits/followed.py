"""Tables that an audit follows, and the results of one batch: violations, and rows that stay open.

It judges what can be said at once: that servers and peers agree where they have to. The judges are the rules'
own. Rows of a key stay open until all servers have told about it; so what is kept is what the slowest one
lacks, within bounds. A batch is judged with the open rows of its own keys only, so it costs what it brings,
however much is open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check, judged
from onyxlog.audits.rules.violation import Violation

OPEN_ROWS_MAX: Final = 200_000
"""The number of rows of a table that stay open; beyond, keys that were told about longest ago are given up.

An entry's row takes some 900 bytes.
"""


@frozen
class Followed:
    """A table that is followed, and what is judged in it.

    Attributes:
        promises: (rule, promise) of checks; they are judged by this table's rows alone.
        key: rows with equal values can contradict each other; no others can.
        teller: the column that tells apart those that all have to tell about a key; None: the newest row
            of each key stays, whoever told it.
        position: the column that grows; at equal values `then` does.
        where: SQL that chooses the rows that count.
    """

    table: str
    promises: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    position: str
    teller: str | None = "server"
    where: str = "true"
    then: str = "file_offset"

    def place(self, row: Any) -> tuple[int, int]:
        """Return a row's place in the order in which rows were written."""
        return getattr(row, self.position), getattr(row, self.then)


FOLLOWED: Final = (
    Followed(
        "entries",
        (("S2", "equal index and term, equal entry and predecessor"),),
        ("group", "index", "term"),
        "index",
        where="standing = 'committed'",
    ),
    Followed(
        "events", (("S4", "one state per index"),), ("group", "index"), "index", where="kind = 'digest'"
    ),
    Followed(
        "deliveries",
        (("S16", "replicas deliver alike"),),
        ("group", "offset"),
        "offset",
    ),
    Followed(
        "hard_states",
        (("S1", "a vote is given once"),),
        ("server", "instance", "group"),
        "frame",
        teller=None,
        then="record",
    ),
    Followed(
        "replica_digests",
        (("S13", "one chain per position"),),
        ("tenancy", "position"),
        "position",
        teller="peer",
        where="source = 'recorded'",
    ),
    Followed("files", (("S6", "files are whole"),), ("file",), "file_offset", teller=None),
)


def checks_of(followed: Followed) -> list[Check]:
    """Return the checks of its promises, over the rows of its table alone."""
    wanted = set(followed.promises)
    found = [
        evolve(check, inputs=tuple(one for one in check.inputs if one.table == followed.table), suspects="")
        for rule in RULES.values()
        for check in rule.checks
        if (rule.id, check.promise) in wanted
    ]
    assert len(found) == len(wanted), f"{followed.table}: no such checks: {wanted}"
    return found


def violations_in(
    followed: Followed, rows: Sequence[Any], told: Collection[tuple[Any, ...]]
) -> list[Violation]:
    """Return violations in rows that are not reported yet; `told`: `identity` of violations of earlier batches."""
    known = set(told)
    found: list[Violation] = []
    for check in checks_of(followed):
        for one in judged(check, {followed.table: rows}):
            if identity(one) not in known:
                known.add(identity(one))
                found.append(one)
    return found


def identity(violation: Violation) -> tuple[Any, ...]:
    """Return what is equal for violations about the same thing, as several rows may show it.

    Without an index it is about its file.
    """
    place = violation.file if violation.index is None else violation.index
    return (violation.rule, violation.promise, violation.subject, violation.group, place)


@frozen
class Taken:
    """The outcome of a batch.

    Attributes:
        judged: its rows, and those that were open of its keys.
        noted: those of its rows that matter for what is open: taken in this order after all that was
            noted before, they make the same `OpenRows` again.
        given_up: how many rows were open for too long.
    """

    judged: list[Any]
    noted: list[Any]
    given_up: int


class OpenRows:
    """Rows that later ones may contradict."""

    def __init__(self, followed: Followed, tellers: int, rows_max: int = OPEN_ROWS_MAX) -> None:
        """Begin empty. `tellers`: how many have to tell about each key."""
        self._followed = followed
        self._tellers = tellers
        self._rows_max = rows_max
        self._by_key: dict[tuple[Any, ...], dict[Any, Any]] = {}
        """The rows of each open key, by teller; those that were told about longest ago come first."""
        self._rows = 0

    def __len__(self) -> int:
        return self._rows

    def __iter__(self) -> Iterator[Any]:
        return (row for said in self._by_key.values() for row in said.values())

    def take(self, rows: Iterable[Any]) -> Taken:
        """Take the rows of a batch."""
        by_key: dict[tuple[Any, ...], list[Any]] = {}
        for row in rows:
            key = tuple(getattr(row, name) for name in self._followed.key)
            by_key.setdefault(key, []).append(row)
        judged: list[Any] = []
        noted: list[Any] = []
        for key, new in by_key.items():
            before = self._by_key.pop(key, {})
            self._rows -= len(before)
            judged += [*before.values(), *new]
            said = self._told(before, new)
            if self._followed.teller is None or len(said) < self._tellers:
                self._by_key[key] = said
                self._rows += len(said)
            if before or key in self._by_key:
                noted += new
        return Taken(judged, noted, self._give_up())

    def _give_up(self) -> int:
        before = self._rows
        while self._rows > self._rows_max:
            self._rows -= len(self._by_key.pop(next(iter(self._by_key))))
        return before - self._rows

    def _told(self, before: dict[Any, Any], rows: list[Any]) -> dict[Any, Any]:
        """Keep the first row of each teller; if it does not matter who tells, the newest."""
        said = dict(before)
        for row in rows:
            if self._followed.teller is not None:
                said.setdefault(getattr(row, self._followed.teller), row)
            elif None not in said or self._followed.place(row) > self._followed.place(said[None]):
                said[None] = row
        return said
