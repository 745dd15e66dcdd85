"""S8: numbered commands name one thing, acknowledged writes are in the log, and each is there once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

from onyxlog.audits.rules.check import Check, Derived, Input, Row, Rule, Tables
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.commands import CommandRow
from onyxlog.audits.tables.histories import HistoryRow
from onyxlog.audits.tables.placed import Standing

RULE: Final = "S8"
NUMBERS: Final = "a number names one command"
LOGGED: Final = "what was acknowledged is in the log, once"
_COMMITTED: Final = {"standing": (Standing.COMMITTED.value,)}
_IN_THE_LOG: Final = {"standing": (Standing.COMMITTED.value, Standing.OPEN.value)}
"""Open entries count, too: nothing that was read may show that the last ones are committed."""
_KINDS: Final = ("create", "set", "multi set")


def _command(row: CommandRow) -> tuple[Any, ...]:
    return row.operation, row.path, row.data_digest, row.version, row.flags, row.number


def _numbers(rows: Iterator[CommandRow]) -> Iterator[Violation]:
    first: CommandRow | None = None
    for row in rows:
        if first is None:
            first = row
        elif _command(row) != _command(first):
            yield violation_at(
                row,
                rule=RULE,
                promise=NUMBERS,
                subject=f"command {row.once_seq} of session {row.session}",
                index=row.position,
                expected=f"{_described(first)}, as at position {first.position} ({first.file}:{first.file_offset})",
                found=_described(row),
            )


def _described(row: CommandRow) -> str:
    data = "" if row.data_digest is None else f" with {row.data_digest.hex()}"
    return f"{row.operation} {row.path or ''}{data}"


def _logged(rows: Iterator[Row]) -> Iterator[Violation]:
    """Judge writes to one znode as clients saw them, then as they stand in the log. Each value is written once."""
    asked: dict[bytes, HistoryRow] = {}
    logged: dict[bytes, dict[tuple[Any, ...], CommandRow]] = {}
    for row in rows:
        if isinstance(row, HistoryRow):
            if row.value is not None:
                asked[blake2b(row.value.encode(), digest_size=16).digest()] = row
        elif row.data_digest in asked:
            # A batch may stand in the log twice, and so may a numbered command: each is executed once.
            origin = (row.origin_server, row.origin_instance, row.origin_boot, row.origin_seq)
            by_number = (row.session, row.once_seq)
            logged.setdefault(row.data_digest, {})[origin if row.once_seq is None else by_number] = row
    for digest, write in asked.items():
        found = logged.get(digest, {})
        if write.outcome == "ok" and not found:
            yield _about(write, "in the log", "not in the log of any server")
        elif len(found) > 1:
            places = ", ".join(str(row.position) for row in found.values())
            yield _about(write, "in the log once", f"at positions {places}")


def _about(row: HistoryRow, expected: str, found: str) -> Violation:
    return violation_at(
        row,
        rule=RULE,
        promise=LOGGED,
        subject=f"{row.kind} {row.path} = {row.value!r} of client {row.client}, {row.outcome}",
        index=row.zxid,
        expected=expected,
        found=found,
    )


def _begins(tables: Tables) -> int:
    """Return the zxid after which some server's log has everything; 0 if one begins at the beginning."""
    firsts: dict[tuple[int, str], int] = {}
    for row in tables.get("entries", ()):
        if row.group == 0:
            key = (row.server, row.instance)
            firsts[key] = min(firsts.get(key, row.index), row.index)
    known = [0 for first in firsts.values() if first == 1]
    for row in tables.get("snapshots", ()):
        first = firsts.get((row.server, row.instance))
        if row.group == 0 and row.damage is None and first is not None and row.index >= first - 1:
            known.append(row.zxid)
    return min(known, default=2**63 - 1)


def _covered(tables: Tables) -> list[HistoryRow]:
    after = _begins(tables)
    return [
        row
        for row in tables.get("histories", ())
        if row.record == "operation" and row.kind in _KINDS and row.outcome != "fail"
        if after == 0 or (row.zxid or 0) > after
    ]


COVERED: Final = Derived(
    name="covered_writes",
    row=HistoryRow,
    needs=("histories", "entries", "snapshots"),
    sql=(
        (
            "log_beginnings",
            "SELECT server, instance, min(`index`) AS first FROM entries WHERE `group` = 0 GROUP BY ALL",
        ),
        (
            "log_covers_after",
            "SELECT coalesce(min(zxid), 9223372036854775807L) AS after FROM ("
            "SELECT 0L AS zxid FROM log_beginnings WHERE first = 1 UNION ALL "
            "SELECT s.zxid FROM snapshots s JOIN log_beginnings b ON s.server = b.server AND s.instance = b.instance "
            "WHERE s.`group` = 0 AND s.damage IS NULL AND s.`index` >= b.first - 1)",
        ),
        (
            "covered_writes",
            "SELECT h.* FROM histories h CROSS JOIN log_covers_after c WHERE record = 'operation' "
            "AND kind IN ('create', 'set', 'multi set') AND outcome != 'fail' "
            "AND (c.after = 0 OR coalesce(h.zxid, 0) > c.after)",
        ),
    ),
    rows=_covered,
)

EXACTLY_ONCE: Final = Rule(
    id=RULE,
    title="Exactly once",
    claim="a number that a session gave names one command, and an acknowledged write is in the log exactly once",
    checks=(
        Check(
            NUMBERS,
            (
                Input(
                    "commands",
                    ("group", "session", "once_seq", "part"),
                    ("position", "server"),
                    _COMMITTED,
                    present=("once_seq",),
                ),
            ),
            _numbers,
            suspects="SELECT `group`, session, once_seq, part FROM commands WHERE once_seq IS NOT NULL "
            "AND standing = 'committed' GROUP BY ALL "
            "HAVING count(DISTINCT struct(operation, path, data_digest, version, flags, number)) > 1",
        ),
        Check(
            LOGGED,
            (
                Input("covered_writes", ("path",), (0, "at_us")),
                Input("commands", ("path",), (1, "position"), _IN_THE_LOG, present=("data_digest",)),
            ),
            _logged,
            derived=(COVERED,),
            suspects="SELECT path FROM covered_writes",
            needed=("histories", "commands"),
        ),
    ),
)
