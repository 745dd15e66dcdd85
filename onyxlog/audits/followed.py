"""Which tables an audit follows, and what one batch of them comes to: violations, and rows that stay open. Pure.

What is judged is what can be said at once: that servers and peers agree where they have to. The judges are the rules' own.
Rows of a key stay until all servers have told of it, or it is too far behind; so what is kept is what the slowest one lacks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from onyxlog.audits.rules.catalogue import RULES
from onyxlog.audits.rules.check import Check, judged
from onyxlog.audits.rules.violation import Violation

INDEXES_KEPT: Final = 100_000
"""How far behind the newest index a key that some server has not told of is given up."""


@frozen
class Followed:
    """A table that is followed, and what is judged in it.

    Attributes:
        promises: (rule, promise) of checks; they are judged by this table's rows alone.
        key: rows with equal values can contradict each other.
        teller: the column by which those are told apart that all have to tell of a key; None: the newest row of each key
            stays, whoever told it.
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
        """Of a row in the order in which it was written."""
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
    """Those of its promises, over the rows of its table alone."""
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
    """What rows say that nobody was told yet; `told`: `identity` of violations of earlier batches."""
    known = set(told)
    found: list[Violation] = []
    for check in checks_of(followed):
        for one in judged(check, {followed.table: rows}):
            if identity(one) not in known:
                known.add(identity(one))
                found.append(one)
    return found


def identity(violation: Violation) -> tuple[Any, ...]:
    """Equal of violations that are about the same: several rows may show it. What has no index is about its file."""
    place = violation.file if violation.index is None else violation.index
    return (violation.rule, violation.promise, violation.subject, violation.group, place)


def left_open(followed: Followed, rows: Iterable[Any], tellers: int) -> list[Any]:
    """Of rows those that later ones may contradict; `tellers`: how many have to tell of each key."""
    by_key: dict[tuple[Any, ...], dict[Any, Any]] = {}
    newest = 0
    for row in rows:
        key = tuple(getattr(row, name) for name in followed.key)
        position = getattr(row, followed.position)
        newest = max(newest, position)
        said = by_key.setdefault(key, {})
        if followed.teller is None:
            last = said.get(None)
            if last is None or followed.place(row) > followed.place(last):
                said[None] = row
            continue
        teller = getattr(row, followed.teller)
        first = said.get(teller)
        if first is None or (row.file, row.file_offset) < (first.file, first.file_offset):
            said[teller] = row
    if followed.teller is None:
        return [row for said in by_key.values() for row in said.values()]
    return [
        row
        for said in by_key.values()
        if len(said) < tellers
        for row in said.values()
        if getattr(row, followed.position) > newest - INDEXES_KEPT
    ]
