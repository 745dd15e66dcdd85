"""Data of any size: always one whole version, whoever stops where, and nothing left over."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onyxlog.errors import EntryError
from onyxlog.peer.log.large_znodes import LargeZnodes
from onyxlog.peer.log.parts import Head, decode_head, encode_head, head_of, join, order_of, split
from tests.onyxlog.peer.plain_znodes import PlainZnodes, StoppedError

PART = 10
PATH = "/top/x"
VERSIONS = (b"", b"small", b"1" * 25, b"2" * 31, b"3", b"4" * 95)


@given(st.binary(max_size=100), st.integers(1, 40), st.integers(0, 10**9))
def test_what_is_split_is_joined(data: bytes, part_bytes: int, order: int) -> None:
    head = head_of(order, data, part_bytes)
    assert decode_head(encode_head(head), "x") == head
    parts = list(split(data, part_bytes))
    if head.data is None:
        assert join(head, [part for _, part in parts], "x") == data
        assert head.count == len(parts)
        assert order_of(head.directory) == order
        assert all(0 < len(part) <= part_bytes for _, part in parts)
    else:
        assert head.data == data


@given(st.binary(max_size=60))
def test_a_head_of_any_bytes_is_a_head_or_an_entry_error(data: bytes) -> None:
    try:
        found = decode_head(data, "/x")
    except EntryError:
        return
    assert isinstance(found, Head)


def test_parts_that_somebody_changed_are_noticed() -> None:
    head = head_of(1, b"1" * 25, PART)
    for parts in ([b"1" * 10, b"1" * 10], [b"1" * 10, b"1" * 10, b"11112"]):
        with pytest.raises(EntryError, match="somebody changed the parts"):
            join(head, parts, "x")


def left_over(znodes: PlainZnodes) -> list[str]:
    """Parts that the head does not name."""
    data = znodes.data[PATH][0]
    named = decode_head(data, PATH).directory if data and decode_head(data, PATH).data is None else None
    return [path for path in znodes.data if "/parts-" in path and path.split("/")[3] != named]


@pytest.mark.parametrize("old", VERSIONS[1:4])
@pytest.mark.parametrize("new", VERSIONS[1:5])
async def test_a_writer_that_stops_anywhere_leaves_the_old_or_the_new_version(old: bytes, new: bytes) -> None:
    stops = 0
    while True:
        znodes = PlainZnodes()
        large = LargeZnodes(znodes, PART)
        await large.write(PATH, old)
        znodes.stop_after = znodes.calls + stops
        try:
            await large.write(PATH, new)
            stopped = False
        except StoppedError:
            stopped = True
        znodes.stop_after = None
        assert await large.read(PATH) in ((old, new) if stopped else (new,))
        last = b"9" * 41
        await large.write(PATH, last)
        assert await large.read(PATH) == last
        assert left_over(znodes) == []
        if not stopped:
            break
        stops += 1
    assert stops >= 2


@pytest.mark.parametrize("data", VERSIONS)
async def test_what_is_written_once_is_there_whole_or_not_at_all(data: bytes) -> None:
    stops = 0
    stopped = True
    while stopped:
        znodes = PlainZnodes()
        large = LargeZnodes(znodes, PART)
        znodes.stop_after = stops
        try:
            assert await large.write_once(PATH, data)
            stopped = False
        except StoppedError:
            pass
        znodes.stop_after = None
        found = await large.read(PATH)
        assert found in ((None, data) if stopped else (data,))
        assert await large.write_once(PATH, b"other" * 9) == (found is None)
        assert await large.write_once(PATH, data) == (found is not None)
        stops += 1


async def test_readers_and_writers_at_the_same_time_see_whole_versions(seed: int) -> None:
    async def one(rng: Random) -> None:
        znodes = PlainZnodes(rng)
        written = [bytes([65 + number]) * rng.choice((3, 25, 60)) for number in range(6)]

        async def write(number: int) -> None:
            await LargeZnodes(znodes, PART).write(PATH, written[number])

        async def read() -> None:
            for _ in range(6):
                found = await LargeZnodes(znodes, PART).read(PATH)
                assert found is None or found in written

        await asyncio.gather(*(write(number) for number in range(6)), *(read() for _ in range(3)))
        assert await LargeZnodes(znodes, PART).read(PATH) in written
        last = b"9" * 41
        await LargeZnodes(znodes, PART).write(PATH, last)
        assert left_over(znodes) == []

    for number in range(40):
        await one(Random(f"{seed} {number}"))


async def test_a_head_whose_parts_are_gone_is_an_error() -> None:
    znodes = PlainZnodes()
    large = LargeZnodes(znodes, PART)
    await large.write(PATH, b"1" * 25)
    del znodes.data[next(path for path in znodes.data if path.endswith("/0001"))]
    with pytest.raises(EntryError, match="parts are missing"):
        await large.read(PATH)
