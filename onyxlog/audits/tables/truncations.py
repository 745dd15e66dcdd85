"""Table `truncations`: what servers truncated from their logs, and where logs began anew."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.placed import Placed
from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class TruncationRow(Placed):
    """One record that shortens or replaces a log.

    Attributes:
        frame, record: number of the write, and its own in that: order within one server's log.
        cause: `truncate` (entries from `from_index` on are gone), `restore` (the log begins after a snapshot at
            `from_index` - 1, of `term`), or `forget` (the group is gone, `from_index` 0).
        last_index, last_term: where the log ended before.
        committed_index: up to where the group was known to be committed, by all directories that are read.
    """

    group: int
    frame: int
    record: int = 0
    cause: str
    from_index: int
    term: int = 0
    last_index: int = 0
    last_term: int = 0
    committed_index: int = 0


TRUNCATIONS: Final = Table(
    "truncations",
    TruncationRow,
    "what servers took back from their logs",
    comes_from="servers of which one led, was cut off, and has come back",
)
