"""Calls without I/O: what is sent, what is repeated, and what is known of a call at its end."""

from __future__ import annotations

import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_client import requests
from zraft_client.calls import Answer, Call, Request
from zraft_client.errors import (
    BadVersionError,
    ClientError,
    DeadlineError,
    EncodingError,
    NotSentError,
    SessionExpiredError,
    StreamRefusedError,
    UnknownOutcomeError,
    WireError,
)
from zraft_client.protocol import FLYING_MAX, WINDOW, Calls
from zraft_client.values import Consistency

NOW = 100.0


class Waiter:
    """Nobody waits; tests look at what is settled."""

    def done(self) -> bool:
        return False

    def set_result(self, result: Any) -> None:
        raise AssertionError

    def set_exception(self, exception: Any) -> None:
        raise AssertionError


def calls(*, exactly_once: bool = True, ready: bool = True, **options: Any) -> Calls:
    made = Calls(random.Random(1), exactly_once=exactly_once, **options)
    if ready:
        made.connection_made()
        made.begin()
    return made


def ask(one: Calls, request: Request[Any], deadline: float = NOW + 30) -> Call:
    call = one.call(request, deadline, Waiter())
    one.submit(call)
    return call


def sent(one: Calls) -> list[dict[str, Any]]:
    unpacker = msgpack.Unpacker(use_list=False, strict_map_key=False)
    unpacker.feed(one.take_output())
    return list(unpacker)


def result(number: int, **fields: Any) -> bytes:
    answer = {"id": number, "type": "result", "success": True, "zxid": 7, "position": 1, **fields}
    return msgpack.packb(answer)  # type: ignore[no-any-return]


def error(number: int, code: str, *, retriable: bool = False, unknown: bool = False) -> bytes:
    answer = {"id": number, "type": "error", "code": code, "error": code.lower()}
    return msgpack.packb(answer | {"retriable": retriable, "unknown": unknown})  # type: ignore[no-any-return]


def put(key: Any = "k", value: Any = 1) -> Request[Any]:
    return requests.put("default", key, value)


def get(key: Any = "k") -> Request[Any]:
    return requests.get("default", key, Consistency.LINEARIZABLE, 0)


def reconnect(one: Calls) -> list[tuple[Call, Any, ClientError | None]]:
    settled = one.connection_lost()
    one.connection_made()
    one.begin()
    return settled


def test_a_write_carries_the_next_number_and_the_floor_of_what_was_settled() -> None:
    one = calls()
    for _ in range(3):
        ask(one, put())
    assert [(m["id"], m["seq"], m["floor"]) for m in sent(one)] == [(1, 1, 0), (2, 2, 0), (3, 3, 0)]
    one.receive(result(2), NOW)  # out of order: 1 is still open
    ask(one, put())
    one.receive(result(1), NOW)
    ask(one, put())
    assert [(m["seq"], m["floor"]) for m in sent(one)] == [(4, 0), (5, 2)]


def test_after_a_lost_connection_writes_are_repeated_in_order_under_their_numbers_with_the_same_bytes() -> (
    None
):
    one = calls()
    value: list[Any] = [1, 2]
    for key in ("a", "b", "c"):
        ask(one, put(key, value))
    first = sent(one)
    one.receive(result(first[1]["id"]), NOW)
    value.append("changed by the caller meanwhile")
    assert reconnect(one) == []
    again = sent(one)
    assert [(m["key"], m["seq"], m["value"]) for m in again] == [("a", 1, (1, 2)), ("c", 3, (1, 2))]
    assert {m["id"] for m in again}.isdisjoint(m["id"] for m in first)
    assert one.repeats == 2


def test_what_was_asked_while_disconnected_is_sent_after_what_is_repeated() -> None:
    one = calls()
    ask(one, put("before"))
    sent(one)
    one.connection_lost()
    ask(one, put("meanwhile"))
    ask(one, get("read"))
    one.connection_made()
    assert sent(one) == []  # not before the session is resumed
    one.begin()
    assert [m["key"] for m in sent(one)] == ["before", "meanwhile", "read"]


def test_without_a_session_a_write_that_was_sent_is_unknown_and_one_that_was_not_is_sent_once() -> None:
    one = calls(exactly_once=False)
    taken = ask(one, put("taken"))
    read = ask(one, get("read"))
    sent(one)
    one.pause()
    ask(one, put("unsent"))
    settled = reconnect(one)
    assert [(call, type(why)) for call, _, why in settled] == [(taken, UnknownOutcomeError)]
    assert [m["key"] for m in sent(one)] == ["read", "unsent"]
    assert "seq" not in msgpack.unpackb(b"\x82" + taken.body[:0] + b"\xa1a\x01\xa1b\x02")
    assert not read.settled


def test_an_answer_of_a_lost_connection_is_not_taken_for_one_of_the_next() -> None:
    one = calls()
    call = ask(one, put())
    stale = sent(one)[0]["id"]
    reconnect(one)
    assert one.receive(result(stale), NOW) == []
    [(answered, _, why)] = one.receive(result(sent(one)[0]["id"]), NOW)
    assert answered is call
    assert why is None


def test_no_more_numbers_are_under_way_than_servers_keep_outcomes_for() -> None:
    one = calls()
    for _ in range(WINDOW + 5):
        ask(one, put())
    first = sent(one)
    assert [m["seq"] for m in first] == list(range(1, WINDOW + 1))
    # not the oldest: the floor stays, and so does the window
    one.receive(result(first[1]["id"]), NOW)
    assert sent(one) == []
    one.receive(result(first[0]["id"]), NOW)
    assert [(m["seq"], m["floor"]) for m in sent(one)] == [(WINDOW + 1, 2), (WINDOW + 2, 2)]


def test_requests_of_one_connection_are_bounded_and_so_is_the_queue_for_it() -> None:
    one = calls(pending_max=10)
    for _ in range(FLYING_MAX + 10):
        ask(one, get())
    assert len(sent(one)) == FLYING_MAX
    with pytest.raises(NotSentError, match="pending_max"):
        ask(one, get())
    one.receive(result(1), NOW)
    assert len(sent(one)) == 1


def test_a_refusal_that_is_retriable_is_asked_again_later_under_the_same_number() -> None:
    one = calls()
    call = ask(one, put())
    [first] = sent(one)
    assert one.receive(error(first["id"], "CONNECTION_LOSS", retriable=True), NOW) == []
    assert one.next_due is not None
    assert NOW < one.next_due < NOW + 1
    one.due(NOW)
    assert sent(one) == []
    one.due(one.next_due)
    [again] = sent(one)
    assert (again["seq"], again["key"]) == (first["seq"], "k")
    [(settled, _, why)] = one.receive(error(again["id"], "BAD_VERSION"), NOW)
    assert settled is call
    assert isinstance(why, BadVersionError)


def test_an_unknown_answer_is_asked_again_if_the_write_has_a_number_and_reported_if_not() -> None:
    exact, plain = calls(), calls(exactly_once=False)
    ask(exact, put())
    ask(plain, put())
    unknown = error(1, "CONNECTION_LOSS", unknown=True)
    assert exact.receive(unknown, NOW) == []
    assert exact.next_due is not None
    [(_, _, why)] = plain.receive(unknown, NOW)
    assert isinstance(why, UnknownOutcomeError)


@pytest.mark.parametrize(
    ("kind", "history", "expected"),
    [
        ("put", "not sent", NotSentError),
        ("put", "under way", UnknownOutcomeError),
        ("put", "sent on a lost connection", UnknownOutcomeError),
        ("put", "refused each time", DeadlineError),
        ("put", "refused after it was sent on a lost connection", UnknownOutcomeError),
        ("get", "under way", DeadlineError),
        ("get", "sent on a lost connection", DeadlineError),
    ],
)
def test_at_the_deadline_unknown_is_told_from_failed(
    kind: str, history: str, expected: type[ClientError]
) -> None:
    one = calls(ready=history != "not sent")
    call = ask(one, put() if kind == "put" else get())
    refusal = {"retriable": True}
    match history:
        case "sent on a lost connection":
            one.connection_lost()
        case "refused each time":
            one.receive(error(call.id, "CONNECTION_LOSS", **refusal), NOW)
        case "refused after it was sent on a lost connection":
            reconnect(one)
            one.receive(error(call.id, "CONNECTION_LOSS", **refusal), NOW)
    late, earliest = one.expire(NOW + 30)
    assert [(settled, type(why)) for settled, _, why in late] == [(call, expected)]
    assert earliest is None
    assert one.expire(NOW + 60) == ([], None)


def test_a_number_that_was_given_up_is_passed_by_the_floor_so_that_servers_refuse_late_copies() -> None:
    one = calls()
    call = ask(one, put("given up"))
    one.connection_lost()
    one.give_up(call)
    one.connection_made()
    one.begin()
    ask(one, put("next"))
    assert [(m["key"], m["seq"], m["floor"]) for m in sent(one)] == [("next", 2, 1)]


def test_calls_given_up_while_disconnected_take_no_room() -> None:
    one = calls(ready=False, pending_max=20_000)
    for _ in range(10):
        for call in [ask(one, put()) for _ in range(5_000)]:
            one.give_up(call)
    assert one.unsettled == 0
    one.connection_made()
    one.begin()
    assert sent(one) == []


@pytest.mark.parametrize("renewing", [True, False])
def test_the_end_of_a_session_makes_sent_writes_unknown_and_keeps_the_rest_for_the_next(
    renewing: bool,
) -> None:
    """If there is none by itself, the rest fails: a read would wait for a session that may never come."""
    one = calls()
    taken = ask(one, put("taken"))
    read = ask(one, get())
    sent(one)
    one.pause()
    unsent = ask(one, put("unsent"))
    one.connection_lost()
    ended = {settled: why for settled, _, why in one.session_ended(renewing=renewing)}
    unknown = ended[taken]
    assert isinstance(unknown, UnknownOutcomeError)
    assert unknown.settled
    if renewing:
        assert set(ended) == {taken}
    else:
        expired = ended[unsent]
        assert isinstance(expired, SessionExpiredError)
        assert expired.retriable
        assert isinstance(ended[read], SessionExpiredError)
    one.connection_made()
    one.begin()
    ask(one, put("of the new session"))
    waited = [("k", None), ("unsent", 1)] if renewing else []
    expected = [*waited, ("of the new session", len(waited) or 1)]
    assert [(m["key"], m.get("seq")) for m in sent(one)] == expected
    assert read.settled is not renewing


def test_an_expired_session_leaves_a_repeated_write_unknown_and_a_first_copy_failed() -> None:
    one = calls()
    ask(one, put("repeated"))
    reconnect(one)
    ask(one, put("first copy"))
    for message in sent(one):
        [(_, _, why)] = one.receive(error(message["id"], "SESSION_EXPIRED"), NOW)
        expected = UnknownOutcomeError if message["key"] == "repeated" else SessionExpiredError
        assert isinstance(why, expected)


def test_answers_may_come_in_pieces() -> None:
    one = calls()
    for _ in range(3):
        ask(one, put())
    data = result(3, value="three") + result(1) + result(2)
    settled = [found for place in range(len(data)) for found in one.receive(data[place : place + 1], NOW)]
    assert [call.id for call, _, _ in settled] == [3, 1, 2]
    assert settled[0][1]["value"] == "three"


class Taken:
    def __init__(self) -> None:
        self.messages: list[tuple[Answer, int]] = []
        self.error: ClientError | None = None

    def pushed(self, message: Answer, size: int) -> None:
        self.messages.append((message, size))

    def refused(self, error: ClientError) -> None:
        self.error = error

    def unreadable(self, error: ClientError) -> None:
        raise AssertionError(error)


def test_pushes_go_to_their_subscription_with_their_exact_size() -> None:
    one, sink = calls(), Taken()
    call = one.call(requests.subscribe_dictionary("d", 1000), NOW, Waiter(), prompt=True)
    number = one.subscribe(call, sink)
    pushes = [
        msgpack.packb({"id": number, "type": "changes", "zxid": n, "changes": ["x" * n]}) for n in (5, 6)
    ]
    settled = one.receive(result(number) + pushes[0] + result(99) + pushes[1], NOW)
    assert [found for found, _, _ in settled] == [call]
    assert [size for _, size in sink.messages] == [len(push) for push in pushes]
    assert one.unsubscribe(number)
    one.receive(pushes[0], NOW)
    assert len(sink.messages) == 2


def test_a_subscription_that_the_server_ends_is_told() -> None:
    one, sink = calls(), Taken()
    number = one.subscribe(one.call(requests.subscribe_path("/a", False), NOW, Waiter(), prompt=True), sink)
    one.receive(result(number) + error(number, "NO_AUTH"), NOW)
    assert sink.error is not None
    assert not one.unsubscribe(number)


def test_the_newest_zxid_of_answers_and_pushes_is_kept() -> None:
    one = calls()
    ask(one, get())
    ask(one, get())
    one.receive(result(1, zxid=9) + result(2, zxid=8), NOW)
    assert one.last_zxid == 9


def test_what_messagepack_cannot_hold_is_refused_before_anything_is_sent() -> None:
    one = calls()
    deep: list[Any] = []
    for _ in range(600):
        deep = [deep]
    for wrong in ({1, 2}, 2**64, object(), deep, "\ud800"):
        with pytest.raises(EncodingError):
            ask(one, put("k", wrong))
    ask(one, put("k", "right"))
    assert [(m["value"], m["seq"]) for m in sent(one)] == [("right", 1)]


def test_a_request_beyond_the_limit_is_refused_here_and_names_both_knobs() -> None:
    one = calls(request_bytes_max=1000)
    with pytest.raises(EncodingError, match=r"request_bytes_max .* client\.jute_maxbuffer"):
        ask(one, put("k", b"x" * 1000))


def test_a_request_that_a_server_finds_too_long_is_not_sent_to_the_next_one() -> None:
    one = calls()
    ask(one, put("short"))
    long = ask(one, put("long", b"x" * 10_000))
    sent(one)
    answered = ask(one, put("answered"))
    data = result(answered.id) + msgpack.packb({"type": "error", "error": "raise client.jute_maxbuffer"})
    assert [call for call, _, _ in one.receive(data, NOW)] == [answered]
    assert isinstance(one.failure, StreamRefusedError)
    [(call, _, why)] = one.refuse_largest("raise client.jute_maxbuffer")
    assert call is long
    assert isinstance(why, EncodingError)
    reconnect(one)
    assert [m["key"] for m in sent(one)] == ["short"]


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xc1",
        msgpack.packb([1]),
        msgpack.packb({"id": 1}),
        msgpack.packb({"id": 1, "type": "redirect"}),
    ],
    ids=["integer", "no messagepack", "array", "no type", "redirect"],
)
def test_what_is_no_answer_is_a_declared_error(data: bytes) -> None:
    one = calls()
    odd = ask(one, put())
    call = ask(one, put())
    assert [found for found, _, _ in one.receive(result(call.id) + data, NOW)] == [call]
    assert isinstance(one.failure, WireError)
    reconnect(one)
    assert [m["seq"] for m in sent(one)] == [1], "what got no answer is asked again"
    assert not odd.settled


@given(st.binary(max_size=200))
def test_any_bytes_are_answers_or_a_declared_error(data: bytes) -> None:
    one = calls()
    ask(one, put())
    one.receive(data, NOW)
    assert one.failure is None or isinstance(one.failure, WireError)


@given(
    st.lists(st.sampled_from(["ask", "answer", "refuse", "cut", "due", "give up"]), max_size=60), st.randoms()
)
def test_under_any_schedule_numbers_stay_in_the_window_and_no_write_is_lost(
    steps: list[str], rng: random.Random
) -> None:
    """Each write is settled or still on its way, its number never changes, and the floor passes only what is settled."""
    one = calls()
    now = NOW
    mine: dict[int, Call] = {}
    done: set[Call] = set()
    numbers: dict[Call, int] = {}
    under_way: dict[int, Call] = {}
    for step in [*steps, "cut", "due"]:
        now += 3
        if step == "ask":
            mine[len(mine)] = ask(one, put(len(mine)), deadline=now + 1e9)
        elif step in ("answer", "refuse") and under_way:
            number = rng.choice(sorted(under_way))
            data = result(number) if step == "answer" else error(number, "CONNECTION_LOSS", retriable=True)
            done |= {call for call, _, _ in one.receive(data, now)}
            del under_way[number]
        elif step == "cut":
            assert reconnect(one) == []
            under_way.clear()
        elif step == "due":
            one.due(now)
        elif step == "give up" and (open_ := [c for c in mine.values() if c not in done]):
            call = rng.choice(open_)
            one.give_up(call)
            done.add(call)
            under_way = {number: other for number, other in under_way.items() if other is not call}
        for message in sent(one):
            call = mine[message["key"]]
            assert numbers.setdefault(call, message["seq"]) == message["seq"]
            assert message["floor"] < message["seq"] <= message["floor"] + WINDOW
            assert all(other in done for other, seq in numbers.items() if seq <= message["floor"])
            under_way[message["id"]] = call
    assert all(call in under_way.values() for call in mine.values() if call not in done)


class Sizes:
    """Who takes what is pushed: the length of each message, as it is given back as credit."""

    def __init__(self) -> None:
        self.found: list[int] = []

    def pushed(self, message: Answer, size: int) -> None:
        self.found.append(size)

    def refused(self, error: ClientError) -> None:
        raise AssertionError(error)

    def unreadable(self, error: ClientError) -> None:
        raise AssertionError(error)


@pytest.mark.parametrize("piece", [1, 7, 100, 1_000, 100_000])
def test_what_is_pushed_counts_whole_however_it_comes_in_pieces(piece: int) -> None:
    """Only the last piece counted, so that the credit of a log with large entries was used up and never came back."""
    one, sizes = calls(), Sizes()
    request = requests.subscribe_log("/log", "n-", 0, 1 << 20)
    number = one.subscribe(one.call(request, NOW, Waiter(), prompt=True), sizes)
    pushes = [
        msgpack.packb({"id": number, "type": "log", "zxid": 7, "entries": [b"x" * length]})
        for length in (10, 900, 5_000, 1, 300)
    ]
    stream = result(number) + b"".join(pushes)
    for at in range(0, len(stream), piece):
        one.receive(stream[at : at + piece], NOW)
    assert sizes.found == [len(push) for push in pushes]
