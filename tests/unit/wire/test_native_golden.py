"""The native protocol's bytes, as they stand in its document: a client of another language relies on each.

Source: docs/reference/protocol-native.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgpack
import pytest

from tests.fuzz.native_answers import compare
from zraft.tree.node import Znode
from zraft_core.errors import Code
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.registry_values import Retention, Topic
from zraft_core.topics.stamps import MessageId
from zraft_core.wire.native import answers, failures, topic_answers, zatt
from zraft_core.wire.native.pushes import EntriesPush
from zraft_core.wire.native.requests import Write, decode_request
from zraft_core.wire.native.results import STAT_NAMES
from zraft_core.wire.native.topic_results import ReplicaRefusal
from zraft_core.wire.native.zatt import decode_one_shot
from zraft_core.znodes.txn import ADD, CREATE2, DELETE, MULTI, PUT, SET_DATA

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "protocol-native.md"
ZXID = 0x1_0000_0005
STAT = (ZXID, ZXID + 1, 3, 4, 5, 6, 7, 8, 9, 10, 11)


def documented_bytes() -> list[bytes]:
    """The two messages of the section that shows bytes: hexadecimal digits in the left column."""
    shown = DOCUMENT.read_text().split("Byte by byte")[1].split("```")[1]
    blocks = shown.strip().split("\n\n")
    return [
        bytes.fromhex("".join(line.split('"')[0].split("map of")[0] for line in block.splitlines()))
        for block in blocks
    ]


def test_the_documents_bytes_are_those_of_a_write_and_its_answer() -> None:
    request, answer = documented_bytes()
    message = msgpack.unpackb(request)
    assert message == {"type": "put", "id": 7, "key": "a", "value": 1, "seq": 1}
    decoded = decode_request(message)
    command = (PUT, "/zraft/dictionaries/default/=a", b"\x92\xa1a\x01", None)
    assert decoded == Write(7, "put", command, 1, 0)
    stat = (ZXID, ZXID, 0, 0, 0, 0, 0, 0, 4, 0, ZXID)
    assert answers.encode_outcome(7, command, (ZXID, 6, 0, stat)) == answer


GOLDEN: list[tuple[str, bytes, str]] = [
    (
        "result",
        answers.encode_result(1, 2),
        "84 a26964 01 a474797065 a6726573756c74 a773756363657373 c3 a47a786964 02",
    ),
    (
        "error",
        failures.encode_error(1, Code.NO_NODE, "x"),
        "87 a26964 01 a474797065 a56572726f72 a773756363657373 c2 a4636f6465 a74e4f5f4e4f4445 a56572726f72 a178"
        " a9726574726961626c65 c2 a7756e6b6e6f776e c2",
    ),
    (
        "redirect",
        failures.encode_redirect(1, "h", 5254),
        "83 a26964 01 a474797065 a87265646972656374 a66c6561646572 92 a168 cd1486",
    ),
    (
        "redirect in Zatt's form",
        failures.encode_redirect(None, "h", 5254),
        "82 a474797065 a87265646972656374 a66c6561646572 92 a168 cd1486",
    ),
    (
        "result in Zatt's form",
        zatt.encode_zatt_result(zatt.ZattResult(True)),
        "82 a474797065 a6726573756c74 a773756363657373 c3",
    ),
    ("Zatt's map", answers.map_of([b"\x92\xa1a\x01", b"\x92\x01\xc0"]), "82 a161 01 01 c0"),
    (
        "changes",
        answers.encode_changes(
            3, 9, [answers.item_of(b"\x92\xa1a\x01", 0, 9), answers.gone_of(b"\xa1b")], initial=False, complete=True
        ),
        "86 a26964 03 a474797065 a76368616e676573 a47a786964 09 a7696e697469616c c2 a8636f6d706c657465 c3"
        " a76368616e676573 92 94 a161 01 00 09 91 a162",
    ),
    (
        "entries",
        answers.encode_log_entries(3, 9, EntriesPush(((0, b"x", 8),), 1, 0)),
        "86 a26964 03 a474797065 a7656e7472696573 a47a786964 09 a7656e7472696573 91 93 00 c40178 08 a46e657874 01"
        " a56669727374 00",
    ),
    (
        "event",
        answers.encode_event(3, 9, 2, "/a"),
        "85 a26964 03 a474797065 a56576656e74 a46b696e64 a764656c65746564 a470617468 a22f61 a47a786964 09",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("what", "encoded", "expected"), GOLDEN, ids=[one[0] for one in GOLDEN])
def test_golden_bytes(what: str, encoded: bytes, expected: str) -> None:
    assert encoded == bytes.fromhex(expected), what


REPLY = Reply(MessageId(ProducerId(5), 1), GroupId(3), Answer.DELIVERED, True, 7, 1, 2, 9)
REFUSED = ReplicaRefusal(GroupId(3), "not_leader", ServerId(2), None, "ask it")


def where_topics_are(known: bytes | None) -> bytes:
    """An answer to `topics`."""
    return topic_answers.encode_topics(
        *(1, 9),
        position=6,
        epoch=2,
        servers={1: "10.0.0.1:2181"},
        topics=[Topic(4, "orders", 2, (GroupId(3),), (GroupId(8),), retention=Retention(5, None))],
        groups=[(3, 4, 1, (1, 2)), (8, 4, None, ())],
        deleting=[7],
        destinations_max=5,
        features=5,
        known=known,
    )


ABOUT_TOPICS: list[tuple[dict[str, Any], bytes]] = [
    ({"type": "subscribe"}, topic_answers.encode_replies(1, 9, topic_answers.reply_rows([REPLY], False), [REFUSED])),
    ({"type": "subscribe"}, topic_answers.encode_replies(1, 9, topic_answers.reply_rows([REPLY], True), [])),
    (
        {"type": "fetch"},
        topic_answers.encode_fetched(1, 9, [(3, 0, 1, 2, (1, 2, 3, 0), [(0, (1, 2, 3, 0), b"m")])], [REFUSED]),
    ),
    ({"type": "topics"}, where_topics_are(None)),
    ({"type": "topics"}, where_topics_are(msgpack.unpackb(where_topics_are(None), strict_map_key=False)["digest"])),
    ({"type": "create_topic"}, topic_answers.encode_topic_outcome(1, (9, 6, 0, (4,)))),
    ({"type": "close_producer"}, topic_answers.encode_topic_outcome(1, (9, 6, 0, (None,)))),
    ({"type": "create_topic"}, topic_answers.encode_topic_outcome(1, (9, 6, Code.NODE_EXISTS, ("exists",)))),
]  # fmt: skip


@pytest.mark.parametrize(("request_", "encoded"), [
    *ABOUT_TOPICS,
    *(({"type": "ping"}, encoded) for name, encoded, _ in GOLDEN if "Zatt" not in name),
])  # fmt: skip
def test_what_is_encoded_has_the_fields_that_are_declared(request_: dict[str, Any], encoded: bytes) -> None:
    message = msgpack.unpackb(encoded, use_list=False, strict_map_key=False)
    compare(message, request_)


@pytest.mark.parametrize(
    ("command", "body", "fields"),
    [
        ((PUT, "/a", b"", None), STAT, {"version": 5, "mzxid": ZXID + 1}),
        ((ADD, "/a", b"", 1), (7, STAT), {"value": 7, "version": 5, "mzxid": ZXID + 1}),
        ((SET_DATA, "/a", b"", -1), STAT, {"stat": dict(zip(STAT_NAMES, STAT, strict=True))}),
        (
            (CREATE2, "/a", b"", None, 0, 0),
            ("/a", STAT),
            {"path": "/a", "stat": dict(zip(STAT_NAMES, STAT, strict=True))},
        ),
        ((DELETE, "/a", -1), None, {}),
        (
            (MULTI, ((PUT, "/a", b"", None), (DELETE, "/b", -1))),
            ((0, STAT), (0, None)),
            {"results": [{"version": 5, "mzxid": ZXID + 1}, {}]},
        ),
    ],
)
def test_each_kind_of_write_is_answered_with_its_fields(command: Any, body: Any, fields: Any) -> None:
    answer = msgpack.unpackb(answers.encode_outcome(1, command, (ZXID, 6, 0, body)))
    assert answer == {"id": 1, "type": "result", "success": True, "zxid": ZXID, "position": 6, **fields}


def test_every_code_has_words_for_users() -> None:
    for code in Code:
        assert failures.text_of(code, "/a").startswith("/a: ")


def test_an_entry_and_a_state_are_maps_that_any_reader_takes() -> None:
    node = Znode(b"\x92\xa1a\x93\x01\x02\x03", (), 5, 0, 0)
    entry = msgpack.unpackb(answers.encode_entry(1, 9, b"\x93\x01\x02\x03", node))
    assert (entry["found"], entry["value"], entry["version"], entry["mzxid"]) == (True, [1, 2, 3], 0, 5)
    many = [b"\x92" + msgpack.packb(n) + msgpack.packb(str(n)) for n in range(70_000)]
    state = msgpack.unpackb(answers.encode_state(1, 9, many), strict_map_key=False)["state"]
    assert state == {n: str(n) for n in range(70_000)}
    items = [answers.item_of(one, 0, 5) for one in many]
    page = msgpack.unpackb(answers.encode_items(1, 9, items, "#7"))
    assert page["items"][69_999] == [69_999, "69999", 0, 5]
    assert page["next"] == "#7"


def test_zatts_append_is_a_put_or_a_delete_in_the_default_dictionary() -> None:
    change = decode_one_shot(
        {"type": "append", "data": {"action": "change", "key": "a", "value": 1}, "more": 1}
    )
    assert change == Write(
        None, "append", (PUT, "/zraft/dictionaries/default/=a", b"\x92\xa1a\x01", None), forward=False
    )
    delete = decode_one_shot({"type": "append", "data": {"action": "delete", "key": 1}, "forward": True})
    assert delete == Write(None, "append", (DELETE, "/zraft/dictionaries/default/#1", -1), forward=True)
