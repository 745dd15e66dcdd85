"""The bytes of every kind of answer and push that a server sends to native clients, as it sent them before.

`native_answers.txt` has what a client or a partition said and, indented below it, each message that came of it, in
hexadecimal. To take over what the code sends now, run `python -m tests.unit.server.test_native_answers` and look at
the difference: clients of another release and of other languages rely on every byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest
from attrs import evolve

from tests.fuzz.native_answers import PUSHED, REFUSED, RESULTS
from tests.unit.server.native import Map, NativeClient, started
from tests.unit.server.test_native_topics import GROUP, OTHER, PRODUCER, STAMP, Served, message, produce
from tests.unit.server.test_sasl import response_to
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.clients.native.view import ClusterView
from zraft.topics.service import Consumers, Fetched, Offset, TopicRefusal
from zraft_core.claims.answers import Accepted
from zraft_core.claims.codec import encode_command
from zraft_core.claims.commands import Heartbeat
from zraft_core.claims.state import Claims
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.codec import encode_message
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.stamps import MessageId

TRANSCRIPT = Path(__file__).with_name("native_answers.txt")
SUPER = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # of super:admin

Step = tuple[str, tuple[str, ...]]
"""What was said, and the messages that came of it."""


def cut(data: bytes) -> tuple[str, ...]:
    """The messages of a stream, each in hexadecimal."""
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    messages: list[str] = []
    begin = 0
    while begin < len(data):
        unpacker.skip()
        messages.append(data[begin : unpacker.tell()].hex())
        begin = unpacker.tell()
    return tuple(messages)


class Talk:
    """One client; `say` and `hear` give what was said and what came."""

    def __init__(self, client: NativeClient) -> None:
        self.client = client

    def hear(self, what: str) -> Step:
        """What is told at the end of a turn."""
        self.client.server.turn()
        received = self.client._far.received
        data = bytes(received)
        received.clear()
        return what, cut(data)

    def say(self, *messages: Map) -> Step:
        """What comes of these messages, once nothing is left to do."""
        self.client.send(*messages)
        received = bytearray()
        take = self.client.taken

        def taken() -> list[Map]:
            received.extend(self.client._far.received)
            return take()

        self.client.taken = taken  # type: ignore[method-assign]
        self.client.settle()
        del self.client.taken
        return "; ".join(map(str, messages)), cut(bytes(received))


class Following(ClusterView):
    """The view of a server that knows a leader elsewhere."""

    leads = False

    def leader_address(self) -> tuple[str, int]:
        return "10.0.0.2", 2181


def about_sessions() -> Iterator[Step]:
    server = started()
    clients = server.driver.clients
    clients.settings = evolve(clients.settings, reconfig_enabled=True, auth=AuthSettings(super_digest=SUPER))
    talk = Talk(NativeClient(server))
    yield talk.say({"type": "hello", "timeout_ms": 30_000})
    yield talk.say({"type": "ping"})
    yield talk.say({"type": "auth", "scheme": "digest", "credentials": b"super:admin"})
    yield talk.say({"type": "will", "parent": "/", "prefix": "w", "data": b"x"})
    yield talk.say({"type": "sync"})
    yield talk.say({"type": "members"})
    yield talk.say({"type": "config", "action": "add", "address": "10.0.0.9", "port": 5254})
    yield talk.say({"type": "config", "action": "delete", "address": "10.0.0.9", "port": 1})
    yield talk.say({"type": "diagnostic"})
    yield talk.say({"type": "close"})
    yield Talk(NativeClient(server, 2)).say({"type": "hello", "timeout_ms": 30_000, "last_zxid": 2**62})
    yield Talk(NativeClient(server, 3)).say(
        {"type": "hello", "timeout_ms": 9, "session": 5, "password": bytes(16)}
    )
    auth = AuthSettings(users=lambda: {"bob": "secret"})
    clients.settings = evolve(clients.settings, auth=auth)
    talk = Talk(NativeClient(server, 4))
    what, (challenge,) = talk.say({"type": "auth", "scheme": "sasl", "credentials": b""})
    yield what, (challenge,)
    token = msgpack.unpackb(bytes.fromhex(challenge))["token"]
    _, came = talk.say({"type": "auth", "scheme": "sasl", "credentials": response_to(token, "bob", "secret")})
    yield "a response to the challenge", came
    yield talk.say({"type": "auth", "scheme": "sasl", "credentials": b"nonsense"})
    for number, malformed in enumerate((b"\x81\xa4type\xa1x", b"\x07", b"\x81\xa2id\xa1x")):
        talk = Talk(NativeClient(server, 5 + number))
        talk.client.raw(b"\x81\xa2id\x01" + malformed)
        talk.client.server.turn()
        yield talk.hear(malformed.hex())


def about_dictionaries() -> Iterator[Step]:
    talk = Talk(NativeClient(started()))
    yield talk.say({"type": "hello", "timeout_ms": 30_000})
    yield talk.say({"type": "put", "key": "a", "value": {"x": [1, b"2", None]}})
    yield talk.say({"type": "put", "key": 1, "value": None}, {"type": "put", "key": 1, "value": 1.5})
    yield talk.say({"type": "put", "key": 1, "value": 1, "version": 0})
    yield talk.say({"type": "put", "key": 1, "value": 1, "version": -1})
    yield talk.say({"type": "increment", "key": "n"}, {"type": "increment", "key": "n", "amount": -300})
    yield talk.say({"type": "increment", "key": "a"})
    yield talk.say({"type": "get", "key": "a"}, {"type": "get", "key": 1}, {"type": "get", "key": "none"})
    # Several entries would come in any order.
    yield talk.say({"type": "put", "key": "a", "value": [1], "dictionary": "one"})
    yield talk.say({"type": "get", "dictionary": "one"}, {"type": "get", "dictionary": "none"})
    yield talk.say({"type": "items", "limit": 2}, {"type": "items", "dictionary": "none"})
    yield talk.say({"type": "size"}, {"type": "size", "dictionary": "none"})
    yield talk.say({"type": "delete", "key": "n"}, {"type": "delete", "key": "n"})
    yield talk.say({"type": "append", "data": {"action": "change", "key": 2, "value": 2}})
    yield talk.say({"type": "append", "data": {"action": "delete", "key": 2}})
    yield talk.say({"type": "put", "key": 1, "value": 1, "seq": 1})
    yield talk.say({"type": "get", "key": 1, "consistency": "local", "floor": 2**62, "timeout_ms": 2})
    yield talk.say({"type": "subscribe", "id": 90, "dictionary": "one", "credit": 100_000})
    yield talk.say({"type": "put", "key": "a", "value": [2], "dictionary": "one"})
    yield talk.say({"type": "delete", "key": "a", "dictionary": "one"})
    yield talk.say({"type": "unsubscribe", "subscription": 90}, {"type": "unsubscribe", "subscription": 90})


def about_znodes() -> Iterator[Step]:
    talk = Talk(NativeClient(started(frame_bytes_max=1 << 20)))
    yield talk.say({"type": "hello", "timeout_ms": 30_000})
    yield talk.say({"type": "subscribe", "id": 90, "path": "/a", "recursive": True})
    yield talk.say({"type": "create", "path": "/a", "data": b"data"})
    yield talk.say({"type": "create", "path": "/a/e", "data": None, "flags": 3})
    yield talk.say({"type": "create", "path": "/a", "data": b""})
    yield talk.say({"type": "set", "path": "/a", "data": b"more"}, {"type": "set", "path": "/b", "data": b""})
    yield talk.say({"type": "read", "path": "/a"}, {"type": "read", "path": "/none"})
    yield talk.say({"type": "exists", "path": "/a"}, {"type": "exists", "path": "/none"})
    yield talk.say({"type": "children", "path": "/a"}, {"type": "owners", "path": "/a"})
    operations = [
        {"type": "check", "path": "/a", "version": 1},
        {"type": "set", "path": "/a", "data": b"x"},
        {"type": "create", "path": "/m", "data": b"x"},
        {"type": "put", "key": 1, "value": 1},
        {"type": "increment", "key": 2},
        {"type": "remove", "path": "/m"},
    ]
    yield talk.say({"type": "multi", "operations": operations})
    yield talk.say({"type": "multi", "operations": [*operations, {"type": "remove", "path": "/none"}]})
    _, stored = talk.say({"type": "set", "path": "/a", "data": bytes(70_000)})
    yield "set /a to 70,000 bytes", stored
    _, (large,) = talk.say({"type": "read", "path": "/a"})
    yield f"read /a: {len(large) // 2} bytes, of which the first are", (large[:600],)
    yield talk.say({"type": "remove", "path": "/a/e0000000000"}, {"type": "remove", "path": "/a"})
    yield talk.say({"type": "create", "path": "/log", "data": None})
    yield talk.say({"type": "subscribe", "id": 91, "log": "/log", "credit": 100_000, "prefix": "n"})
    yield talk.say(
        *[{"type": "create", "path": "/log/n", "data": data, "flags": 2} for data in (b"0", None, b"2")]
    )
    yield talk.say({"type": "log", "directory": "/log", "prefix": "n"})
    yield talk.say(
        {"type": "truncate", "directory": "/log", "first": 2, "origin_path": "/o", "origin_data": b"o"}
    )
    yield talk.say({"type": "log", "directory": "/log", "prefix": "n"}, {"type": "log", "directory": "/none"})


def about_zatt() -> Iterator[Step]:
    server = started()
    every: tuple[Map, ...] = (
        {"type": "append", "data": {"action": "change", "key": "a", "value": [1]}},
        {"type": "append", "data": {"action": "delete", "key": "b"}},
        {"type": "get"},
        {"type": "diagnostic"},
        {"type": "config", "action": "add", "address": "10.0.0.9", "port": 5254},
    )
    for number, asked in enumerate(every):
        yield Talk(NativeClient(server, number)).say({"id": -1, **asked})
    add = {"type": "config", "action": "add", "address": "10.0.0.9", "port": 5254}
    clients = server.driver.clients
    clients.settings = evolve(clients.settings, reconfig_enabled=True, auth=AuthSettings(super_digest=SUPER))
    yield Talk(NativeClient(server, 9)).say({"id": -1, **add})
    clients.view = Following(server.driver.coordination, lambda: 0)
    yield Talk(NativeClient(server, 10)).say({"id": -1, **add})
    yield Talk(NativeClient(server, 11)).say(
        {"type": "put", "key": 1, "value": 1, "forward": False},
        {"type": "append", "data": {"action": "delete", "key": 1}},
    )


def about_topics() -> Iterator[Step]:
    served = Served()
    talk, service = Talk(served.client), served.service
    yield talk.say({"type": "create_topic", "topic": "orders", "partitions": 1, "retention_bytes": 5})
    yield talk.say({"type": "create_topic", "topic": "orders", "partitions": 1})
    yield talk.say({"type": "retain_topic", "topic": "orders", "retention_age_ms": 7})
    while not served.registry.groups:
        served.server.turn()
    what, (topics,) = talk.say({"type": "topics"})
    yield what, (topics,)
    yield talk.say(
        {"type": "topics", "digest": msgpack.unpackb(bytes.fromhex(topics), strict_map_key=False)["digest"]}
    )
    yield talk.say({"type": "alter_topic", "topic": "orders", "partitions": 1})
    yield talk.say({"type": "register_producer"})
    yield talk.say({"type": "close_producer", "producer": PRODUCER + 1})
    yield talk.say({"type": "subscribe", "id": 50, "producer": PRODUCER})
    talk.client.send(produce(message(1), message(2, GROUP, OTHER)))
    (number, *_) = service.ids("produce")
    client = service.client
    assert client is not None
    client.on_reply(number, Reply(MessageId(PRODUCER, 1), GROUP, Answer.DELIVERED, True, 4, 3, 5, 6))
    client.on_reply(number, Reply(MessageId(PRODUCER, 2), OTHER, Answer.BUSY))
    client.on_refused(number, TopicRefusal("not_leader", OTHER, ServerId(2), "ask 2"))
    yield talk.hear("two replies and a refusal")
    yield talk.say({"type": "subscribe", "id": 51, "producer": PRODUCER, "times": True})
    talk.client.send(produce(message(3), stream=51))
    client.on_reply(
        service.ids("produce")[-1], Reply(MessageId(PRODUCER, 3), GROUP, Answer.STAGED, False, None, 3, 5, 6)
    )
    yield talk.hear("a reply with its time")
    yield from about_partitions(talk, served)
    talk.client.send(produce(message(4, producer=PRODUCER + 1)))
    yield talk.hear("a message of another producer")
    talk.client.send({"type": "close_producer", "producer": PRODUCER})
    yield talk.say({"type": "delete_topic", "topic": "orders"})


def about_partitions(talk: Talk, served: Served) -> Iterator[Step]:
    service = served.service
    fetch: Map = {"type": "fetch", "partitions": [[GROUP, 0, 100], [OTHER, 5, 0], [GROUP + 5, 0, 9]]}
    talk.client.send(fetch)
    first, second, third = service.ids("fetch")
    client = service.client
    assert client is not None
    deliveries = [(0, STAMP, encode_message(message(1))), (1, STAMP, encode_message(message(2)))]
    client.on_fetched(first, Fetched(GROUP, deliveries, 0, 2, 9, STAMP))
    client.on_fetched(second, Fetched(OTHER, [], 5, 5, 5, STAMP))
    client.on_refused(third, TopicRefusal("gone", GroupId(GROUP + 5), None, "it is removed", 3))
    yield talk.hear(str(fetch))
    yield talk.say({"type": "need", "partitions": [[GROUP, 6]]})
    asked: list[Map] = [
        {"type": "claim", "group": GROUP, "command": encode_command(Heartbeat("g", 1, 2, 3))},
        {"type": "claims", "group": GROUP, "name": "g"},
        {"type": "seek", "group": GROUP, "consumer": b"c", "offset": 4},
        {"type": "offset", "group": GROUP, "consumer": b"c"},
        {"type": "consumers", "group": GROUP},
    ]
    talk.client.send(*asked)
    claim, claims, seek, offset, consumers = (one[1] for one in service.asked[-5:])
    client.on_claim(claim, Accepted(1, 3, 0, False, False, 9))
    client.on_claim(claims, Claims(60_000).view("g", 0))
    client.on_offset(seek, Offset(GROUP, 4))
    client.on_offset(offset, Offset(GROUP, None))
    client.on_consumers(consumers, Consumers(GROUP, ((b"c", 4, None), (b"g", 2, ("anna",))), 9))
    yield talk.hear("; ".join(map(str, asked)))
    talk.client.send(*asked)
    for one in service.asked[-5:]:
        client.on_refused(one[1], TopicRefusal("not_leader", GROUP, ServerId(2)))
    yield talk.hear("the same of a replica that does not lead")
    at = {"type": "offset_at", "group": GROUP, "time_ms": 1_700}
    talk.client.send(at)
    client.on_offset(service.asked[-1][1], Offset(GROUP, 8))
    yield talk.hear(str(at))


def scenarios() -> list[Step]:
    """All that is said and answered."""
    parts = (about_sessions(), about_dictionaries(), about_znodes(), about_zatt(), about_topics())
    return [step for part in parts for step in part]


def transcript() -> list[Step]:
    """What the file says."""
    steps: list[tuple[str, list[str]]] = []
    for line in TRANSCRIPT.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            steps[-1][1].append(line.strip())
        else:
            steps.append((line, []))
    return [(what, tuple(messages)) for what, messages in steps]


@pytest.fixture(scope="module")
def now() -> list[Step]:
    return scenarios()


EXPECTED = transcript() if TRANSCRIPT.exists() else []


@pytest.mark.parametrize("place", range(len(EXPECTED)), ids=lambda place: EXPECTED[place][0][:60])
def test_the_bytes_of_an_answer_are_those_of_the_transcript(now: list[Step], place: int) -> None:
    assert now[place] == EXPECTED[place]


def test_the_transcript_has_every_kind_of_answer_and_push(now: list[Step]) -> None:
    assert len(now) == len(EXPECTED)
    asked = {kind for kind in RESULTS if any(f"'type': '{kind}'" in what for what, _ in EXPECTED)}
    assert {*RESULTS} - asked == set()
    told = b"".join(bytes.fromhex(one) for _, messages in EXPECTED for one in messages)
    assert [
        kind for kind in ("result", *REFUSED, *PUSHED) if msgpack.packb({"type": kind})[1:] not in told
    ] == []


if __name__ == "__main__":
    text = "".join(
        "\n".join((what, *(f"    {one}" for one in messages))) + "\n" for what, messages in scenarios()
    )
    TRANSCRIPT.write_text(text, encoding="utf-8")
