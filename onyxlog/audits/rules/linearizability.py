"""S9: every key was one register, zxids tell one order, and reads show a moment of it. Pure.

The search per key is that of `zraft.checkers.linearizability`, which takes nothing from zxids; the order of
zxids is judged beside it, over all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from attrs import evolve

from onyxlog.audits.rules.check import Check, Derived, Input, Rule, Tables
from onyxlog.audits.rules.client_records import of_all_clients, operation_of
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.histories import HistoryRow
from zraft.checkers.history import Kind, Operation, Outcome, describe
from zraft.checkers.linearizability import Broken, Call, UndecidedError, check
from zraft.checkers.order import check_reads, check_zxids
from zraft.checkers.registers import ANONYMOUS, Absent, Present, Register, State

RULE: Final = "S9"
REGISTERS: Final = "each key is linearizable"
ORDER: Final = "zxids are one order"
READS: Final = "reads show a moment of it"

_KINDS: Final = (Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET, Kind.SYNC_GET)
_NUMBERED: Final = re.compile(r"-([0-9]{10})?\Z")
"""Sequential znodes, which S11 judges."""


def _registers(rows: Iterator[HistoryRow]) -> Iterator[Violation]:
    taken = list(rows)
    path = taken[0].path or ""
    if _NUMBERED.search(path) or any(row.ephemeral for row in taken):
        return
    history = [operation_of(row) for row in taken]
    written = [one.value for one in history if one.kind is not Kind.SYNC_GET and one.value is not None]
    if len(written) != len(set(written)):
        yield _violation(
            taken[-1],
            "values that are written once each, so that the history can be judged",
            "one written twice",
        )
        return
    calls = [Call(one, one.invoked_us, one.returned_us) for one in history]
    found: list[Broken[Operation]] = []
    try:
        for start in _starts(history):
            broken = check(calls, Register(history, start))
            if broken is None:
                return
            found.append(broken)
    except UndecidedError as error:
        yield _violation(taken[-1], "a history that can be decided", str(error))
        return
    # Take the state, of those that the key may have begun with, that explains most.
    broken = max(found, key=lambda each: each.operation.returned_us or 0)
    witness = next(row for row, one in zip(taken, history, strict=True) if one is broken.operation)
    yield _violation(
        witness, f"an answer that follows from one of {broken.states}", describe(broken.operation)
    )


def _starts(history: Sequence[Operation]) -> Iterator[State]:
    """Return what the key may have held before the clients began, as far as what they saw allows.

    Nothing recorded says so.
    """
    yield Absent()
    written = {one.value for one in history if one.kind is not Kind.SYNC_GET}
    reads = [one for one in history if one.kind is Kind.SYNC_GET and one.outcome is Outcome.OK]
    unknown = {(one.value, one.version) for one in reads if one.value not in written}
    if len(unknown) == 1:
        ((value, version),) = unknown
        yield Present(value, version or 0)
    yield Present(ANONYMOUS, 0)
    versions = [one.version for one in history if one.outcome is Outcome.OK and one.version is not None]
    if versions:
        yield Present(ANONYMOUS, max(0, min(versions) - 1))


def _violation(row: HistoryRow, expected: str, found: str) -> Violation:
    return violation_at(
        row, rule=RULE, promise=REGISTERS, subject=f"znode {row.path}", expected=expected, found=found
    )


def _key_operations(tables: Tables) -> list[HistoryRow]:
    found = []
    for row in tables.get("histories", ()):
        if row.record == "operation" and row.kind in _KINDS:
            found.append(row)
            if row.outcome != Outcome.FAIL:
                # Its condition was on another znode: here it happened or not, at whatever version.
                found += [
                    evolve(row, path=path, expected=-1, version=None, further=())
                    for path in row.further or ()
                ]
    return found


_NAMES: Final = tuple(field.name for field in attrs.fields(HistoryRow))
_OTHERS: Final = {
    "path": "other",
    "expected": "-1L",
    "version": "CAST(NULL AS BIGINT)",
    "further": "CAST(array() AS ARRAY<STRING>)",
}
_OF_KINDS: Final = f"record = 'operation' AND kind IN ({', '.join(repr(str(kind)) for kind in _KINDS)})"

KEY_OPERATIONS: Final = Derived(
    name="key_operations",
    row=HistoryRow,
    needs=("histories",),
    sql=(
        (
            "key_operations",
            f"SELECT {', '.join(f'`{name}`' for name in _NAMES)} FROM histories WHERE {_OF_KINDS} UNION ALL SELECT "
            + ", ".join(f"{_OTHERS.get(name, f'`{name}`')} AS `{name}`" for name in _NAMES)
            + f" FROM histories LATERAL VIEW explode(further) AS other WHERE {_OF_KINDS} AND outcome != 'fail'",
        ),
    ),
    rows=_key_operations,
)

LINEARIZABILITY: Final = Rule(
    id=RULE,
    title="Linearizability",
    claim="what clients wrote and read with sync fits one order per key that respects real time, and zxids are that order",
    checks=(
        Check(
            REGISTERS,
            (Input("key_operations", ("path",), ("at_us", "client", "seq")),),
            _registers,
            derived=(KEY_OPERATIONS,),
        ),
        of_all_clients(
            RULE, ORDER, "zxids that grow within sessions, and along real time for writes", check_zxids
        ),
        of_all_clients(RULE, READS, "the last write up to the read's own zxid", check_reads),
    ),
)
