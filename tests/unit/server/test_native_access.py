"""ACLs of topics and consumers: what each native request takes, and when it is judged (docs/how-to/security.md)."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.server.native import Map, NativeClient
from tests.unit.server.test_native_topics import PRODUCER, STAMP, Served, message, produce
from zraft.config.features import LEVEL_OF_ACCESS
from zraft.server.clients.audit import Denial, denied_line
from zraft.server.clients.authentication.proofs import digest_id
from zraft.server.clients.native import access
from zraft.server.clients.native.access import DENIED_MAX
from zraft.shell.acls import parse_acl
from zraft.topics.service import Consumers, Fetched, TopicRefusal
from zraft.tree.node import ZOOKEEPER
from zraft_core.claims.codec import encode_command
from zraft_core.claims.commands import Configure, Forget, Heartbeat
from zraft_core.errors import Code
from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.access import Guarded, consumer_path, topic_path
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Condition
from zraft_core.topics.registry_commands import CreateGroup, CreateTopic, DeleteTopic
from zraft_core.wire.native import partition_requests, topic_requests
from zraft_core.znodes.acl import OPEN_ACL
from zraft_core.znodes.txn import CREATE, DELETE, SET_ACL, Command

TOPIC, ORDERS = 8, GroupId(9)
OTHER_TOPIC, SECRET = 10, GroupId(11)
DISKS = ((ServerId(2), Instance(b"2" * 16)),)
ALICE, BOB = b"alice:wonderland", b"bob:builder"
CONSUMER = b"billing"
EVERY: Final = "cdrwa"
SEES: Final = "drwa"


class Closed(Served):
    """Topics orders and secret with one partition each, and a client that has proved that it is alice."""

    def __init__(self) -> None:
        super().__init__()
        machine = self.server.driver.machine
        for name, topic, group in (("orders", TOPIC, ORDERS), ("secret", OTHER_TOPIC, SECRET)):
            machine.registry.apply(CreateTopic(name, 1), topic)
            machine.registry.apply(CreateGroup(topic, DISKS), group)
        self.prove(self.client, ALICE)

    def prove(self, client: NativeClient, credentials: bytes) -> None:
        answer = client.one({"type": "auth", "scheme": "digest", "credentials": credentials})
        assert answer["success"], answer

    def command(self, command: Command) -> object:
        """What an operator's command comes to."""
        found: list[object] = []
        self.server.driver.submit_as_super(command, found.append, 0)
        while not found:
            self.server.turn()
        assert not isinstance(found[0], Code) or found[0] is Code.OK, found
        return found[0]

    def acl(self, path: str, text: str) -> None:
        """Give a znode this ACL, in which ALICE stands for her id."""
        acl = parse_acl(text.replace("ALICE", f"digest:{digest_id(ALICE)}"))
        for kind in Guarded:
            if path.startswith(kind.value + "/") and self.server.driver.machine.find(kind.value) is None:
                self.acl(kind.value, "world:anyone:cdrwa")
        if self.server.driver.machine.find(path) is None:
            self.command((CREATE, path, b"", acl, 0, None))
        else:
            self.command((SET_ACL, path, acl, -1))

    def close(self) -> None:
        for kind in Guarded:
            self.acl(kind.value, "world:anyone:")

    def denied(self, request: Map) -> bool:
        """Whether an ACL forbids a request, which may have come to nothing for another reason."""
        asked = len(self.service.asked)
        self.client.send(request)
        if len(self.service.asked) > asked:
            for one in self.service.asked[asked:]:
                if one[0] not in ("need", "produce"):
                    assert self.service.client is not None
                    self.service.client.on_refused(one[1], TopicRefusal("busy", ORDERS))
        answers = [one for one in self.client.settle() if one.get("type") != "replies"]
        if request["type"] == "produce" and not answers:
            assert len(self.service.asked) > asked
            return False
        (answer,) = answers
        return answer.get("code") == "NO_AUTH"


@pytest.fixture
def closed() -> Closed:
    return Closed()


def claim(command: Any) -> Map:
    return {"type": "claim", "group": ORDERS, "command": encode_command(command)}


HEARTBEAT: Final = Heartbeat(CONSUMER.decode(), 3, 1, 0)
REQUESTS: Final[dict[str, tuple[Map, str, str]]] = {
    "subscribe": ({"type": "subscribe", "producer": PRODUCER, "id": 51}, EVERY, EVERY),
    "produce": (produce(message(1, ORDERS), group=ORDERS), "w", EVERY),
    "fetch": ({"type": "fetch", "partitions": [[ORDERS, 0, 100]]}, "r", EVERY),
    "need": ({"type": "need", "partitions": [[ORDERS, 5]]}, "r", EVERY),
    "claim": (claim(HEARTBEAT), "r", "r"),
    "claims": ({"type": "claims", "group": ORDERS, "name": CONSUMER.decode()}, SEES, SEES),
    "seek": ({"type": "seek", "group": ORDERS, "consumer": CONSUMER, "offset": 3}, "r", "r"),
    "offset": ({"type": "offset", "group": ORDERS, "consumer": CONSUMER}, SEES, SEES),
    "offset_at": ({"type": "offset_at", "group": ORDERS, "time_ms": 5}, "r", EVERY),
    "consumers": ({"type": "consumers", "group": ORDERS}, SEES, EVERY),
    "register_producer": ({"type": "register_producer"}, EVERY, EVERY),
    "close_producer": ({"type": "close_producer", "producer": PRODUCER}, EVERY, EVERY),
    "create_topic": ({"type": "create_topic", "topic": "orders", "partitions": 1}, "c", EVERY),
    "retain_topic": ({"type": "retain_topic", "topic": "absent"}, "d", EVERY),
    "alter_topic": ({"type": "alter_topic", "topic": "absent", "partitions": 2}, "d", EVERY),
    "delete_topic": ({"type": "delete_topic", "topic": "absent"}, "d", EVERY),
    "topics": ({"type": "topics"}, EVERY, EVERY),  # what it tells of is judged: see below
}
"""A request of each type, and the permissions of its topic and of its consumer of which one is enough."""


def test_the_table_has_every_request_about_topics() -> None:
    declared = [
        *partition_requests.REQUESTS,
        partition_requests.SUBSCRIBE,
        *topic_requests.WRITES,
        *topic_requests.READS,
    ]
    assert set(REQUESTS) == {fields.called for fields in declared}


@pytest.mark.parametrize("kind", REQUESTS)
def test_a_request_takes_its_permissions_and_no_others(kind: str, closed: Closed) -> None:
    request, of_topic, of_consumer = REQUESTS[kind]
    closed.close()
    for letter in EVERY:
        for name in ("orders", "absent"):
            closed.acl(topic_path(name), f"ALICE:{letter}")
        closed.acl(consumer_path(CONSUMER), "ALICE:cdrwa")
        if kind == "produce":
            closed.client.one({"type": "unsubscribe", "subscription": 50})
            closed.subscribe()
        assert closed.denied(request) == (letter not in of_topic), f"{letter} of the topic"
        if kind == "subscribe":
            closed.client.one({"type": "unsubscribe", "subscription": 51})
        if kind == "close_producer":
            return  # there is no second time
    for name in ("orders", "absent"):
        closed.acl(topic_path(name), "ALICE:cdrwa")
    for letter in EVERY:
        closed.acl(consumer_path(CONSUMER), f"ALICE:{letter}")
        if kind == "produce":
            closed.client.one({"type": "unsubscribe", "subscription": 50})
            closed.subscribe()
        assert closed.denied(request) == (letter not in of_consumer), f"{letter} of the consumer"
        if kind == "subscribe":
            closed.client.one({"type": "unsubscribe", "subscription": 51})


@pytest.mark.parametrize(
    ("request_", "of_topic", "of_consumer"),
    [
        (claim(Forget(CONSUMER.decode(), 0)), "r", "d"),
        (claim(Configure(5_000)), "d", EVERY),
        ({"type": "seek", "group": ORDERS, "consumer": CONSUMER, "offset": None}, "r", "d"),
    ],
)
def test_forgetting_a_consumer_takes_delete_and_so_do_settings_of_all(
    request_: Map, of_topic: str, of_consumer: str, closed: Closed
) -> None:
    for letter in EVERY:
        closed.acl(topic_path("orders"), f"ALICE:{letter}")
        closed.acl(consumer_path(CONSUMER), "ALICE:cdrwa")
        assert closed.denied(request_) == (letter not in of_topic), letter
        closed.acl(topic_path("orders"), "ALICE:cdrwa")
        closed.acl(consumer_path(CONSUMER), f"ALICE:{letter}")
        assert closed.denied(request_) == (letter not in of_consumer), letter


def test_a_message_that_commits_an_offset_takes_what_a_commit_takes(closed: Closed) -> None:
    one = message(1, ORDERS)
    conditional = produce(
        type(one)(one.mid, one.destinations, b"x", 1, None, Condition(ORDERS, CONSUMER, 0, 1)), group=ORDERS
    )
    for topic, consumer, denied in (("w", "r", True), ("rw", "d", True), ("rw", "r", False)):
        closed.acl(topic_path("orders"), f"ALICE:{topic}")
        closed.acl(consumer_path(CONSUMER), f"ALICE:{consumer}")
        closed.client.one({"type": "unsubscribe", "subscription": 50})
        closed.subscribe()
        assert closed.denied(conditional) is denied, (topic, consumer)


def test_without_any_acl_everything_is_open_and_nothing_is_judged(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access.ConnectionAccess, "verdict", lambda *_: pytest.fail("it was judged"))
    assert not closed.server.driver.machine.topic_acls.exist
    closed.subscribe()
    for kind in ("produce", "fetch", "need", "claim", "claims", "seek", "offset", "offset_at", "consumers"):
        assert not closed.denied(REQUESTS[kind][0]), kind


def test_a_closed_default_lets_nobody_in_to_whom_nothing_is_granted(closed: Closed) -> None:
    closed.close()
    for kind in (
        "fetch",
        "need",
        "claim",
        "claims",
        "seek",
        "offset",
        "offset_at",
        "consumers",
        "create_topic",
    ):
        assert closed.denied(REQUESTS[kind][0]), kind
    for guarded in Guarded:
        closed.acl(guarded.value, "world:anyone:cdrwa")
    assert not closed.denied(REQUESTS["fetch"][0])


def test_a_client_that_proves_who_it_is_has_its_rights_at_once(closed: Closed) -> None:
    closed.acl(topic_path("orders"), f"digest:{digest_id(BOB)}:r")
    assert closed.denied(REQUESTS["fetch"][0])
    closed.prove(closed.client, BOB)
    assert not closed.denied(REQUESTS["fetch"][0])


def test_a_message_to_two_topics_needs_both(closed: Closed) -> None:
    closed.acl(topic_path("secret"), "world:anyone:r")
    closed.subscribe()
    assert not closed.denied(produce(message(1, ORDERS), group=ORDERS))
    both = message(2, ORDERS, SECRET)
    closed.client.send(produce(both, group=ORDERS))
    (ended,) = closed.client.settle()
    assert (ended["id"], ended["code"]) == (50, "NO_AUTH")
    assert "WRITE of topic 'secret' is missing" in ended["error"]
    assert "zraft topic acl add secret digest:alice:HASH:w" in ended["error"]
    assert [one[3].message for one in closed.service.asked if one[0] == "produce"] == [message(1, ORDERS)]


def test_a_fetch_that_waits_gets_nothing_once_its_right_is_taken_away(closed: Closed) -> None:
    closed.client.send(
        {"type": "fetch", "partitions": [[ORDERS, 0, 100], [SECRET, 0, 100]], "wait_ms": 60_000}
    )
    orders, secret = closed.service.ids("fetch")
    closed.acl(topic_path("secret"), "world:anyone:w")
    assert closed.push() == []
    client = closed.service.client
    assert client is not None
    delivery = (0, STAMP, encode_message(message(1, SECRET, payload=b"hidden")))
    client.on_fetched(secret, Fetched(SECRET, [delivery], 0, 1, 1, STAMP))
    client.on_fetched(orders, Fetched(ORDERS, [], 0, 0, 0, STAMP))
    (answer,) = closed.push()
    assert answer["code"] == "NO_AUTH"
    assert "READ of topic 'secret'" in answer["error"]


def test_what_is_hidden_is_neither_listed_nor_named(closed: Closed) -> None:
    closed.acl(topic_path("secret"), "world:anyone:c")
    closed.acl(consumer_path(b"\xffof/bob"), "world:anyone:")
    listed = closed.client.one({"type": "topics"})
    assert [row[1] for row in listed["topics"]] == ["orders"]
    assert {row[0] for row in listed["groups"]} == {ORDERS, SECRET}, (
        "a producer must not take one for deleted"
    )
    answer = closed.client.one({"type": "fetch", "partitions": [[SECRET, 0, 100]]})
    assert answer["code"] == "NO_AUTH"
    assert "secret" not in answer["error"]
    closed.client.send(REQUESTS["consumers"][0])
    (number,) = closed.service.ids("consumers")
    assert closed.service.client is not None
    found = ((CONSUMER, 1, None), (b"\xffof/bob", 2, None))
    closed.service.client.on_consumers(number, Consumers(ORDERS, found, 7))
    (told,) = closed.push()
    assert told["consumers"] == [[CONSUMER, 1, None]]


def test_a_topic_that_may_be_seen_and_not_written_is_told(closed: Closed) -> None:
    assert "unwritable" not in closed.client.one({"type": "topics"})
    closed.acl(topic_path("secret"), "world:anyone:r")
    listed = closed.client.one({"type": "topics"})
    assert listed["unwritable"] == [OTHER_TOPIC]
    again = closed.client.one({"type": "topics", "digest": listed["digest"]})
    assert "topics" not in again
    assert again["unwritable"] == [OTHER_TOPIC]


def test_a_deleted_topic_is_read_by_nobody_where_acls_are(closed: Closed) -> None:
    """Its groups are there for a while, and nothing says any more whose they are."""
    closed.acl(topic_path("secret"), "ALICE:cdrwa")
    assert not closed.denied({"type": "fetch", "partitions": [[SECRET, 0, 100]]})
    closed.server.driver.machine.registry.apply(DeleteTopic("secret"), 12)
    closed.acl(topic_path("secret"), "ALICE:rw")
    closed.client.send({"type": "fetch", "partitions": [[SECRET, 0, 100]]})
    client = closed.service.client
    assert client is not None
    client.on_fetched(closed.service.ids("fetch")[-1], Fetched(SECRET, [], 0, 0, 0, STAMP))
    (answer,) = closed.push()
    assert (answer["partitions"], [row[1] for row in answer["refused"]]) == ([], ["no_group"])
    refused = closed.client.one({"type": "consumers", "group": SECRET})["refused"]
    assert refused[1] == "no_group"


def test_a_message_to_a_group_that_is_not_known_here_yet_waits(closed: Closed) -> None:
    closed.acl(topic_path("orders"), "world:anyone:w")
    closed.subscribe()
    unknown = GroupId(1 << 60)
    closed.client.send(produce(message(1, ORDERS, unknown), group=ORDERS))
    (pushed,) = closed.push()
    assert [row[:2] for row in pushed["refused"]] == [[ORDERS, "busy"]]
    assert closed.service.ids("produce") == []


def test_what_was_granted_is_judged_once_until_an_acl_changes(
    closed: Closed, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed.acl(topic_path("orders"), "ALICE:r")
    judged: list[object] = []
    judge = access.ConnectionAccess._judge

    def counting(self: Any, need: Any, ids: Any) -> Any:
        judged.append(need)
        return judge(self, need, ids)

    monkeypatch.setattr(access.ConnectionAccess, "_judge", counting)
    for _ in range(5):
        closed.denied(REQUESTS["fetch"][0])
    assert len(judged) == 1
    closed.acl(topic_path("secret"), "ALICE:r")
    closed.denied(REQUESTS["fetch"][0])
    assert len(judged) == 2


def test_what_is_denied_is_counted_and_has_a_line_with_who_asked_for_what(closed: Closed) -> None:
    clients = closed.server.driver.clients
    lines: list[bytes] = []
    clients.tell_denied = lambda denial: lines.append(denied_line(denial, 0))
    closed.subscribe()
    closed.close()
    told = []
    for kind, (request, *_) in REQUESTS.items():
        if closed.denied(request):
            told.append(kind)
    assert clients.denied_total == len(lines) == len(told) == 13
    time, session, user, ip, operation, about, result = lines[told.index("seek")].decode().split("\t")
    assert time == "time=1970-01-01T00:00:00.000Z"
    assert session == f"session=0x{closed.client.connection.session:x}"
    assert (user, operation, about, result) == (
        "user=10.0.0.1,alice",
        "operation=seek",
        "topic=orders",
        "result=failure\n",
    )
    assert ip == "ip=10.0.0.1"
    assert b"\toperation=create_topic\ttopic=orders\t" in lines[told.index("create_topic")]


def test_who_repeats_a_denied_request_writes_one_line_until_an_acl_changes(closed: Closed) -> None:
    clients = closed.server.driver.clients
    denials: list[Denial] = []
    clients.tell_denied = denials.append
    closed.close()
    fetch, seek = REQUESTS["fetch"][0], REQUESTS["seek"][0]
    for _ in range(3):
        assert closed.denied(fetch)
    assert (clients.denied_total, len(denials)) == (3, 1)
    closed.acl(consumer_path(CONSUMER), "world:anyone:")
    closed.acl(topic_path("orders"), "world:anyone:r")
    assert closed.denied(seek)
    assert denials[-1].what == "consumer"
    assert denials[-1].name == CONSUMER.decode()
    for number in range(300):
        assert closed.denied(seek | {"consumer": b"%d" % number})
    assert clients.denied_total == 304
    assert len(denials) == 1 + DENIED_MAX


def test_only_the_super_user_writes_these_acls(closed: Closed) -> None:
    """Otherwise anybody could take a topic away from its users, and wait for it with an ACL of his own."""
    machine = closed.server.driver.machine
    assert machine.feature_level >= LEVEL_OF_ACCESS
    create = {"type": "create", "path": Guarded.TOPICS.value, "data": b""}
    assert closed.client.one(create)["code"] == "NO_AUTH"
    assert closed.client.one(create | {"path": topic_path("orders")})["code"] in ("NO_AUTH", "NO_NODE")
    closed.acl(topic_path("orders"), "ALICE:cdrwa")
    assert closed.client.one(create | {"path": topic_path("mine")})["code"] == "NO_AUTH"
    assert closed.client.one(create | {"path": f"{topic_path('orders')}/x"})["code"] == "NO_AUTH"
    assert closed.client.one({"type": "remove", "path": topic_path("orders")})["code"] == "NO_AUTH"
    assert closed.client.one(create | {"path": f"{ZOOKEEPER}/other"})["success"]
    assert closed.client.one({"type": "read", "path": topic_path("orders")})["success"], (
        "whoever may read it may look"
    )
    closed.command((DELETE, topic_path("orders"), -1))
    assert machine.find(topic_path("orders")) is None
    assert machine.topic_acls.of_topic("orders") is OPEN_ACL
