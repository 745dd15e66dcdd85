"""Damaged files: a torn tail is cut and reported, everything else stops the server with file and offset (D-10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.scenario import GROUP, PATH, SMALL, Model, check, entries, open_wal, random_records
from zraft.storage.directory import decode_meta, encode_meta
from zraft.storage.errors import CorruptionError, CutShortError
from zraft.storage.frames import HEAD_BYTES, HEADER_BYTES, decode_header, encode_frame
from zraft.storage.records import EntryRecord, Record
from zraft.storage.recovery import Recovered, TornTail
from zraft_core.errors import StorageError

FIRST = f"{PATH}/wal/0000000001.seg"


def disk_with(*sizes: int, close: bool = False) -> tuple[SimulatedDisk, list[Model], list[int]]:
    """A disk with one entry per frame; the models after each frame; the offsets where the frames of segment 1 start."""
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    states = [Model()]
    offsets = []
    for size in sizes:
        offsets.append(wal.statistics().length)
        after = states[-1].copy()
        after.apply(entries(after, GROUP, 1, size))
        wal.append(entries(states[-1], GROUP, 1, size))
        states.append(after)
    offsets.append(wal.statistics().length)
    if close:
        wal.close()
    disk.kill()
    return disk, states, offsets


def damage(disk: SimulatedDisk, path: str, at: int, with_: bytes) -> None:
    data = bytearray(disk.contents(path))
    data[at : at + len(with_)] = with_
    disk.replace(path, bytes(data))


def forget_length(disk: SimulatedDisk) -> None:
    """As an older release leaves a directory: it writes `meta` at its start, with the keys that it knows."""
    meta = decode_meta(disk.contents(f"{PATH}/meta"), "meta")
    disk.replace(f"{PATH}/meta", encode_meta(evolve(meta, newest_bytes=None)))


def recover(disk: SimulatedDisk) -> Recovered:
    disk.kill()
    return open_wal(disk, seed=2)[2]


def test_damaged_last_frame_is_a_torn_tail_cut_and_reported() -> None:
    disk, states, offsets = disk_with(100, 100, 100)
    damage(disk, FIRST, offsets[2] + 50, b"??")
    _, wal, recovered = open_wal(disk)
    check(wal, recovered, states[2])
    assert recovered.report.torn_tail == TornTail(FIRST, offsets[2], offsets[3] - offsets[2])
    disk.kill()
    assert len(disk.contents(FIRST)) == offsets[2]
    assert recover(disk).report.torn_tail is None


@pytest.mark.parametrize("frame", [0, 1])
@pytest.mark.parametrize(
    "at", [0, 9, 14, 23, 30, 80], ids=["mark", "number", "length", "crc", "body", "payload"]
)
@pytest.mark.parametrize("with_", [b"\xff\xfe", b"\0\0"], ids=["noise", "zeros"])
def test_damaged_frame_before_a_valid_one_is_corruption(frame: int, at: int, with_: bytes) -> None:
    disk, _, offsets = disk_with(100, 100, 100)
    damage(disk, FIRST, offsets[frame] + at, with_)
    with pytest.raises(CorruptionError) as stopped:
        recover(disk)
    assert (stopped.value.path, stopped.value.offset) == (FIRST, offsets[frame])
    message = str(stopped.value)
    assert f"{FIRST}: corrupt at offset {offsets[frame]}" in message
    assert f"a valid frame follows at offset {offsets[frame + 1]}" in message
    assert "move the data directory aside" in message


def test_zeroed_page_before_a_valid_frame_is_corruption() -> None:
    """Readers stop at integer 0, but only after looking at what follows."""
    disk, _, offsets = disk_with(2000, 100)
    damage(disk, FIRST, offsets[0], bytes(offsets[1] - offsets[0]))
    with pytest.raises(
        CorruptionError, match=f"corrupt at offset {offsets[0]}: zeros, yet a valid frame follows"
    ):
        recover(disk)


def test_repeated_frame_is_corruption() -> None:
    disk, _, offsets = disk_with(100, 100)
    damage(disk, FIRST, offsets[2], disk.contents(FIRST)[offsets[0] : offsets[1]])
    with pytest.raises(CorruptionError, match="frame 1 where frame 3 was expected"):
        recover(disk)


def test_damaged_last_frame_of_a_closed_segment_is_corruption() -> None:
    """The next segment was begun after its fsync, so it was acknowledged; even if that segment is empty."""
    disk, _, offsets = disk_with(2000, 1500, 1500)
    inside = offsets[2] - 10
    damage(disk, FIRST, inside, b"????")
    with pytest.raises(CorruptionError) as stopped:
        recover(disk)
    assert (stopped.value.path, stopped.value.offset) == (FIRST, offsets[1])
    assert "the log goes on with frame 3 in segment 2" in str(stopped.value)
    second = f"{PATH}/wal/0000000002.seg"
    disk.replace(second, disk.contents(second)[:HEADER_BYTES])
    with pytest.raises(CorruptionError, match="the log goes on with frame 3 in segment 2"):
        recover(disk)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_missing_segment_is_corruption_the_last_one_too(number: int) -> None:
    disk, _, _ = disk_with(2000, 2000, 2000)
    disk.remove(f"{PATH}/wal/{number:010d}.seg")
    with pytest.raises(
        CorruptionError, match=f"wal/{number:010d}.seg: corrupt at offset 0: the file is missing.*; put"
    ):
        recover(disk)


def test_missing_wal_directory_is_corruption_not_an_empty_log() -> None:
    """D-1: a member that forgot its log and votes would let others overwrite committed entries."""
    disk, _, _ = disk_with(100)
    disk.remove(f"{PATH}/wal")
    with pytest.raises(CorruptionError, match="/data/wal: corrupt at offset 0: the directory is missing"):
        recover(disk)


def test_meta_older_than_the_segments_is_refused() -> None:
    disk = SimulatedDisk()
    directory, wal, _ = open_wal(disk)
    old_meta = disk.contents(f"{PATH}/meta")
    model = Model()
    for _ in range(3):
        records = entries(model, GROUP, 1, 2000)
        wal.append(records)
        model.apply(records)
    disk.kill()
    disk.replace(f"{PATH}/meta", old_meta)
    with pytest.raises(StorageError, match="restored from a copy"):
        recover(disk)
    assert directory.newest_segment == 3


def test_segments_of_another_server_are_refused() -> None:
    disk, _, _ = disk_with(100)
    other = SimulatedDisk()
    open_wal(other, seed=99)
    disk.replace(FIRST, other.contents(FIRST))
    with pytest.raises(
        StorageError, match=r"written by server 1 instance .* this directory is of server 1 instance"
    ):
        recover(disk)


def test_renamed_segment_is_refused() -> None:
    disk, _, _ = disk_with(2000, 2000)
    disk.replace(f"{PATH}/wal/0000000002.seg", disk.contents(FIRST))
    with pytest.raises(CorruptionError, match="the header says segment 1: the file was renamed"):
        recover(disk)


def test_segment_of_another_format_says_so() -> None:
    disk, _, _ = disk_with(100)
    damage(disk, FIRST, 8, b"\x03")
    with pytest.raises(
        CorruptionError, match="segment of format 3, this release knows 1 to 2; start the release"
    ):
        recover(disk)


def test_leftovers_of_a_roll_are_removed_and_foreign_files_left_alone() -> None:
    disk, states, _ = disk_with(100)
    disk.replace(f"{PATH}/wal/0000000002.seg.tmp", b"half a header")
    disk.replace(f"{PATH}/wal/0000000001.seg.bak", b"an operator's copy")
    _, wal, recovered = open_wal(disk)
    check(wal, recovered, states[-1])
    assert disk.listdir(f"{PATH}/wal") == ["0000000001.seg", "0000000001.seg.bak"]


def test_unreadable_page_is_a_storage_error() -> None:
    disk, _, _ = disk_with(100)
    disk.spoil(FIRST, 0)
    with pytest.raises(StorageError, match=f"{FIRST}: cannot be read"):
        recover(disk)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        (lambda model: entries(model, GROUP, 1, 5)[:0] or _after(model, 2), "entry 5 after entry 3"),
        (lambda model: [b"\x93\x04\x00\x09"], "truncation from 9 of a log that ends at 3"),
        (lambda model: [b"\x93\x09\x00\x09"], "record of kind 9"),
        (lambda model: [b"\x01"], "not a record"),
        (lambda model: [b"\x94\x03\x00"], "the last record is incomplete"),
        (lambda model: [b"\xc1"], "not MessagePack"),
        (lambda model: [b"\xdd\xff\xff\xff\xff"], "not MessagePack"),
    ],
)
def test_frame_with_right_checksum_and_wrong_records_is_corruption(
    records: Callable[[Model], list[Any]], found: str
) -> None:
    """Written by a bug or a newer release: never skipped, never cut, although it is the last frame."""
    disk, states, offsets = disk_with(10, 10, 10)
    seed = decode_header(disk.contents(FIRST), FIRST).seed
    made = records(states[-1])
    body = b"".join(made) if isinstance(made[0], bytes) else _encode(made)
    damage(disk, FIRST, offsets[3], encode_frame(4, body, seed))
    with pytest.raises(CorruptionError, match=f"{FIRST}: corrupt at offset {offsets[3]}: frame 4: .*{found}"):
        recover(disk)


def _after(model: Model, skip: int) -> list[EntryRecord]:
    ahead = model.copy()
    ahead.apply(entries(ahead, GROUP, 1, *[5] * (skip - 1)))
    return entries(ahead, GROUP, 1, 5)


def _encode(records: Sequence[Record]) -> bytes:
    from zraft.storage.records import encode_records

    return encode_records(records)


def test_every_flipped_bit_is_an_error_or_cuts_the_last_frame_only() -> None:
    disk, states, offsets = disk_with(30, 5, 40)
    data = disk.contents(FIRST)
    meta = disk.contents(f"{PATH}/meta")
    cut = 0
    for bit in range((offsets[-1] + 100) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.replace(FIRST, bytes(flipped))
        disk.replace(f"{PATH}/meta", meta)
        if bit // 8 < offsets[2]:
            with pytest.raises(StorageError, match=FIRST):
                open_wal(disk, seed=2)
        else:
            _, wal, recovered = open_wal(disk, seed=2)
            check(wal, recovered, states[2 if bit // 8 < offsets[3] else 3])
            assert recovered.report.torn_tail is not None
            cut += 1
        disk.kill()
    assert cut >= (offsets[3] - offsets[2]) * 8


@pytest.mark.parametrize("closed", [True, False])
def test_a_segment_that_was_cut_at_any_length_is_refused_and_stays_as_it_is(closed: bool) -> None:
    """What it was made of is known, so a cut is no interrupted write: acknowledged frames are gone, or may be."""
    disk, states, offsets = disk_with(30, 5, 40, close=closed)
    data = disk.contents(FIRST)
    assert len(data) == (offsets[-1] if closed else SMALL.segment_bytes_max)
    lengths = sorted({*range(offsets[-1]), *range(offsets[-1], len(data), 100), len(data) - 1} - {len(data)})
    for length in lengths:
        disk.replace(FIRST, data[:length])
        for _ in range(2):
            with pytest.raises(CutShortError) as refused:
                recover(disk)
        cut = refused.value.cut
        end = max((offset for offset in offsets if offset <= length), default=0)
        whole = offsets.index(end) if end else 0
        assert (refused.value.path, refused.value.offset) == (FIRST, length)
        assert (cut.size, cut.made, cut.end, cut.frame) == (length, len(data), end, whole)
        assert f"{length} bytes are left of {len(data)}" in str(refused.value)
        assert "zraft log accept-loss /data" in str(refused.value)
        assert "with an empty one" in str(refused.value)
        assert disk.contents(FIRST) == data[:length]
    disk.replace(FIRST, data)
    disk.kill()
    _, wal, recovered = open_wal(disk, seed=2)
    check(wal, recovered, states[-1])


def test_a_cut_says_what_is_known_of_what_is_lost() -> None:
    disk, _, offsets = disk_with(30, 5, 40)
    data = disk.contents(FIRST)
    for length, known in (
        (offsets[2] + 40, r"frame 3 of \d+ bytes runs past the end of the file"),
        (offsets[2], "whether more followed is not known"),
        (offsets[3] + 1, "free space followed"),
        (HEADER_BYTES - 1, "not even what the segment begins with is left"),
    ):
        disk.replace(FIRST, data[:length])
        with pytest.raises(CutShortError, match=known):
            recover(disk)


def test_a_cut_of_free_space_says_that_no_write_is_known_to_be_lost() -> None:
    """Frames follow each other without a gap: one byte of free space behind the last says that there was no other."""
    disk, _, offsets = disk_with(30, 5, 40)
    data = disk.contents(FIRST)
    for length in (offsets[-1] + 1, len(data) - 1):
        disk.replace(FIRST, data[:length])
        with pytest.raises(CutShortError, match="no write is known to be lost"):
            recover(disk)


def test_a_hole_in_the_last_segment_is_corruption_if_anything_follows_it() -> None:
    """A copy that skipped blocks: the file is as long as it was made."""
    disk, _, offsets = disk_with(1000, 1000, 1000)
    damage(disk, FIRST, offsets[0] + 100, bytes(offsets[1] - offsets[0]))
    with pytest.raises(CorruptionError, match="a valid frame follows") as stopped:
        recover(disk)
    assert stopped.value.offset == offsets[0]


def test_a_cut_segment_that_begins_with_a_base_is_refused_as_one() -> None:
    disk, _, _ = disk_with(2000, 2000, 2000)
    second = f"{PATH}/wal/0000000003.seg"
    data = disk.contents(second)
    for length in (0, 60, HEADER_BYTES, HEADER_BYTES + 30):
        disk.replace(second, data[:length])
        with pytest.raises(CutShortError) as refused:
            recover(disk)
        assert (refused.value.path, refused.value.offset) == (second, length)
        assert refused.value.cut.frame == 3, "what the segments before it hold"


@pytest.mark.parametrize("closed", [True, False])
def test_without_a_recorded_length_a_cut_is_an_interrupted_write_as_before(closed: bool) -> None:
    """Written by an older release, or where space cannot be reserved."""
    good, states, offsets = disk_with(30, 5, 40, close=closed)
    forget_length(good)
    data = good.contents(FIRST)
    meta = good.contents(f"{PATH}/meta")
    for length in range(offsets[-1] + 1):
        good.replace(FIRST, data[:length])
        try:
            _, wal, recovered = open_wal(good, seed=2)
        except CorruptionError:
            assert length < HEADER_BYTES
        else:
            whole = sum(offset <= length for offset in offsets) - 1
            check(wal, recovered, states[whole])
            assert (recovered.report.torn_tail is None) == (length in offsets)
            assert recovered.report.unrecorded == FIRST
        good.kill()
        good.replace(f"{PATH}/meta", meta)


def test_the_first_write_records_the_length_that_an_older_release_did_not() -> None:
    disk, states, _ = disk_with(30, 5)
    forget_length(disk)
    _, wal, recovered = open_wal(disk, seed=2)
    assert recovered.report.unrecorded == FIRST
    wal.append(entries(states[-1], GROUP, 1, 40))
    disk.kill()
    data = disk.contents(FIRST)
    assert recover(disk).report.unrecorded is None
    disk.replace(FIRST, data[:-1])
    with pytest.raises(CutShortError):
        recover(disk)


def test_where_space_cannot_be_reserved_the_log_works_and_says_that_it_cannot_tell_a_cut() -> None:
    disk = SimulatedDisk()
    disk.reserves = False
    _, wal, _ = open_wal(disk)
    model = Model()
    for _ in range(5):
        records = entries(model, GROUP, 1, 1000)
        wal.append(records)
        model.apply(records)
    disk.kill()
    _, wal, recovered = open_wal(disk, seed=2)
    check(wal, recovered, model)
    last = disk.listdir(f"{PATH}/wal")[-1]
    assert recovered.report.unrecorded == f"{PATH}/wal/{last}"


@settings(max_examples=150)
@given(
    seed=st.integers(0, 5),
    edits=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 4500), st.binary(min_size=1, max_size=40)),
        min_size=1,
        max_size=4,
    ),
    lengths=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4500)), max_size=2),
)
def test_any_damage_raises_only_declared_errors(
    seed: int, edits: list[tuple[int, int, bytes]], lengths: list[tuple[int, int]]
) -> None:
    disk = SimulatedDisk()
    rng = Random(seed)
    _, wal, _ = open_wal(disk)
    model = Model()
    states = [model]
    for _ in range(12):
        records = random_records(model, rng)
        wal.append(records)
        model = model.copy()
        model.apply(records)
        states.append(model)
    disk.kill()
    names = disk.listdir(f"{PATH}/wal")
    for which, at, noise in edits:
        path = f"{PATH}/wal/{names[which % len(names)]}"
        damage(disk, path, at % (len(disk.contents(path)) + 1), noise)
    for which, length in lengths:
        path = f"{PATH}/wal/{names[which % len(names)]}"
        disk.replace(path, disk.contents(path)[:length])
    try:
        _, wal, recovered = open_wal(disk, seed=2)
    except StorageError as error:
        refusal: str | None = str(error)
    else:
        refusal = None
    if refusal is not None:
        assert PATH in refusal
        return
    # What is recovered without an error is a prefix of what was written.
    for state in reversed(states):
        try:
            check(wal, recovered, state)
        except AssertionError:
            continue
        return
    pytest.fail("recovered something that was never written")


@settings(max_examples=200)
@given(st.binary(max_size=400), st.booleans(), st.booleans())
def test_random_bytes_after_a_right_header_raise_only_declared_errors(
    noise: bytes, framed: bool, padded: bool
) -> None:
    disk, _, _ = disk_with(10)
    data = disk.contents(FIRST)[:HEADER_BYTES]
    if framed and noise:
        noise = encode_frame(1, noise, decode_header(data, FIRST).seed)
    disk.replace(FIRST, data + noise + bytes(200 * padded))
    try:
        frames, refusal = recover(disk).report.frames, ""
    except StorageError as error:
        frames, refusal = 0, str(error)
    assert FIRST in refusal or frames == bool(framed and noise)


def test_recovery_streams_a_log_larger_than_what_it_holds() -> None:
    """Memory is bounded by pieces and tails: no read is longer than asked for by READ_BYTES or one frame."""
    disk = SimulatedDisk()
    _, wal, _ = open_wal(disk)
    model = Model()
    for _ in range(40):
        records = entries(model, GROUP, 1, 3000)
        wal.append(records)
        model.apply(records)
    disk.kill()
    longest = 0
    pread = disk.pread

    class Watching:
        def __getattr__(self, name: str) -> Any:
            return getattr(disk, name)

        def pread(self, file: int, size: int, offset: int) -> bytes:
            nonlocal longest
            longest = max(longest, size)
            return pread(file, size, offset)

    _, _, recovered = open_wal(Watching())
    assert recovered.groups[GROUP].last_index == 40
    assert sum(len(entry.payload) for entry in recovered.groups[GROUP].tail) <= max(
        SMALL.tail_bytes_max, 3000
    )
    assert longest <= SMALL.segment_bytes_max + HEAD_BYTES
