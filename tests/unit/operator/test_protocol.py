"""Operators' requests and answers as bytes; docs/reference/protocol-peers.md, "Operators"."""

from __future__ import annotations

from typing import Any, get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zraft.operator.protocol import (
    OPERATIONS,
    UnknownOperationError,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
)
from zraft.operator.requests import (
    AclDefaults,
    AclLine,
    AclList,
    AclListing,
    AclRemove,
    AclSet,
    AclShow,
    AclShown,
    Done,
    FeatureRaise,
    FollowerLine,
    MemberAdd,
    MemberLine,
    MemberList,
    MemberListing,
    MemberMove,
    MemberPromote,
    MemberRemove,
    OperatorReply,
    OperatorRequest,
    PartitionLine,
    Refused,
    ReplicaLine,
    ReplicaListing,
    SettingLine,
    SettingsListing,
    SettingsSet,
    SettingsShow,
    SnapshotFile,
    SnapshotPart,
    SnapshotRead,
    SnapshotTake,
    TopicAlter,
    TopicCreate,
    TopicDelete,
    TopicDescribe,
    TopicDescription,
    TopicGiveUp,
    TopicLine,
    TopicList,
    TopicListing,
    TopicReplicas,
    TopicRetain,
    Transfer,
)
from zraft_core.errors import ProtocolError
from zraft_core.topics.access import Guarded

numbers = st.integers(0, 2**63 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
servers = st.integers(1, 254)
texts = st.text(min_size=1, max_size=40)
ids = st.binary(min_size=16, max_size=16)
kinds = st.sampled_from(Guarded)
names = st.binary(max_size=40)
acls = st.lists(st.tuples(st.integers(0, 31), texts, texts), min_size=1, max_size=3).map(tuple)
asked: dict[type[Any], st.SearchStrategy[Any]] = {
    MemberList: st.builds(MemberList),
    MemberAdd: st.builds(MemberAdd, servers, texts, st.booleans()),
    MemberMove: st.builds(MemberMove, servers, texts),
    MemberRemove: st.builds(MemberRemove, servers),
    MemberPromote: st.builds(MemberPromote, servers),
    Transfer: st.builds(Transfer, st.none() | servers),
    SnapshotTake: st.builds(SnapshotTake),
    SnapshotRead: st.builds(SnapshotRead, ids, numbers, st.integers(1, 2**20)),
    SettingsShow: st.builds(SettingsShow),
    SettingsSet: st.builds(SettingsSet, texts, signed),
    FeatureRaise: st.builds(FeatureRaise, st.none() | numbers),
    TopicList: st.builds(TopicList, st.text(max_size=30)),
    TopicDescribe: st.builds(TopicDescribe, texts, numbers),
    TopicCreate: st.builds(TopicCreate, texts, numbers, st.none() | numbers, st.none() | numbers),
    TopicAlter: st.builds(TopicAlter, texts, numbers),
    TopicRetain: st.builds(TopicRetain, texts, st.none() | numbers, st.none() | numbers),
    TopicDelete: st.builds(TopicDelete, texts),
    AclList: st.builds(AclList, kinds, st.text(max_size=30)),
    AclShow: st.builds(AclShow, kinds, names),
    AclSet: st.builds(AclSet, kinds, names, acls, st.none() | signed),
    AclDefaults: st.builds(AclDefaults, acls),
    AclRemove: st.builds(AclRemove, kinds, names),
    TopicReplicas: st.builds(TopicReplicas, st.lists(numbers, max_size=3).map(tuple)),
    TopicGiveUp: st.builds(TopicGiveUp, numbers, st.booleans()),
}
lines = st.builds(
    MemberLine,
    servers,
    st.text(max_size=30),
    texts,
    st.just(b"") | ids,
    st.booleans(),
    st.none() | numbers,
    st.none() | numbers,
    st.none() | numbers,
)
topic_lines = st.builds(
    TopicLine, texts, numbers, numbers, numbers, numbers, st.none() | numbers, st.none() | numbers
)
partition_lines = st.builds(
    PartitionLine, numbers, numbers, st.none() | servers, st.lists(servers, max_size=3).map(tuple), texts
)
follower_lines = st.builds(FollowerLine, servers, st.none() | numbers, st.none() | numbers, st.booleans())
replica_lines = st.builds(
    ReplicaLine,
    numbers,
    numbers,
    st.none() | servers,
    st.booleans(),
    numbers,
    numbers,
    numbers,
    st.none() | numbers,
    st.text(max_size=20),
    st.lists(follower_lines, max_size=3).map(tuple),
)
answered: dict[type[Any], st.SearchStrategy[Any]] = {
    MemberListing: st.builds(
        MemberListing,
        st.binary(max_size=64),
        numbers,
        numbers,
        st.booleans(),
        st.lists(lines, max_size=3).map(tuple),
    ),
    Done: st.builds(Done, st.text(max_size=50)),
    SnapshotFile: st.builds(SnapshotFile, servers, ids, numbers, numbers, signed),
    SnapshotPart: st.builds(SnapshotPart, numbers, st.binary(max_size=100)),
    SettingsListing: st.builds(
        SettingsListing,
        st.lists(st.builds(SettingLine, texts, signed, st.none() | signed), max_size=3).map(tuple),
        numbers,
        numbers,
    ),
    TopicListing: st.builds(
        TopicListing, st.lists(topic_lines, max_size=3).map(tuple), st.booleans(), numbers, numbers
    ),
    TopicDescription: st.builds(
        TopicDescription,
        texts,
        numbers,
        numbers,
        st.none() | numbers,
        st.none() | numbers,
        st.lists(partition_lines, max_size=3).map(tuple),
        st.booleans(),
    ),
    AclListing: st.builds(
        AclListing,
        st.none() | acls,
        st.lists(st.builds(AclLine, texts, names, acls), max_size=3).map(tuple),
        st.booleans(),
    ),
    AclShown: st.builds(AclShown, st.none() | acls, st.none() | signed, st.none() | acls),
    ReplicaListing: st.builds(ReplicaListing, servers, st.lists(replica_lines, max_size=3).map(tuple)),
    Refused: st.builds(Refused, st.text(max_size=50), st.none() | texts, st.booleans()),
}
values = st.recursive(
    st.none() | st.booleans() | signed | st.binary(max_size=20) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)


def test_every_request_and_answer_has_a_strategy_here() -> None:
    assert set(asked) == set(get_args(OperatorRequest))
    assert set(answered) == set(get_args(OperatorReply))
    assert len(OPERATIONS) == len(asked)


@settings(max_examples=150)
@given(numbers, st.one_of(list(asked.values())), st.one_of(list(answered.values())))
def test_they_survive_the_wire(number: int, request: OperatorRequest, reply: OperatorReply) -> None:
    for decoded, value in (
        (decode_request(encode_request(number, request)), request),
        (decode_reply(encode_reply(number, reply)), reply),
    ):
        assert (decoded.number, decoded.value) == (number, value)
        assert type(decoded.value) is type(value)


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes) -> None:
    for decode in (decode_request, decode_reply):
        with pytest.raises(ProtocolError):
            decode(data)


@settings(max_examples=200)
@given(st.one_of(list(asked.values())), st.one_of(list(answered.values())), st.data())
def test_a_wrong_field_raises_only_protocol_errors(
    request: OperatorRequest, reply: OperatorReply, data: st.DataObject
) -> None:
    for decode, encoded in (
        (decode_request, encode_request(1, request)),
        (decode_reply, encode_reply(1, reply)),
    ):
        found = msgpack.unpackb(encoded)
        found[data.draw(st.sampled_from(sorted(found)))] = data.draw(values)
        try:
            decode(msgpack.packb(found))
        except ProtocolError:
            continue


def test_a_field_of_a_newer_release_is_ignored_and_one_with_a_default_may_be_missing() -> None:
    """Tools and servers of different releases understand each other."""
    newer = {"id": 7, "op": "member.add", "server": 4, "address": "a:1", "weight": 3}
    assert decode_request(msgpack.packb(newer)).value == MemberAdd(4, "a:1", False)  # type: ignore[arg-type]
    assert decode_reply(msgpack.packb({"id": 7, "error": "no"})).value == Refused("no")


@pytest.mark.parametrize(
    ("request_map", "complaint"),
    [
        (
            {"id": 7, "op": "cluster.sing"},
            r"op: expected one of the kinds \[member\.list, .*found str 'cluster\.sing'",
        ),
        ({"id": 7, "op": 5}, r"op: expected one of"),
        ({"id": 7, "op": "member.add", "server": 4}, r"member\.add: expected a field 'address', found none"),
        (
            {"id": 7, "op": "member.remove", "server": 255},
            r"member\.remove\.server: .*1 to 254, found int 255",
        ),
        ({"id": 7, "op": "member.remove", "server": True}, r"found bool True"),
        (
            {"id": 7, "op": "snapshot.read", "snapshot": b"", "offset": 0, "length": 1},
            r"snapshot\.read\.snapshot: expected 16 bytes",
        ),
    ],
)
def test_a_request_that_cannot_be_done_is_answered_by_its_number(
    request_map: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UnknownOperationError, match=complaint) as caught:
        decode_request(msgpack.packb(request_map))
    assert caught.value.number == 7


@pytest.mark.parametrize(
    "data", [b"", msgpack.packb([1]), msgpack.packb({"op": "member.list"}), bytes(70_000)]
)
def test_what_is_no_request_at_all_cannot_be_answered(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_request(data)
    assert not isinstance(caught.value, UnknownOperationError)


def test_the_layout_on_the_wire_is_the_documented_one() -> None:
    """docs/reference/protocol-peers.md has these."""
    assert msgpack.unpackb(encode_request(1, MemberAdd(4, "a:1"))) == {  # type: ignore[arg-type]
        "id": 1,
        "op": "member.add",
        "server": 4,
        "address": "a:1",
        "observer": False,
    }
    assert msgpack.unpackb(encode_reply(1, Done("added"))) == {"id": 1, "ok": "done", "text": "added"}
    assert msgpack.unpackb(encode_reply(1, Refused("no", "b:2", True))) == {
        "id": 1,
        "error": "no",
        "leader": "b:2",
        "retriable": True,
    }
