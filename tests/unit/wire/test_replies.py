"""Replies byte for byte: one bytes object each, its own length in front."""

from __future__ import annotations

import pytest

from tests.unit.wire.samples import SAMPLE_STAT_HEX, Failure, SampleZnode
from zraft_core.errors import Code
from zraft_core.wire import replies
from zraft_core.wire.events import EventType, encode_watch_event
from zraft_core.wire.stat import encode_stat
from zraft_core.znodes.txn import CHECK, CLOSE_SESSION, CREATE, CREATE2, DELETE, MULTI, SET_DATA, Command

XID, ZXID = 0x0A0B0C0D, 0x0000000500000006
HEADER = "0a0b0c0d 0000000500000006 00000000"
PATH_A = "00000002 2f61"
STAT = SAMPLE_STAT_HEX


def reply(body: str, header: str = HEADER) -> bytes:
    """`body` behind header and length, all from hex."""
    raw = bytes.fromhex(header + body)
    return len(raw).to_bytes(4, "big") + raw


GOLDEN = {
    "set data": (replies.encode_set_data_reply(XID, ZXID, SampleZnode()), STAT),
    "exists": (replies.encode_exists_reply(XID, ZXID, SampleZnode()), STAT),
    "get data": (replies.encode_get_data_reply(XID, ZXID, SampleZnode()), "00000003 616263" + STAT),
    "create": (replies.encode_create_reply(XID, ZXID, "/a"), PATH_A),
    "create, not ASCII": (replies.encode_create_reply(XID, ZXID, "/ä"), "00000003 2fc3a4"),
    "create2": (replies.encode_create2_reply(XID, ZXID, "/a", SampleZnode()), PATH_A + STAT),
    "sync": (replies.encode_sync_reply(XID, ZXID, "/a"), PATH_A),
    "no children": (replies.encode_children_reply(XID, ZXID, []), "00000000"),
    "children": (
        replies.encode_children_reply(XID, ZXID, ["a", "ä"]),
        "00000002 00000001 61 00000002 c3a4",
    ),
    "children2": (
        replies.encode_children2_reply(XID, ZXID, ["a"], SampleZnode()),
        "00000001 00000001 61" + STAT,
    ),
    "empty": (replies.encode_empty_reply(XID, ZXID), ""),
    "header": (replies.encode_reply_header(XID, ZXID, 0), ""),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_reply_golden_bytes(name: str) -> None:
    raw, body = GOLDEN[name]
    assert type(raw) is bytes
    assert raw == reply(body)


def test_an_error_reply_is_a_header_and_no_body() -> None:
    expected = reply("", "0a0b0c0d 0000000500000006 ffffff9b")
    assert replies.encode_error_reply(XID, ZXID, Code.NO_NODE) == expected
    assert replies.encode_reply_header(XID, ZXID, Code.NO_NODE) == expected


def test_null_data_and_empty_data_are_different_answers() -> None:
    """Trap 23: length -1 against length 0, though both have dataLength 0."""
    null = replies.encode_get_data_reply(XID, ZXID, SampleZnode(data=None))
    empty = replies.encode_get_data_reply(XID, ZXID, SampleZnode(data=b""))
    stat = STAT.replace("0000000300000000", "0000000000000000")
    assert null == reply("ffffffff" + stat)
    assert empty == reply("00000000" + stat)


def test_stat_counts_data_bytes_and_children() -> None:
    raw = encode_stat(SampleZnode(data=b"12345", children={"a", "b"}))
    assert raw.hex() == STAT.replace("0000000300000000", "0000000500000002")
    assert encode_stat(SampleZnode()).hex() == STAT


def test_an_encoded_reply_does_not_follow_later_changes_of_the_znode() -> None:
    node = SampleZnode()
    raw = replies.encode_get_data_reply(XID, ZXID, node)
    node.data, node.version = b"later", 9
    assert raw == reply("00000003 616263" + STAT)


MULTI_OPS = (
    (CHECK, "/a", 1),
    (CREATE, "/a", None, None, 0, 0),
    (CREATE2, "/a", None, None, 0, 0),
    (SET_DATA, "/a", b"", -1),
    (DELETE, "/a", -1),
)
SAMPLE_STAT = SampleZnode().stat()
MULTI_RESULTS = (Code.OK, ("/a", SAMPLE_STAT), ("/a", SAMPLE_STAT), SAMPLE_STAT, Code.OK)
MULTI_BODY = (
    "0000000d 00 00000000"
    + ("00000001 00 00000000" + PATH_A)
    + ("0000000f 00 00000000" + PATH_A + STAT)
    + ("00000005 00 00000000" + STAT)
    + "00000002 00 00000000"
    + "ffffffff 01 ffffffff"
)


def test_multi_success_golden_bytes() -> None:
    """Trap 12: create answers type 1 with a path, create2 type 15 with path and Stat."""
    assert replies.encode_multi_reply(XID, ZXID, MULTI_OPS, MULTI_RESULTS) == reply(MULTI_BODY)


def test_multi_failure_golden_bytes() -> None:
    """Trap 11: err 0 in the reply's header; 0 before the culprit, its code, -2 after it, all as type -1."""
    codes = (Code.OK, Code.OK, Code.NODE_EXISTS, Code.RUNTIME_INCONSISTENCY, Code.RUNTIME_INCONSISTENCY)
    body = (
        "ffffffff 00 00000000 00000000" * 2
        + "ffffffff 00 ffffff92 ffffff92"
        + "ffffffff 00 fffffffe fffffffe" * 2
        + "ffffffff 01 ffffffff"
    )
    assert replies.encode_multi_reply(XID, ZXID, MULTI_OPS, Failure(codes)) == reply(body)


def test_an_empty_multi_is_answered_by_its_end_alone() -> None:
    assert replies.encode_multi_reply(XID, ZXID, (), ()) == reply("ffffffff 01 ffffffff")


def test_results_that_do_not_match_the_operations_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        replies.encode_multi_reply(XID, ZXID, MULTI_OPS, MULTI_RESULTS[:-1])
    with pytest.raises(AssertionError):
        replies.encode_multi_reply(XID, ZXID, MULTI_OPS, Failure((0,)))


WRITE_REPLIES = [
    ((SET_DATA, "/a", b"abc", -1), SampleZnode(), STAT),
    ((CREATE, "/a", b"abc", None, 0, 0), ("/a", SampleZnode()), PATH_A),
    ((CREATE2, "/a", b"abc", None, 0, 0), ("/a", SampleZnode()), PATH_A + STAT),
    ((DELETE, "/a", -1), Code.OK, ""),
    ((CLOSE_SESSION,), Code.OK, ""),
    ((MULTI, MULTI_OPS), MULTI_RESULTS, MULTI_BODY),
    ((MULTI, ()), (), "ffffffff 01 ffffffff"),
    (
        (MULTI, ((DELETE, "/a", -1),)),
        Failure((Code.NO_NODE,)),
        "ffffffff 00 ffffff9b ffffff9b ffffffff 01 ffffffff",
    ),
]


@pytest.mark.parametrize(("command", "result", "body"), WRITE_REPLIES)
def test_a_write_reply_follows_from_opcode_and_result(command: Command, result: object, body: str) -> None:
    assert replies.encode_write_reply(command[0], XID, ZXID, command, result) == reply(body)
    if command[0] != MULTI:
        assert replies.encode_write_reply(command[0], XID, ZXID, None, result) == reply(body)


@pytest.mark.parametrize("opcode", [SET_DATA, CREATE, CREATE2, DELETE, MULTI, CLOSE_SESSION])
def test_a_code_answers_any_write_with_a_header(opcode: int) -> None:
    """A refused run fails whole, a multi in it included: then the code stands in the header."""
    raw = replies.encode_write_reply(opcode, XID, ZXID, None, Code.SESSION_EXPIRED)
    assert raw == reply("", "0a0b0c0d 0000000500000006 ffffff90")


def test_a_result_without_a_reply_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        replies.encode_write_reply(DELETE, XID, ZXID, None, SampleZnode())


@pytest.mark.parametrize("event_type", list(EventType))
def test_watch_event_golden_bytes(event_type: EventType) -> None:
    """xid -1, the zxid of the change, err 0; type, state 3 (connected), path."""
    raw = encode_watch_event(ZXID, event_type, "/ä")
    header = "ffffffff 0000000500000006 00000000"
    assert raw == reply(f"{event_type:08x} 00000003 00000003 2fc3a4", header)
    assert [int(kind) for kind in EventType] == [1, 2, 3, 4]
