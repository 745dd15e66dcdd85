"""What a value of MessagePack may hold before anything of it is built or hashed."""

from __future__ import annotations

import gc
import random
import tracemalloc
from collections.abc import Iterable
from contextlib import suppress
from itertools import product
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.costly import alike, costly_value, crowding, packed_map
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import (
    COUNTED_KEYS_MAX,
    LEVELS_MAX,
    MAPS_MIN,
    Decoder,
    RefusedValueError,
    UnhashedMap,
    dict_of,
    is_crowded,
    shown,
    unpack,
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.builds(msgpack.Timestamp, st.integers(-(2**40), 2**40), st.integers(0, 999_999_999)),
    st.builds(msgpack.ExtType, st.integers(0, 127), st.binary(max_size=20)),
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4).map(tuple) | st.dictionaries(keys, inner, max_size=4)
)
messages = st.dictionaries(st.text(max_size=5), values, max_size=4)


def read(decoder: Decoder, pieces: Iterable[bytes]) -> list[Any]:
    """All values that come in these pieces; of one that is refused, why."""
    found: list[Any] = []
    end = 0
    for piece in pieces:
        decoder.feed(piece)
        while True:
            try:
                found.append(next(decoder.values))
            except StopIteration:
                break
            except RefusedValueError as error:
                found.append(str(error))
            except (ValueError, TypeError):
                assert decoder.look_closer(end)
                end = 0
                continue
            end = decoder.values.tell()
        end = decoder.forget(end)
    return found


@given(values)
def test_a_value_is_what_messagepack_reads(value: Any) -> None:
    packed = msgpack.packb(value)
    assert unpack(packed, any_keys=True) == msgpack.unpackb(packed, use_list=False, strict_map_key=False)


@given(values)
def test_lists_are_lists_and_keys_are_no_lists(value: Any) -> None:
    packed = msgpack.packb(value)
    try:
        expected = msgpack.unpackb(packed, strict_map_key=False)
    except TypeError:  # a list as a key, or in one
        with pytest.raises(ProtocolError, match="a key of a map that is, or holds, a map or a list"):
            unpack(packed, lists=True, any_keys=True)
    else:
        assert unpack(packed, lists=True, any_keys=True) == expected


@given(st.lists(messages, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_any_cut_of_a_stream_gives_the_same_values(sent: list[Any], sizes: list[int]) -> None:
    stream = b"".join(map(msgpack.packb, sent))
    pieces: list[bytes] = []
    while stream:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(stream[:size])
        stream = stream[size:]
    assert read(Decoder(hashes=True), pieces) == sent


@given(st.lists(messages, max_size=5))
def test_a_value_that_was_not_hashed_is_packed_as_it_came(sent: list[Any]) -> None:
    packed = [msgpack.packb(one) for one in sent]
    found = read(Decoder(hashes=False), [b"".join(packed)])
    assert [msgpack.packb(one) for one in found] == packed


def test_pairs_of_one_key_are_kept_where_nothing_is_hashed() -> None:
    twice = b"\x82\x01\xa1a\xc3\xa1b"  # {1: "a", true: "b"}
    [found] = read(Decoder(hashes=False), [b"\x81\xa1v" + twice])
    assert type(found["v"]) is UnhashedMap
    assert len(found["v"]) == 2
    assert msgpack.packb(found["v"]) == twice
    assert read(Decoder(hashes=True), [b"\x81\xa1v" + twice]) == [{"v": {1: "b"}}]


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_any_bytes_are_a_value_or_the_declared_error(data: bytes, lists: bool, any_keys: bool) -> None:
    with suppress(ProtocolError):
        unpack(data, lists=lists, any_keys=any_keys)


def test_costly_values_are_values_or_the_declared_error() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(300):
        data = costly_value(rng)
        try:
            found = unpack(data, any_keys=True)
        except ProtocolError:
            refused += 1
        else:
            assert len(shown(found)) < 200
    assert 20 < refused < 280


def test_values_are_read_to_their_depth_and_no_further() -> None:
    for levels in (1, 200, LEVELS_MAX):
        value = unpack(b"\x91" * levels + b"\xc0")
        for _ in range(levels):
            (value,) = value
        assert value is None
    with pytest.raises(ProtocolError, match=f"deeper than {LEVELS_MAX} levels"):
        unpack(b"\x91" * (LEVELS_MAX + 1) + b"\xc0")
    assert unpack(b"\x91" * 1_023 + b"\xc0", levels=1_024)
    with pytest.raises(ProtocolError, match="deeper than 1024 levels"):
        unpack(b"\x91" * 1_100 + b"\xc0", levels=1_024)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 bytes that are not MessagePack"),
        (b"\xc1", "FormatError"),
        (b"\x01\x02", "ExtraData|extra"),
        (b"\x92\x01", "incomplete"),
        (b"\xc1" * 300, "300 bytes that are not MessagePack"),
        (b"\xdc\xff\xff" + b"\x01" * 300, "303 bytes of a longer value"),
        (b"\xc4\xfe" + bytes(300), "46 further bytes"),
        (b"\xa1\xff", "utf-8"),
        (b"\x81\x01\x02", "not allowed for map key"),
        (b"\x81" + b"\x91\x80" + b"\x02", "not allowed for map key"),
    ],
)
def test_what_is_no_value_is_said(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        unpack(data)


def test_what_headers_promise_is_not_built() -> None:
    promises = b"\xdd\x00\x00\x27\x10" * 1_000 + bytes(9_000)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="deeper than"):
            unpack(promises)
        with pytest.raises(ProtocolError, match="of a longer value"):
            unpack(promises, levels=1_024)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_keys_are_counted_in_the_whole_value_and_anew_in_the_next() -> None:
    part = dict.fromkeys(((number, "x") for number in range(COUNTED_KEYS_MAX // 2)), 1)
    fine = msgpack.packb({"a": part, "b": [part], "c": dict.fromkeys(range(1_000))})
    bad = msgpack.packb({"id": 7, "a": part, "b": [part], "c": {(1,): 1}})
    found = read(Decoder(hashes=False), [fine + bad + fine])
    assert [type(one) for one in found] == [dict, str, dict]
    assert f"maps with more than {COUNTED_KEYS_MAX} keys" in found[1]
    assert read(Decoder(hashes=True), [bad]) == [msgpack.unpackb(bad, use_list=False, strict_map_key=False)]


def test_maps_that_are_made_by_calls_are_as_few_as_their_bytes_allow() -> None:
    """A megabyte of maps of a number each held the loop for half a second, longer than an election timeout."""
    many = msgpack.packb({"id": 7, "a": [{1: {}}] * MAPS_MIN})
    found = read(Decoder(hashes=False), [many + b"\x81\xa2id\x08"])
    assert "more than one map per 16 bytes, and keys that are no text and no bytes" in found[0]
    assert found[1] == {"id": 8}
    wider = msgpack.packb({"id": 7, "a": [{1: b"x" * 32}] * 2 * MAPS_MIN})
    named = msgpack.packb({"id": 7, "a": [{"a": {}}] * 2 * MAPS_MIN})
    assert [type(one) for one in read(Decoder(hashes=False), [wider + named])] == [dict, dict]
    assert unpack(many, any_keys=True)["id"] == 7, "what is stored can be read"


def test_what_is_known_of_a_refused_message_is_kept_for_its_answer() -> None:
    decoder = Decoder(hashes=True)
    decoder.feed(b"\x82\xa2id\x07\xa5value" + packed_map(alike(300)))
    with pytest.raises(ValueError, match="not allowed for map key"):
        next(decoder.values)
    assert decoder.look_closer(0)
    with pytest.raises(RefusedValueError, match="a map of 300 whose keys are made to hash alike") as refused:
        next(decoder.values)
    assert refused.value.known == {"id": 7}
    assert decoder.left == 0
    decoder.forget(decoder.values.tell())
    decoder.feed(b"\x81\xa2id\x08")
    assert next(decoder.values) == {"id": 8}


def test_what_was_read_is_not_kept() -> None:
    decoder = Decoder(hashes=False)
    message = msgpack.packb({"id": 1, "value": bytes(1_000)})
    stream = message * 300
    end = found = 0
    for at in range(0, len(stream), 700):
        decoder.feed(stream[at : at + 700])
        for _ in decoder.values:
            found += 1
            end += len(message)
        assert decoder.forget(end) == end
        assert len(decoder._held) <= 4 * len(message)
    assert found == 300
    assert decoder.left == len(decoder._held) == 0


@pytest.mark.parametrize("bits", [9, 11, 13])
def test_integers_that_crowd_a_table_are_told(bits: int) -> None:
    attack = crowding(bits)
    assert len(set(attack)) == len(attack)
    assert is_crowded(attack)
    assert not is_crowded(attack[: len(attack) // 2]), "the first half alone is harmless"


@pytest.mark.parametrize("count", [COUNTED_KEYS_MAX + 1, 1_000, 5_000])
def test_arrays_that_hash_alike_are_told(count: int) -> None:
    assert is_crowded(alike(count))
    mixed = [key for pair in zip(alike(count), range(count), strict=True) for key in pair]
    assert is_crowded(mixed), "others between them do not hide them"


def test_few_keys_are_never_too_many() -> None:
    assert not is_crowded(alike(COUNTED_KEYS_MAX))
    assert dict_of((key, 1) for key in alike(COUNTED_KEYS_MAX))


ORDINARY: dict[str, Any] = {
    "integers": range(20_000),
    "negative": range(-10_000, 10_000),
    "pages": [number << 12 for number in range(20_000)],
    "large powers": [number << 24 for number in range(20_000)],
    "larger powers": [number << 40 for number in range(20_000)],
    "milliseconds": [1_700_000_000_000 + 50 * number for number in range(20_000)],
    "nanoseconds": [1_700_000_000_000_000_000 + 10**9 * number for number in range(20_000)],
    "snowflakes": [(number << 22) | (number % 5) << 12 for number in range(2**40, 2**40 + 20_000)],
    "random": [random.Random(number).getrandbits(64) for number in range(20_000)],
    "tenths": [number / 10 for number in range(20_000)],
    "halves": [number / 2 for number in range(20_000)],
    "pairs": list(product(range(-70, 70), repeat=2)),
    "triples": list(product(range(-13, 13), repeat=3)),
    "fours": list(product(range(-6, 6), repeat=4)),
    "named pairs": [("pair", number) for number in range(20_000)],
    "timestamps": [msgpack.Timestamp(number) for number in range(10_000)],
    "texts": [str(number) for number in range(20_000)],
}


@pytest.mark.parametrize("ordinary", ORDINARY.values(), ids=ORDINARY)
def test_keys_that_occur_are_not_taken_for_made_ones(ordinary: Any) -> None:
    assert not is_crowded(list(ordinary))


@pytest.mark.parametrize("odd", [{}, [1], ({},), ((1, [2]),)])
def test_a_dict_is_not_made_of_what_cannot_be_a_key(odd: Any) -> None:
    with pytest.raises(ProtocolError, match="a key of a map that is, or holds, a map or a list"):
        dict_of([("a", 1), (odd, 2)])


@given(values)
def test_what_is_shown_is_short(value: Any) -> None:
    assert len(shown(value)) <= 120


def test_a_decoder_that_reads_maps_as_pairs_is_gone_with_its_last_user() -> None:
    """Strangers make thousands of them, and each holds MessagePack's stacks until it is collected."""
    decoder = Decoder(hashes=False)
    decoder.feed(msgpack.packb({1: 2}))
    with pytest.raises(ValueError):
        next(decoder.values)
    assert decoder.look_closer(0)
    assert decoder.is_slow
    gc.collect()
    gc.disable()
    try:
        del decoder
        assert gc.collect() == 0, "objects in a circle were left"
    finally:
        gc.enable()
