"""S10: sessions end when they may, and their ephemerals live exactly as long. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from onyxlog.audits.rules.check import Check, Input, Rule
from onyxlog.audits.rules.client_records import of_all_clients
from onyxlog.audits.rules.violation import Violation, violation_at
from onyxlog.audits.tables.commands import CommandRow
from onyxlog.audits.tables.placed import Standing
from zraft.checkers.locks import check_locks
from zraft.checkers.sessions import check_ephemerals, check_sessions

RULE: Final = "S10"
EXPIRY: Final = "only a leader's own command expires a session"
SESSIONS: Final = "a session ends after its timeout, and for ever"
EPHEMERALS: Final = "ephemerals live as long as their session"


def _expiry(rows: Iterator[CommandRow]) -> Iterator[Violation]:
    told: set[int] = set()
    for row in rows:
        if row.origin_server != 0 and row.position not in told:
            told.add(row.position)
            yield violation_at(
                row,
                rule=RULE,
                promise=EXPIRY,
                subject=f"expiry of session {row.target}",
                index=row.position,
                expected="a batch of the leader's own",
                found=f"one of server {row.origin_server}",
            )


SESSION_ENDS: Final = Rule(
    id=RULE,
    title="Sessions and ephemerals",
    claim="sessions end by a logged decision after a full timeout of silence, and their ephemerals with them",
    checks=(
        Check(
            EXPIRY,
            (
                Input(
                    "commands",
                    ("group", "target"),
                    ("position", "server"),
                    {"operation": ("expire",), "standing": (Standing.COMMITTED.value,)},
                ),
            ),
            _expiry,
        ),
        of_all_clients(
            RULE, SESSIONS, "silence for a whole timeout before the end, and nothing after it", check_sessions
        ),
        of_all_clients(
            RULE,
            EPHEMERALS,
            "there while the session lives and nobody deletes it, gone for ever afterwards",
            check_ephemerals,
            check_locks,
        ),
    ),
)
