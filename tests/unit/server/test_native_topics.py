"""What a native connection makes of requests about topics, over a service that only writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgpack
import pytest
from attrs import evolve

from tests.unit.server.native import Map, NativeClient, started
from zraft.server.clients.native import topics as native_topics
from zraft.server.clients.native.feeds import Feeds
from zraft.server.clients.turn_share import REQUESTS_PER_TURN_MAX
from zraft.topics.service import Consumers, Fetched, Offset, TopicClient, TopicRefusal
from zraft_core.claims.answers import Accepted
from zraft_core.claims.codec import decode_answer, encode_command
from zraft_core.claims.commands import Expire, Heartbeat
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.records import BatchRecord, encode_batch, with_base_offset
from zraft_core.topics.codec import encode_message
from zraft_core.topics.message import Message, as_fields
from zraft_core.topics.messages import Answer, Reply, StartRequest
from zraft_core.topics.registry_commands import CloseProducer, RegisterProducer
from zraft_core.topics.stamps import MessageId, Stamp

PRODUCER = ProducerId(7)
GROUP, OTHER = GroupId(11), GroupId(12)
STAMP = Stamp(1, GROUP, 0, GroupId(0))


class Service:
    """Has the signatures of `TopicService`; answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.client: TopicClient | None = None
        self.dropped = 0

    def _note(self, client: TopicClient, *what: Any) -> None:
        self.client = client
        self.asked.append(what)

    def produce(self, client: TopicClient, id: int, group: GroupId, requests: Sequence[StartRequest]) -> None:
        for request in requests:
            self._note(client, "produce", id, group, request)

    def fetch(
        self, client: TopicClient, id: int, group: GroupId, offset: int, bytes_max: int, wait_ms: int
    ) -> None:
        self._note(client, "fetch", id, group, offset, bytes_max, wait_ms)

    def need(self, group: GroupId, time: int) -> None:
        self.asked.append(("need", group, time))

    def claim(self, client: TopicClient, id: int, group: GroupId, command: Any) -> None:
        self._note(client, "claim", id, group, command)

    def claims_view(self, client: TopicClient, id: int, group: GroupId, name: str) -> None:
        self._note(client, "claims", id, group, name)

    def seek(self, client: TopicClient, id: int, group: GroupId, consumer: bytes, offset: int | None) -> None:
        self._note(client, "seek", id, group, consumer, offset)

    def offset_of(self, client: TopicClient, id: int, group: GroupId, consumer: bytes) -> None:
        self._note(client, "offset", id, group, consumer)

    def offset_at(self, client: TopicClient, id: int, group: GroupId, time_ms: int) -> None:
        self._note(client, "offset_at", id, group, time_ms)

    def consumers(self, client: TopicClient, id: int, group: GroupId) -> None:
        self._note(client, "consumers", id, group)

    def drop(self, client: TopicClient) -> None:
        self.dropped += 1

    def ids(self, kind: str) -> list[int]:
        return [one[1] for one in self.asked if one[0] == kind]


class Served:
    """One native client with a session that owns a producer, and the service behind it."""

    def __init__(self) -> None:
        self.service = Service()
        self.server = started()
        self.registry = self.server.driver.machine.registry
        self.server.driver.clients.topics = self.service
        self.client = NativeClient(self.server)
        self.hello = self.client.hello()
        self.session: int = self.hello["session"]
        self.registry.apply(RegisterProducer(self.session), PRODUCER)

    def subscribe(self, client: NativeClient | None = None, **fields: Any) -> Map:
        return (client or self.client).one({"type": "subscribe", "id": 50, "producer": PRODUCER, **fields})

    def push(self, client: NativeClient | None = None) -> list[Map]:
        """What is told at the end of a turn, however many requests wait."""
        self.server.turn()
        return (client or self.client).taken()


@pytest.fixture
def served() -> Served:
    return Served()


def message(number: int = 1, *groups: int, producer: int = PRODUCER, payload: bytes = b"x") -> Message:
    destinations = tuple(GroupId(group) for group in groups or (GROUP,))
    single = number if len(destinations) == 1 else 0
    return Message(MessageId(ProducerId(producer), number), destinations, payload, single)


def produce(*messages: Message, stream: int = 50, group: int = GROUP, **fields: Any) -> Map:
    packed = [as_fields(one) for one in messages]
    return {
        "type": "produce",
        "id": stream,
        "group": group,
        "floor": 0,
        "epoch": 3,
        "messages": packed,
        **fields,
    }


def test_messages_of_a_stream_reach_the_service_in_their_order_under_one_id(served: Served) -> None:
    assert served.subscribe()["success"]
    served.client.send(produce(message(1), message(2), relayed=True, floor=9))
    requests = [one[3] for one in served.service.asked]
    assert requests == [StartRequest(message(n), 9, 3, True) for n in (1, 2)]
    assert len(set(served.service.ids("produce"))) == 1
    assert [one[2] for one in served.service.asked] == [GROUP, GROUP]
    assert served.push() == []


def test_answers_of_a_turn_are_pushed_as_one_message(served: Served) -> None:
    served.subscribe()
    served.client.send(produce(message(1), message(2, GROUP, OTHER)))
    (number, _) = served.service.ids("produce")
    client = served.service.client
    assert client is not None
    client.on_reply(number, Reply(MessageId(PRODUCER, 1), GROUP, Answer.DELIVERED, True, 4, 3, 5))
    client.on_reply(number, Reply(MessageId(PRODUCER, 2), OTHER, Answer.BUSY))
    client.on_refused(number, TopicRefusal("not_leader", OTHER, ServerId(2), "ask 2"))
    client.on_refused(number, TopicRefusal("not_leader", OTHER, ServerId(3), "ask 3"))
    (pushed,) = served.push()
    assert pushed["type"] == "replies"
    assert pushed["id"] == 50
    assert pushed["replies"] == [[1, GROUP, 1, True, 4, 3, 5], [2, OTHER, 7, False, None, 0, 0]]
    assert pushed["refused"] == [[OTHER, "not_leader", 3, None, "ask 3"]]
    assert served.push() == []


def test_a_stream_is_opened_only_for_who_owns_the_producer(served: Served) -> None:
    stranger = NativeClient(served.server, 2)
    stranger.hello()
    answer = served.subscribe(stranger)
    assert answer["code"] == "NO_NODE"
    nobody = NativeClient(served.server, 3)
    assert served.subscribe(nobody)["code"] == "BAD_ARGUMENTS"
    assert served.subscribe(nobody, session=served.session, password=bytes(16))["code"] == "SESSION_EXPIRED"
    assert (
        served.subscribe(nobody, session=served.session + 1, password=bytes(16))["code"] == "SESSION_EXPIRED"
    )
    assert served.subscribe(nobody, session=served.session, password=b"short")["code"] == "BAD_ARGUMENTS"
    nobody.send(produce(message()))
    assert served.service.asked == []


def test_a_connection_without_a_session_proves_one_by_its_password_and_does_not_take_it(
    served: Served,
) -> None:
    data = NativeClient(served.server, 2)
    proof = {"session": served.session, "password": served.hello["password"]}
    assert served.subscribe(data, **proof)["success"]
    data.send(produce(message()))
    assert len(served.service.asked) == 1
    assert served.client.one({"type": "ping"})["success"]
    assert not served.client.closed


def test_a_turn_carries_out_fewer_requests_of_partitions_than_of_a_dictionary(served: Served) -> None:
    """However many consumers ask at once: each partition of a fetch takes several times as long as a read of a key."""
    consumers = [NativeClient(served.server, 10 + number) for number in range(40)]
    served.server.turn()
    for consumer in consumers:
        consumer.send(
            *[{"type": "fetch", "partitions": [[GROUP, n, 100], [OTHER, n, 100]]} for n in range(64)]
        )
    counts = [len(served.service.asked)]
    while counts[-1] < 2 * 64 * len(consumers):
        served.server.turn()
        counts.append(len(served.service.asked))
    each = [after - before for before, after in pairwise([0, *counts])]
    assert max(each) <= REQUESTS_PER_TURN_MAX // native_topics.PART_COST, each
    assert len(each) <= 8, "nor is a turn wasted"


def test_messages_of_one_request_count_one_by_one(served: Served) -> None:
    served.subscribe()
    before = served.server.driver.clients.turn.taken
    served.client.send(produce(*[message(number) for number in range(1, 201)]))
    assert len(served.service.asked) == 200
    assert served.server.driver.clients.turn.taken - before > 200 * native_topics.PART_COST


@pytest.mark.parametrize(("each", "size"), [(200, 0), (10, 30_000)])
def test_fetches_that_come_to_an_end_together_are_told_over_several_turns(
    served: Served, each: int, size: int
) -> None:
    """One delivery may wake thousands of fetches; and a delivery of kilobytes takes as long as many small ones."""
    consumers = [NativeClient(served.server, 10 + number) for number in range(40)]
    fetch = {"type": "fetch", "partitions": [[GROUP, 0, 1 << 20]], "wait_ms": 60_000}
    wakers: list[tuple[TopicClient, int]] = []
    for consumer in consumers:
        consumer.send(*[fetch] * each)
        served.server.turn()
        (number,) = served.service.ids("fetch")
        assert served.service.client is not None
        wakers.append((served.service.client, number))
        served.service.asked.clear()
    delivery = (0, STAMP, encode_message(message(payload=bytes(size))))
    for client, number in wakers:
        client.on_fetched(number, Fetched(GROUP, [delivery], 0, 1, 1, STAMP))
    told: list[int] = []
    while sum(told) < each * len(consumers):
        assert len(told) < 20, told
        served.server.turn()
        told.append(sum(len(consumer.taken()) for consumer in consumers))
    cost = 1 + (size >> 10)
    assert max(told) <= REQUESTS_PER_TURN_MAX // cost + each, told
    assert len(told) <= 2 + each * len(consumers) * (cost + 1) // REQUESTS_PER_TURN_MAX, (
        "nor is a turn wasted"
    )


def test_fetches_that_wait_count_as_what_their_client_is_owed(served: Served) -> None:
    """A fetch of forty bytes holds half a kilobyte, and costs nothing but the memory: it shares the wait of the first."""
    consumer = NativeClient(served.server, 10)
    fetch = {"type": "fetch", "partitions": [[GROUP, 0, 100]], "wait_ms": 60_000}
    for _ in range(10):
        consumer.send(*[fetch] * 100)
        served.server.turn()
    (number,) = served.service.ids("fetch")
    connection = consumer.connection
    assert connection.due_bytes == 1_000 * (native_topics.FETCH_BYTES + native_topics.PART_BYTES)
    assert served.service.client is not None
    served.service.client.on_fetched(number, Fetched(GROUP, [], 0, 0, 0, STAMP))
    for _ in range(3):
        served.server.turn()
    assert len(consumer.taken()) == 1_000
    assert connection.due_bytes == 0
    bound = served.server.driver.settings.clients.output_bytes_per_address_max
    for _ in range(bound // (100 * native_topics.FETCH_BYTES)):
        consumer.send(*[fetch] * 100)
        served.server.turn()
    assert consumer.closed


def test_a_server_that_is_behind_the_floor_of_a_stream_sends_elsewhere(served: Served) -> None:
    answer = served.subscribe(floor=2**62)
    assert (answer["code"], answer["retriable"]) == ("CONNECTION_LOSS", True)


def test_a_message_of_another_producer_ends_the_stream(served: Served) -> None:
    served.subscribe()
    (answer,) = served.client.ask(produce(message(1), message(1, producer=8)))
    assert answer["id"] == 50
    assert answer["code"] == "BAD_ARGUMENTS"
    served.client.send(produce(message(1)))
    assert served.service.asked == []


def batch(count: int) -> bytes:
    return encode_batch([BatchRecord(None, b"value %d" % at, (), 1_000 + at) for at in range(count)])


def test_a_batch_of_records_is_passed_on_as_it_came(served: Served) -> None:
    served.subscribe()
    whole = evolve(message(1, payload=batch(3)), records=3)
    served.client.send(produce(whole))
    assert served.service.asked[-1][-1].message == whole


@pytest.mark.parametrize(
    ("payload", "records", "told"),
    [
        (batch(3), 2, "produce.messages[0].records: found 2, expected 3, as the batch says"),
        (batch(3)[:-1] + b"x", 3, "produce.messages[0]: a record batch: the CRC-32C: expected 0x"),
        (batch(3)[:-1], 3, "produce.messages[0]: a record batch: the length field: expected"),
        (
            b"no batch",
            1,
            "produce.messages[0]: a record batch: its length: expected 61 bytes or more, found 8",
        ),
        (
            with_base_offset(batch(1), 7, 0),
            1,
            "produce.messages[0]: a record batch: the base offset: expected 0",
        ),
    ],
)
def test_what_is_no_batch_of_so_many_records_is_refused(
    served: Served, payload: bytes, records: int, told: str
) -> None:
    served.subscribe()
    (answer,) = served.client.ask(produce(evolve(message(1, payload=payload), records=records)))
    assert told in answer["error"]
    assert not served.service.asked


def test_a_closed_producer_ends_its_stream(served: Served) -> None:
    served.subscribe()
    served.registry.apply(CloseProducer(PRODUCER), 9)
    (answer,) = served.client.ask(produce(message()))
    assert answer["code"] == "SESSION_EXPIRED"
    assert served.service.asked == []


def test_after_unsubscribe_nothing_is_taken_or_told(served: Served) -> None:
    served.subscribe()
    served.client.send(produce(message()))
    (number,) = served.service.ids("produce")
    assert served.client.one({"type": "unsubscribe", "subscription": 50})["success"]
    client = served.service.client
    assert client is not None
    client.on_reply(number, Reply(MessageId(PRODUCER, 1), GROUP, Answer.DELIVERED))
    served.client.send(produce(message(2)))
    assert served.push() == []
    assert len(served.service.asked) == 1
    assert served.client.one({"type": "unsubscribe", "subscription": 50})["code"] == "NO_WATCHER"


def test_an_id_of_a_subscription_is_used_once(served: Served) -> None:
    served.subscribe()
    assert "another subscription" in served.subscribe()["error"]
    assert "another subscription" in served.client.one({"type": "subscribe", "id": 50, "path": "/"})["error"]


def fetch(*parts: tuple[int, int, int], wait_ms: int = 1_000, **fields: Any) -> Map:
    return {"type": "fetch", "partitions": [list(part) for part in parts], "wait_ms": wait_ms, **fields}


def test_a_fetch_that_waits_for_messages_does_not_hold_up_a_server_that_leaves(served: Served) -> None:
    """A consumer has always asked for what comes next; it asks another server."""
    clients = served.server.driver.clients
    served.client.send(fetch((GROUP, 5, 100), id=1))
    served.push()
    assert clients.let_go()
    served.push()
    assert served.client.closed


def test_a_fetch_that_is_answered_at_once_is_waited_for(served: Served) -> None:
    clients = served.server.driver.clients
    served.client.send(fetch((GROUP, 5, 100), id=1, wait_ms=0))
    served.push()
    assert not clients.let_go()
    assert not served.client.closed


def test_a_fetch_is_answered_when_one_partition_has_something_and_the_other_read_goes_on(
    served: Served,
) -> None:
    served.client.send(fetch((GROUP, 5, 100), (OTHER, 0, 100), id=1))
    first, second = served.service.ids("fetch")
    assert served.service.asked[0] == ("fetch", first, GROUP, 5, 100, 1_000)
    assert served.push() == []
    packed = encode_message(message(1))
    client = served.service.client
    assert client is not None
    client.on_fetched(first, Fetched(GROUP, [(5, STAMP, packed)], 2, 6, 6, STAMP))
    (answer,) = served.push()
    assert answer["id"] == 1
    assert answer["partitions"] == [[GROUP, 2, 6, 6, list(STAMP), [[5, list(STAMP), packed]]]]
    assert answer["refused"] == []
    # The next fetch of the same offset waits for the read that goes on.
    served.client.send(fetch((GROUP, 6, 100), (OTHER, 0, 100), id=2))
    assert len(served.service.ids("fetch")) == 3
    client.on_fetched(second, Fetched(OTHER, [], 0, 0, 0, STAMP))
    (answer,) = served.push()
    assert answer["id"] == 2
    assert [part[0] for part in answer["partitions"]] == [OTHER]


def test_what_comes_in_one_turn_is_one_answer(served: Served) -> None:
    served.client.send(fetch((GROUP, 0, 9), (OTHER, 0, 9), id=1))
    first, second = served.service.ids("fetch")
    client = served.service.client
    assert client is not None
    client.on_fetched(first, Fetched(GROUP, [], 0, 0, 0, STAMP))
    client.on_refused(second, TopicRefusal("gone", OTHER, first=7))
    (answer,) = served.push()
    assert len(answer["partitions"]) == 1
    assert answer["refused"] == [[OTHER, "gone", None, 7, ""]]


def test_a_fetch_that_does_not_wait_shares_no_read_that_does(served: Served) -> None:
    served.client.send(fetch((GROUP, 0, 9), id=1), fetch((GROUP, 0, 9), id=2, wait_ms=0))
    assert [one[-1] for one in served.service.asked] == [1_000, 0]


def test_reads_under_way_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_topics, "POLLS_MAX", 2)
    served.client.send(fetch((GROUP, 0, 9), (OTHER, 0, 9), id=1), fetch((GROUP, 1, 9), id=2))
    (answer,) = served.push()
    assert answer["id"] == 2
    assert answer["refused"][0][:2] == [GROUP, "busy"]


def test_what_has_one_answer_is_passed_on_and_answered(served: Served) -> None:
    beat = Heartbeat("g", 1, 2, 3)
    served.client.send(
        {"type": "claim", "id": 1, "group": GROUP, "command": encode_command(beat)},
        {"type": "claims", "id": 2, "group": GROUP, "name": "g"},
        {"type": "seek", "id": 3, "group": GROUP, "consumer": b"c", "offset": 4},
        {"type": "offset", "id": 4, "group": GROUP, "consumer": b"c"},
        {"type": "need", "id": 5, "partitions": [[GROUP, 6]]},
        {"type": "consumers", "id": 6, "group": GROUP},
        {"type": "offset_at", "id": 7, "group": GROUP, "time_ms": 1_700},
    )
    need = served.service.asked.pop(4)
    claim, claims, seek, offset, consumers, offset_at = [one[1] for one in served.service.asked]
    assert [one[2:] for one in served.service.asked] == [
        (GROUP, beat),
        (GROUP, "g"),
        (GROUP, b"c", 4),
        (GROUP, b"c"),
        (GROUP,),
        (GROUP, 1_700),
    ]
    assert need == ("need", GROUP, 6)
    client = served.service.client
    assert client is not None
    accepted = Accepted(1, 3, 0, False, False, 9)
    client.on_claim(claim, accepted)
    client.on_refused(claims, TopicRefusal("not_leader", GROUP, ServerId(2)))
    client.on_offset(seek, Offset(GROUP, 4))
    client.on_offset(offset, Offset(GROUP, None))
    client.on_consumers(consumers, Consumers(GROUP, ((b"c", 4, None), (b"g", 2, ("anna",))), 9))
    client.on_offset(offset_at, Offset(GROUP, 8))
    answers = {one["id"]: one for one in served.push()}
    assert decode_answer(answers[1]["answer"]) == accepted
    assert answers[2]["refused"] == [GROUP, "not_leader", 2, None, ""]
    assert (answers[3]["offset"], answers[4]["offset"]) == (4, None)
    assert (answers[6]["consumers"], answers[6]["end"]) == ([[b"c", 4, None], [b"g", 2, ["anna"]]], 9)
    assert answers[5]["success"]
    assert answers[7]["offset"] == 8
    assert served.client.connection.outstanding == 0


def test_a_connection_that_ends_is_dropped_and_is_told_nothing_any_more(served: Served) -> None:
    served.client.send(fetch((GROUP, 0, 9), id=1))
    (number,) = served.service.ids("fetch")
    served.client.hang_up()
    assert served.service.dropped == 1
    client = served.service.client
    assert client is not None
    client.on_fetched(number, Fetched(GROUP, [], 0, 0, 0, STAMP))
    assert served.push() == []


def test_a_connection_that_is_closed_in_the_middle_of_its_answers_is_told_nothing_any_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client has subscribed to too much, and is closed before two fetches are answered: that ended the server once."""
    consumer, writer = NativeClient(served.server, 10), NativeClient(served.server, 11)
    assert consumer.ask({"type": "subscribe", "dictionary": "default", "credit": 1_000_000})[0]["success"]
    consumer.send(fetch((GROUP, 0, 9), id=1), fetch((OTHER, 0, 9), id=2))
    served.server.turn()
    first, second = served.service.ids("fetch")
    client = served.service.client
    assert client is not None
    consumer.taken()
    clients = served.server.driver.clients
    clients.settings = evolve(clients.settings, output_bytes_max=2_000)
    push = Feeds.push

    def push_and_wake(feeds: Feeds, bytes_max: int) -> None:
        push(feeds, bytes_max)
        client.on_fetched(first, Fetched(GROUP, [], 0, 0, 0, STAMP))
        client.on_fetched(second, Fetched(OTHER, [], 0, 0, 0, STAMP))

    monkeypatch.setattr(Feeds, "push", push_and_wake)
    assert writer.one({"type": "put", "key": 1, "value": "x" * 3_000})["success"]
    assert consumer.closed
    assert consumer.taken() == []
    assert consumer.connection.due_bytes == 0


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (produce(message(), epoch=-1), "epoch"),
        ({**produce(message()), "messages": [[1]]}, "messages"),
        ({**produce(message()), "messages": []}, "messages"),
        (produce(message(), group=0), "group"),
        (fetch(), "partitions"),
        (fetch((GROUP, 0, 9), (GROUP, 1, 9)), "each partition once"),
        (fetch((GROUP, 0, 2**30)), "1048576"),
        (fetch((GROUP, 0, 9), wait_ms=60_001), "wait_ms"),
        ({"type": "need", "partitions": [[GROUP]]}, "an array of 2"),
        ({"type": "claim", "group": GROUP, "command": b"nonsense"}, "command"),
        ({"type": "claim", "group": GROUP, "command": encode_command(Expire("g", 1, 2))}, "leaders"),
        ({"type": "claims", "group": GROUP, "name": ""}, "name"),
        ({"type": "seek", "group": GROUP, "consumer": b"", "offset": 1}, "consumer"),
        ({"type": "offset", "group": GROUP, "consumer": bytes(256)}, "consumer"),
        ({"type": "offset_at", "group": GROUP, "time_ms": -1}, "time_ms"),
        ({"type": "create_topic", "topic": "a"}, "partitions"),
        ({"type": "create_topic", "topic": "a" * 2_000, "partitions": 1}, "topic"),
        ({"type": "close_producer", "producer": 0}, "producer"),
        ({"type": "create_topic", "topic": "a", "partitions": 1, "retention_bytes": -1}, "retention_bytes"),
        ({"type": "retain_topic", "topic": "a", "retention_age_ms": "1h"}, "retention_age_ms"),
        ({"type": "topics", "digest": "text"}, "digest"),
        ({"type": "fetch", "partitions": [[GROUP, 0, 9]], "wait": 1}, "unknown field"),
        ({"type": "subscribe", "producer": 1, "path": "/"}, "producer"),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else value.replace(" ", "-"),
)
def test_a_request_that_makes_no_sense_is_answered_and_reaches_nobody(
    served: Served, request_: Map, complaint: str
) -> None:
    served.subscribe()
    (answer,) = served.client.ask({"id": 60, **request_} if request_["type"] != "produce" else request_)
    assert answer["code"] == "BAD_ARGUMENTS"
    assert complaint in answer["error"]
    assert served.service.asked == []


def test_without_topics_requests_for_partitions_are_refused_until_later(served: Served) -> None:
    served.server.driver.clients.topics = None
    answer = served.client.one(fetch((GROUP, 0, 9)))
    assert (answer["code"], answer["retriable"]) == ("UNIMPLEMENTED", True)


def test_all_of_a_connections_topics_requests_count_against_its_outstanding_ones(served: Served) -> None:
    served.client.send(fetch((GROUP, 0, 9), (OTHER, 0, 9), id=1))
    assert served.client.connection.outstanding == 2


def test_arrays_that_promise_more_than_there_is_cost_nothing(served: Served) -> None:
    packed: bytes = msgpack.packb({"type": "fetch", "id": 9, "wait_ms": 0})
    served.client.raw(packed)
    (answer,) = served.client.settle()
    assert answer["code"] == "BAD_ARGUMENTS"


# -- group 0


def test_a_topic_is_created_altered_and_deleted_by_writes_that_happen_once(served: Served) -> None:
    create = {"type": "create_topic", "topic": "orders", "partitions": 2, "seq": 1}
    first = served.client.one(create)
    assert first["success"]
    assert served.registry.topics[first["created"]].wanted == 2
    again = served.client.one(create)
    assert {**again, "id": 0} == {**first, "id": 0}
    refused = served.client.one({"type": "create_topic", "topic": "orders", "partitions": 2, "seq": 2})
    assert (refused["code"], refused["retriable"]) == ("NODE_EXISTS", False)
    assert refused["position"] > first["position"]
    assert served.client.one({"type": "delete_topic", "topic": "orders", "seq": 3})["success"]
    assert served.client.one({"type": "delete_topic", "topic": "orders"})["code"] == "NO_NODE"
    assert served.client.one({"type": "alter_topic", "topic": "orders", "partitions": 3})["code"] == "NO_NODE"
    bad = served.client.one({"type": "create_topic", "topic": "a/b", "partitions": 1})
    assert bad["code"] == "BAD_ARGUMENTS"
    assert "letters" in bad["error"]


def test_a_topic_may_be_created_without_a_session(served: Served) -> None:
    nobody = NativeClient(served.server, 2)
    assert nobody.one({"type": "create_topic", "topic": "orders", "partitions": 1})["success"]


def test_a_producer_belongs_to_the_session_that_registers_it_and_only_that_closes_it(served: Served) -> None:
    register = {"type": "register_producer", "seq": 1}
    answer = served.client.one(register)
    producer = answer["created"]
    assert producer == answer["zxid"]
    assert served.registry.producers[producer] == served.session
    assert served.client.one(register)["created"] == producer
    stranger = NativeClient(served.server, 2)
    stranger.hello()
    assert stranger.one({"type": "close_producer", "producer": producer})["code"] == "NO_NODE"
    assert producer in served.registry.producers
    nobody = NativeClient(served.server, 3)
    assert nobody.one({"type": "close_producer", "producer": producer})["code"] == "NO_NODE"
    assert nobody.one({"type": "register_producer"})["code"] == "BAD_ARGUMENTS"
    close = {"type": "close_producer", "producer": producer, "seq": 2}
    first = served.client.one(close)
    assert first["success"]
    assert producer not in served.registry.producers
    # Its answer may have been lost: the repeat gets the same one.
    assert {**served.client.one(close), "id": 0} == {**first, "id": 0}


def test_a_producer_that_is_not_known_here_yet_is_closed_by_nobody(served: Served) -> None:
    answer = served.client.one({"type": "close_producer", "producer": 2**60})
    assert answer["code"] == "NO_NODE"


def test_a_session_that_ends_takes_its_producers_along(served: Served) -> None:
    producer = served.client.one({"type": "register_producer"})["created"]
    served.client.one({"type": "close"})
    assert producer not in served.registry.producers


def test_topics_tell_where_everything_is_and_only_what_is_not_known(served: Served) -> None:
    created = served.client.one({"type": "create_topic", "topic": "orders", "partitions": 1})["created"]
    answer = served.client.one({"type": "topics"})
    (topic,) = answer["topics"]
    assert topic[:3] == [created, "orders", 1]
    assert len(answer["digest"]) == 16
    assert set(answer["servers"]) == {
        member["server"] for member in served.client.one({"type": "members"})["members"]
    }
    again = served.client.one({"type": "topics", "digest": answer["digest"]})
    assert again["digest"] == answer["digest"]
    assert "topics" not in again
    served.client.one({"type": "create_topic", "topic": "more", "partitions": 1})
    newer = served.client.one({"type": "topics", "digest": answer["digest"]})
    assert sorted(name for _, name, *_ in newer["topics"]) == ["more", "orders"]


def test_groups_are_told_with_their_servers_and_who_should_lead_them(served: Served) -> None:
    topic = served.client.one({"type": "create_topic", "topic": "orders", "partitions": 1})["created"]
    for _ in range(200):
        answer = served.client.one({"type": "topics"})
        if answer["groups"]:
            break
    ((group, of, leader, servers),) = answer["groups"]
    assert of == topic
    assert leader in servers
    assert answer["topics"][0][3] == [group]
    assert answer["deleting"] == []
