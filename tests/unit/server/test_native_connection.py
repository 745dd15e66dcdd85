"""One native connection against the shipped driver of one server: requests, answers, order, bounds, Zatt's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from attrs import evolve

from tests.fuzz.one_server import FRAME_BYTES_MAX, OneServer
from tests.unit.server.native import Map, NativeClient, started
from tests.unit.server.test_sasl import response_to
from zraft.raft.core import Raft
from zraft.server.clients import connection as client_connection
from zraft.server.clients import turn_share
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.clients.connection import Phase
from zraft.server.clients.native import connection as native_connection
from zraft.server.coordination.topic_registry import LOOK_INTERVAL_MS
from zraft.tree.machine import Machine
from zraft_core.errors import Code
from zraft_core.wire.dictionary import entry_path

Connect = Callable[[], NativeClient]


def configure(server: OneServer, **changed: Any) -> None:
    """The operator had started this server with other settings of clients."""
    clients = server.driver.clients
    clients.settings = evolve(clients.settings, **changed)


@pytest.fixture(scope="module")
def shared() -> OneServer:
    """For tests that leave nothing behind but znodes of their own."""
    return started()


@pytest.fixture
def server() -> OneServer:
    return started()


@pytest.fixture
def client(server: OneServer) -> NativeClient:
    return NativeClient(server)


@pytest.fixture
def session(server: OneServer) -> NativeClient:
    client = NativeClient(server)
    assert client.hello()["success"]
    return client


def codes(answers: list[Map]) -> list[Any]:
    return [answer.get("code", "OK") for answer in answers]


# -- dictionaries


def test_a_value_is_read_back_with_its_version_and_zxid(client: NativeClient) -> None:
    put = client.put("a", {"x": [1, b"2", None]})
    assert put["success"]
    assert put["version"] == 0
    assert put["mzxid"] == put["zxid"]
    got = client.get("a")
    assert (got["found"], got["value"], got["version"], got["mzxid"]) == (
        True,
        {"x": [1, b"2", None]},
        0,
        put["zxid"],
    )
    assert got["zxid"] >= put["zxid"]
    assert client.get("b")["found"] is False
    assert client.put("a", None)["version"] == 1
    assert client.get("a")["value"] is None


def test_equal_keys_are_one_entry_and_dictionaries_are_apart(client: NativeClient) -> None:
    client.ask(
        {"type": "put", "key": 1, "value": "one"},
        {"type": "put", "key": True, "value": "true"},
        {"type": "put", "key": 1, "value": "other", "dictionary": "other/."},
    )
    assert client.get(1.0)["value"] == "true"
    assert client.one({"type": "size"})["size"] == 1
    assert client.one({"type": "get", "dictionary": "other/."})["state"] == {1: "other"}
    assert client.one({"type": "get", "dictionary": "none"})["state"] == {}


def test_a_put_with_a_version_is_compare_and_set(client: NativeClient) -> None:
    assert client.put("a", 1, version=0)["code"] == "NO_NODE"
    assert client.put("a", 1, version=-1)["version"] == 0
    assert client.put("a", 2, version=-1)["code"] == "NODE_EXISTS"
    assert client.put("a", 2, version=0)["version"] == 1
    refused = client.put("a", 3, version=0)
    assert refused["code"] == "BAD_VERSION"
    assert (refused["retriable"], refused["unknown"]) == (False, False)
    assert client.one({"type": "delete", "key": "a", "version": 0})["code"] == "BAD_VERSION"
    assert client.one({"type": "delete", "key": "a", "version": 1})["success"]
    assert client.one({"type": "delete", "key": "a"})["code"] == "NO_NODE"


def test_increments_count_from_zero_and_refuse_what_is_no_number(client: NativeClient) -> None:
    answers = client.ask(*[{"type": "increment", "key": "n", "amount": n} for n in (1, 5, -10)])
    assert [answer["value"] for answer in answers] == [1, 6, -4]
    assert client.get("n")["value"] == -4
    client.put("text", "1")
    refused = client.one({"type": "increment", "key": "text"})
    assert refused["code"] == "BAD_ARGUMENTS"
    assert "no integer" in refused["error"]
    assert client.get("text")["value"] == "1"


def test_items_list_each_key_once_over_pages_while_others_come_and_go(client: NativeClient) -> None:
    client.ask(*[{"type": "put", "key": n, "value": n} for n in range(50)])
    seen: list[Any] = []
    after = None
    pages = 0
    while True:
        page = client.one({"type": "items", "after": after, "limit": 7})
        seen += [item[0] for item in page["items"]]
        assert len(page["items"]) <= 7
        pages += 1
        client.ask(
            {"type": "delete", "key": 1_000 + pages - 1}, {"type": "put", "key": 1_000 + pages, "value": 0}
        )
        after = page["next"]
        if after is None:
            break
    assert pages == 8
    assert sorted(key for key in seen if key < 1_000) == list(range(50))


def test_items_carry_versions(client: NativeClient) -> None:
    client.put("a", 1)
    put = client.put("a", 2)
    page = client.one({"type": "items"})
    assert page["items"] == [["a", 2, 1, put["zxid"]]]
    assert page["next"] is None


def test_a_state_that_is_too_long_names_items_and_the_knob(client: NativeClient) -> None:
    configure(client.server, reply_bytes_max=1_000)
    client.ask(*[{"type": "put", "key": n, "value": b"x" * 50} for n in range(40)])
    refused = client.one({"type": "get"})
    assert refused["code"] == "MARSHALLING_ERROR"
    assert "items" in refused["error"]
    assert "client.reply_bytes_max" in refused["error"]
    seen = 0
    after = None
    while True:
        page = client.one({"type": "items", "after": after})
        seen += len(page["items"])
        after = page["next"]
        if after is None:
            break
    assert seen == 40


def test_what_is_no_entry_is_left_out_and_getting_it_says_so(client: NativeClient) -> None:
    client.put("a", 1)
    for key, data in (("bad", b"\xdd\xff\xff\xff\xff"), ("none", None)):
        made = client.one({"type": "create", "path": entry_path("default", key), "data": data})
        assert made["success"]
        assert client.get(key)["code"] == "DATA_INCONSISTENCY"
    assert client.one({"type": "get"})["state"] == {"a": 1}
    assert [item[0] for item in client.one({"type": "items"})["items"]] == ["a"]


# -- znodes


def test_znodes_are_those_of_zookeepers_clients(session: NativeClient) -> None:
    answers = session.ask(
        {"type": "create", "path": "/a", "data": b"1"},
        {"type": "create", "path": "/a/e", "data": None, "flags": 1},
        {"type": "create", "path": "/a/s-", "data": b"", "flags": 2},
        {"type": "create", "path": "/a/c", "data": b"", "flags": 4},
        {"type": "create", "path": "/a", "data": b""},
        {"type": "create", "path": "/x/y", "data": b""},
        {"type": "create", "path": "nowhere", "data": b""},
        {"type": "set", "path": "/a", "data": b"22", "version": 0},
        {"type": "remove", "path": "/a"},
        {"type": "remove", "path": "/a/s-0000000001"},
    )
    assert codes(answers) == [
        "OK", "OK", "OK", "OK", "NODE_EXISTS", "NO_NODE", "BAD_ARGUMENTS", "OK", "NOT_EMPTY", "OK",
    ]  # fmt: skip
    assert answers[2]["path"] == "/a/s-0000000001"
    assert answers[1]["stat"]["ephemeralOwner"] == session.connection.session
    read = session.one({"type": "read", "path": "/a"})
    assert read["data"] == b"22"
    assert read["stat"]["version"] == 1
    assert sorted(session.one({"type": "children", "path": "/a"})["names"]) == ["c", "e"]
    assert session.one({"type": "exists", "path": "/none"})["stat"] is None
    assert session.one({"type": "exists", "path": "/a/e"})["stat"]["ephemeralOwner"]
    assert session.one({"type": "read", "path": "/none"})["code"] == "NO_NODE"


def test_a_multi_is_all_or_nothing_and_names_the_culprit(client: NativeClient) -> None:
    done = client.one(
        {
            "type": "multi",
            "operations": [
                {"type": "create", "path": "/m", "data": b""},
                {"type": "put", "key": "k", "value": 1},
                {"type": "increment", "key": "n", "amount": 3},
                {"type": "check", "path": "/m", "version": 0},
                {"type": "set", "path": "/m", "data": b"x"},
                {"type": "delete", "key": "k"},
            ],
        }
    )
    assert [sorted(result) for result in done["results"]] == [
        ["path", "stat"], ["mzxid", "version"], ["mzxid", "value", "version"], [], ["stat"], [],
    ]  # fmt: skip
    failed = client.one(
        {
            "type": "multi",
            "operations": [
                {"type": "put", "key": "k", "value": 1},
                {"type": "check", "path": "/m", "version": 0},
                {"type": "remove", "path": "/m"},
            ],
        }
    )
    assert failed["code"] == "BAD_VERSION"
    assert failed["index"] == 1
    assert failed["codes"] == ["OK", "BAD_VERSION", "RUNTIME_INCONSISTENCY"]
    assert "operation 1: /m" in failed["error"]
    assert client.get("k")["found"] is False


def test_without_a_session_everything_works_but_what_belongs_to_one(client: NativeClient) -> None:
    assert client.put("a", 1)["success"]
    assert client.one({"type": "create", "path": "/e", "data": b"", "flags": 1})["code"] == "BAD_ARGUMENTS"
    assert "hello" in client.put("a", 1, seq=1)["error"]
    assert "hello" in client.one({"type": "will", "parent": "/", "prefix": "w", "data": b""})["error"]
    assert client.one({"type": "ping"})["success"]
    assert client.connection.phase is Phase.OPEN


def test_rights_count_and_what_is_created_is_open_unless_an_acl_is_given(server: OneServer) -> None:
    owner, other = NativeClient(server, 1), NativeClient(server, 2)
    assert owner.one({"type": "auth", "scheme": "digest", "credentials": b"bob:secret"})["success"]
    owner.ask({"type": "create", "path": "/mine", "data": b"", "acl": [[31, "auth", ""]]})
    owner.ask({"type": "create", "path": "/open", "data": b""})
    assert other.one({"type": "read", "path": "/mine"})["code"] == "NO_AUTH"
    assert other.one({"type": "set", "path": "/mine", "data": b""})["code"] == "NO_AUTH"
    assert other.one({"type": "set", "path": "/open", "data": b""})["success"]
    assert owner.one({"type": "set", "path": "/mine", "data": b""})["success"]


def test_a_log_is_read_in_pages_and_truncated(client: NativeClient) -> None:
    client.ask({"type": "create", "path": "/log", "data": b""})
    client.ask(*[{"type": "create", "path": "/log/n-", "data": b"%d" % n, "flags": 2} for n in range(10)])
    page = client.one({"type": "log", "directory": "/log", "prefix": "n-", "first": 2, "limit": 3})
    assert [(number, data) for number, data, _ in page["entries"]] == [(2, b"2"), (3, b"3"), (4, b"4")]
    assert (page["next"], page["first"], page["end"]) == (5, 0, 10)
    cut = client.one(
        {"type": "truncate", "directory": "/log", "first": 4, "origin_path": "/origin", "origin_data": b"o"}
    )
    assert cut["success"]
    page = client.one({"type": "log", "directory": "/log", "prefix": "n-", "first": 0})
    assert [number for number, _, _ in page["entries"]] == list(range(4, 10))
    assert page["first"] == 4
    assert client.one({"type": "read", "path": "/origin"})["data"] == b"o"
    refused = client.one({"type": "truncate", "directory": "/log", "first": 3})
    assert refused["code"] == "BAD_ARGUMENTS"
    assert "first" in refused["error"]


# -- sessions, exactly once


def test_a_numbered_write_is_executed_once_and_always_answered_the_same(session: NativeClient) -> None:
    first = session.one({"type": "increment", "key": "n", "seq": 1})
    again = [session.one({"type": "increment", "key": "n", "seq": 1}) for _ in range(3)]
    for answer in again:
        assert {name: answer[name] for name in first if name != "id"} == {
            name: first[name] for name in first if name != "id"
        }
    assert session.one({"type": "increment", "key": "n", "seq": 2})["value"] == 2
    failed = session.put("n", 0, version=-1, seq=3)
    assert session.put("n", 0, version=-1, seq=3) | {"id": 0} == failed | {"id": 0}


def test_a_repeat_on_another_connection_of_the_session_gives_the_first_answer(server: OneServer) -> None:
    one = NativeClient(server, 1)
    hello = one.hello()
    first = one.one({"type": "increment", "key": "n", "seq": 7, "floor": 3})
    two = NativeClient(server, 2)
    resumed = two.hello(session=hello["session"], password=hello["password"], last_zxid=first["zxid"])
    assert resumed["session"] == hello["session"]
    server.turn()
    assert one.closed, "a session has one connection"
    again = two.one({"type": "increment", "key": "n", "seq": 7, "floor": 3})
    assert (again["value"], again["zxid"], again["position"]) == (1, first["zxid"], first["position"])


WRITES: list[Map] = [
    {"type": "put", "key": "k", "value": 1},
    {"type": "increment", "key": "n"},
    {"type": "create", "path": "/numbered-", "flags": 2},
    {"type": "remove", "path": "/never"},
    {"type": "multi", "operations": [{"type": "put", "key": "m", "value": 1}]},
    {"type": "multi", "operations": [{"type": "remove", "path": "/never"}]},
    {"type": "create_topic", "topic": "of-a-test", "partitions": 1},
    {"type": "create_topic", "topic": "no/name", "partitions": 1},
    {"type": "will", "parent": None},
]


@pytest.mark.parametrize("first", range(len(WRITES)))
def test_a_seq_of_another_kind_of_request_is_refused_and_harms_nobody(server: OneServer, first: int) -> None:
    """A client that counts wrongly must not end its server: the answer kept has another form than its request."""
    client = NativeClient(server)
    client.hello()
    for seq, second in enumerate(WRITES, 1):
        original = client.one({**WRITES[first], "seq": seq})
        for _ in range(LOOK_INTERVAL_MS):
            server.turn()  # the leader places a topic's partitions by a command of its own
        position = server.driver.machine.position
        answer = client.one({**second, "seq": seq})
        assert server.driver.machine.position == position + 1
        if second is WRITES[first]:
            assert {**answer, "id": 0} == {**original, "id": 0}
        elif answer["type"] == "error":
            assert answer["code"] in ("BAD_ARGUMENTS", original.get("code"))
        else:
            # One that has nothing to tell cannot be told apart from another such one.
            assert answer.keys() == original.keys()
        assert client.one({"type": "ping"})["success"]


def test_a_seq_below_the_floor_is_refused_and_one_far_above_is_to_be_repeated(session: NativeClient) -> None:
    session.put("a", 1, seq=5, floor=5 - 1)
    session.put("a", 1, seq=6, floor=5)
    refused = session.put("a", 1, seq=5, floor=5)
    assert refused["code"] == "BAD_ARGUMENTS"
    assert "floor" in refused["error"]
    far = session.put("b", 1, seq=5_000, floor=5)
    assert (far["code"], far["retriable"]) == ("THROTTLED_OP", True)
    assert session.get("b")["found"] is False


def test_a_will_is_carried_out_when_the_session_is_closed(server: OneServer) -> None:
    one, other = NativeClient(server, 1), NativeClient(server, 2)
    one.hello()
    one.ask({"type": "create", "path": "/wills", "data": b""})
    assert one.one({"type": "will", "parent": "/wills", "prefix": "w-", "data": b"bye"})["success"]
    (bye,) = one.ask({"type": "close"})
    assert bye["success"]
    assert one.closed
    assert other.one({"type": "children", "path": "/wills"})["names"] == ["w-0000000000"]
    assert other.one({"type": "read", "path": "/wills/w-0000000000"})["data"] == b"bye"


@pytest.mark.parametrize(
    "fields", [{"session": 12345, "password": b"x" * 16}, {"session": -1, "password": bytes(16)}]
)
def test_a_session_that_is_not_there_is_told_and_the_connection_closed(
    client: NativeClient, fields: Map
) -> None:
    refused = client.hello(**fields)
    assert refused["code"] == "SESSION_EXPIRED"
    assert client.closed


def test_a_wrong_password_is_an_expired_session(server: OneServer) -> None:
    one = NativeClient(server, 1)
    hello = one.hello()
    two = NativeClient(server, 2)
    assert two.hello(session=hello["session"], password=b"x" * 16)["code"] == "SESSION_EXPIRED"
    assert one.put("a", 1)["success"], "whoever guesses does not take it away"


def test_a_client_that_has_seen_more_is_sent_elsewhere(client: NativeClient) -> None:
    refused = client.hello(last_zxid=2**60)
    assert (refused["code"], refused["retriable"]) == ("CONNECTION_LOSS", True)
    assert client.closed


def test_hello_comes_first_or_not_at_all(client: NativeClient) -> None:
    client.ask({"type": "ping"})
    assert client.hello()["code"] == "BAD_ARGUMENTS"
    assert client.put("a", 1)["success"]


def test_requests_behind_a_hello_wait_for_its_session(client: NativeClient) -> None:
    answers = client.ask(
        {"type": "hello", "timeout_ms": 30_000},
        {"type": "increment", "key": "n", "seq": 1},
        {"type": "get", "key": "n"},
    )
    assert codes(answers) == ["OK"] * 3
    assert answers[0]["session"]


# -- order and consistency


def test_writes_take_effect_in_the_order_in_which_they_were_sent(client: NativeClient) -> None:
    answers = client.ask(*[{"type": "put", "key": "k", "value": n} for n in range(200)])
    assert [answer["version"] for answer in answers] == list(range(200))
    positions = [answer["position"] for answer in answers]
    assert positions == sorted(set(positions))
    assert client.get("k")["value"] == 199


def test_a_linearizable_read_waits_for_a_read_index_and_a_local_one_for_nothing(client: NativeClient) -> None:
    client.put("a", 1)
    client.server.stalled = True
    client.send(
        {"type": "get", "key": "a", "id": 70, "consistency": "local"}, {"type": "get", "key": "a", "id": 71}
    )
    assert [one["id"] for one in client.settle()] == [70, 71]
    raft = client.server.driver.raft
    assert raft is not None


def test_reads_of_one_turn_share_a_read_index(client: NativeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    raft = client.server.driver.raft
    assert raft is not None
    asked: list[int] = []
    original = type(raft).read_index

    def read_index(self: Raft, context: int) -> Any:
        asked.append(context)
        return original(self, context)

    monkeypatch.setattr(type(raft), "read_index", read_index)
    other = NativeClient(client.server, 2)
    for one in (client, other):
        one.send(*[{"type": "get", "key": n} for n in range(100)])
    assert len(client.settle()) == 100
    assert len(other.settle()) == 100
    assert len(asked) == 1


def test_a_read_waits_for_its_floor_and_gives_up_in_time(server: OneServer) -> None:
    reader, writer = NativeClient(server, 1), NativeClient(server, 2)
    last = writer.put("a", 1)["zxid"]
    for consistency in ("local", "linearizable"):
        reader.send({"type": "get", "key": "a", "floor": last + 3, "consistency": consistency})
    for _ in range(10):
        server.turn()
    assert reader.taken() == []
    writer.put("a", 2)
    writer.ask(*[{"type": "put", "key": "b", "value": n} for n in range(3)])
    assert [answer["value"] for answer in reader.settle()] == [2, 2]
    late = reader.one({"type": "get", "key": "a", "floor": last + 1_000, "timeout_ms": 20})
    assert (late["code"], late["retriable"]) == ("OPERATION_TIMEOUT", True)
    assert "timeout_ms" in late["error"]


def test_everything_of_one_turn_leaves_in_zxid_order(server: OneServer) -> None:
    client = NativeClient(server)
    client.ask({"type": "subscribe", "id": 100, "dictionary": "d", "credit": 1_000_000})
    client.ask({"type": "subscribe", "id": 101, "path": "/", "recursive": True})
    messages = client.ask(
        *[{"type": "put", "key": n % 3, "value": n, "dictionary": "d"} for n in range(30)],
        *[{"type": "increment", "key": "x", "dictionary": "e"} for n in range(5)],
    )
    zxids = [message["zxid"] for message in messages]
    assert zxids == sorted(zxids)
    assert {message["type"] for message in messages} == {"result", "changes", "event"}


# -- bad input


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"type": "pout"}, "expected one of"),
        ({"type": 7}, "expected a string"),
        ({"type": "put", "value": 1}, "key: found nothing"),
        ({"type": "put", "key": 1}, "value: found nothing"),
        ({"type": "put", "key": float("nan"), "value": 1}, "NaN"),
        ({"type": "put", "key": 1, "value": 1, "versoin": 2}, "unknown field 'versoin'"),
        ({"type": "put", "key": 1, "value": 1, "version": "1"}, "version: found '1'"),
        ({"type": "put", "key": 1, "value": 1, "version": -2}, "from -1"),
        ({"type": "put", "key": 1, "value": 1, "seq": 0}, "seq: found 0"),
        ({"type": "put", "key": 1, "value": 1, "dictionary": ""}, "1 to 128"),
        ({"type": "put", "key": 1, "value": 1, "forward": 1}, "forward: found 1"),
        ({"type": "increment", "key": 1, "amount": True}, "amount: found True"),
        ({"type": "increment", "key": 1, "amount": 2**63}, "amount"),
        ({"type": "create", "path": "/a", "data": "text"}, "expected bin or nil"),
        ({"type": "create", "path": "/a", "data": b"", "flags": 5}, "from 0 to 4"),
        ({"type": "create", "path": "/a", "data": b"", "flags": 1, "ttl": 5}, "nothing else may have one"),
        ({"type": "create", "path": "/a", "data": b"", "acl": [[1, "world"]]}, "acl"),
        ({"type": "create", "path": "/a", "data": b"", "acl": [[2**40, "world", "anyone"]]}, "acl"),
        ({"type": "create", "path": "/a", "data": b"", "acl": {}}, "acl: found a map of 0"),
        ({"type": "multi", "operations": {}}, "array"),
        ({"type": "multi", "operations": [1]}, r"operations[0]: found 1"),
        ({"type": "multi", "operations": [{"type": "multi", "operations": []}]}, "expected one of put"),
        ({"type": "multi", "operations": [{"type": "put", "key": 1, "value": 1, "id": 3}]}, "unknown field 'id'"),
        ({"type": "truncate", "directory": "/a"}, "first: found nothing"),
        ({"type": "append", "data": {"action": "chnge", "key": 1}}, "action: found 'chnge'"),
        ({"type": "append", "data": {"action": "change", "key": 1}}, "no value"),
        ({"type": "append", "data": 3}, "expected a map"),
        ({"type": "get", "key": 1, "consistency": "eventual"}, "linearizable or local"),
        ({"type": "get", "key": 1, "floor": -1}, "floor: found -1"),
        ({"type": "get", "key": 1, "timeout_ms": 10**9}, "timeout_ms"),
        ({"type": "items", "limit": 0}, "limit: found 0"),
        ({"type": "items", "after": 3}, "after: found 3"),
        ({"type": "read"}, "path: found nothing"),
        ({"type": "log", "directory": "/a", "limit": 10**6}, "limit"),
        ({"type": "hello"}, "timeout_ms: found nothing"),
        ({"type": "hello", "timeout_ms": 1, "session": 3}, "password: found nothing"),
        ({"type": "hello", "timeout_ms": 1, "session": 3, "password": b"x"}, "16 bytes"),
        ({"type": "subscribe"}, "nothing to subscribe to"),
        ({"type": "subscribe", "dictionary": "a", "path": "/a", "credit": 1}, "dictionary and path"),
        ({"type": "subscribe", "dictionary": "a"}, "credit: found nothing"),
        ({"type": "unsubscribe", "subscription": 3}, "no subscription 3"),
        ({"type": "config", "action": "add", "address": "x", "port": 0}, "port: found 0"),
        ({"type": "config", "action": "grow", "address": "x", "port": 1}, "add or delete"),
        ({"type": "auth", "scheme": "digest", "credentials": "text"}, "expected bin"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_understood_says_what_was_found_and_what_was_expected(
    shared: OneServer, message: Map, why: str
) -> None:
    client = NativeClient(shared)
    refused, pong = client.ask(message, {"type": "ping"})
    assert refused["type"] == "error"
    assert refused["success"] is False
    assert (refused["retriable"], refused["unknown"]) == (False, False)
    assert why in refused["error"]
    assert pong["success"], "the connection goes on"
    client.hang_up()


@pytest.mark.parametrize("number", [-5, 2**32, "7", None, 1.0, True, [1]])
def test_an_id_that_is_none_ends_the_connection(shared: OneServer, number: Any) -> None:
    client = NativeClient(shared)
    client.raw(msgpack.packb({"type": "ping", "id": number}))
    (refused,) = client.settle()
    assert "id: found" in refused["error"]
    assert "id" not in refused
    assert client.closed


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x81\xc1", "not MessagePack"),
        (b"\x82\xa4type\xa4ping\xa2id\x01\x05", "expected a MessagePack map"),
        (b"\x81\xa1a\xa2\xff\xfe", "Python cannot hold"),
        (b"\x81\x81\x01\x02\x03", "Python cannot hold"),
        (b"\x81\xa1a\xc6\x7f\xff\xff\xff" + bytes(FRAME_BYTES_MAX), "client.jute_maxbuffer"),
    ],
)
def test_a_stream_that_cannot_be_followed_is_told_so_and_closed(
    shared: OneServer, data: bytes, why: str
) -> None:
    client = NativeClient(shared)
    client.raw(data)
    (*_, refused) = client.settle()
    assert why in refused["error"]
    assert client.closed
    assert client.connection.phase is Phase.CLOSED


def test_what_was_said_before_a_stream_breaks_is_answered(shared: OneServer) -> None:
    client = NativeClient(shared)
    client.raw(msgpack.packb({"type": "ping", "id": 1}))
    client.raw(b"\xc1")
    pong, refused = client.settle()
    assert pong["success"]
    assert "begins with byte 0xc1" in refused["error"]


# -- bounds


def test_no_more_than_so_many_requests_are_outstanding(client: NativeClient) -> None:
    client.server.stalled = True
    for _ in range(3):
        client.send(*[{"type": "put", "key": "k", "value": None}] * 3_000)
        for _ in range(5):
            client.server.turn()
    assert client.connection.outstanding == native_connection.OUTSTANDING_MAX
    client.server.stalled = False
    answers: list[Map] = []
    while len(answers) < 9_000:
        answers += client.settle()
    assert [answer["version"] for answer in answers] == list(range(9_000))


def test_a_client_that_only_sends_is_not_read_for_ever(client: NativeClient) -> None:
    client.server.stalled = True
    chunk = msgpack.packb({"type": "put", "id": 1, "key": "k", "value": b"x" * 60_000})
    fed = 0
    while client.connection.wants_read:
        client.raw(chunk)
        fed += len(chunk)
        assert fed < 3 * client_connection.BACKLOG_BYTES_MAX
        client.server.turn()


def test_answers_of_large_reads_wait_for_the_client_to_take_them(client: NativeClient) -> None:
    client.put("big", b"x" * 60_000)
    client.send(*[{"type": "get", "key": "big"}] * 1_000)
    answers: list[Map] = []
    for _ in range(500):
        size = client.server.turn()
        assert size <= client_connection.ANSWERS_BYTES_MAX + 100_000
        answers += client.taken()
        if len(answers) == 1_000:
            break
    assert len(answers) == 1_000
    assert all(answer["value"] == b"x" * 60_000 for answer in answers)


def test_nothing_is_left_of_a_connection_that_is_gone(server: OneServer) -> None:
    clients = server.driver.clients
    client = NativeClient(server)
    client.hello()
    client.ask(
        {"type": "subscribe", "dictionary": "d", "credit": 100},
        {"type": "subscribe", "log": "/zraft", "credit": 100},
        {"type": "subscribe", "path": "/", "recursive": True},
    )
    client.send({"type": "get", "key": 1, "floor": 2**50, "consistency": "local"}, {"type": "get", "key": 1})
    client.hang_up()
    server.turn()
    assert len(clients) == 0
    assert not clients.feeds
    assert not clients.watches
    assert not clients._floored
    assert not clients.sessions._timeouts


# -- Zatt's messages


def one_shot(server: OneServer, message: Map) -> tuple[Any, NativeClient]:
    client = NativeClient(server)
    client.send({"id": -1, **message})
    answers = client.settle()
    assert client.closed
    return (answers[0] if answers else None), client


def test_owners_of_ephemerals_are_told_with_how_long_they_are_silent(server: OneServer) -> None:
    silent, talking, asking = (NativeClient(server, number) for number in (1, 2, 3))
    sessions = [
        one.hello(timeout_ms=timeout)["session"] for one, timeout in ((silent, 8_000), (talking, 9_000))
    ]
    asking.one({"type": "create", "path": "/pulse", "data": None})
    for one, name in ((silent, "a"), (talking, "b")):
        assert one.one({"type": "create", "path": f"/pulse/{name}", "data": None, "flags": 1})["success"]
    asking.one({"type": "create", "path": "/pulse/stays", "data": None})
    for _ in range(150):
        server.turn()
    talking.ask({"type": "ping"})
    answer = asking.one({"type": "owners", "path": "/pulse"})
    assert answer["leads"] is True
    (a, first, quiet_ms, eight_s), (b, second, spoke_ms, nine_s) = sorted(answer["owners"])
    assert [(a, first, eight_s), (b, second, nine_s)] == [
        ("a", sessions[0], 8_000),
        ("b", sessions[1], 9_000),
    ]
    assert quiet_ms >= 100 + spoke_ms
    assert asking.one({"type": "owners", "path": "/none"})["code"] == "NO_NODE"


def test_owners_are_for_those_who_may_list_the_directory_and_not_of_endless_ones(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, stranger = NativeClient(server, 1), NativeClient(server, 2)
    owner.hello()
    owner.one({"type": "auth", "scheme": "digest", "credentials": b"bob:x"})
    mine = [[31, "auth", ""]]
    owner.one({"type": "create", "path": "/mine", "data": None, "acl": mine})
    owner.one({"type": "create", "path": "/mine/e", "data": None, "flags": 1, "acl": mine})
    assert stranger.one({"type": "owners", "path": "/mine"})["code"] == "NO_AUTH"
    assert len(owner.one({"type": "owners", "path": "/mine"})["owners"]) == 1
    monkeypatch.setattr("zraft.server.clients.native.reads.OWNERS_MAX", 0)
    refused = owner.one({"type": "owners", "path": "/mine"})
    assert refused["code"] == "BAD_ARGUMENTS"
    assert "1 children" in refused["error"]


def test_a_server_that_does_not_lead_knows_only_how_silent_its_own_clients_are(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = NativeClient(server)
    session = client.hello()["session"]
    view = client.connection.view
    for _ in range(50):
        server.turn()
    assert view.silent_ms(session) is not None
    with monkeypatch.context() as patch:
        patch.setattr(server.driver.coordination, "leadership", None)
        assert view.silent_ms(session) is not None
        client.hang_up()
        assert view.silent_ms(session) is None
    assert view.silent_ms(session) is not None, "a leader remembers"


def test_zatts_messages_are_answered_once_in_zatts_form(server: OneServer) -> None:
    assert one_shot(server, {"type": "get"})[0] == {}
    change = {"type": "append", "data": {"action": "change", "key": "a", "value": [1, None]}}
    assert one_shot(server, change)[0] == {"type": "result", "success": True}
    assert one_shot(server, {"type": "get"})[0] == {"a": [1, None]}
    delete = {"type": "append", "data": {"action": "delete", "key": "a"}}
    assert one_shot(server, delete)[0] == {"type": "result", "success": True}
    assert one_shot(server, delete)[0] == {"type": "result", "success": True}, "it is not there"
    assert one_shot(server, {"type": "get"})[0] == {}


def test_z14_a_diagnostic_has_every_field_under_zatts_names(server: OneServer) -> None:
    found, _ = one_shot(server, {"type": "diagnostic"})
    assert found["status"] == "Leader"
    assert found["persist"] == {"votedFor": 1, "currentTerm": 1}
    assert set(found["volatile"]) == {"leaderId", "cluster", "address"}
    assert found["log"]["commitIndex"] >= 2
    assert set(found["leaderStatus"]) == {"nextIndex", "matchIndex", "waiting_clients"}
    assert set(found["stats"]) == {"read", "write", "append"}
    for counts in found["stats"].values():
        assert 1 <= len(counts) <= 10
        assert all(len(count) == 1 for count in counts)
    assert sum(count for second in found["stats"]["append"] for count in second.values()) >= 1


def test_zatts_config_is_for_nobody_unless_the_operator_says_so(server: OneServer) -> None:
    add = {"type": "config", "action": "add", "address": "10.0.0.9", "port": 5254}
    refused, _ = one_shot(server, add)
    assert refused["success"] is False
    assert refused["code"] == "RECONFIG_DISABLED"
    configure(server, reconfig_enabled=True)
    assert one_shot(server, add)[0]["code"] == "NO_AUTH", "/zookeeper/config may be read only"
    assert not any(member.address.startswith("10.0.0.9") for member in server.driver.machine.members.values())


def test_zatts_config_adds_and_deletes_a_member_by_its_address(server: OneServer) -> None:
    super_admin = AuthSettings(super_digest="super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")  # of super:admin
    configure(server, reconfig_enabled=True, auth=super_admin)
    client = NativeClient(server)
    assert client.one({"type": "auth", "scheme": "digest", "credentials": b"super:admin"})["success"]
    add = {"type": "config", "action": "add", "address": "10.0.0.9", "port": 5254}
    added = client.one(add)
    assert (added["success"], added.get("server")) == (True, 2), added
    assert server.driver.machine.members[2].address == "10.0.0.9:5254"  # type: ignore[index]
    assert client.one(add)["server"] == 2, "it is one already"
    assert client.one(add | {"port": 5255, "server": 7})["server"] == 7
    taken = client.one(add | {"port": 5256, "server": 7})
    assert taken["code"] == "BAD_ARGUMENTS", "it moved server 7, silently"
    assert "server 7 is a member at 10.0.0.9:5255" in taken["error"]
    assert server.driver.machine.members[7].address == "10.0.0.9:5255"  # type: ignore[index]
    delete = {"type": "config", "action": "delete", "address": "10.0.0.9", "port": 5254}
    assert client.one(delete)["server"] == 2
    assert 2 not in server.driver.machine.members
    assert "no such member" in client.one(delete)["error"]


def test_two_servers_that_are_added_at_once_do_not_get_one_id(server: OneServer) -> None:
    """The free id was looked up before the first one had it; the second one took its place, silently."""
    super_admin = AuthSettings(super_digest="super:xQJmxLMiHGwaqBvst5y6rkB6HQs=")  # of super:admin
    configure(server, reconfig_enabled=True, auth=super_admin)
    client = NativeClient(server)
    assert client.one({"type": "auth", "scheme": "digest", "credentials": b"super:admin"})["success"]
    add = {"type": "config", "action": "add", "address": "10.0.0.9"}
    first, second = client.ask(add | {"port": 5254}, add | {"port": 5255})
    assert (first["success"], first["server"]) == (True, 2)
    assert second["code"] == "BAD_VERSION"
    assert "the members were changed meanwhile" in second["error"]
    assert server.driver.machine.members[2].address == "10.0.0.9:5254"  # type: ignore[index]
    assert client.one(add | {"port": 5255})["server"] == 3


def test_an_unknown_message_without_id_is_told_what_is_known(server: OneServer) -> None:
    answer, _ = one_shot(server, {"type": "put", "key": 1, "value": 1})
    assert "need an id" in answer["error"]


def test_nothing_behind_a_message_without_id_is_looked_at(client: NativeClient) -> None:
    client.send({"id": -1, "type": "get"}, {"type": "put", "key": "a", "value": 1})
    assert client.settle() == [{}]
    assert client.closed
    other = NativeClient(client.server, 2)
    assert other.get("a")["found"] is False


# -- who leads, contact, feature level, authentication


def test_a_server_that_does_not_lead_redirects_if_asked_to(
    client: NativeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = type(client.connection.view)
    monkeypatch.setattr(view, "leads", False)
    monkeypatch.setattr(view, "leader_address", lambda self: ("10.0.0.2", 2181))
    redirect = client.put("a", 1, forward=False)
    assert (redirect["type"], redirect["leader"]) == ("redirect", ["10.0.0.2", 2181])
    assert client.put("a", 2)["success"], "it is passed on"
    append = {"type": "append", "data": {"action": "change", "key": "z", "value": 1}}
    assert one_shot(client.server, append)[0] == {"type": "redirect", "leader": ["10.0.0.2", 2181]}
    assert one_shot(client.server, append | {"forward": True})[0]["success"]
    monkeypatch.setattr(view, "leader_address", lambda self: None)
    refused = client.put("a", 1, forward=False)
    assert (refused["code"], refused["retriable"]) == ("CONNECTION_LOSS", True)
    assert one_shot(client.server, append)[0]["success"] is False


def test_below_the_feature_level_writes_are_to_be_tried_again(client: NativeClient) -> None:
    machine: Machine = client.server.driver.machine
    machine.feature_level = 2
    refused = client.put("a", 1)
    assert (refused["code"], refused["retriable"]) == ("UNIMPLEMENTED", True)
    assert "feature level 2" in refused["error"]
    machine.feature_level = 3
    assert client.put("a", 1)["success"]


def without_contact(server: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(server.driver.coordination.contact), "stale", property(lambda self: True))
    monkeypatch.setattr(type(server.driver.coordination.contact), "lost", property(lambda self: True))
    server.turn()


def test_d14_without_contact_promises_are_ended_and_requests_sent_elsewhere(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle, session, subscriber, waiting = (NativeClient(server, n) for n in range(4))
    idle.ask({"type": "ping"})
    session.hello()
    subscriber.ask({"type": "subscribe", "dictionary": "d", "credit": 100})
    waiting.send({"type": "get", "key": 1, "floor": 2**50})
    server.turn()
    without_contact(server, monkeypatch)
    assert [one.closed for one in (idle, session, subscriber, waiting)] == [False, True, True, True]
    told = dict(server.driver.clients.refusals)
    assert set(told) == {one.connection for one in (session, subscriber, waiting)}
    assert all("no contact with a majority" in why for why in told.values())
    answers = idle.ask(
        {"type": "put", "key": 1, "value": 1},
        {"type": "get", "key": 1},
        {"type": "subscribe", "dictionary": "d", "credit": 1},
        {"type": "get", "key": 1, "consistency": "local"},
        {"type": "diagnostic"},
        {"type": "members"},
        {"type": "ping"},
    )
    assert codes(answers) == ["CONNECTION_LOSS"] * 3 + ["OK"] * 4
    assert all(answer["retriable"] for answer in answers[:3])
    late = NativeClient(server, 9)
    assert late.hello()["code"] == "CONNECTION_LOSS"
    assert late.closed
    assert one_shot(server, {"type": "get"})[0] is None, "any map would pass for the state"
    assert one_shot(server, {"type": "diagnostic"})[0]["status"] == "Leader"


def test_required_schemes_hold_for_native_clients(server: OneServer) -> None:
    configure(server, auth=AuthSettings(required_schemes=frozenset({"digest"})))
    stranger = NativeClient(server, 1)
    assert stranger.hello()["success"]
    refused = stranger.put("a", 1)
    assert refused["code"] == Code.SESSION_CLOSED_REQUIRE_SASL_AUTH.name
    assert "auth.required_schemes" in refused["error"]
    assert stranger.closed
    assert one_shot(server, {"type": "get"})[0]["code"] == Code.SESSION_CLOSED_REQUIRE_SASL_AUTH.name
    known = NativeClient(server, 2)
    assert known.one({"type": "auth", "scheme": "digest", "credentials": b"bob:x"})["success"]
    assert known.put("a", 1)["success"]


def test_a_client_logs_in_by_sasl_step_by_step(server: OneServer) -> None:
    auth = AuthSettings(users=lambda: {"bob": "secret"}, required_schemes=frozenset({"sasl"}))
    configure(server, auth=auth)
    client = NativeClient(server)
    challenge = client.one({"type": "auth", "scheme": "sasl", "credentials": b""})["token"]
    response = response_to(challenge, "bob", "secret")
    done = client.one({"type": "auth", "scheme": "sasl", "credentials": response})
    assert done["token"].startswith(b"rspauth=")
    assert ("sasl", "bob") in client.connection.ids
    assert client.put("a", 1)["success"]
    liar = NativeClient(server, 2)
    challenge = liar.one({"type": "auth", "scheme": "sasl", "credentials": b""})["token"]
    refused = liar.one(
        {"type": "auth", "scheme": "sasl", "credentials": response_to(challenge, "bob", "wrong")}
    )
    assert refused["code"] == "AUTH_FAILED"
    assert liar.closed


def test_closing_a_session_without_contact_does_not_pretend(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = NativeClient(server)
    client.hello()
    monkeypatch.setattr(server.driver.clients.availability, "serving", False)
    client.send({"type": "close"})
    server.turn()
    (answer,) = client.taken()
    assert answer["code"] == "CONNECTION_LOSS"
    assert client.closed


def test_a_lie_ends_the_connection(client: NativeClient) -> None:
    refused = client.one({"type": "auth", "scheme": "nonsense", "credentials": b""})
    assert refused["code"] == "AUTH_FAILED"
    assert client.closed


def test_operators_see_native_connections(session: NativeClient) -> None:
    session.ask({"type": "put", "key": "a", "value": 1, "id": 77})
    connection = session.connection
    assert (connection.last_operation, connection.last_number) == ("put", 77)
    clients = session.server.driver.clients
    assert connection in clients.connections
    assert clients.native_connections_total == 1
    assert connection.received == 2
    assert connection.sent == 2
    assert connection.latency.count


def test_the_bound_of_a_turn_holds_for_native_requests(client: NativeClient) -> None:
    client.send(*[{"type": "get", "key": n, "consistency": "local"} for n in range(10_000)])
    sent = []
    for _ in range(4):
        client.server.turn()
        sent.append(len(client.taken()))
    assert sum(sent) == 10_000
    # What came before the turn began, and what the turn took itself.
    assert max(sent) <= 2 * turn_share.REQUESTS_PER_TURN_MAX


def test_a_small_request_of_who_waits_for_nothing_passes_a_full_turn(client: NativeClient) -> None:
    client.server.driver.clients.turn.taken = turn_share.REQUESTS_PER_TURN_MAX
    client.send({"type": "ping", "id": 5})
    assert client.connection.backlog_bytes == 0
    client.send(*[{"type": "ping"}] * (turn_share.EACH_MIN + 1))
    assert client.connection.backlog_bytes > 0, "only so much of it"
    assert len(client.settle()) == turn_share.EACH_MIN + 2
