"""Rows of histories as the records that the checkers of client histories judge. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from onyxlog.audits.rules.check import Check, Input, Judge
from onyxlog.audits.rules.violation import Violation
from onyxlog.audits.tables.histories import HistoryRow
from zraft.checkers.history import (
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
)
from zraft.checkers.history import Violation as Found

Checker = Callable[[Sequence[Sequence[Record]]], Sequence[Found]]


def record_of(row: HistoryRow) -> Record:
    """Return what the client recorded.

    Raises:
        AssertionError: the row has no record of a known kind.
    """
    common = {"client": row.client, "session": row.session, "server": row.server}
    match row.record:
        case "operation":
            return operation_of(row)
        case "event":
            return Event(
                **common,
                at_us=row.at_us,
                type=row.event_type or 0,
                path=row.path or "",
                zxid=_or(row.zxid, -1),
            )
        case "connected":
            return Connected(
                **common, at_us=row.at_us, timeout_ms=row.timeout_ms or 0, resumed=bool(row.resumed)
            )
        case "disconnected":
            return Disconnected(**common, at_us=row.at_us)
        case "expired":
            return Expired(
                **common, at_us=row.at_us, heard_us=_or(row.heard_us, 0), timeout_ms=row.timeout_ms or 0
            )
    raise AssertionError(f"{row.file}:{row.file_offset}: a record {row.record!r}")


def operation_of(row: HistoryRow) -> Operation:
    """Return the operation of a row that is one."""
    return Operation(
        client=row.client,
        session=row.session,
        server=row.server,
        kind=Kind(row.kind or ""),
        path=row.path or "",
        invoked_us=row.at_us,
        returned_us=row.returned_us,
        outcome=Outcome(row.outcome or ""),
        code=row.code or 0,
        zxid=row.zxid or 0,
        value=row.value,
        expected=_or(row.expected, -1),
        version=row.version,
        mzxid=row.mzxid,
        owner=row.owner or 0,
        ephemeral=bool(row.ephemeral),
        created=row.created,
        names=row.names or (),
        further=row.further or (),
        watch=bool(row.watch),
    )


def _or(value: int | None, otherwise: int) -> int:
    return otherwise if value is None else value


def judge_of(rule: str, promise: str, expected: str, *checkers: Checker) -> Judge:
    """Return a judge that hands the histories of all clients, in order, to checkers of whole histories.

    Rows must come by client, then in the order in which it saw them.
    """

    def judge(rows: Iterator[Any]) -> Iterable[Violation]:
        histories: list[list[Record]] = []
        files: dict[int, str] = {}
        for client, some in groupby(rows, key=lambda row: row.client):
            history = []
            for row in some:
                files.setdefault(client, row.file)
                history.append(record_of(row))
            histories.append(history)
        for checker in checkers:
            for found in checker(histories):
                yield Violation(
                    rule=rule,
                    promise=promise,
                    subject=f"{found.checker}",
                    expected=expected,
                    found=found.found,
                )

    return judge


def of_all_clients(rule: str, promise: str, expected: str, *checkers: Checker) -> Check:
    """Return a check in which one task judges all clients.

    A run's histories fit one task, as they fitted their clients' memory.
    """
    return Check(
        promise,
        (Input("histories", (), ("client", "seq")),),
        judge_of(rule, promise, expected, *checkers),
    )
