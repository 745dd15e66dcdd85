"""Histories as JSON lines."""

from __future__ import annotations

import pytest

from tests.unit.testing.checkers.histories import connected, disconnected, event, expired, op, wrote
from zraft.checkers.history import Kind, Record, decode, decode_file, encode, heading
from zraft_core.errors import Code, ProtocolError

RECORDS: list[Record] = [
    wrote("/a", (0, 1), "é 1", zxid=1 << 40),
    op(Kind.CHILDREN, "/a", (2, 3), names=("x", "y")),
    op(Kind.MULTI_SET, "/a", (2, None), value="m", further=("/b",)),
    op(Kind.DELETE, "/a", (4, 5), code=Code.NO_NODE),
    event("/a", -1),
    connected(resumed=True),
    disconnected(),
    expired(),
]


@pytest.mark.parametrize("record", RECORDS, ids=str)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    line = encode(record)
    assert "\n" not in line
    assert decode(line) == record


def test_a_file_is_read_as_it_was_written() -> None:
    assert list(decode_file([heading(3, 7), *map(encode, RECORDS)])) == RECORDS


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"record":"operation"}', '{"record":"other"}', "nonsense"])
def test_what_is_no_record_is_refused_by_name(line: str) -> None:
    with pytest.raises(ProtocolError, match="expected a record"):
        decode(line)


@pytest.mark.parametrize("line", ["", "[]", '{"schema": 2}'])
def test_a_file_of_another_schema_is_refused(line: str) -> None:
    with pytest.raises(ProtocolError, match=r"schema|heading"):
        list(decode_file([line]))
