"""An independent witness: kazoo's own serializers write our requests and read our replies."""

from __future__ import annotations

from typing import Any

import pytest
from kazoo.exceptions import NodeExistsError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from tests.unit.wire.samples import Failure, SampleZnode
from zraft_core.errors import Code
from zraft_core.wire import replies
from zraft_core.wire.client import ZkClientCodec
from zraft_core.wire.events import EventType, encode_watch_event
from zraft_core.wire.framing import frame
from zraft_core.wire.opcodes import Opcode
from zraft_core.wire.requests import decode_header, decode_path, decode_read, decode_write
from zraft_core.znodes.txn import CHECK, CLOSE_SESSION, CREATE, CREATE2, DELETE, MULTI, SET_DATA, Command

BODY = 20
"""Where a reply's body begins, behind length and header."""

DIGEST = [ACL(31, Id("digest", "bob:x")), ACL(1, Id("world", "anyone"))]
OURS = ((31, "digest", "bob:x"), (1, "world", "anyone"))
LONG = b"\x00\xff" * 5000

WRITES = [
    (kazoo.Create("/a", b"x", OPEN_ACL_UNSAFE, 0), (CREATE, "/a", b"x", None, 0, 0)),
    (kazoo.Create("/ä", b"", DIGEST, 3), (CREATE, "/ä", b"", OURS, 3, 0)),
    (kazoo.Create2("/a", None, OPEN_ACL_UNSAFE, 2), (CREATE2, "/a", None, None, 2, 0)),
    (kazoo.Delete("/a", -1), (DELETE, "/a", -1)),
    (kazoo.SetData("/a", LONG, 7), (SET_DATA, "/a", LONG, 7)),
    (kazoo.SetData("/a", None, -1), (SET_DATA, "/a", None, -1)),
    (kazoo.SetData("/a", b"", -1), (SET_DATA, "/a", b"", -1)),
    (kazoo.CloseInstance, (CLOSE_SESSION,)),
    (kazoo.Transaction([]), (MULTI, ())),
    (
        kazoo.Transaction(
            [
                kazoo.CheckVersion("/a", 3),
                kazoo.Create("/a/b", b"x", DIGEST, 1),
                kazoo.SetData("/a/b", b"y", 0),
                kazoo.Delete("/a/b", 1),
            ]
        ),
        (
            MULTI,
            (
                (CHECK, "/a", 3),
                (CREATE, "/a/b", b"x", OURS, 1, 0),
                (SET_DATA, "/a/b", b"y", 0),
                (DELETE, "/a/b", 1),
            ),
        ),
    ),
]


def written(request: Any, xid: int = 5) -> bytes:
    """As kazoo's connection writes it, without the length."""
    header: bytes = kazoo.int_int_struct.pack(xid, request.type)
    return header + bytes(request.serialize())


@pytest.mark.parametrize(("request_", "command"), WRITES)
def test_kazoos_writes_become_commands(request_: Any, command: Command) -> None:
    body = written(request_)
    assert decode_header(body) == (5, command[0])
    assert decode_write(command[0], body) == command


@pytest.mark.parametrize(("request_", "command"), WRITES)
def test_our_client_codec_writes_what_kazoo_writes(request_: Any, command: Command) -> None:
    xid, raw = ZkClientCodec().write(command)
    assert raw == frame(written(request_, xid))


@pytest.mark.parametrize("kind", [kazoo.Exists, kazoo.GetData, kazoo.GetChildren, kazoo.GetChildren2])
def test_kazoos_reads_are_understood(kind: Any) -> None:
    for watcher in (None, print):
        body = written(kind("/ä", watcher))
        assert decode_read(body) == ("/ä", watcher is not None)
        assert ZkClientCodec().read(Opcode(kind.type), "/ä", watch=watcher is not None)[1][8:] == body[4:]


def test_kazoos_sync_is_understood() -> None:
    assert decode_path(written(kazoo.Sync("/ä"))) == "/ä"


def header_of(raw: bytes) -> tuple[int, ...]:
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4
    return tuple(kazoo.ReplyHeader.deserialize(raw, 4)[0])


def assert_is_sample(stat: Any, **changed: int) -> None:
    """kazoo's ZnodeStat against the znode, field by field."""
    node = SampleZnode()
    expected = {
        "czxid": node.czxid,
        "mzxid": node.mzxid,
        "ctime": node.ctime,
        "mtime": node.mtime,
        "version": node.version,
        "cversion": node.cversion,
        "aversion": node.aversion,
        "ephemeralOwner": node.ephemeral_owner,
        "dataLength": 3,
        "numChildren": 0,
        "pzxid": node.pzxid,
    }
    assert stat._asdict() == expected | changed


def test_kazoo_reads_our_headers() -> None:
    assert header_of(replies.encode_error_reply(-2, 9, Code.NO_NODE)) == (-2, 9, -101)
    assert header_of(replies.encode_empty_reply(3, 1 << 40)) == (3, 1 << 40, 0)


def test_kazoo_reads_our_stats() -> None:
    for encode, kind in [
        (replies.encode_set_data_reply, kazoo.SetData),
        (replies.encode_exists_reply, kazoo.Exists),
    ]:
        raw = encode(3, 9, SampleZnode())
        assert header_of(raw) == (3, 9, 0)
        assert_is_sample(kind.deserialize(raw, BODY))


@pytest.mark.parametrize("data", [None, b"", b"abc", LONG])
def test_kazoo_reads_our_data(data: bytes | None) -> None:
    """Trap 23: null stays null and empty stays empty."""
    raw = replies.encode_get_data_reply(3, 9, SampleZnode(data=data, children={"x", "y"}))
    assert header_of(raw) == (3, 9, 0)
    heard, stat = kazoo.GetData.deserialize(raw, BODY)
    assert heard == data
    assert_is_sample(stat, dataLength=len(data or b""), numChildren=2)


def test_kazoo_reads_our_creates_and_syncs() -> None:
    assert kazoo.Create.deserialize(replies.encode_create_reply(3, 9, "/ä"), BODY) == "/ä"
    assert kazoo.Sync.deserialize(replies.encode_sync_reply(3, 9, "/ä"), BODY) == "/ä"
    path, stat = kazoo.Create2.deserialize(replies.encode_create2_reply(3, 9, "/ä", SampleZnode()), BODY)
    assert path == "/ä"
    assert_is_sample(stat)


@pytest.mark.parametrize("names", [[], ["a"], ["a", "ä", "c" * 300]])
def test_kazoo_reads_our_children(names: list[str]) -> None:
    assert kazoo.GetChildren.deserialize(replies.encode_children_reply(3, 9, names), BODY) == names
    raw = replies.encode_children2_reply(3, 9, set(names), SampleZnode())
    heard, stat = kazoo.GetChildren2.deserialize(raw, BODY)
    assert sorted(heard) == sorted(names)
    assert_is_sample(stat)


MULTI_OPS = (
    (CREATE, "/a", b"", None, 0, 0),
    (CHECK, "/a", 0),
    (SET_DATA, "/a", b"", 0),
    (DELETE, "/a", 1),
)


def test_kazoo_reads_our_multi() -> None:
    results = (("/a", SampleZnode().stat()), Code.OK, SampleZnode().stat(), Code.OK)
    raw = replies.encode_multi_reply(3, 9, MULTI_OPS, results)
    assert header_of(raw) == (3, 9, 0)
    path, checked, stat, deleted = kazoo.Transaction.deserialize(raw, BODY)
    assert (path, checked, deleted) == ("/a", True, True)
    assert_is_sample(stat)


def test_kazoo_reads_our_failed_multi() -> None:
    """Trap 11."""
    raw = replies.encode_multi_reply(3, 9, MULTI_OPS, Failure((0, -110, -2, -2)))
    assert header_of(raw) == (3, 9, 0)
    heard = kazoo.Transaction.deserialize(raw, BODY)
    assert [type(error) for error in heard] == [
        RolledBackError,
        NodeExistsError,
        RuntimeInconsistency,
        RuntimeInconsistency,
    ]


def test_kazoo_reads_our_watch_events() -> None:
    raw = encode_watch_event(9, EventType.NODE_CHILDREN_CHANGED, "/ä")
    assert header_of(raw) == (-1, 9, 0)
    event, end = kazoo.Watch.deserialize(raw, BODY)
    assert tuple(event) == (4, 3, "/ä")
    assert end == len(raw)
