"""Table `entries`: the entries of Raft logs as servers wrote them."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed, Standing
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class EntryRow(Placed):
    """One ENTRY record of a write-ahead log.

    Attributes:
        frame, record: number of the write it came with, and its own in that: order within one server's log.
        kind: `noop`, `commands` or `membership`.
        previous_term: term of the entry before it in this log when it was written, 0 before the first: that equal (index,
            term) have equal `digest` and equal `previous_term` everywhere is log matching.
        position, count: number of its first command, and how many there are (D-16).
        digest: BLAKE2b-128 of kind, position, count and payload.
        standing: see `Standing`.
        durable_term: the server's own term when it wrote this: equal to `term` if the leader of that term sent it.
        payload: only with option `payloads`.
    """

    group: int
    index: int
    term: int
    kind: str
    previous_term: int
    position: int
    count: int
    size: int
    digest: bytes
    standing: str = Standing.COMMITTED.value
    durable_term: int
    frame: int = 0
    record: int = 0
    log_time_ms: int | None = None
    wall_time_ms: int | None = None
    payload: bytes | None = None


ENTRIES: Final = Table("entries", EntryRow, "entries of Raft logs, as each server wrote them")
