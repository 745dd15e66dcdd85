"""Values that somebody stored to stop whoever reads them: such a read fails at once, alone, and says why."""

from __future__ import annotations

import random
import time
from typing import Any

import msgpack
import pytest

from tests.client.test_protocol import NOW, Taken, Waiter, ask, calls, get, put, result, sent
from tests.fuzz.costly import alike, crowding, packed_map, packed_message
from zraft_client import requests
from zraft_client.calls import Answer
from zraft_client.copies import DictionaryCopy, held
from zraft_client.errors import ClientError, FailedError, WireError
from zraft_client.protocol import Calls
from zraft_client.subscriptions import Change, Changes
from zraft_client.values import Versioned, listed
from zraft_core.errors import Code
from zraft_core.messagepack import COUNTED_KEYS_MAX

SECONDS_MAX = 5.0
"""Generous: each of these takes milliseconds, and took much longer."""


def found(number: int, value: bytes) -> bytes:
    """The answer to a get; the value is packed already."""
    return packed_message(
        id=number,
        type="result",
        success=True,
        zxid=7,
        found=True,
        version=0,
        mzxid=7,
        value=memoryview(value),
    )


def hostile(count: int = 8_192) -> bytes:
    return packed_map(alike(count))


@pytest.mark.parametrize("keys", [alike(16_384), crowding(15)], ids=["arrays", "integers"])
def test_a_value_of_keys_that_hash_alike_fails_its_own_read_at_once(keys: list[Any]) -> None:
    one = calls()
    reads = [ask(one, get()) for _ in range(3)]
    answers = [
        found(1, msgpack.packb({"a": 1})),
        found(2, packed_map(keys)),
        found(3, msgpack.packb({"b": 2})),
    ]
    began = time.monotonic()
    settled = one.receive(b"".join(answers), NOW)
    assert time.monotonic() - began < SECONDS_MAX
    assert [call for call, _, _ in settled] == reads
    (_, first, _), (_, _, why), (_, last, _) = settled
    assert (first["value"], last["value"]) == ({"a": 1}, {"b": 2})
    assert isinstance(why, FailedError)
    assert why.code is Code.DATA_INCONSISTENCY
    assert "whose keys are made to hash alike" in str(why)
    assert one.failure is None
    assert one.idle


def test_as_many_keys_as_servers_take_can_be_read_however_they_hash() -> None:
    one = calls()
    ask(one, get())
    keys = alike(COUNTED_KEYS_MAX)
    [(_, answer, _)] = one.receive(found(1, packed_map(keys)), NOW)
    assert answer["value"] == dict.fromkeys(keys, 1)


def test_large_values_of_ordinary_keys_are_read() -> None:
    """What is stored stays readable: also what servers do not take any more."""
    rng = random.Random(1)
    maps: list[dict[Any, Any]] = [
        dict.fromkeys(range(30_000)),
        dict.fromkeys(number << 24 for number in range(30_000)),
        dict.fromkeys(number * 0.1 for number in range(30_000)),
        dict.fromkeys(rng.getrandbits(64) for _ in range(30_000)),
        dict.fromkeys(("pair", number) for number in range(20_000)),
        dict.fromkeys((x, y, z) for x in range(-13, 13) for y in range(-13, 13) for z in range(-13, 13)),
        dict.fromkeys(msgpack.Timestamp(1_700_000_000 + number) for number in range(10_000)),
    ]
    one = calls()
    for number, value in enumerate(maps, 1):
        ask(one, get())
        [(_, answer, _)] = one.receive(found(number, msgpack.packb(value)), NOW)
        assert answer["value"] == value


@pytest.mark.parametrize("piece", [1, 7, 100, 1_000_000])
def test_answers_with_odd_keys_may_come_in_pieces(piece: int) -> None:
    one = calls()
    values = [{"a": 1}, {1: 2, (3, 4): [5]}, {"b": {6: 7}}, {"c": 8}]
    for _ in range(5):
        ask(one, get())
    answers = [found(number, msgpack.packb(value)) for number, value in enumerate(values, 1)]
    stream = b"".join([*answers[:2], found(5, hostile(300)), *answers[2:]])
    settled = [
        each for at in range(0, len(stream), piece) for each in one.receive(stream[at : at + piece], NOW)
    ]
    assert [call.id for call, _, _ in settled] == [1, 2, 5, 3, 4]
    read = [answer["value"] for _, answer, why in settled if why is None]
    assert read == [{"a": 1}, {1: 2, (3, 4): (5,)}, {"b": {6: 7}}, {"c": 8}]
    assert one.failure is None


class Sink(Taken):
    """Who takes what is pushed, and forgets a subscription that cannot be read, as clients do."""

    def __init__(self, one: Calls) -> None:
        super().__init__()
        self.one = one
        self.id = 0

    def unreadable(self, error: ClientError) -> None:
        self.error = error
        assert self.one.unsubscribe(self.id)


def test_a_push_that_cannot_be_held_ends_its_subscription_and_no_other() -> None:
    one = calls()
    sinks = [Sink(one), Sink(one)]
    for sink in sinks:
        request = requests.subscribe_dictionary("d", 1000)
        sink.id = one.subscribe(one.call(request, NOW, Waiter(), prompt=True), sink)

    def push(number: int, value: bytes) -> bytes:
        row = b"\x91\x94\xa1k" + value + b"\x00\x00"  # [["k", value, 0, 0]]
        return packed_message(id=number, type="changes", zxid=9, changes=memoryview(row))

    stream = [result(sinks[0].id), result(sinks[1].id)]
    stream += [push(sinks[0].id, hostile()), push(sinks[1].id, b"\x01"), push(sinks[0].id, b"\x01")]
    one.receive(b"".join(stream), NOW)
    assert isinstance(sinks[0].error, FailedError)
    assert sinks[0].error.code is Code.DATA_INCONSISTENCY
    assert sinks[0].messages == []
    assert sinks[1].error is None
    assert [size for _, size in sinks[1].messages] == [len(push(sinks[1].id, b"\x01"))]
    assert one.failure is None


def test_an_answer_to_a_write_that_cannot_be_held_is_none() -> None:
    one = calls()
    ask(one, put())
    assert one.receive(found(1, hostile()), NOW) == []
    assert isinstance(one.failure, WireError)
    one.connection_lost()
    one.connection_made()
    one.begin()
    assert [message["seq"] for message in sent(one)][-1] == 1, "what got no answer is asked again"


@pytest.mark.parametrize("levels", [1, 100, 512, 1_000])
def test_a_value_nested_as_deeply_as_any_becomes_lists(levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = (value, {"a": 2})
    made = listed(value)
    for _ in range(levels):
        assert type(made) is list
        made, other = made
        assert other == {"a": 2}
    assert made == 1
    assert listed({"a": ((1, {(2, 3): (4,)}),)}) == {"a": [[1, {(2, 3): [4]}]]}


class Granting:
    """The client of a subscription that nobody serves."""

    def grant(self, subscription: int, count: int) -> None:
        """Credit matters to nobody."""

    def forget(self, subscription: Any) -> None:
        raise AssertionError("nobody forgets")

    def again(self, subscription: Any) -> None:
        raise AssertionError("nobody asks again")


async def _copy_of(keys: list[Any]) -> DictionaryCopy:
    copy = DictionaryCopy(Granting(), "d")
    for at in range(0, len(keys), 500):
        changes = tuple(Change(key, Versioned(1, 0, 1)) for key in keys[at : at + 500])
        copy.take(Changes(1, changes, True, at + 500 >= len(keys), at == 0), 0)
    return copy


@pytest.mark.parametrize("keys", [alike(16_384), crowding(15)], ids=["arrays", "integers"])
async def test_a_copy_of_a_dictionary_whose_keys_hash_alike_is_kept_and_read_at_once(keys: list[Any]) -> None:
    began = time.monotonic()
    copy = await _copy_of(keys)
    assert copy.get(keys[-1]) == Versioned(1, 0, 1)
    assert copy.get("other") is None
    assert len(copy) == len(keys)
    with pytest.raises(FailedError, match="made to hash alike"):
        copy.entries()
    assert time.monotonic() - began < SECONDS_MAX


async def test_keys_of_a_copy_are_equal_as_they_are_to_python_and_to_servers() -> None:
    copy = await _copy_of(["a", b"a", 1, 2.5, ("pair", 7), None])
    for same in (1, 1.0, True):
        assert copy.get(same) is not None
    others: list[Any] = ["b", b"b", 2, (7, "pair"), frozenset(), float("nan")]
    for other in others:
        assert copy.get(other) is None
    assert copy.get(("pair", 7.0)) is not None
    assert set(copy.entries()) == {"a", b"a", 1, 2.5, ("pair", 7), None}


async def test_entries_that_are_none_are_left_out_of_a_copy() -> None:
    copy = await _copy_of(["a", {}, ({"b": 1},), float("nan"), "c"])
    assert set(copy.entries()) == {"a", "c"}


def test_pages_with_an_entry_that_is_none_are_no_dict() -> None:
    with pytest.raises(FailedError, match="a map of 0"):
        held([("a", 1), ({}, 2)], "d")


def test_a_state_of_keys_that_hash_alike_fails_its_own_read() -> None:
    one = calls()
    ask(one, requests.state("d", requests._LINEARIZABLE, 0))
    answer: bytes = packed_message(id=1, type="result", success=True, zxid=7, state=memoryview(hostile()))
    [(_, found_, why)] = one.receive(answer, NOW)
    assert found_ is None
    assert isinstance(why, FailedError)


def test_pages_of_keys_that_hash_alike_are_answers_and_no_dict() -> None:
    """Rows are arrays: nothing of them is hashed before a dict is made of all pages."""
    rows = [[key, 1, 0, 1] for key in alike(1_000)]
    one = calls()
    asked = requests.items("d", None, None, requests._LINEARIZABLE, 0)
    ask(one, asked)
    [(_, answer, why)] = one.receive(result(1, items=rows, next=None), NOW)
    assert why is None
    page: Answer = answer
    items = asked.convert(page).items
    assert len(items) == 1_000
    with pytest.raises(FailedError, match="made to hash alike"):
        held(items, "d")
