"""What a server answers is read whole, or refused by an error that names the field; by hand as by the layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from zraft_client import requests
from zraft_client.calls import Request
from zraft_client.errors import WireError
from zraft_client.topics import requests as topics
from zraft_client.topics.requests import Part
from zraft_client.values import Children, Consistency, Counted, Created, LogPage, Member, Receipt, Versioned
from zraft_client.waiters import converted
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Message
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.stamps import MessageId, Stamp
from zraft_core.wire.native.results import OF_RESULTS, OF_WRITES, RESULTS, STAT_NAMES
from zraft_core.wire.native.topic_pushes import REPLIES
from zraft_core.wire.native.topic_results import FETCH
from zraft_core.znodes.stat import Stat

NOW = Consistency.LINEARIZABLE, 0
GET = requests.get("d", 1, *NOW)
CHILDREN = requests.children("/a", *NOW)
ENVELOPE = {"id": 1, "type": "result", "success": True, "zxid": 9}
PLACE = {**ENVELOPE, "position": 6}
STAT = dict(zip(STAT_NAMES, range(11), strict=True))
PRODUCER = ProducerId(5)
MESSAGE = encode_message(Message(MessageId(PRODUCER, 1), (GroupId(3),), b"x", 1))
REFUSED = (3, "not_leader", 2, None, "ask it")
FETCHED = {
    **ENVELOPE,
    "partitions": ((3, 0, 1, 2, (1, 2, 3, 0), ((0, (1, 2, 3, 0), MESSAGE),)), (4, 0, 0, 0, (1, 2, 3, 0), ())),
    "refused": (REFUSED,),
}
STAMP = Stamp(1, GroupId(2), 3, GroupId(0))
PUSHED = {
    "id": 1,
    "type": "replies",
    "zxid": 9,
    "replies": ((1, 3, 1, True, 7, 1, 2), (2, 3, 0, False, None, 1, 2, 9)),
    "refused": (REFUSED,),
}


@pytest.mark.parametrize(
    ("request_", "answer", "expected"),
    [
        (requests.put("d", 1, 1), {**PLACE, "version": 0, "mzxid": 9}, Receipt(9, 6, 0, 9)),
        (requests.delete("d", 1), PLACE, Receipt(9, 6)),
        (requests.increment("d", 1, 1), {**PLACE, "value": -5, "version": 0, "mzxid": 9}, Counted(-5, 9, 6, 0, 9)),
        (GET, {**ENVELOPE, "found": True, "value": (1,), "version": 0, "mzxid": 9}, Versioned([1], 0, 9)),
        (GET, {**ENVELOPE, "found": False, "value": None, "version": None, "mzxid": None}, None),
        (requests.create("/a", b""), {**PLACE, "path": "/a", "stat": STAT}, Created("/a", Stat(*range(11)), 9, 6)),
        (requests.set_data("/a", b""), {**PLACE, "stat": STAT}, Receipt(9, 6, 4, 1)),
        (CHILDREN, {**ENVELOPE, "names": ("b", "a"), "stat": STAT}, Children(("a", "b"), Stat(*range(11)))),
        (requests.sync(), ENVELOPE, 9),
        (
            requests.members(),
            {**ENVELOPE, "members": ({"server": 1, "address": "h:1", "part": "voter", "leader": True, "newer": 1},)},
            (Member(1, "h:1", "voter", True),),
        ),
        (
            requests.log("/a", "", 0, limit=None, bytes_max=None, consistency=NOW[0], floor=0),
            {**ENVELOPE, "entries": (), "next": 1, "first": 0, "end": 1},
            LogPage((), 1, 0, 1),
        ),
    ],
)  # fmt: skip
def test_an_answer_is_read_with_whatever_a_newer_server_adds(
    request_: Request[Any], answer: Mapping[str, Any], expected: Any
) -> None:
    assert converted(request_, answer) == expected
    assert converted(request_, {**answer, "newer": 1}) == expected


@pytest.mark.parametrize(
    ("request_", "answer", "error"),
    [
        (requests.put("d", 1, 1), ENVELOPE, "write: expected a field 'position', found none"),
        (requests.put("d", 1, 1), {**PLACE, "version": "0", "mzxid": 9}, "write.version: expected an integer from -1"),
        (requests.increment("d", 1, 1), PLACE, "increment: expected a field 'value'"),
        (GET, {**ENVELOPE, "found": True}, "get: expected a field 'value'"),
        (
            GET,
            {**ENVELOPE, "found": True, "value": 1, "version": None, "mzxid": None},
            "get.found: expected true with `version`",
        ),
        (requests.read("/a", *NOW), {**ENVELOPE, "data": "x", "stat": STAT}, "read.data: expected bin or nil"),
        (requests.exists("/a", *NOW), {**ENVELOPE, "stat": {**STAT, "ctime": None}}, "exists.stat.ctime: expected"),
        (CHILDREN, {**ENVELOPE, "names": ("a", 1), "stat": STAT}, r"children.names\[1\]: expected a string"),
        (
            requests.members(),
            {**ENVELOPE, "members": ({"server": 1, "address": "h:1", "part": "voter", "leader": 1},)},
            r"members.members\[0\].leader: expected true or false, found int 1",
        ),
        (requests.owners("/a"), {**ENVELOPE, "owners": ((1, 2, 3, 4),), "leads": True}, r"owners.owners\[0\]"),
        (requests.hello(1, None, None, 0), {**ENVELOPE, "session": 1, "password": b""}, "hello.password: expected 16 bytes"),
        (requests.multi([]), {**PLACE, "results": (1,)}, r"multi.results\[0\]: expected a map"),
        (topics.topics(None), ENVELOPE, "topics: expected a field 'position'"),
        (topics.create_topic("a", 1), {**PLACE, "created": None}, "created.created"),
        (topics.offset(GroupId(3), b"c"), {**ENVELOPE, "refused": (1, 2)}, "offset.refused: expected an array of 5"),
        (topics.fetch([], 0), {**FETCHED, "partitions": ((3, 0, 1, 2, (1, 2, 3), ()),)}, r"fetch.partitions\[0\].frontier"),
        (topics.fetch([], 0), {**FETCHED, "refused": (5,)}, "fetch.refused: expected an array of 5"),
    ],
)  # fmt: skip
def test_an_error_names_the_field_that_is_wrong(
    request_: Request[Any], answer: Mapping[str, Any], error: str
) -> None:
    with pytest.raises(WireError, match=error):
        converted(request_, answer)


# -- by hand and by the layouts

ODD: tuple[Any, ...] = (
    *(None, True, False, -2, -1, 0, 1, 2**31, 2**63 - 1, 2**63, 1.5, "", "0", b"", b"x" * 16),
    *((), (1,), (1, 2, 3, 4), {}, {"a": 1}),
)


def spoiled(value: Any) -> Iterator[Any]:
    """The value with something odd in each of its places, or with one less or one more."""
    yield from ODD
    if isinstance(value, tuple):
        yield (*value, 1)
        yield value[:-1]
        for at, one in enumerate(value):
            for other in spoiled(one):
                yield (*value[:at], other, *value[at + 1 :])
    if isinstance(value, dict):
        for name, one in value.items():
            if name not in ("id", "type", "success"):
                yield {key: kept for key, kept in value.items() if key != name}
                for other in spoiled(one):
                    yield {**value, name: other}


def holds(read: Callable[[], Any]) -> bool:
    try:
        read()
    except ProtocolError:
        return False
    return True


def by_layouts(answer: Any) -> dict[str, bool]:
    return {
        "put": holds(lambda: [one.unpack_map(answer, "") for one in (OF_RESULTS, OF_WRITES, RESULTS["append"])]),
        "get": holds(lambda: RESULTS["get"].unpack_map(answer, "")),
        "replies": holds(lambda: REPLIES.unpack_map(answer, "")),
        "fetch": holds(lambda: FETCH.unpack_map(answer, "")),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "answer", "read"),
    [
        ("put", {**PLACE, "version": 0, "mzxid": 9}, requests.put("d", 1, 1).convert),
        ("get", {**ENVELOPE, "found": True, "value": 1, "version": 0, "mzxid": 9}, GET.convert),
        ("replies", PUSHED, lambda message: topics.replies_of(PRODUCER, message)),
        ("fetch", FETCHED, topics.fetch([], 0).convert),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_is_read_by_hand_is_what_its_layout_takes(
    kind: str, answer: dict[str, Any], read: Callable[[Any], Any]
) -> None:
    assert by_layouts(answer)[kind]
    read(answer)
    seen = set()
    for one in spoiled(answer):
        if not isinstance(one, dict):
            continue
        taken = by_layouts(one)[kind]
        try:
            read(one)
        except (ProtocolError, WireError):
            # What is in a message is read by its own layout; and an entry that is found has a version.
            assert not taken or one.get("found") is not None or kind == "fetch", one
        else:
            assert taken, one
        seen.add(taken)
    assert seen == {True, False}


def test_rows_of_replies_and_deliveries_become_values() -> None:
    replies, refused = topics.replies_of(PRODUCER, PUSHED)
    assert replies == [
        Reply(MessageId(PRODUCER, 1), GroupId(3), Answer.DELIVERED, True, 7, 1, 2),
        Reply(MessageId(PRODUCER, 2), GroupId(3), Answer.ACCEPTED, False, None, 1, 2, 9),
    ]
    assert [one.detail for one in refused] == ["ask it"]
    fetched = topics.fetch([], 0).convert(FETCHED)
    first, second = fetched.parts
    assert (first.group, first.next, first.frontier, len(first.deliveries)) == (3, 1, STAMP, 1)
    assert second == Part(GroupId(4), 0, 0, 0, STAMP, ())
    assert type(first.deliveries[0].stamp) is Stamp
