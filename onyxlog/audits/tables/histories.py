"""Table `histories`: what clients of real servers recorded (docs/explanation/testing.md, "Recorded histories")."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from onyxlog.audits.tables.table import Table


@frozen(kw_only=True)
class HistoryRow:
    """One thing that a client saw.

    Attributes:
        seq: line of the client's file: the order in which it saw things.
        record: `operation`, `event`, `connected`, `disconnected` or `expired`; columns that the record has not are None.
        at_us: of an operation when it was invoked; microseconds of the run's one clock.
        returned_us: None if its outcome is unknown.
        event_type: 1 created, 2 deleted, 3 data changed, 4 children changed.

    The others are named as in the files.
    """

    client: int
    seq: int
    record: str
    session: int
    server: int
    at_us: int
    kind: str | None = None
    path: str | None = None
    returned_us: int | None = None
    outcome: str | None = None
    code: int | None = None
    zxid: int | None = None
    value: str | None = None
    expected: int | None = None
    version: int | None = None
    mzxid: int | None = None
    owner: int | None = None
    ephemeral: bool | None = None
    created: str | None = None
    names: tuple[str, ...] | None = None
    further: tuple[str, ...] | None = None
    watch: bool | None = None
    event_type: int | None = None
    timeout_ms: int | None = None
    resumed: bool | None = None
    heard_us: int | None = None
    file: str = ""
    file_offset: int = 0


HISTORIES: Final = Table(
    "histories",
    HistoryRow,
    "what clients saw",
    streams=False,
    comes_from="recorded histories of clients (*.jsonl), such as chaos runs write",
)
