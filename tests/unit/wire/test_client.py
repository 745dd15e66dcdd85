"""The client codec hears what the server says, and refuses what no server may say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.wire.samples import Failure, SampleZnode
from tests.unit.wire.test_replies import MULTI_OPS, MULTI_RESULTS
from zraft_core.errors import Code, MarshallingError, ProtocolError
from zraft_core.wire import replies
from zraft_core.wire.client import PENDING_MAX, Pong, Reply, WatchEvent, ZkClientCodec
from zraft_core.wire.connect import (
    NO_PASSWORD,
    ConnectRequest,
    ConnectResponse,
    decode_connect_request,
    encode_connect_response,
)
from zraft_core.wire.events import EventType, encode_watch_event
from zraft_core.wire.framing import FrameReader, frame
from zraft_core.wire.opcodes import XID_PING, XID_SET_WATCHES, Opcode
from zraft_core.wire.requests import SetWatches, decode_header
from zraft_core.znodes.stat import Stat
from zraft_core.znodes.txn import CLOSE_SESSION, CREATE, CREATE2, DELETE, MULTI, SET_DATA, Command

NODE = SampleZnode(children={"x"})
STAT = Stat(
    czxid=NODE.czxid,
    mzxid=NODE.mzxid,
    ctime=NODE.ctime,
    mtime=NODE.mtime,
    version=NODE.version,
    cversion=NODE.cversion,
    aversion=NODE.aversion,
    ephemeral_owner=NODE.ephemeral_owner,
    data_length=3,
    num_children=1,
    pzxid=NODE.pzxid,
)
GRANTED = ConnectResponse(0, 6000, 5, b"p" * 16, False)


def connected() -> ZkClientCodec:
    codec = ZkClientCodec()
    codec.connect(timeout_ms=6000)
    assert codec.receive(encode_connect_response(GRANTED)) == [GRANTED]
    return codec


Ask = Callable[[ZkClientCodec], tuple[int, bytes]]
EXCHANGES: dict[str, tuple[Ask, Callable[..., bytes], tuple[Any, ...], object]] = {
    "create": (
        lambda c: c.write((CREATE, "/a", None, None, 0, 0)),
        replies.encode_create_reply,
        ("/a",),
        "/a",
    ),
    "create2": (
        lambda c: c.write((CREATE2, "/a", None, None, 0, 0)),
        replies.encode_create2_reply,
        ("/a", NODE),
        ("/a", STAT),
    ),
    "set data": (lambda c: c.write((SET_DATA, "/a", b"", 0)), replies.encode_set_data_reply, (NODE,), STAT),
    "delete": (lambda c: c.write((DELETE, "/a", 0)), replies.encode_empty_reply, (), None),
    "close": (lambda c: c.write((CLOSE_SESSION,)), replies.encode_empty_reply, (), None),
    "exists": (lambda c: c.read(Opcode.EXISTS, "/a"), replies.encode_exists_reply, (NODE,), STAT),
    "get data": (
        lambda c: c.read(Opcode.GET_DATA, "/a"),
        replies.encode_get_data_reply,
        (NODE,),
        (b"abc", STAT),
    ),
    "children": (
        lambda c: c.read(Opcode.GET_CHILDREN, "/a"),
        replies.encode_children_reply,
        (["x", "y"],),
        ("x", "y"),
    ),
    "children2": (
        lambda c: c.read(Opcode.GET_CHILDREN2, "/a"),
        replies.encode_children2_reply,
        (["x"], NODE),
        (("x",), STAT),
    ),
    "sync": (lambda c: c.sync("/a"), replies.encode_sync_reply, ("/a",), "/a"),
    "set watches": (
        lambda c: c.set_watches(SetWatches(0, (), (), ())),
        replies.encode_empty_reply,
        (),
        None,
    ),
    "multi": (
        lambda c: c.write((MULTI, MULTI_OPS)),
        replies.encode_multi_reply,
        (MULTI_OPS, (Code.OK, ("/a", STAT), ("/a", STAT), STAT, Code.OK)),
        (None, "/a", ("/a", STAT), STAT, None),
    ),
    "failed multi": (
        lambda c: c.write((MULTI, MULTI_OPS)),
        replies.encode_multi_reply,
        (MULTI_OPS, Failure((0, 0, -110, -2, -2))),
        (Code.OK, Code.OK, Code.NODE_EXISTS, Code.RUNTIME_INCONSISTENCY, Code.RUNTIME_INCONSISTENCY),
    ),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_reply_is_understood(name: str) -> None:
    ask, encode, fields, value = EXCHANGES[name]
    codec = connected()
    xid, _ = ask(codec)
    raw = encode(xid, 9, *fields)
    assert codec.receive(raw) == [Reply(xid, 9, Code.OK, value)]
    assert codec.pending == 0


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_reply_cut_short_is_a_declared_error(name: str) -> None:
    ask, encode, fields, value = EXCHANGES[name]
    if value is None:
        return
    for size in range(16, len(encode(1, 9, *fields)) - 4):
        codec = connected()
        xid, _ = ask(codec)
        with pytest.raises(MarshallingError):
            codec.receive(frame(encode(xid, 9, *fields)[4 : 4 + size]))


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_error_has_no_value(name: str) -> None:
    codec = connected()
    xid, _ = EXCHANGES[name][0](codec)
    raw = replies.encode_error_reply(xid, 9, Code.NO_NODE)
    assert codec.receive(raw) == [Reply(xid, 9, Code.NO_NODE, None)]


def test_a_whole_conversation_byte_by_byte() -> None:
    codec = ZkClientCodec(last_zxid_seen=3)
    (first,) = FrameReader(words=True).feed(codec.connect(timeout_ms=4000, session=5, password=b"p" * 16))
    assert decode_connect_request(first) == ConnectRequest(0, 3, 4000, 5, b"p" * 16, False)
    xid, _ = codec.write((DELETE, "/a", -1))
    sync_xid, _ = codec.sync("/a")
    stream = (
        encode_connect_response(GRANTED)
        + replies.encode_empty_reply(XID_PING, 4)
        + encode_watch_event(7, EventType.NODE_DELETED, "/a")
        + replies.encode_empty_reply(xid, 7)
        + replies.encode_sync_reply(sync_xid, 8, "/a")
    )
    heard = [said for byte in stream for said in codec.receive(bytes([byte]))]
    assert heard == [
        GRANTED,
        Pong(4),
        WatchEvent(7, EventType.NODE_DELETED, 3, "/a"),
        Reply(xid, 7, Code.OK, None),
        Reply(sync_xid, 8, Code.OK, "/a"),
    ]
    assert codec.last_zxid_seen == 8


def test_only_replies_move_the_last_zxid_seen() -> None:
    """Events and pings do not, as in ZooKeeper's own client."""
    codec = connected()
    codec.receive(
        encode_watch_event(90, EventType.NODE_CREATED, "/a") + replies.encode_empty_reply(XID_PING, 91)
    )
    assert codec.last_zxid_seen == 0
    for zxid, seen in [(5, 5), (4, 5)]:
        xid, _ = codec.sync("/a")
        codec.receive(replies.encode_sync_reply(xid, zxid, "/a"))
        assert codec.last_zxid_seen == seen


def test_a_client_older_than_3_4_sends_no_read_only_byte() -> None:
    (body,) = FrameReader().feed(ZkClientCodec().connect(timeout_ms=1, read_only=None))
    assert len(body) == 44
    assert decode_connect_request(body) == ConnectRequest(0, 0, 1, 0, NO_PASSWORD, None)


def test_special_xids() -> None:
    codec = connected()
    assert codec.set_watches(SetWatches(0, (), (), ()))[0] == XID_SET_WATCHES == -8
    assert decode_header(codec.ping()[4:]) == (-2, Opcode.PING)
    assert codec.pending == 1


def test_xids_count_up_and_never_turn_negative() -> None:
    codec = connected()
    assert [codec.sync("/")[0] for _ in range(3)] == [1, 2, 3]
    codec._next_xid = 2**31 - 1
    assert [codec.sync("/")[0] for _ in range(2)] == [2**31 - 1, 1]


def test_a_reply_out_of_turn_is_refused() -> None:
    codec = connected()
    codec.sync("/a")
    second, _ = codec.sync("/b")
    with pytest.raises(ProtocolError, match="expected 1"):
        codec.receive(replies.encode_sync_reply(second, 1, "/b"))


def test_a_reply_to_nothing_is_refused() -> None:
    with pytest.raises(ProtocolError, match="expected none"):
        connected().receive(replies.encode_empty_reply(1, 1))


def test_an_invented_error_code_is_refused() -> None:
    """Trap 36: real clients break on codes they do not know."""
    codec = connected()
    xid, _ = codec.sync("/a")
    with pytest.raises(ProtocolError, match="no such code"):
        codec.receive(replies.encode_error_reply(xid, 1, -999))


def test_an_invented_event_type_is_refused() -> None:
    with pytest.raises(ProtocolError, match="type 9"):
        connected().receive(encode_watch_event(1, 9, "/a"))


def test_an_invented_result_in_a_multi_is_refused() -> None:
    codec = connected()
    xid, _ = codec.write((MULTI, ()))
    body = bytes.fromhex("0000004d 00 00000000")
    with pytest.raises(ProtocolError, match="operation 77"):
        codec.receive(frame(replies.encode_empty_reply(xid, 1)[4:] + body))


def test_waiting_requests_are_bounded() -> None:
    codec = connected()
    codec._pending.extend([(1, None)] * PENDING_MAX)
    with pytest.raises(AssertionError):
        codec.sync("/a")


@pytest.mark.parametrize("command", [(99,), (CREATE, "/a"), (MULTI, ((CLOSE_SESSION, 1),))])
def test_what_is_no_command_of_a_session_is_the_callers_mistake(command: Command) -> None:
    with pytest.raises(AssertionError, match="not a command"):
        connected().write(command)


def test_what_is_no_read_is_the_callers_mistake() -> None:
    with pytest.raises(AssertionError, match="not a read"):
        connected().read(Opcode.SYNC, "/a")


@settings(max_examples=300)
@given(st.sampled_from(sorted(EXCHANGES)), st.binary(max_size=60), st.booleans())
def test_arbitrary_answers_are_heard_or_refused(name: str, body: bytes, header: bool) -> None:
    codec = connected()
    xid, _ = EXCHANGES[name][0](codec)
    prefix = replies.encode_empty_reply(xid, 1)[4:] if header else b""
    try:
        codec.receive(frame(prefix + body))
    except ProtocolError:
        pass


def test_results_of_the_golden_multi_are_all_read() -> None:
    codec = connected()
    xid, _ = codec.write((MULTI, MULTI_OPS))
    (heard,) = codec.receive(replies.encode_multi_reply(xid, 1, MULTI_OPS, MULTI_RESULTS))
    assert isinstance(heard, Reply)
    assert len(heard.value) == len(MULTI_OPS)
