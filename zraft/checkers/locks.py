"""Check that a lock had one holder at a time, in the order of zxids.

Two recipes are judged. *Exclusive*: `…/lock` is an ephemeral that its holder creates and deletes. *Fenced*: the
holder of the lowest sequential ephemeral writes "HOLDER …" to `…/fence` while it believes to hold; writes of one
holding may not be interrupted by another's, because a session that lost its ephemeral can write no more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from zraft.checkers.history import (
    READS,
    Connected,
    Disconnected,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)

LOCK: Final = "/lock"
FENCE: Final = "/fence"
LIVED: Final = (Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET, Kind.CLOSE)
"""The operations that only a session can do that has not ended."""


def check_locks(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where the histories contradict `lock`; see the module."""
    return [*_exclusive(histories), *_fenced(histories)]


def _exclusive(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    found: list[Violation] = []
    ended: set[int] = set()
    changes: dict[str, list[Operation]] = defaultdict(list)
    unsure: dict[str, list[Operation]] = defaultdict(list)
    for history in histories:
        for record in history:
            if isinstance(record, Expired):
                ended.add(record.session)
            elif isinstance(record, Operation):
                if record.kind is Kind.CLOSE and record.outcome is not Outcome.FAIL:
                    ended.add(record.session)
                elif record.path.endswith(LOCK) and record.kind in (Kind.CREATE, Kind.DELETE):
                    if record.outcome is Outcome.OK:
                        changes[record.path].append(record)
                    elif record.outcome is Outcome.UNKNOWN:
                        unsure[record.path].append(record)
    # When a session ended is not known by zxid, but every write of it is before, and its close: the last one bounds it from
    # below.
    last_write: dict[int, int] = defaultdict(int)
    for one in operations(histories):
        if one.outcome is Outcome.OK and one.kind in LIVED:
            last_write[one.session] = max(last_write[one.session], one.zxid)
    silent = _silent(histories)
    for path, rows in changes.items():
        holder: Operation | None = None
        for one in sorted(rows, key=lambda row: row.zxid):
            if one.kind is Kind.DELETE:
                made = any(o.kind is Kind.CREATE and o.session == one.session for o in unsure[path])
                if not made and (holder is None or holder.session != one.session):
                    found.append(
                        Violation("lock", f"{path}: released by one that does not hold: {describe(one)}")
                    )
                holder = None
                continue
            if holder is not None:
                released = any(
                    d.session == holder.session and d.invoked_us < (one.returned_us or 0)
                    for d in unsure[path]
                )
                lived_on = last_write[holder.session] > one.zxid
                silent_from = silent.get(holder.session)
                may_have_ended = holder.session in ended or (
                    silent_from is not None and silent_from <= (one.returned_us or 0)
                )
                if not released and (lived_on or not may_have_ended):
                    found.append(
                        Violation("lock", f"{path}: two holders: {describe(holder)}; {describe(one)}")
                    )
            holder = one
    return found


def _silent(histories: Sequence[Sequence[Record]]) -> dict[int, int]:
    """Return the sessions that were disconnected and never heard of again, with when they may have expired (us).

    Of a client that was cut off: whoever goes on learns of the expiry when it connects.
    """
    timeouts: dict[int, int] = {}
    last: dict[int, Record] = {}
    for history in histories:
        for record in history:
            last[record.session] = record
            if isinstance(record, Connected):
                timeouts[record.session] = record.timeout_ms * 1000
    return {
        session: record.at_us + timeouts[session]
        for session, record in last.items()
        if isinstance(record, Disconnected) and session in timeouts
    }


def _fenced(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    writes: dict[str, dict[int, str]] = defaultdict(dict)
    evidence: dict[tuple[str, int], Operation] = {}
    for one in operations(histories):
        if one.path.endswith(FENCE) and one.outcome is Outcome.OK and one.value is not None:
            if one.kind is Kind.SET:
                zxid = one.zxid
            elif one.kind in READS and one.mzxid is not None and one.version:
                zxid = one.mzxid
            else:
                continue
            writes[one.path][zxid] = one.value.partition(" ")[0]
            evidence[one.path, zxid] = one
    found: list[Violation] = []
    for path, by_zxid in writes.items():
        over: set[str] = set()
        holder = ""
        for zxid, who in sorted(by_zxid.items()):
            if who != holder:
                if who in over:
                    found.append(
                        Violation(
                            "lock", f"{path}: held again after another: {describe(evidence[path, zxid])}"
                        )
                    )
                over.add(holder)
                holder = who
    return found
