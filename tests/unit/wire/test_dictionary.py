"""Which znode a key is: the rules of stored data, which nobody may change."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft.tree.paths import is_valid_path
from zraft_core.errors import MarshallingError
from zraft_core.wire import dictionary
from zraft_core.wire.dictionary import (
    DICTIONARIES,
    ENTRY_NAME_BYTES_MAX,
    KEY_PARTS_MAX,
    are_entries,
    decode_entry,
    directory_of,
    entry_name,
    entry_of,
    entry_path,
    normalised,
    pack,
    packed_key_of,
    split_entry,
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
)
keys = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a", "=a"),
        ("", "="),
        ("a/b", "=a%2Fb"),
        (".", "=."),
        ("\0", "=%00"),
        ("ä ~", "=%C3%A4%20~"),
        (0, "#0"),
        (-5, "#-5"),
        (2**64 - 1, "#18446744073709551615"),
        (True, "#1"),
        (1.0, "#1"),
        (-0.0, "#0"),
        (None, "*wA"),
        (0.5, "*yz_gAAAAAAAA"),
        (b"a", "*xAFh"),
        ((1, "a"), "*kgGhYQ"),
        ([True, ("a",)], "*kgGRoWE"),
        ("x" * 300, "!b109dab97ff62e169551dc2a262f1cdffa33b70a0b23b9f9079baa7240c59b5c"),
    ],
)
def test_golden_names_of_entries(key: Any, name: str) -> None:
    assert entry_name(key) == name


@given(keys, keys)
def test_keys_are_one_entry_exactly_if_python_takes_them_for_equal(one: Any, other: Any) -> None:
    assert (entry_name(one) == entry_name(other)) == (one == other)


@given(keys)
def test_every_key_has_a_valid_znode_and_is_read_back_from_its_name_or_data(key: Any) -> None:
    name = entry_name(key)
    assert is_valid_path(f"/{name}")
    assert len(name.encode()) <= ENTRY_NAME_BYTES_MAX
    packed = pack(normalised(key))
    if name[0] != "!":
        assert packed_key_of(name) == packed
    else:
        assert packed_key_of(name) is None
    assert entry_of(key) == (name, b"\x92" + packed)
    assert msgpack.unpackb(packed, use_list=False, strict_map_key=False) == key


@given(keys, values)
def test_an_entry_is_split_and_decoded_into_what_it_was_made_of(key: Any, value: Any) -> None:
    data = entry_of(key)[1] + pack(value)
    assert split_entry(data) == (pack(normalised(key)), pack(value))
    assert decode_entry(data)[0] == key
    assert are_entries([data, data])


@pytest.mark.parametrize(
    "key",
    [
        math.nan,
        {"a": 1},
        (1, {"a": 1}),
        (math.nan,),
        2**64,
        -(2**63) - 1,
        msgpack.ExtType(5, b"x"),
        object(),
    ],
)
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(MarshallingError):
        entry_name(key)


@pytest.mark.parametrize("part", [None, True, (None,), ((True,),), [1], 0.5])
def test_a_key_of_too_many_parts_is_refused(part: Any) -> None:
    """A megabyte of arrays of a boolean took half a second, longer than an election timeout."""
    entry_name((part,) * (KEY_PARTS_MAX // 4))
    with pytest.raises(MarshallingError, match=f"an array of more than {KEY_PARTS_MAX} parts"):
        entry_name((part,) * (KEY_PARTS_MAX + 1))


def test_a_key_nested_too_deeply_is_refused() -> None:
    key: Any = "x"
    for _ in range(40):
        key = (key,)
    with pytest.raises(MarshallingError, match="32 levels"):
        entry_name(key)


@pytest.mark.parametrize(
    "data",
    [
        None, b"", b"\x92", b"\x92\x01", b"\x92\x01\x02\x03", b"\x93\x01\x02\x03", b"\x91\x01",
        b"\x92\x01\xdd\xff\xff\xff\xff", b"\x92\xc1\x01", b"text", b"\x92" + b"\x91" * 2_000,
    ],
)  # fmt: skip
def test_what_is_no_entry_is_seen_without_being_built(data: bytes | None) -> None:
    assert split_entry(data) is None
    if data is not None:
        assert not are_entries([b"\x92\x01\x02", data])
        with pytest.raises(MarshallingError):
            decode_entry(data)


def test_names_of_dictionaries() -> None:
    assert directory_of("default") == f"{DICTIONARIES}/default"
    assert directory_of("a/b") == f"{DICTIONARIES}/a%2Fb"
    assert directory_of("..") == f"{DICTIONARIES}/%2E%2E"
    assert is_valid_path(directory_of("."))
    assert entry_path("d", 1) == f"{DICTIONARIES}/d/#1"
    for name in ("", "x" * 129):
        with pytest.raises(MarshallingError, match="1 to 128"):
            directory_of(name)
    with pytest.raises(MarshallingError):
        directory_of("\ud800")


@pytest.mark.parametrize("name", ["", "x", "#x", "#", "#-", "*!", "*a", "=%FF", "!abc"])
def test_a_name_that_holds_no_key_gives_none(name: str) -> None:
    found = packed_key_of(name)
    assert found is None or name.startswith("*")


def test_values_that_are_no_messagepack_are_refused() -> None:
    deep: Any = 1
    for _ in range(2_000):
        deep = [deep]
    for value in (object(), 2**70, deep):
        with pytest.raises(MarshallingError):
            dictionary.pack(value)


def test_a_value_may_be_as_deep_as_every_reader_of_an_answer_can_follow() -> None:
    value: Any = 1
    for _ in range(dictionary.VALUE_DEPTH_MAX):
        value = [value]
    assert dictionary.pack_value(value)
    with pytest.raises(MarshallingError, match="512 levels"):
        dictionary.pack_value([value])
    answer = msgpack.packb([[[value]]])
    assert msgpack.unpackb(answer)
