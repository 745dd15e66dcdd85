"""Cutting a stream of MessagePack maps: every cut gives the same messages, and nothing promised is built."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zraft_core.wire.native.framing import FIRST_BYTES, NativeFramingError, NativeReader

LIMIT = 1_000
MESSAGES: list[dict[Any, Any]] = [
    {},
    {"id": 1},
    {"type": "put", "key": (1, 2), "value": {"x": [b"y" * 300]}},
    {n: n for n in range(20)},
    {"nested": [[[{"a": None}]]]},
]


@given(st.lists(st.integers(1, 50), min_size=1), st.integers(0, 5))
def test_any_cut_gives_the_same_messages(sizes: list[int], repeat: int) -> None:
    stream = b"".join(map(msgpack.packb, MESSAGES)) * (repeat + 1)
    reader = NativeReader(LIMIT)
    decoder = msgpack.Unpacker(use_list=False, strict_map_key=False)
    found = count = at = turn = 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        decoder.feed(reader.feed(stream[at : at + size]))
        count += reader.count
        found += len(list(decoder))
        at += size
        turn += 1
    assert count == found == len(MESSAGES) * (repeat + 1)
    assert reader.buffered == 0


def test_a_message_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    fitting = msgpack.packb({"a": b"x" * (LIMIT - 6)})
    assert len(fitting) == LIMIT
    assert NativeReader(LIMIT).feed(fitting) == fitting
    for chunks in ([msgpack.packb({"a": b"x" * (LIMIT - 5)})], [fitting[:3] + b"\xc5\xff\xff", b"x" * LIMIT]):
        reader = NativeReader(LIMIT)
        for chunk in chunks[:-1]:
            reader.feed(chunk)
        with pytest.raises(NativeFramingError, match=r"client\.jute_maxbuffer"):
            reader.feed(chunks[-1])


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (b"\x81\xa1a\x01\x93", "expected a MessagePack map"),
        (b"\x81\xa1a\x01\x00\x00\x00\x05", "begins with byte 0x00"),
        (b"\x81\xc1\x01", "not MessagePack"),
        (b"\x81\x01" + b"\x91" * 5_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_followed_is_an_error_that_says_what_was_found(stream: bytes, why: str) -> None:
    with pytest.raises(NativeFramingError, match=why):
        NativeReader(100_000).feed(stream)


def test_what_was_promised_is_not_built() -> None:
    # 900 arrays of 15 million elements each, one in the other: whoever makes room for them needs 100 GB.
    stream = b"\x81\xa1a" + b"\xdd\x00\xe0\x00\x00" * 900
    tracemalloc.start()
    try:
        reader = NativeReader(1_000_000)
        for at in range(0, len(stream), 100):
            assert reader.feed(stream[at : at + 100]) == b""
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_noise_raises_nothing_but_the_declared_error() -> None:
    rng = random.Random(1)
    refused = 0
    for _ in range(3_000):
        reader = NativeReader(LIMIT)
        noise = rng.choice(list(map(msgpack.packb, MESSAGES))) + rng.randbytes(rng.randrange(60))
        try:
            while noise:
                size = rng.randrange(1, 30)
                reader.feed(noise[:size])
                noise = noise[size:]
                assert reader.buffered <= LIMIT
        except NativeFramingError:
            refused += 1
    assert refused > 1_000


def test_no_length_word_or_tls_begins_like_a_native_connection() -> None:
    assert not FIRST_BYTES & set(range(0x80))
    # A frame of a length with its highest bit set would be longer than 2 GiB, and is refused.
    assert 0x16 not in FIRST_BYTES
    assert min(FIRST_BYTES) == 0x81
