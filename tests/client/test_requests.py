"""Servers understand what the client asks: every request that it can make is decoded as servers do it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgpack
import pytest

from zraft_client import requests
from zraft_client.topics import requests as topics
from zraft_client.topics.values import Metadata
from zraft_client.values import Check, Consistency
from zraft_core.claims.commands import Heartbeat
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.message import Message
from zraft_core.topics.messages import StartRequest
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId
from zraft_core.wire.native.requests import REQUESTS, decode_request

LOCAL = Consistency.LOCAL, 5
G = GroupId(3)
KNOWN = Metadata(Table(1, 0, frozenset(), frozenset()), {}, {}, {}, b"d" * 16, 5, 5)
STARTS = [
    StartRequest(Message(MessageId(ProducerId(5), 1), (G,), b"payload", 1), 0, 1),
    StartRequest(
        Message(MessageId(ProducerId(5), 2), (G, GroupId(4)), b"", 0), 0, 1, relayed=True, staged=True
    ),
]

ASKED = [
    *(one.fields for one in (
        requests.put("default", "a", {"b": [1, None]}),
        requests.put("d", ("a", 1), b"", -1),
        requests.delete("d", 1, 4),
        requests.increment("default", "a", -1),
        requests.get("d", None, *LOCAL),
        requests.state("default", Consistency.LINEARIZABLE, 0),
        requests.items("d", "=a", 10, *LOCAL),
        requests.size("d", *LOCAL),
        requests.create("/a", b"", ephemeral=True, sequential=True, acl=[(31, "world", "anyone")]),
        requests.create("/a", b"", container=True),
        requests.create("/a", b"", ttl_ms=5_000),
        requests.create("/a", b"", ttl_ms=5_000, sequential=True),
        requests.set_data("/a", b"x", 3),
        requests.remove("/a", 3),
        requests.read("/a", *LOCAL),
        requests.exists("/a", *LOCAL),
        requests.children("/a", *LOCAL),
        requests.multi([requests.put("d", "a", 1), requests.create("/a", b"", ttl_ms=1), Check("/a", 1)]),
        requests.truncate("/a", 3, "/o", b"x"),
        requests.log("/a", "n", 3, limit=5, bytes_max=10, consistency=Consistency.LOCAL, floor=3),
        requests.hello(5_000, -1, b"p" * 16, 3),
        requests.hello(5_000, None, None, 0),
        requests.ping(),
        requests.close(),
        requests.auth("digest", b"bob:x"),
        requests.will("/a", "n", b"x"),
        requests.will(None, "", b""),
        requests.sync(),
        requests.diagnostic(),
        requests.members(),
        requests.owners("/a"),
        requests.config("add", "10.0.0.1", 2181, 3),
        requests.zatt({"type": "append", "data": {"action": "change", "key": "a", "value": 1}}),
        requests.subscribe_dictionary("d", 100),
        requests.subscribe_log("/a", "n", 3, 100),
        requests.subscribe_path("/a", True),
        requests.unsubscribe(3),
        topics.create_topic("a", 3, 5, None),
        topics.retain_topic("a", None, 7),
        topics.alter_topic("a", 4),
        topics.delete_topic("a"),
        topics.register_producer(),
        topics.close_producer(ProducerId(5)),
        topics.topics(KNOWN),
        topics.subscribe_producer(ProducerId(5), -1, b"p" * 16, 3, times=True),
        topics.fetch([(G, 0, topics.FETCH_BYTES_MAX), (GroupId(4), topics.BEYOND, 0)], 500),
        topics.need({G: 5}),
        topics.claim(G, Heartbeat("g", 1, 2, 3)),
        topics.claims(G, "g"),
        topics.seek(G, b"c", None),
        topics.offset(G, b"c"),
        topics.offset_at(G, 1_764_000_000_000),
        topics.consumers(G),
    )),
    requests.credit(3, 100),
    *(topics.produce(3, G, [start]) for start in STARTS),
]  # fmt: skip


@pytest.mark.parametrize("fields", ASKED, ids=lambda fields: fields["type"])
def test_servers_understand_what_the_client_asks(fields: Mapping[str, Any]) -> None:
    message = msgpack.unpackb(msgpack.packb({**fields, "id": 1}), use_list=False)
    decode_request(message)


def test_the_client_can_ask_everything_that_servers_understand() -> None:
    assert {fields["type"] for fields in ASKED} == {*REQUESTS, "subscribe"}
