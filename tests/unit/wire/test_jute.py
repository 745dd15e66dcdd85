"""Jute's primitives: null is not empty, and nothing is read that is not there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_core.errors import MarshallingError
from zraft_core.wire.jute import JuteReader, encode_bool, encode_buffer, encode_texts, encode_ustring


def test_primitives_are_big_endian() -> None:
    reader = JuteReader(bytes.fromhex("00000102 fffffffffffffffe 01 00 02"))
    assert reader.read_int() == 0x102
    assert reader.read_long() == -2
    assert [reader.read_bool() for _ in range(3)] == [True, False, True]
    assert reader.remaining == 0


def test_null_and_empty_are_different_on_the_wire() -> None:
    assert encode_buffer(None) == encode_ustring(None) == bytes.fromhex("ffffffff")
    assert encode_buffer(b"") == encode_ustring("") == bytes(4)
    assert JuteReader(encode_buffer(None)).read_buffer() is None
    assert JuteReader(encode_buffer(b"")).read_buffer() == b""
    assert JuteReader(encode_ustring(None)).read_ustring() is None
    assert JuteReader(encode_ustring("")).read_ustring() == ""


def test_strings_are_utf8_counted_in_bytes() -> None:
    assert encode_ustring("ä€") == bytes.fromhex("00000005 c3a4 e282ac")


def test_bool_is_one_byte() -> None:
    assert encode_bool(True) + encode_bool(False) == b"\x01\x00"


@pytest.mark.parametrize("raw", ["fffffffe", "80000000", "00000002 61", "7fffffff", "000000"])
def test_a_wrong_length_is_a_declared_error(raw: str) -> None:
    for read in (JuteReader.read_buffer, JuteReader.read_ustring, JuteReader.read_texts):
        with pytest.raises(MarshallingError):
            read(JuteReader(bytes.fromhex(raw)))


def test_a_vector_count_beyond_the_record_is_refused_before_any_element_is_read() -> None:
    """A count of two thousand million in a nine-byte record must not cost memory or time."""
    reads = []
    reader = JuteReader(bytes.fromhex("7fffffff 00000001 61"))
    with pytest.raises(MarshallingError, match="2147483647 elements"):
        reader.read_vector(lambda: reads.append(1), element_bytes_min=4)
    assert reads == []


def test_a_null_vector_is_none_and_null_texts_are_none_at_all() -> None:
    assert JuteReader(bytes.fromhex("ffffffff")).read_vector(lambda: 1, 4) is None
    assert JuteReader(bytes.fromhex("ffffffff")).read_texts() == ()


def test_null_is_refused_where_text_is_needed() -> None:
    with pytest.raises(MarshallingError, match="found null"):
        JuteReader(bytes.fromhex("ffffffff")).read_text()


@pytest.mark.parametrize("raw", ["ff", "c3", "eda080"])
def test_text_that_is_not_utf8_is_refused_not_replaced(raw: str) -> None:
    body = encode_buffer(bytes.fromhex(raw))
    with pytest.raises(MarshallingError, match="UTF-8"):
        JuteReader(body).read_ustring()


def test_bytes_after_the_last_field_are_left_alone() -> None:
    reader = JuteReader(encode_ustring("a") + b"more")
    assert reader.read_text() == "a"
    assert reader.remaining == 4


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_texts_round_trip(texts: list[str]) -> None:
    assert JuteReader(encode_texts(texts)).read_texts() == tuple(texts)


@given(
    st.binary(max_size=40),
    st.integers(0, 50),
    st.lists(
        st.sampled_from(["read_int", "read_long", "read_bool", "read_buffer", "read_ustring", "read_texts"])
    ),
)
def test_arbitrary_bytes_give_values_or_a_declared_error(data: bytes, offset: int, calls: list[str]) -> None:
    reader = JuteReader(data, offset)
    try:
        for call in calls:
            getattr(reader, call)()
    except MarshallingError:
        pass
    assert 0 <= reader.remaining <= len(data)
