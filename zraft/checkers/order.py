"""Check that zxids tell one order that all sessions saw: never back within one, and along real time for writes.

Also whether every plain read was a true snapshot of the moment its own zxid names. Bisection over known writes; no search.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from zraft.checkers.history import (
    READS,
    WRITES,
    Kind,
    Operation,
    Outcome,
    Record,
    Violation,
    describe,
    operations,
)
from zraft_core.errors import Code

_ANSWERED: Final = (Outcome.OK, Outcome.FAIL)
_SYNCED: Final = frozenset({Kind.SYNC_GET, Kind.SYNC_CHILDREN})


def check_zxids(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where zxids contradict the order of operations (`zxid order`).

    Within a session they never go back; no two writes share one; a later write has a greater one; a
    read after a sync has at least that of every write answered before.
    """
    found: list[Violation] = []
    last: dict[int, Operation] = {}
    for history in histories:
        for record in history:
            if not isinstance(record, Operation) or record.outcome not in _ANSWERED or not record.zxid:
                continue
            before = last.get(record.session)
            if before is not None and record.zxid < before.zxid:
                found.append(
                    Violation("zxid order", f"went back: {describe(before)}, then {describe(record)}")
                )
            last[record.session] = record
    everything = [one for one in operations(histories) if one.outcome in _ANSWERED and one.zxid]
    writes: dict[int, Operation] = {}
    for one in everything:
        if one.kind in WRITES:
            if one.zxid in writes:
                found.append(
                    Violation("zxid order", f"one zxid twice: {describe(writes[one.zxid])}, {describe(one)}")
                )
            writes[one.zxid] = one
    answered = sorted(writes.values(), key=lambda one: one.returned_us or 0)
    greatest: Operation | None = None
    place = 0
    for one in sorted(everything, key=lambda one: one.invoked_us):
        if one.kind not in WRITES and one.kind not in _SYNCED:
            continue
        while place < len(answered) and (answered[place].returned_us or 0) < one.invoked_us:
            if greatest is None or answered[place].zxid > greatest.zxid:
                greatest = answered[place]
            place += 1
        if greatest is not None and one.zxid < greatest.zxid:
            found.append(
                Violation(
                    "zxid order",
                    f"against real time: {describe(greatest)} was answered before {describe(one)}",
                )
            )
    return found


def check_reads(histories: Sequence[Sequence[Record]]) -> list[Violation]:
    """Return where the histories contradict `read`.

    `read`: a read with zxid z shows the last write up to z, and a value that was written, under one zxid only.

    It follows that a session reads its own writes and never an older state than before.
    """
    known: dict[str, dict[int, Operation]] = defaultdict(dict)
    attempts: dict[tuple[str, str | None], Operation] = {}
    unsure: set[str] = set()
    for one in operations(histories):
        if one.kind in WRITES:
            for path in (one.created or one.path, *one.further):
                if one.outcome is Outcome.OK:
                    known[path][one.zxid] = one
                elif one.outcome is Outcome.UNKNOWN and one.kind is Kind.DELETE:
                    unsure.add(path)
                if one.ephemeral:
                    unsure.add(path)
                if one.kind is not Kind.DELETE and one.outcome is not Outcome.FAIL:
                    attempts[path, one.value] = one
    reads = [one for one in operations(histories) if one.kind in READS]
    found: list[Violation] = []
    shown: dict[tuple[str, int], Operation] = {}
    for one in reads:
        if one.outcome is not Outcome.OK or one.mzxid is None:
            continue
        other = shown.setdefault((one.path, one.mzxid), one)
        if (other.value, other.version) != (one.value, one.version):
            found.append(Violation("read", f"one mzxid, two values: {describe(other)}; {describe(one)}"))
        write = known[one.path].setdefault(one.mzxid, one)
        if write.kind in WRITES and write.value != one.value:
            found.append(
                Violation("read", f"another value than was written: {describe(write)}; {describe(one)}")
            )
        wrote = attempts.get((one.path, one.value)) or attempts.get((one.path[:-10], one.value))
        if wrote is None and not _is_first(one):
            found.append(Violation("read", f"a value that nobody wrote: {describe(one)}"))
        elif wrote is not None and wrote.invoked_us > (one.returned_us or 0):
            found.append(
                Violation("read", f"a value before it was written: {describe(wrote)}; {describe(one)}")
            )
    ordered = {path: sorted(writes) for path, writes in known.items()}
    for one in reads:
        zxids = ordered.get(one.path, [])
        place = bisect_right(zxids, one.zxid)
        if not place or one.outcome is Outcome.UNKNOWN:
            continue
        newest = known[one.path][zxids[place - 1]]
        if one.outcome is Outcome.OK and one.mzxid is not None:
            if zxids[place - 1] > one.mzxid:
                found.append(Violation("read", f"stale: {describe(one)} lacks {describe(newest)}"))
        elif one.code == Code.NO_NODE and newest.kind is not Kind.DELETE and one.path not in unsure:
            found.append(Violation("read", f"lost: {describe(one)} lacks {describe(newest)}"))
    return found


def _is_first(read: Operation) -> bool:
    """Return whether it shows what the set-up made, before clients began to record: those values say so."""
    return read.value is not None and read.value.startswith("first")
