"""Check that sessions ended only when they may, and that their ephemerals lived exactly as long."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from zraft.checkers.history import (
    Connected,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)
from zraft_core.errors import Code

_SYNCED: Final = frozenset({Kind.SYNC_GET, Kind.SYNC_CHILDREN})


def check_sessions(
    histories: Sequence[Sequence[Record]], pauses: Sequence[tuple[int, int]] = ()
) -> list[Violation]:
    """Return where sessions contradict `expiry` or `ended`.

    `expiry`: only after a full timeout of silence (D-11). `ended`: a session that ended answers no more.

    Args:
        pauses: (from, to) in microseconds when no server ran. Nobody could speak then, so it is no silence.
    """
    found: list[Violation] = []
    ended: dict[int, Expired | Operation] = {}
    for history in histories:
        for record in history:
            match record:
                case Expired():
                    silence_us = record.at_us - record.heard_us - _overlap_us(record, pauses)
                    if record.session not in ended and silence_us < record.timeout_ms * 1000:
                        found.append(
                            Violation(
                                "expiry",
                                f"session {record.session:#x} of client {record.client} expired after {silence_us} us "
                                f"of silence, its timeout is {record.timeout_ms} ms",
                            )
                        )
                    ended[record.session] = record
                case Connected() if record.resumed and record.session in ended:
                    found.append(
                        Violation(
                            "ended", f"session {record.session:#x} was resumed after {ended[record.session]}"
                        )
                    )
                case Operation() if record.outcome is Outcome.OK and record.session in ended:
                    found.append(Violation("ended", f"{describe(record)} after {ended[record.session]}"))
            if isinstance(record, Operation) and record.kind is Kind.CLOSE and record.outcome is Outcome.OK:
                ended[record.session] = record
    return found


def _overlap_us(record: Expired, pauses: Sequence[tuple[int, int]]) -> int:
    return sum(max(0, min(record.at_us, end) - max(record.heard_us, begin)) for begin, end in pauses)


def check_ephemerals(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where the histories contradict `ephemeral`.

    `ephemeral`: there while its session lives and nobody deletes it; gone for ever once the session ended.

    Of a closed session the end is known by zxid; of an expired one by time, so that only synced reads count.
    """
    found: list[Violation] = []
    closed: dict[int, int] = {}
    expired: dict[int, int] = {}
    latest: dict[int, int] = defaultdict(int)
    """Per session the greatest zxid of an operation that was answered with success: it lived until then."""
    made: dict[str, list[Operation]] = defaultdict(list)
    deleted: dict[str, list[Operation]] = defaultdict(list)
    unsure: dict[str, list[Operation]] = defaultdict(list)
    for history in histories:
        for record in history:
            match record:
                case Expired():
                    expired.setdefault(record.session, record.at_us)
                case Operation(outcome=Outcome.OK):
                    if record.kind is Kind.CLOSE:
                        closed[record.session] = record.zxid
                    elif record.kind in (Kind.CREATE, Kind.SET, Kind.DELETE, Kind.MULTI_SET):
                        # Only writes count: reads may be answered by a server that has not heard of the end.
                        latest[record.session] = max(latest[record.session], record.zxid)
                    if record.kind is Kind.CREATE and record.ephemeral:
                        made[record.created or record.path].append(record)
            if isinstance(record, Operation) and record.kind is Kind.DELETE:
                if record.outcome is Outcome.OK:
                    deleted[record.path].append(record)
                elif record.outcome is Outcome.UNKNOWN:
                    unsure[record.path].append(record)
    for rows in (*made.values(), *deleted.values()):
        rows.sort(key=_zxid)
    for one in operations(histories):
        if one.outcome is Outcome.OK and one.owner:
            if one.owner in closed and one.zxid >= closed[one.owner]:
                found.append(
                    Violation("ephemeral", f"of a session closed at {closed[one.owner]:#x}: {describe(one)}")
                )
            elif one.kind in _SYNCED and one.invoked_us > expired.get(one.owner, one.invoked_us):
                found.append(Violation("ephemeral", f"of a session that had expired: {describe(one)}"))
        if one.kind in (Kind.GET, Kind.SYNC_GET) and one.code == Code.NO_NODE and one.path in made:
            births = made[one.path]
            place = bisect_right(births, one.zxid, key=_zxid)
            if not place:
                continue
            birth = births[place - 1]
            # An earlier one was gone before this one could be made.
            gone = bisect_right(deleted[one.path], birth.zxid, key=_zxid) < bisect_right(
                deleted[one.path], one.zxid, key=_zxid
            ) or any(birth.invoked_us <= d.invoked_us <= (one.returned_us or 0) for d in unsure[one.path])
            if not gone and one.zxid < latest[birth.session]:
                found.append(
                    Violation(
                        "ephemeral", f"lost: {describe(birth)}; its session lived on, but {describe(one)}"
                    )
                )
    return found


def _zxid(operation: Operation) -> int:
    return operation.zxid
