"""Subscriptions: the whole state, then every change, merged while the client is slow; logs; lasting watches."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest

from tests.fuzz.one_server import OneServer
from tests.unit.server.native import Map, NativeClient, started
from zraft.server.clients.native import feeds as native_feeds
from zraft.server.clients.native import subscriptions as native_subscriptions
from zraft_core.wire.dictionary import directory_of, entry_path

MUCH = 10_000_000


@pytest.fixture
def server() -> OneServer:
    return started()


@pytest.fixture
def writer(server: OneServer) -> NativeClient:
    return NativeClient(server, 1)


@pytest.fixture
def reader(server: OneServer) -> NativeClient:
    return NativeClient(server, 2)


class Mirror:
    """What a subscriber makes of what it is pushed; every rule of the protocol is looked at on the way."""

    def __init__(self) -> None:
        self.state: dict[Any, tuple[Any, int, int]] = {}
        self.complete = False
        self.zxid = 0
        self.bytes = 0
        self.told: list[Any] = []

    def take(self, messages: list[Map]) -> None:
        for message in messages:
            if message["type"] != "changes":
                continue
            self.bytes += len(msgpack.packb(message))
            assert message["zxid"] >= self.zxid
            self.zxid = message["zxid"]
            if message["initial"]:
                assert not self.complete, "the beginning comes once"
                self.complete = message["complete"]
            else:
                assert self.complete, "first the whole state"
            for change in message["changes"]:
                key = change[0]
                self.told.append(key)
                if len(change) == 1:
                    self.state.pop(key, None)
                    continue
                value, version, mzxid = change[1:]
                assert mzxid <= message["zxid"]
                assert mzxid >= self.state.get(key, (None, 0, 0))[2], "nothing goes back"
                self.state[key] = value, version, mzxid

    @property
    def values(self) -> dict[Any, Any]:
        return {key: value for key, (value, _, _) in self.state.items()}


def subscribe(client: NativeClient, mirror: Mirror, credit: int = MUCH, dictionary: str = "default") -> int:
    client.send({"type": "subscribe", "dictionary": dictionary, "credit": credit})
    answers = client.settle()
    assert answers[0]["success"]
    mirror.take(answers[1:])
    number: int = answers[0]["id"]
    return number


def test_a_subscriber_gets_the_state_and_then_every_change(
    writer: NativeClient, reader: NativeClient
) -> None:
    writer.ask(*[{"type": "put", "key": n, "value": n} for n in range(10)])
    mirror = Mirror()
    subscribe(reader, mirror)
    assert mirror.complete
    assert mirror.values == {n: n for n in range(10)}
    writer.ask(
        {"type": "put", "key": 3, "value": "three"},
        {"type": "delete", "key": 4},
        {"type": "put", "key": "new", "value": None},
        {"type": "increment", "key": 5, "amount": 10},
        {
            "type": "multi",
            "operations": [{"type": "delete", "key": 6}, {"type": "put", "key": 7, "value": 77}],
        },
    )
    mirror.take(reader.settle())
    assert mirror.values == {0: 0, 1: 1, 2: 2, 3: "three", 5: 15, 7: 77, 8: 8, 9: 9, "new": None}
    assert mirror.state[3][1] == 1, "with its version"


def test_an_empty_dictionary_begins_with_an_empty_complete_part(
    writer: NativeClient, reader: NativeClient
) -> None:
    mirror = Mirror()
    subscribe(reader, mirror, dictionary="none")
    assert mirror.complete
    assert mirror.values == {}
    writer.put("a", 1, dictionary="none")
    mirror.take(reader.settle())
    assert mirror.values == {"a": 1}


def test_nothing_is_pushed_while_nothing_changes(writer: NativeClient, reader: NativeClient) -> None:
    subscribe(reader, Mirror())
    writer.put("a", 1, dictionary="other")
    writer.ask({"type": "create", "path": "/x", "data": b""})
    for _ in range(50):
        reader.server.turn()
    assert reader.taken() == []


def test_changes_of_one_turn_are_one_message(writer: NativeClient, reader: NativeClient) -> None:
    subscribe(reader, Mirror())
    writer.ask(*[{"type": "put", "key": n % 7, "value": n} for n in range(300)])
    messages = reader.settle()
    assert len(messages) <= 3
    assert sum(len(message["changes"]) for message in messages) <= 21


def test_a_change_is_pushed_before_any_answer_that_could_show_it(server: OneServer) -> None:
    client = NativeClient(server)
    mirror = Mirror()
    subscribe(client, mirror)
    client.send(*[{"type": "put", "key": n % 3, "value": n, "id": 1_000 + n} for n in range(20)])
    client.send(*[{"type": "get", "key": n, "id": 2_000 + n} for n in range(3)])
    answered = 0
    for message in client.settle():
        mirror.take([message])
        if message["type"] != "result":
            continue
        number = message["id"]
        answered += 1
        if number >= 2_000 and message["found"]:
            assert mirror.state[number - 2_000][2] >= message["mzxid"]
        elif number < 2_000:
            assert mirror.state[(number - 1_000) % 3][2] >= message["mzxid"]
    assert answered == 23


def test_without_credit_changes_of_a_key_are_merged_and_memory_is_bounded_by_the_keys(
    writer: NativeClient, reader: NativeClient
) -> None:
    mirror = Mirror()
    number = subscribe(reader, mirror, credit=1)
    assert mirror.complete, "the last message may overdraw"
    for round_ in range(20):
        writer.ask(*[{"type": "put", "key": n, "value": round_} for n in range(30)])
        # Keys that the client never hears of: made and gone again.
        writer.ask(*[{"type": "put", "key": f"{round_}-{n}", "value": 0} for n in range(30)])
        writer.ask(*[{"type": "delete", "key": f"{round_}-{n}"} for n in range(30)])
    assert reader.settle() == []
    (subscription,) = reader.server.driver.clients.feeds._by_connection[reader.connection].values()
    assert isinstance(subscription, native_feeds.DictionarySubscription)
    assert len(subscription._changed) == 30
    reader.send({"type": "credit", "id": number, "bytes": MUCH})
    messages = reader.settle()
    mirror.take(messages)
    assert mirror.values == dict.fromkeys(range(30), 19)
    assert len(mirror.told) == 30


def test_credit_counts_whole_messages(writer: NativeClient, reader: NativeClient) -> None:
    mirror = Mirror()
    number = subscribe(reader, mirror, credit=10_000)
    left = 10_000 - mirror.bytes
    for n in range(100):
        writer.put(n, b"x" * 300)
        messages = reader.settle()
        if not messages:
            break
        assert left > 0, "nothing is pushed without credit"
        for message in messages:
            left -= len(msgpack.packb(message))
        mirror.take(messages)
    assert left <= 0
    reader.send({"type": "credit", "id": number, "bytes": 1 - left})
    mirror.take(reader.settle())
    assert mirror.values == dict.fromkeys(range(n + 1), b"x" * 300)


def test_a_large_state_comes_in_parts_and_others_are_served_meanwhile(
    writer: NativeClient, reader: NativeClient
) -> None:
    for start in range(0, 3_000, 500):
        writer.ask(*[{"type": "put", "key": n, "value": b"x" * 200} for n in range(start, start + 500)])
    reader.send({"type": "subscribe", "dictionary": "default", "credit": MUCH})
    mirror = Mirror()
    parts = 0
    for turn in range(200):
        writer.send({"type": "put", "key": turn, "value": turn}, {"type": "delete", "key": 2_999 - turn})
        reader.server.turn()
        messages = [message for message in reader.taken() if message["type"] == "changes"]
        parts += sum(message["initial"] for message in messages)
        for message in messages:
            assert len(msgpack.packb(message)) <= 2 * native_feeds.PART_BYTES
        mirror.take(messages)
        if mirror.complete and turn > 50:
            break
    writer.settle()
    mirror.take(reader.settle())
    assert parts >= 9
    state = writer.one({"type": "items", "limit": 10_000})
    seen = {item[0]: item[1] for item in state["items"]}
    while state["next"] is not None:
        state = writer.one({"type": "items", "limit": 10_000, "after": state["next"]})
        seen |= {item[0]: item[1] for item in state["items"]}
    assert mirror.values == seen


def test_keys_that_are_too_long_for_names_are_told_when_they_go(
    writer: NativeClient, reader: NativeClient
) -> None:
    before, after = "x" * 300, ("y" * 250, 1)
    writer.put(before, 1)
    mirror = Mirror()
    subscribe(reader, mirror)
    writer.put(after, 2)
    mirror.take([_with_tuples(one) for one in reader.settle()])
    assert mirror.values == {before: 1, after: 2}
    writer.ask({"type": "delete", "key": before}, {"type": "delete", "key": after})
    mirror.take([_with_tuples(one) for one in reader.settle()])
    assert mirror.values == {}
    (feed,) = reader.server.driver.clients.feeds._dictionaries.values()
    assert feed.long_keys == {}


def _with_tuples(message: Map) -> Map:
    """Arrays as keys are lists to this reader, which no dict takes."""
    changes = [
        [tuple(change[0]) if isinstance(change[0], list) else change[0], *change[1:]]
        for change in message["changes"]
    ]
    return message | {"changes": changes}


def test_entries_that_cease_to_be_any_are_told_as_gone(writer: NativeClient, reader: NativeClient) -> None:
    writer.put("a", 1)
    mirror = Mirror()
    subscribe(reader, mirror)
    writer.ask(
        {"type": "set", "path": entry_path("default", "a"), "data": b"no entry"},
        {"type": "create", "path": entry_path("default", "b"), "data": b"none either"},
    )
    mirror.take(reader.settle())
    assert mirror.values == {}


def test_who_may_not_list_is_refused_and_what_may_not_be_read_is_left_out(server: OneServer) -> None:
    owner, other = NativeClient(server, 1), NativeClient(server, 2)
    owner.ask({"type": "auth", "scheme": "digest", "credentials": b"bob:x"})
    owner.put("open", 1)
    mine = {"data": b"\x92\xa6secret\x01", "acl": [[31, "auth", ""]]}
    owner.ask({"type": "create", "path": entry_path("default", "secret"), **mine})
    owner.ask({"type": "create", "path": directory_of("closed"), "data": b"", "acl": [[31, "auth", ""]]})
    mirror = Mirror()
    subscribe(other, mirror)
    assert mirror.values == {"open": 1}
    assert other.one({"type": "get"})["state"] == {"open": 1}
    assert other.get("secret")["code"] == "NO_AUTH"
    refused = other.one({"type": "subscribe", "dictionary": "closed", "credit": 1})
    assert refused["code"] == "NO_AUTH"
    seen = Mirror()
    subscribe(owner, seen)
    assert seen.values == {"open": 1, "secret": 1}
    owner.ask({"type": "put", "key": "secret", "value": 2})
    (told,) = other.settle()
    assert told["changes"] == [["secret"]], "as if it were gone: it might have been readable before"


def test_many_subscribers_of_random_writers_end_with_the_state(server: OneServer) -> None:
    rng = random.Random(5)
    writers = [NativeClient(server, n) for n in range(3)]
    readers = [(NativeClient(server, 10 + n), Mirror()) for n in range(3)]
    numbers = [subscribe(client, mirror, credit=500) for client, mirror in readers]
    for _ in range(120):
        writer = rng.choice(writers)
        key = rng.randrange(12)
        writer.send(
            rng.choice(
                (
                    {"type": "put", "key": key, "value": rng.randrange(100)},
                    {"type": "delete", "key": key},
                    {"type": "increment", "key": key},
                )
            )
        )
        if rng.random() < 0.3:
            server.turn()
        place = rng.randrange(3)
        client, mirror = readers[place]
        mirror.take(client.taken())
        if rng.random() < 0.3:
            client.send({"type": "credit", "id": numbers[place], "bytes": rng.randrange(400)})
    for writer in writers:
        writer.settle()
    state = writers[0].one({"type": "get"})["state"]
    assert state
    for place, (client, mirror) in enumerate(readers):
        client.send({"type": "credit", "id": numbers[place], "bytes": MUCH})
        mirror.take(client.settle())
        assert mirror.values == state


# -- logs


def test_a_log_is_followed_from_a_number_on_and_its_beginning_is_told(
    writer: NativeClient, reader: NativeClient
) -> None:
    writer.ask({"type": "create", "path": "/log", "data": b""})
    append = {"type": "create", "path": "/log/n-", "flags": 2}
    writer.ask(*[append | {"data": b"%d" % n} for n in range(5)])
    messages = reader.ask({"type": "subscribe", "log": "/log", "prefix": "n-", "first": 2, "credit": MUCH})
    entries = [entry for message in messages[1:] for entry in message["entries"]]
    assert [(number, data) for number, data, _ in entries] == [(n, b"%d" % n) for n in (2, 3, 4)]
    writer.ask(*[append | {"data": b"%d" % n} for n in range(5, 8)])
    messages = reader.settle()
    assert [entry[0] for message in messages for entry in message["entries"]] == [5, 6, 7]
    assert messages[-1]["next"] == 8
    writer.ask({"type": "truncate", "directory": "/log", "first": 6})
    messages = reader.settle()
    assert [message["first"] for message in messages] == [6]
    assert messages[0]["entries"] == []


def test_a_log_that_is_not_there_yet_is_waited_for(writer: NativeClient, reader: NativeClient) -> None:
    (answer,) = reader.ask({"type": "subscribe", "log": "/late", "credit": MUCH})
    assert answer["success"]
    writer.ask({"type": "create", "path": "/late", "data": b""})
    writer.ask({"type": "create", "path": "/late/", "data": b"x", "flags": 2})
    messages = reader.settle()
    assert [entry[:2] for message in messages for entry in message["entries"]] == [[0, b"x"]]


def test_a_long_log_is_pushed_in_parts_as_far_as_credit_goes(
    writer: NativeClient, reader: NativeClient
) -> None:
    writer.ask({"type": "create", "path": "/log", "data": b""})
    for _ in range(5):
        writer.ask(*[{"type": "create", "path": "/log/n-", "data": b"x" * 1_000, "flags": 2}] * 100)
    first = reader.ask({"type": "subscribe", "log": "/log", "prefix": "n-", "credit": 100_000, "id": 500})
    numbers = [entry[0] for message in first[1:] for entry in message["entries"]]
    assert numbers == list(range(len(numbers)))
    assert 60 < len(numbers) < 200
    reader.send({"type": "credit", "id": 500, "bytes": MUCH})
    messages = reader.settle()
    numbers += [entry[0] for message in messages for entry in message["entries"]]
    assert numbers == list(range(500))
    assert len(messages) > 4


def test_a_truncated_log_goes_on_where_it_begins_and_says_so(
    writer: NativeClient, reader: NativeClient
) -> None:
    writer.ask({"type": "create", "path": "/log", "data": b""})
    writer.ask(*[{"type": "create", "path": "/log/n-", "data": b"x" * 99, "flags": 2}] * 20)
    reader.ask({"type": "subscribe", "log": "/log", "prefix": "n-", "credit": 1, "id": 500})
    writer.ask({"type": "truncate", "directory": "/log", "first": 15})
    reader.send({"type": "credit", "id": 500, "bytes": MUCH})
    messages = reader.settle()
    assert messages[0]["first"] == 15
    assert [entry[0] for message in messages for entry in message["entries"]] == list(range(15, 20))


# -- paths


def test_lasting_watches_tell_every_event_to_every_subscription(
    writer: NativeClient, reader: NativeClient
) -> None:
    reader.ask(
        {"type": "subscribe", "path": "/a", "id": 500},
        {"type": "subscribe", "path": "/", "recursive": True, "id": 501},
    )
    answers = writer.ask(
        {"type": "create", "path": "/a", "data": b""},
        {"type": "set", "path": "/a", "data": b"x"},
        {"type": "create", "path": "/a/b", "data": b""},
        {"type": "remove", "path": "/a/b"},
        {"type": "remove", "path": "/a"},
    )
    events = reader.settle()
    assert [(e["kind"], e["path"]) for e in events if e["id"] == 500] == [
        ("created", "/a"), ("changed", "/a"), ("children", "/a"), ("children", "/a"), ("deleted", "/a"),
    ]  # fmt: skip
    assert [(e["kind"], e["path"]) for e in events if e["id"] == 501] == [
        ("created", "/a"), ("changed", "/a"), ("created", "/a/b"), ("deleted", "/a/b"), ("deleted", "/a"),
    ]  # fmt: skip
    assert {e["zxid"] for e in events} == {answer["zxid"] for answer in answers}


def test_unsubscribing_ends_what_it_names_and_nothing_else(
    writer: NativeClient, reader: NativeClient
) -> None:
    subscribe(reader, Mirror(), dictionary="d")
    reader.ask({"type": "subscribe", "path": "/", "recursive": True, "id": 500})
    reader.ask({"type": "subscribe", "log": "/l", "credit": 1, "id": 501})
    for number in (500, 501):
        assert reader.one({"type": "unsubscribe", "subscription": number})["success"]
        assert reader.one({"type": "unsubscribe", "subscription": number})["code"] == "NO_WATCHER"
    writer.put("a", 1, dictionary="d")
    assert [message["type"] for message in reader.settle()] == ["changes"]
    assert len(reader.server.driver.clients.feeds) == 1
    assert not reader.server.driver.clients.watches


def test_ids_of_subscriptions_are_their_own_and_their_number_is_bounded(reader: NativeClient) -> None:
    reader.ask({"type": "subscribe", "path": "/a", "id": 500})
    for message in (
        {"type": "subscribe", "path": "/b", "id": 500},
        {"type": "subscribe", "dictionary": "b", "credit": 1, "id": 500},
    ):
        assert "another subscription" in reader.one(message)["error"]
    answers = reader.ask(*[{"type": "subscribe", "path": f"/{n}"} for n in range(300)])
    assert sum(answer["success"] for answer in answers) == native_subscriptions.SUBSCRIPTIONS_MAX - 1
    assert "256 subscriptions" in answers[-1]["error"]


def test_credit_for_what_has_ended_is_no_mistake(reader: NativeClient) -> None:
    reader.send({"type": "credit", "id": 77, "bytes": 5}, {"type": "ping"})
    (pong,) = reader.settle()
    assert pong["success"]
