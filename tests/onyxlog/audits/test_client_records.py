"""Histories as rows and back: what a checker is given is what the client wrote down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onyxlog.audits.rules.client_records import record_of
from onyxlog.audits.source.history_rows import history_values
from onyxlog.audits.tables.histories import HISTORIES
from zraft.checkers.history import (
    Connected,
    Disconnected,
    Event,
    Expired,
    Kind,
    Operation,
    Outcome,
    Record,
    encode,
    heading,
)

WHO: dict[str, Any] = {"client": 3, "session": 77, "server": 2}
RECORDS: list[Record] = [
    Connected(**WHO, at_us=1, timeout_ms=4000, resumed=True),
    Operation(
        **WHO, kind=Kind.MULTI_SET, path="/a", invoked_us=2, returned_us=5, outcome=Outcome.OK, zxid=9, value="v",
        expected=4, version=5, mzxid=9, further=("/b", "/c"),
    ),
    Operation(
        **WHO, kind=Kind.CREATE, path="/q-", invoked_us=6, returned_us=None, outcome=Outcome.UNKNOWN, ephemeral=True
    ),
    Operation(
        **WHO, kind=Kind.CHILDREN, path="/q", invoked_us=7, returned_us=8, outcome=Outcome.FAIL, code=-101,
        names=("x",), watch=True, owner=77, created="/q-1",
    ),
    Event(**WHO, at_us=9, type=3, path="/a", zxid=10),
    Event(**WHO, at_us=9, type=1, path="/a", zxid=-1),
    Disconnected(**WHO, at_us=10),
    Expired(**WHO, at_us=11, heard_us=4, timeout_ms=4000),
]  # fmt: skip


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_from_its_row(record: Record, tmp_path: Path) -> None:
    path = tmp_path / "client-003.jsonl"
    path.write_text(f"{heading(3, 1)}\n{encode(record)}\n")
    (values,) = history_values(str(path))
    names = [column.name for column in HISTORIES.columns]
    assert len(values) == len(names)
    (row,) = HISTORIES.rows([dict(zip(names, values, strict=True))])
    assert record_of(row) == record
    assert (row.file, row.file_offset) == (str(path), len(heading(3, 1)) + 1)
