"""Frames come out whole and in order however the stream is cut; too large ones end the connection."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.so_far import so_far
from zraft_core.wire.framing import (
    FOUR_LETTER_WORDS,
    JUTE_MAXBUFFER,
    FrameReader,
    FrameTooLargeError,
    frame,
)
from zraft_core.wire.jute import INT


def test_a_frame_is_its_length_and_its_body() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"


def test_many_frames_of_one_chunk_come_out_in_order() -> None:
    bodies = [b"%06d" % number * 12 for number in range(800)]
    assert FrameReader().feed(b"".join(map(frame, bodies))) == bodies


def test_an_empty_frame_is_a_frame() -> None:
    assert FrameReader().feed(frame(b"") + frame(b"a")) == [b"", b"a"]


def test_byte_by_byte_gives_the_same_frames() -> None:
    bodies = [b"", b"a", b"bc" * 300, b"", b"d"]
    reader = FrameReader()
    out = [body for byte in b"".join(map(frame, bodies)) for body in reader.feed(bytes([byte]))]
    assert out == bodies
    assert reader.buffered == 0


@given(st.lists(st.binary(max_size=30), max_size=10), st.lists(st.integers(1, 40), min_size=1))
def test_any_cut_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, bodies))
    reader = FrameReader()
    out = []
    position = turn = 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        out += reader.feed(stream[position : position + size])
        position += size
        turn += 1
    assert out == bodies
    assert reader.buffered == 0


def test_frames_are_immutable_bytes_that_own_their_content() -> None:
    reader = FrameReader()
    reader.feed(frame(b"abcdef")[:6])
    (body,) = reader.feed(b"cdef")
    assert type(body) is bytes


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    """Trap 22: the test is `>`, so a frame of exactly jute.maxbuffer is served."""
    assert FrameReader(10).feed(frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(FrameTooLargeError):
        FrameReader(10).feed(frame(b"x" * 11))
    assert JUTE_MAXBUFFER == 1048575


@pytest.mark.parametrize("length", [-1, -(2**31), 11, 2**31 - 1])
def test_a_bad_length_is_refused_as_soon_as_its_four_bytes_are_there(length: int) -> None:
    """Nothing is buffered for a frame that will be refused; the message names the knob."""
    reader = FrameReader(10)
    raw = INT.pack(length)
    assert reader.feed(raw[:3]) == []
    with pytest.raises(FrameTooLargeError, match=r"client\.jute_maxbuffer") as caught:
        reader.feed(raw[3:])
    assert str(length) in str(caught.value)


def test_a_bad_length_behind_good_frames_is_refused() -> None:
    with pytest.raises(FrameTooLargeError):
        FrameReader(10).feed(frame(b"good") + INT.pack(-5) + b"rest")


def test_no_more_than_one_incomplete_frame_is_buffered() -> None:
    reader = FrameReader(1000)
    stream = frame(b"x" * 1000) * 3
    for start in range(0, len(stream), 7):
        reader.feed(stream[start : start + 7])
        assert reader.buffered <= 1004


def test_a_large_frame_in_tiny_chunks_is_not_copied_again_and_again() -> None:
    """A hostile client must not cost quadratic time: a byte more may at most let the buffer grow once."""
    reader = FrameReader()
    reader.feed(frame(b"x" * 1_000_000)[:900_000])
    copies = 0
    tracemalloc.start()
    try:
        for _ in range(100):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            reader.feed(b"x")
            copies += tracemalloc.get_traced_memory()[1] - before > 100_000
    finally:
        tracemalloc.stop()
    assert copies <= 1


def test_a_reader_knows_zookeepers_words_and_no_others() -> None:
    def word_of(first4: bytes) -> str | None:
        reader = FrameReader(0x7FFFFFFF, words=True)
        assert reader.feed(first4) == []
        return reader.word

    assert {word_of(word.encode()) for word in FOUR_LETTER_WORDS} == FOUR_LETTER_WORDS
    assert len(FOUR_LETTER_WORDS) == 18
    assert word_of(b"abcd") is None
    assert word_of(b"RUOK") is None
    assert word_of(b"\x00\x00\x00\x2d") is None


def test_a_stream_may_begin_with_a_word_even_byte_by_byte() -> None:
    for chunks in ([b"ruok"], [b"r", b"u", b"o", b"k"], [b"ruok\n"], [b"ru", b"ok\nmntr"]):
        reader = FrameReader(words=True)
        assert [reader.feed(chunk) for chunk in chunks] == [[]] * len(chunks)
        assert reader.word == "ruok"
        assert reader.feed(frame(b"later")) == []
        assert reader.buffered == 0


def test_an_unknown_word_is_a_length_and_too_large() -> None:
    """ZooKeeper closes without an answer: four letters read as more than 1.6 GB."""
    reader = FrameReader(words=True)
    with pytest.raises(FrameTooLargeError):
        reader.feed(b"abcd")
    assert reader.word is None


def test_a_word_is_none_after_the_first_four_bytes() -> None:
    reader = FrameReader(words=True)
    assert reader.feed(frame(b"connect")) == [b"connect"]
    with pytest.raises(FrameTooLargeError):
        reader.feed(b"ruok")
    assert reader.word is None


def test_clients_read_no_words() -> None:
    with pytest.raises(FrameTooLargeError):
        FrameReader().feed(b"ruok")


@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_arbitrary_bytes_give_frames_or_a_declared_error(chunks: list[bytes], words: bool) -> None:
    reader = FrameReader(100, words=words)
    try:
        for chunk in chunks:
            assert all(len(body) <= 100 for body in reader.feed(chunk))
            assert reader.buffered <= 104
    except FrameTooLargeError:
        pass


@pytest.mark.parametrize("cut", range(1, 4))
def test_a_word_takes_its_argument_from_the_read_that_completes_it(cut: int) -> None:
    stream = b"stmk" + (-3).to_bytes(8, "big", signed=True)
    reader = FrameReader(words=True)
    assert reader.feed(stream[:cut]) == []
    assert so_far(reader.word) is None
    assert reader.feed(stream[cut:] + b"and more") == []
    assert reader.word == "stmk"
    assert reader.argument == stream[4:]


def test_a_word_without_argument_takes_none() -> None:
    reader = FrameReader(words=True)
    reader.feed(b"ruok and more")
    assert (reader.word, reader.argument) == ("ruok", b"")
