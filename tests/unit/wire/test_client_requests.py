"""What the client codec asks: kazoo's own serializers write the same, and our server's decoders read it back."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from tests.unit.wire.samples import SampleZnode
from zraft_core.errors import Code, MarshallingError, ProtocolError
from zraft_core.wire import client_requests as asks
from zraft_core.wire.client import Reply, ZkClientCodec
from zraft_core.wire.connect import ConnectResponse, encode_connect_response
from zraft_core.wire.framing import frame
from zraft_core.wire.jute import INT, LONG, NULL, encode_buffer, encode_texts, encode_ustring
from zraft_core.wire.opcodes import XID_AUTH, XID_SET_WATCHES, Opcode
from zraft_core.wire.replies import (
    encode_empty_reply,
    encode_error_reply,
    encode_exists_reply,
    encode_reply_header,
)
from zraft_core.wire.requests import HEADER, WORLD_ANYONE_ALL
from zraft_core.wire.stat import encode_stat
from zraft_core.znodes.events import AddWatchMode, WatcherType

ACLS = [ACL(31, Id("digest", "bob:x")), ACL(1, Id("world", "anyone"))]
OURS = ((31, "digest", "bob:x"), (1, "world", "anyone"))
NODE = SampleZnode()

SAME_AS_KAZOO = [
    (asks.Create("/ä", b"x"), kazoo.Create("/ä", b"x", OPEN_ACL_UNSAFE, 0)),
    (asks.Create("/a", b"", OURS, ephemeral=True, sequential=True), kazoo.Create("/a", b"", ACLS, 3)),
    (asks.Create("/a", None, sequential=True), kazoo.Create("/a", None, OPEN_ACL_UNSAFE, 2)),
    (asks.Delete("/a", 7), kazoo.Delete("/a", 7)),
    (asks.SetData("/a", b"x", 7), kazoo.SetData("/a", b"x", 7)),
    (asks.SetData("/a", None), kazoo.SetData("/a", None, -1)),
    (asks.Exists("/a", watch=True), kazoo.Exists("/a", print)),
    (asks.GetData("/a"), kazoo.GetData("/a", None)),
    (asks.GetChildren("/a", watch=True), kazoo.GetChildren("/a", print)),
    (asks.GetChildren2("/a"), kazoo.GetChildren2("/a", None)),
    (asks.Sync("/a"), kazoo.Sync("/a")),
    (asks.GetAcl("/a"), kazoo.GetACL("/a")),
    (asks.SetAcl("/a", OURS, 7), kazoo.SetACL("/a", ACLS, 7)),
    (asks.Auth("digest", b"a:b"), kazoo.Auth(0, "digest", "a:b")),
    (asks.Reconfig("j", "l", "m", 7), kazoo.Reconfig("j", "l", "m", 7)),
    (asks.CloseSession(), kazoo.CloseInstance),
]


@pytest.mark.parametrize(
    ("ours", "theirs"), SAME_AS_KAZOO, ids=[type(one).__name__ for one, _ in SAME_AS_KAZOO]
)
def test_kazoo_writes_the_same(ours: asks.Request[Any], theirs: Any) -> None:
    assert ours.opcode == theirs.type
    assert ours.body() == bytes(theirs.serialize())


PATH = encode_ustring("/a")
CREATE_HEAD = PATH + encode_buffer(b"x") + WORLD_ANYONE_ALL

BODIES = [
    (asks.Create("/a", b"x", container=True), 19, CREATE_HEAD + INT.pack(4)),
    (asks.Create("/a", b"x", ttl_ms=9), 21, CREATE_HEAD + INT.pack(5) + LONG.pack(9)),
    (asks.Create("/a", b"x", ttl_ms=9, sequential=True), 21, CREATE_HEAD + INT.pack(6) + LONG.pack(9)),
    (asks.WhoAmI(), 107, b""),
    (asks.GetEphemerals("/a"), 103, PATH),
    (asks.GetAllChildrenNumber("/a"), 104, PATH),
    (asks.AddWatch("/a", AddWatchMode.PERSISTENT_RECURSIVE), 106, PATH + INT.pack(1)),
    (asks.CheckWatches("/a", WatcherType.ANY), 17, PATH + INT.pack(3)),
    (asks.RemoveWatches("/a", WatcherType.CHILDREN), 18, PATH + INT.pack(1)),
    (asks.Reconfig(leaving="1"), 16, NULL + encode_ustring("1") + NULL + LONG.pack(-1)),
    (
        asks.RestoreWatches(5, data=("/a",), child=("/b", "/c")),
        101,
        LONG.pack(5) + encode_texts(["/a"]) + encode_texts([]) + encode_texts(["/b", "/c"]),
    ),
    (
        asks.RestoreWatches(5, exist=("/e",), persistent=("/p",), recursive=("/r",)),
        105,
        LONG.pack(5) + b"".join(map(encode_texts, [[], ["/e"], [], ["/p"], ["/r"]])),
    ),
]


@pytest.mark.parametrize(
    ("request_", "opcode", "body"), BODIES, ids=[type(case[0]).__name__ for case in BODIES]
)
def test_what_kazoo_lacks_is_written_as_the_protocol_has_it(
    request_: asks.Request[Any], opcode: int, body: bytes
) -> None:
    assert (request_.opcode, request_.body()) == (opcode, body)


def connected() -> ZkClientCodec:
    codec = ZkClientCodec()
    codec.connect(timeout_ms=6000)
    codec.receive(encode_connect_response(ConnectResponse(0, 6000, 5, b"p" * 16, False)))
    return codec


def replied(xid: int, body: bytes) -> bytes:
    return frame(encode_reply_header(xid, 9, 0)[4:] + body)


STAT = encode_stat(NODE)
VALUES = [
    (asks.Create("/a"), PATH, "/a"),
    (asks.Create("/a", container=True), PATH + STAT, "/a"),
    (asks.GetAllChildrenNumber("/a"), INT.pack(3), 3),
    (asks.GetEphemerals("/a"), encode_texts(["/a", "/ab"]), ("/a", "/ab")),
    (
        asks.WhoAmI(),
        INT.pack(2) + b"".join(map(encode_ustring, ("ip", "::1", "digest", "bob"))),
        (("ip", "::1"), ("digest", "bob")),
    ),
    (asks.WhoAmI(), NULL, ()),
    (asks.AddWatch("/a", AddWatchMode.PERSISTENT), INT.pack(0), None),
]


@pytest.mark.parametrize(("request_", "body", "value"), VALUES)
def test_answers_are_understood(request_: asks.Request[Any], body: bytes, value: object) -> None:
    codec = connected()
    xid, _ = codec.ask(request_)
    assert codec.receive(replied(xid, body)) == [Reply(xid, 9, Code.OK, value)]


def test_acls_and_configurations_come_with_a_stat() -> None:
    codec = connected()
    xid, _ = codec.ask(asks.GetAcl("/a"))
    [reply] = codec.receive(replied(xid, asks.encode_acl(OURS) + STAT))
    assert isinstance(reply, Reply)
    assert (reply.value[0], reply.value[1].czxid) == (OURS, NODE.czxid)
    xid, _ = codec.ask(asks.Reconfig(leaving="1"))
    [reply] = codec.receive(replied(xid, encode_buffer(b"new") + STAT))
    assert isinstance(reply, Reply)
    assert (reply.value[0], reply.value[1].mzxid) == (b"new", NODE.mzxid)


@pytest.mark.parametrize(("request_", "body", "value"), VALUES)
def test_an_answer_cut_short_is_a_declared_error(
    request_: asks.Request[Any], body: bytes, value: object
) -> None:
    for size in range(len(body)) if value is not None and value != () else ():
        codec = connected()
        xid, _ = codec.ask(request_)
        if isinstance(request_, asks.Create) and size >= len(PATH):
            continue  # the Stat behind the path is not looked at
        with pytest.raises(MarshallingError):
            codec.receive(replied(xid, body[:size]))


def test_auth_may_be_answered_out_of_turn_and_leaves_the_last_zxid_alone() -> None:
    codec = connected()
    xid, _ = codec.ask(asks.Exists("/a"))
    auth_xid, raw = codec.ask(asks.Auth("digest", b"a:b"))
    assert auth_xid == XID_AUTH
    assert raw[4:12] == HEADER.pack(XID_AUTH, Opcode.AUTH)
    assert codec.pending == 2
    assert codec.receive(encode_error_reply(XID_AUTH, 0, Code.AUTH_FAILED)) == [
        Reply(XID_AUTH, 0, Code.AUTH_FAILED, None)
    ]
    assert codec.last_zxid_seen == 0
    [reply] = codec.receive(encode_exists_reply(xid, 9, NODE))
    assert isinstance(reply, Reply)
    assert reply.value.czxid == NODE.czxid
    assert codec.pending == 0
    with pytest.raises(ProtocolError, match="expected none"):
        codec.receive(encode_empty_reply(XID_AUTH, 0))


def test_watches_are_set_again_with_the_reserved_xid_in_turn() -> None:
    codec = connected()
    xid, _ = codec.ask(asks.RestoreWatches(5, persistent=("/p",)))
    assert xid == XID_SET_WATCHES
    assert codec.receive(encode_empty_reply(xid, 9)) == [Reply(xid, 9, Code.OK, None)]


def test_a_password_is_in_no_message() -> None:
    assert "secret" not in repr(asks.Auth("digest", b"bob:secret"))
