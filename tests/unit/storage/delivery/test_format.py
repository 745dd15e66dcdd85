"""The bytes of a delivery segment and a manifest, checked by hand and read without our own code.

Source: docs/explanation/storage.md.
"""

from __future__ import annotations

import io
import re
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgpack
import pytest
import zstandard
from attrs import evolve
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.packaging.modules import REPOSITORY
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.delivery.scenario import DIRECTORY, GROUP, HISTORY_SHORT, SMALL, feed, open_log
from zraft.storage.delivery.frames import (
    HEAD_BYTES,
    HEADER_BYTES,
    DeliveryFrameHead,
    DeliverySegmentHeader,
    decode_head,
    decode_header,
    encode_frame,
    encode_header,
    records_of,
)
from zraft.storage.delivery.manifest import (
    Manifest,
    ManifestFormatError,
    Segment,
    decode_manifest,
    encode_manifest,
)
from zraft.storage.delivery.points import Points
from zraft.storage.delivery.values import (
    DeliveryFormatError,
    Mark,
    StoredDelivery,
    beginning,
    decode_deliveries,
    encode_deliveries,
    read_deliveries,
)
from zraft.storage.errors import CorruptionError
from zraft_core.ids import Instance, ServerId

START = beginning(7)
HEADER = DeliverySegmentHeader(
    7, bytes(range(8)), 0, START.chain, ServerId(1), Instance(bytes(range(16, 32)))
)
ONE = StoredDelivery(0, (5, 7, 0, 0), 3, 1, b"abc", 9, 1000)


def by_hand() -> bytes:
    """The example of docs/explanation/storage.md, its checksums computed here."""
    chain = blake2b(b"zraft deliveries of group 7", digest_size=16).digest()
    header = bytes.fromhex(
        "88 a6666f726d6174 01 a567726f7570 cf0000000000000007 a26964 c408 0001020304050607"
        "ac66697273745f6f6666736574 cf0000000000000000 a5636861696e c410"
        + chain.hex()
        + "a6736572766572 cc01 a8696e7374616e6365 c410 101112131415161718191a1b1c1d1e1f a3637263 ce"
    )
    header += crc32c(header).to_bytes(4, "big")
    seed = crc32c(bytes(range(8)))
    records = bytes.fromhex("9a 00 05 07 00 00 03 01 09 cd03e8 c403 616263")
    head = bytes.fromhex(
        "9c 01 cf0000000000000000 ce00000001 cf0000000000000000 cf000000000000000a"
        "c410"
        + chain.hex()
        + "94 cf0000000000000005 cf0000000000000007 cf0000000000000000 cf0000000000000000"
        "cf00000000000003e8 ce00000011 ce"
    )
    head += crc32c(records, seed).to_bytes(4, "big")
    length = bytes.fromhex("c6 00000011")
    head_crc = crc32c(length, crc32c(head, seed))
    return header + head + b"\xce" + head_crc.to_bytes(4, "big") + length + records


def test_a_segment_is_the_bytes_that_the_document_shows() -> None:
    records, _ = encode_deliveries([ONE], START.chain)
    head = DeliveryFrameHead(
        False, 0, 1, 0, 10, START.chain, ONE.stamp, 1000, len(records[0]), 0, len(records[0])
    )
    assert encode_header(HEADER) + encode_frame(head, records[0], HEADER.seed) == by_hand()
    assert len(encode_header(HEADER)) == HEADER_BYTES
    assert decode_header(by_hand(), "x") == HEADER
    found = decode_head(by_hand(), HEADER_BYTES, HEADER.seed)
    assert found is not None
    assert (found.index, found.count, found.stamp, found.length) == (10, 1, ONE.stamp, 17)


def test_the_document_shows_these_bytes() -> None:
    text = (REPOSITORY / "docs" / "explanation" / "storage.md").read_text(encoding="utf-8")
    block = text.split("An example, a segment with one delivery")[1].split("```")[1]
    shown = b""
    for line in block.strip().splitlines():
        for word in re.split(r" {4,}(?=[a-z])", line.strip())[0].split():
            shown += word.strip('"').encode() if word.startswith('"') else bytes.fromhex(word)
    assert shown == by_hand()


@pytest.mark.parametrize("level", [0, 3])
def test_any_messagepack_library_reads_a_segment_and_can_follow_its_digests(level: int) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, settings=evolve(SMALL, compression_level=level)).log
    feed(log, HISTORY_SHORT)
    log.close()
    found: list[Any] = []
    chain = blake2b(b"zraft deliveries of group %d" % GROUP, digest_size=16).digest()
    for name in disk.listdir(DIRECTORY):
        if not name.endswith(".seg"):
            continue
        for thing in msgpack.Unpacker(io.BytesIO(disk.contents(f"{DIRECTORY}/{name}"))):
            if isinstance(thing, dict):
                assert thing["first_offset"] == len(found)
                assert thing["chain"] == chain
                continue
            data = thing[11] if thing[0] == 1 else zstandard.decompress(thing[11])
            assert thing[5] == chain
            for record in msgpack.Unpacker(io.BytesIO(data)):
                payload = blake2b(record[9], digest_size=16).digest()
                chain = blake2b(chain + struct.pack(">5Q", *record[:5]) + payload, digest_size=16).digest()
                found.append(record)
    assert [one[0] for one in found] == [one.offset for one in HISTORY_SHORT]
    assert [one[9] for one in found] == [one.payload for one in HISTORY_SHORT]
    assert chain == log.end.chain


def test_the_program_that_the_document_shows_prints_deliveries_and_digests(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimulatedDisk()
    log = open_log(disk, settings=evolve(SMALL, compression_level=3, segment_bytes_max=1 << 20)).log
    feed(log, HISTORY_SHORT)
    log.close()
    (name,) = [name for name in disk.listdir(DIRECTORY) if name.endswith(".seg")]
    text = (REPOSITORY / "docs" / "explanation" / "storage.md").read_text(encoding="utf-8")
    program = text.split("This prints one and follows its digests:")[1].split("```python")[1].split("```")[0]
    file = tmp_path / "zraft-data/server-1/groups/4294967299/deliveries" / name
    file.parent.mkdir(parents=True)
    file.write_bytes(disk.contents(f"{DIRECTORY}/{name}"))
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(HISTORY_SHORT)
    assert lines[-1].endswith(log.end.chain.hex())


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_header_with_one_wrong_bit_is_refused(at: int) -> None:
    data = bytearray(encode_header(HEADER))
    data[at] ^= 1 << (at % 8)
    with pytest.raises(CorruptionError, match="x: corrupt at offset"):
        decode_header(bytes(data), "x")


def test_a_head_with_one_wrong_bit_is_none() -> None:
    data = by_hand()[HEADER_BYTES:]
    for at in range(HEAD_BYTES):
        for bit in range(8):
            spoiled = bytearray(data)
            spoiled[at] ^= 1 << bit
            assert decode_head(bytes(spoiled), 0, HEADER.seed) is None
    assert decode_head(data, 0, HEADER.seed ^ 1) is None, "of another segment"
    assert decode_head(data[: HEAD_BYTES - 1], 0, HEADER.seed) is None


def test_a_format_of_a_newer_release_says_so() -> None:
    data = bytearray(encode_header(HEADER))
    data[8] = 2
    with pytest.raises(
        CorruptionError, match="delivery segment of format 2, this release knows 1; start the release"
    ):
        decode_header(bytes(data), "x")


def test_a_frame_that_claims_more_than_its_head_says_is_not_decompressed() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 24))
    head = DeliveryFrameHead(True, 0, 1, 0, 10, START.chain, ONE.stamp, 1000, 16, 0, len(bomb))
    with pytest.raises(CorruptionError, match="zstd of 16777216 bytes, the head says 16"):
        records_of(head, bomb, "x", 5)


deliveries = st.builds(
    StoredDelivery,
    st.integers(0, 2**64 - 1),
    st.tuples(*[st.integers(0, 2**64 - 1)] * 4),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=300),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(deliveries, max_size=8), st.binary(min_size=16, max_size=16))
@settings(max_examples=60)
def test_deliveries_are_read_as_they_were_written(some: list[StoredDelivery], chain: bytes) -> None:
    records, end = encode_deliveries(some, chain)
    data = b"".join(records)
    assert read_deliveries(data) == some
    decoded = list(decode_deliveries(data, chain))
    assert [one for one, _ in decoded] == some
    assert (decoded[-1][1] if decoded else chain) == end


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_arbitrary_bytes_are_deliveries_or_a_declared_error(data: bytes) -> None:
    for read in (read_deliveries, lambda data: list(decode_deliveries(data, bytes(16)))):
        try:
            read(data)
        except DeliveryFormatError:
            pass
    try:
        decode_manifest(data)
    except ManifestFormatError:
        pass


MANIFEST = Manifest(
    7,
    Mark(3, (1, 2, 3, 4), bytes(16), 9),
    (
        Segment(b"12345678", 3, Mark(9, (2, 0, 0, 0), bytes(range(16)), 20), 500, 77, 1000),
        Segment(b"abcdefgh", 9, Mark(9, (2, 0, 0, 0), bytes(range(16)), 20), 128, 78, 0),
    ),
    True,
)


def test_a_manifest_is_a_map_that_any_library_reads() -> None:
    data = encode_manifest(MANIFEST)
    assert decode_manifest(data) == MANIFEST
    fields = msgpack.unpackb(data)
    assert list(fields) == ["format", "group", "open", "base", "segments", "crc"]
    assert fields["segments"][0] == [b"12345678", 3, [9, [2, 0, 0, 0], bytes(range(16)), 20], 500, 77, 1000]
    assert MANIFEST.segments[0].name == "0000000000000003-3132333435363738.seg"


def test_a_manifest_with_one_wrong_bit_is_refused() -> None:
    data = encode_manifest(MANIFEST)
    for at in range(len(data)):
        spoiled = bytearray(data)
        spoiled[at] ^= 1 << (at % 8)
        with pytest.raises(ManifestFormatError):
            decode_manifest(bytes(spoiled))


def test_points_of_another_segment_or_with_a_wrong_bit_are_not_taken() -> None:
    segment, other = MANIFEST.segments
    points = Points(100)
    points.note(HEADER_BYTES, DeliveryFrameHead(False, 3, 1, 0, 1, bytes(16), (1, 2, 3, 5), 7, 1, 0, 1))
    data = points.encode(segment)
    assert Points.decode(data, segment) == points
    assert Points.decode(data, other) is None
    for at in range(len(data)):
        assert Points.decode(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :], segment) is None
