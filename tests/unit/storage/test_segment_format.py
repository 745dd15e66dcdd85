"""The bytes of a segment, checked by hand and read without our own code (docs/explanation/storage.md)."""

from __future__ import annotations

import io

import msgpack
import pytest
from crc32c import crc32c

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.scenario import GROUP, SERVER
from zraft.raft.messages import Entry, EntryKind, HardState
from zraft.storage.errors import CorruptionError
from zraft.storage.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    READ_BYTES,
    LogFrameReader,
    Rest,
    SegmentHeader,
    decode_header,
    encode_frame,
    encode_header,
    inspect_rest,
)
from zraft.storage.records import (
    EntryRecord,
    HardStateRecord,
    Record,
    RosterRecord,
    TruncateRecord,
    encode_records,
)
from zraft_core.ids import Instance

INSTANCE = Instance(bytes(range(16, 32)))
HEADER = SegmentHeader(1, bytes(range(8)), 1, SERVER, INSTANCE)
FIRST_WRITE: list[Record] = [
    RosterRecord(GROUP, ((SERVER, INSTANCE),)),
    HardStateRecord(GROUP, HardState(1, SERVER)),
    EntryRecord(GROUP, Entry(1, 1, EntryKind.NOOP, 1, 0, b"")),
    EntryRecord(GROUP, Entry(2, 1, EntryKind.COMMANDS, 1, 3, b"abc")),
]
SECOND_WRITE: list[Record] = [HardStateRecord(GROUP, HardState(300, None)), TruncateRecord(GROUP, 2)]

GOLDEN = bytes.fromhex(
    # header: a map of 7
    "87"
    "a6 66 6f 72 6d 61 74  02"  # "format": 2
    "a7 73 65 67 6d 65 6e 74  cf 00 00 00 00 00 00 00 01"  # "segment": 1
    "a2 69 64  c4 08 00 01 02 03 04 05 06 07"  # "id"
    "ab 66 69 72 73 74 5f 66 72 61 6d 65  cf 00 00 00 00 00 00 00 01"  # "first_frame": 1
    "a6 73 65 72 76 65 72  cc 01"  # "server": 1
    "a8 69 6e 73 74 61 6e 63 65  c4 10 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f"  # "instance"
    "a3 63 72 63  ce 63 af 1b 2a"  # "crc" of all before its value
    # frame 1: array of 5: kind 1, number, length 0x34, crc of the body, crc of the head
    "95 01  cf 00 00 00 00 00 00 00 01  ce 00 00 00 34  ce ef e4 9f 1b  ce 16 76 34 cb"
    "93 05 00  91 92 01 c4 10 10 11 12 13 14 15 16 17 18 19 1a 1b 1c 1d 1e 1f"  # roster, group 0, [[1, instance]]
    "94 03 00  01 01"  # hard state, group 0, term 1, vote for server 1
    "98 02 00  01 01 00 01 00  c4 00"  # entry, group 0, index 1, term 1, NOOP, position 1, count 0, no payload
    "98 02 00  02 01 01 01 03  c4 03 61 62 63"  # entry, group 0, index 2, term 1, COMMANDS, position 1, count 3, abc
    # frame 2
    "95 01  cf 00 00 00 00 00 00 00 02  ce 00 00 00 0b  ce c8 78 a6 5b  ce 15 13 f0 df"
    "94 03 00  cd 01 2c c0"  # hard state, term 300, no vote
    "93 04 00  02"  # truncate from 2
)


def bitwise_crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C from its polynomial, to check the library and the seeding by."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_segment_bytes_are_the_documented_ones() -> None:
    written = encode_header(HEADER)
    written += encode_frame(1, encode_records(FIRST_WRITE), HEADER.seed)
    written += encode_frame(2, encode_records(SECOND_WRITE), HEADER.seed)
    assert written.hex(" ") == GOLDEN.hex(" ")
    assert HEADER_BYTES == 105
    assert HEAD_BYTES == 26


def test_checksums_can_be_computed_from_the_documentation() -> None:
    assert bitwise_crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
    seed = bitwise_crc32c(bytes(range(8)))
    assert seed == HEADER.seed
    assert bitwise_crc32c(GOLDEN[: HEADER_BYTES - 4]) == 0x63AF1B2A
    head = GOLDEN[HEADER_BYTES : HEADER_BYTES + HEAD_BYTES]
    body = GOLDEN[HEADER_BYTES + HEAD_BYTES :][:0x34]
    assert bitwise_crc32c(body, seed) == 0xEFE49F1B
    assert bitwise_crc32c(head[:21], seed) == 0x167634CB


def test_any_messagepack_library_reads_a_segment() -> None:
    objects = list(msgpack.Unpacker(io.BytesIO(GOLDEN + bytes(5))))
    assert objects[0] == {
        "format": 2,
        "segment": 1,
        "id": bytes(range(8)),
        "first_frame": 1,
        "server": 1,
        "instance": INSTANCE,
        "crc": 0x63AF1B2A,
    }
    assert objects[1:] == [
        [1, 1, 0x34, 0xEFE49F1B, 0x167634CB],
        [5, 0, [[1, INSTANCE]]],
        [3, 0, 1, 1],
        [2, 0, 1, 1, 0, 1, 0, b""],
        [2, 0, 2, 1, 1, 1, 3, b"abc"],
        [1, 2, 0x0B, 0xC878A65B, 0x1513F0DF],
        [3, 0, 300, None],
        [4, 0, 2],
        *[0] * 5,
    ]


def test_header_is_read_back_and_every_flipped_bit_is_noticed() -> None:
    assert decode_header(GOLDEN, "x.seg") == HEADER
    for bit in range(HEADER_BYTES * 8):
        data = bytearray(GOLDEN)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError, match=r"x.seg: corrupt at offset"):
            decode_header(bytes(data), "x.seg")


def read(
    data: bytes, *, start: int = HEADER_BYTES, number: int = 1, seed: int = HEADER.seed
) -> tuple[list[tuple[int, bytes]], LogFrameReader]:
    disk = SimulatedDisk()
    disk.replace("/x", data)
    reader = LogFrameReader(disk, disk.open("/x"), seed=seed, start=start, size=len(data), number=number)
    return [(frame.number, bytes(frame.body)) for frame in reader], reader


def test_frames_are_read_until_a_zero_or_the_end() -> None:
    expected = [(1, encode_records(FIRST_WRITE)), (2, encode_records(SECOND_WRITE))]
    for tail in (b"", bytes(1), bytes(5000)):
        frames, reader = read(GOLDEN + tail)
        assert frames == expected
        assert (reader.damage, reader.end) == (None, len(GOLDEN))


def test_frames_longer_than_one_read_and_across_reads_are_whole() -> None:
    bodies = [
        bytes([number]) * size
        for number, size in enumerate((READ_BYTES - 200, 300, READ_BYTES * 2 + 7, 1), 1)
    ]
    frames, reader = read(
        b"".join(encode_frame(number, body, 5) for number, body in enumerate(bodies, 1)), start=0, seed=5
    )
    assert frames == list(enumerate(bodies, 1))
    assert reader.damage is None


def test_frame_of_another_segment_is_not_a_frame_of_this_one() -> None:
    """D-10: the checksums are seeded, so bytes from elsewhere never pass, also from inside a payload."""
    foreign = encode_frame(1, b"body", crc32c(b"another"))
    frames, reader = read(encode_header(HEADER) + foreign)
    assert frames == []
    assert reader.damage is not None


def test_frame_out_of_turn_is_damage() -> None:
    frames, reader = read(encode_header(HEADER) + encode_frame(2, b"body", HEADER.seed))
    assert (frames, reader.damage) == ([], "frame 2 where frame 1 was expected")


def rest_of(data: bytes, start: int = 0) -> Rest:
    disk = SimulatedDisk()
    disk.replace("/x", data)
    return inspect_rest(disk, disk.open("/x"), seed=5, start=start, size=len(data))


@pytest.mark.parametrize(
    "at", [0, 1, 4000, READ_BYTES - 27, READ_BYTES - 26, READ_BYTES - 1, READ_BYTES, READ_BYTES + 3]
)
def test_valid_frame_is_found_at_any_offset(at: int) -> None:
    frame = encode_frame(9, b"body" * 10, 5)
    assert rest_of(b"\x95" * at + frame + bytes(100)).frame_offset == at
    broken = frame[:-1] + b"?"
    assert rest_of(b"\x95" * at + broken + bytes(100)).frame_offset is None
    assert rest_of(b"\x95" * at + broken + bytes(100)).end == at + len(broken)


def test_search_is_not_slowed_down_by_lookalikes_in_a_payload() -> None:
    """A client may write bytes that look like frame heads; only 26 bytes of each are checked."""
    lookalike = encode_frame(7, b"x", 6)[:HEAD_BYTES]
    data = lookalike * 20_000
    disk = SimulatedDisk()
    disk.replace("/x", data)

    class Counting(SimulatedDisk):
        read = 0

        def pread(self, file: int, size: int, offset: int) -> bytes:
            self.read += size
            return disk.pread(file, size, offset)

    counting = Counting()
    rest = inspect_rest(counting, disk.open("/x"), seed=5, start=0, size=len(data))
    assert rest.frame_offset is None
    assert counting.read < len(data) + 100
