"""The parts of a rule: checks, each a judge of the rows that share a key, in order. Pure.

A check never sees a table. It names the tables it reads, the columns by which rows belong together and those
by which they are ordered, and has a judge: rows of one key in, violations out, keeping as much as it needs
and no more. So the same judge runs over lists in a test and over sorted partitions of any size on a cluster
(`onyxlog.audits.jobs`).

Good data is plenty and bad data rare, so a check may also say, in SQL, which keys can be in question at all
(`suspects`). It must name every key whose rows the judge would object to, and may name more; tests run each
judge with and without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from onyxlog.audits.rules.violation import Violation

Row = Any
"""A frozen attrs class of `onyxlog.audits.tables`."""
Tables = Mapping[str, Sequence[Row]]
Judge = Callable[[Iterator[Row]], Iterable[Violation]]
"""Judges all rows of one key, in order. It is called once per key that has rows."""

KEEP_ALL: Final[Mapping[str, tuple[Any, ...]]] = {}


@frozen
class Input:
    """Rows of a table that a check reads.

    Attributes:
        key: columns; rows with equal values go to the judge together, across all inputs of a check.
        order: columns of integers, none of them null, in which a key's rows come; or numbers, to put one
            input's rows before another's. At equal ones an earlier input's rows come first.
        where: column to the values that count.
        present: columns that must not be null for a row to count.
    """

    table: str
    key: tuple[str, ...]
    order: tuple[str | int, ...] = ()
    where: Mapping[str, tuple[Any, ...]] = KEEP_ALL
    present: tuple[str, ...] = ()

    def keeps(self, row: Row) -> bool:
        """Return whether the check reads the row."""
        return all(getattr(row, name) in values for name, values in self.where.items()) and all(
            getattr(row, name) is not None for name in self.present
        )


@frozen
class Derived:
    """A table that is computed from others, before any check reads it.

    Attributes:
        name: of the table; unique among tables and derived ones.
        row: its rows' class.
        needs: tables that it is computed from.
        sql: statements that make it of views with the tables' names: each (name of a view, SELECT); the
            last is it.
        rows: the same in Python, for lists.
    """

    name: str
    row: type[Any]
    needs: tuple[str, ...]
    sql: tuple[tuple[str, str], ...]
    rows: Callable[[Tables], Sequence[Row]]


@frozen
class Check:
    """One promise of a rule.

    Attributes:
        promise: its name, as violations have it.
        suspects: SELECT of the key columns, by their names in the first input, from views with the tables' names; ""
            if every key goes to the judge.
        derived: tables that have to be computed first, in this order.
        needed: source tables without rows of which nothing can be judged; () if any of `tables` is enough.
        judged_with: makes one check of this promise and others with an equal `judged_with`, which need the same work:
            it is done once. None: nothing is shared.
    """

    promise: str
    inputs: tuple[Input, ...]
    judge: Judge
    suspects: str = ""
    derived: tuple[Derived, ...] = ()
    needed: tuple[str, ...] = ()
    judged_with: Callable[..., Check] | None = None

    def __attrs_post_init__(self) -> None:
        lengths = {(len(each.key), len(each.order)) for each in self.inputs}
        assert len(lengths) == 1, f"{self.promise}: keys and orders of inputs differ in length: {lengths}"
        assert set(self.needed) <= set(self.tables), (
            f"{self.promise}: needs {self.needed}, reads {self.tables}"
        )

    @property
    def tables(self) -> tuple[str, ...]:
        """The source tables that the check reads, including those that derived ones are computed from."""
        made = {each.name for each in self.derived}
        read = [each.table for each in self.inputs] + [name for each in self.derived for name in each.needs]
        return tuple(dict.fromkeys(name for name in read if name not in made))


@frozen
class Rule:
    """A rule. `id` is "S1" to "S22"; `claim` is what holds if nothing is found, in one sentence."""

    id: str
    title: str
    claim: str
    checks: tuple[Check, ...] = field()

    def judged(self, tables: Tables) -> list[Violation]:
        """Return all violations in lists of rows, as a job must find them, too."""
        return [violation for check in self.checks for violation in judged(check, tables)]


def judged(check: Check, tables: Tables) -> list[Violation]:
    """Return what one check finds in lists of rows, without `suspects`."""
    known: dict[str, Sequence[Row]] = dict(tables)
    for derived in check.derived:
        known[derived.name] = derived.rows(known)
    keyed: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for source, each in enumerate(check.inputs):
        for row in known.get(each.table, ()):
            if each.keeps(row):
                key = tuple(getattr(row, name) for name in each.key)
                order = tuple(at if isinstance(at, int) else getattr(row, at) for at in each.order)
                keyed[key].append((*order, source, row))
    found: list[Violation] = []
    for rows in keyed.values():
        rows.sort(key=lambda row: row[:-1])
        found += check.judge(row[-1] for row in rows)
    return found


def only(violations: Iterable[Violation | None]) -> Iterator[Violation]:
    """Return the violations without None, for judges that are one expression."""
    return (violation for violation in violations if violation is not None)
