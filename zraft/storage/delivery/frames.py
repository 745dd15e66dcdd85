"""The bytes of a delivery segment: its header, and frames of deliveries with their checksums (D-10, D-13).

A segment is a plain MessagePack stream: one map, then one array per frame, whose last element is the records. Header
and heads have fixed widths, so that frames are found without a parser, and indices without reading the records.
Checksums are CRC-32C seeded with the segment's random id. See docs/explanation/storage.md, "Delivery segments".

Frames are not fsynced one by one, for the write-ahead log holds what they say until they are. Each says up to which
offset everything was durable when it was written: that tells what a power failure may take from what it may not.
"""

from __future__ import annotations

import struct
from typing import Final

import zstandard
from attrs import frozen
from crc32c import crc32c

from zraft.storage.delivery.settings import FRAME_BYTES_LARGEST
from zraft.storage.delivery.values import DIGEST_BYTES, PAYLOAD_BYTES_MAX, Stamp
from zraft.storage.errors import CorruptionError
from zraft_core.ids import INSTANCE_BYTES, Instance, ServerId

FORMAT: Final = 1
SEGMENT_ID_BYTES: Final = 8
FRAME_BYTES_MAX: Final = PAYLOAD_BYTES_MAX + FRAME_BYTES_LARGEST
"""The most bytes of a frame's records, before compression and after: what a reader has to hold."""

_HEADER = struct.Struct(f">9s7sQ5s{SEGMENT_ID_BYTES}s14sQ8s{DIGEST_BYTES}s8sB11s{INSTANCE_BYTES}s5s")
_CRC = struct.Struct(">I")
_FORMAT_KEY: Final = b"\x88\xa6format"
_GROUP_KEY: Final = b"\xa5group\xcf"
_ID_KEY: Final = b"\xa2id\xc4" + bytes([SEGMENT_ID_BYTES])
_FIRST_KEY: Final = b"\xacfirst_offset\xcf"
_CHAIN_KEY: Final = b"\xa5chain\xc4" + bytes([DIGEST_BYTES])
_SERVER_KEY: Final = b"\xa6server\xcc"
_INSTANCE_KEY: Final = b"\xa8instance\xc4" + bytes([INSTANCE_BYTES])
_CRC_KEY: Final = b"\xa3crc\xce"
HEADER_BYTES: Final = _HEADER.size + _CRC.size

PLAIN: Final = 1
COMPRESSED: Final = 2
_HEAD = struct.Struct(f">3sQBIBQBQ2s{DIGEST_BYTES}s2sQBQBQBQBQBIBIBIBI")
HEAD_BYTES: Final = _HEAD.size
_HEAD_CRC_AT: Final = HEAD_BYTES - 10  # its own type byte and value, then those of the length
MARKS: Final = (bytes([0x9C, PLAIN, 0xCF]), bytes([0x9C, COMPRESSED, 0xCF]))
_U32: Final = 0xCE
_U64: Final = 0xCF
_BIN32: Final = 0xC6
_DIGEST: Final = bytes([0xC4, DIGEST_BYTES])
_STAMP: Final = bytes([0x94, _U64])


@frozen
class DeliverySegmentHeader:
    """Header of a segment: whose deliveries these are, where they begin, and who wrote them.

    `id` is random and seeds the checksums.
    """

    group: int
    id: bytes
    first_offset: int
    chain: bytes
    server: ServerId
    instance: Instance

    @property
    def seed(self) -> int:
        """The start value of every CRC-32C in this segment."""
        return crc32c(self.id)


@frozen
class DeliveryFrameHead:
    """Head that stands before a frame's records.

    `offset` and `stamp` are those of the first, `chain` the digest before it, `count` how many offsets they take, `time` the
    latest of their wall times. `synced`: everything before that offset was durable when this was written. `index`:
    every delivery up to that Raft index is in this frame or before it. `size`: of the records before compression;
    `length` as stored.
    """

    compressed: bool
    offset: int
    count: int
    synced: int
    index: int
    chain: bytes
    stamp: Stamp
    time: int
    size: int
    crc: int
    length: int

    @property
    def end_offset(self) -> int:
        """The offset behind the frame's last delivery."""
        return self.offset + self.count


def encode_header(header: DeliverySegmentHeader) -> bytes:
    """Return `HEADER_BYTES` bytes: one MessagePack map."""
    data = _HEADER.pack(
        _FORMAT_KEY + bytes([FORMAT]),
        _GROUP_KEY,
        header.group,
        _ID_KEY,
        header.id,
        _FIRST_KEY,
        header.first_offset,
        _CHAIN_KEY,
        header.chain,
        _SERVER_KEY,
        header.server,
        _INSTANCE_KEY,
        header.instance,
        _CRC_KEY,
    )
    return data + _CRC.pack(crc32c(data))


def decode_header(data: bytes, path: str) -> DeliverySegmentHeader:
    """Return the header at the start of a segment file.

    Raises:
        CorruptionError: it is damaged, or of a format that this release does not know.
    """
    if len(data) < HEADER_BYTES:
        raise CorruptionError(path, 0, f"{len(data)} bytes, the header alone has {HEADER_BYTES}")
    data = data[:HEADER_BYTES]
    if data[:8] == _FORMAT_KEY and data[8] != FORMAT:
        raise CorruptionError(
            path,
            8,
            f"delivery segment of format {data[8]}, this release knows {FORMAT}",
            advice="start the release that wrote it; if none of yours did, the disk is damaged",
        )
    fields = _HEADER.unpack_from(data)
    header = DeliverySegmentHeader(
        fields[2], fields[4], fields[6], fields[8], ServerId(fields[10]), Instance(fields[12])
    )
    if encode_header(header) != data:
        raise CorruptionError(path, 0, "the delivery segment's header does not match its checksum")
    return header


def encode_frame(head: DeliveryFrameHead, data: bytes, seed: int) -> bytes:
    """Return one frame; `data` is the records as stored, `head.crc` is not looked at."""
    assert 0 < len(data) == head.length <= FRAME_BYTES_MAX, f"{len(data)=} {head.length=}"
    assert 0 < head.size <= FRAME_BYTES_MAX, f"{head.size=}"
    t, g, sub, group = head.stamp
    packed = _HEAD.pack(
        MARKS[head.compressed],
        head.offset,
        _U32,
        head.count,
        _U64,
        head.synced,
        _U64,
        head.index,
        _DIGEST,
        head.chain,
        _STAMP,
        t,
        _U64,
        g,
        _U64,
        sub,
        _U64,
        group,
        _U64,
        head.time,
        _U32,
        head.size,
        _U32,
        crc32c(data, seed),
        _U32,
        0,
        _BIN32,
        head.length,
    )
    start, rest = packed[:_HEAD_CRC_AT], packed[-5:]
    return b"".join((start, b"\xce", _CRC.pack(crc32c(rest, crc32c(start, seed))), rest, data))


def decode_head(data: bytes | memoryview, at: int, seed: int) -> DeliveryFrameHead | None:
    """Return the frame head at `at`, or None if there is none that its checksum confirms."""
    if len(data) - at < HEAD_BYTES:
        return None
    fields = _HEAD.unpack_from(data, at)
    if fields[0] not in MARKS or fields[24] != _U32:
        return None
    crc = crc32c(data[at + HEAD_BYTES - 5 : at + HEAD_BYTES], crc32c(data[at : at + _HEAD_CRC_AT], seed))
    if crc != fields[25]:
        return None
    head = DeliveryFrameHead(
        fields[0] == MARKS[1],
        fields[1],
        fields[3],
        fields[5],
        fields[7],
        fields[9],
        (fields[11], fields[13], fields[15], fields[17]),
        fields[19],
        fields[21],
        fields[23],
        fields[27],
    )
    if not (head.count and 0 < head.length <= FRAME_BYTES_MAX and 0 < head.size <= FRAME_BYTES_MAX):
        return None
    return head


def compress(records: bytes, compressor: zstandard.ZstdCompressor | None) -> tuple[bool, bytes]:
    """Return the bytes to store for the records, and whether they are compressed.

    They are compressed if that saves at least a sixteenth.
    """
    if compressor is not None:
        data = compressor.compress(records)
        if len(data) <= len(records) - len(records) // 16 - 1:
            return True, data
    return False, records


def records_of(head: DeliveryFrameHead, data: bytes, path: str, position: int) -> bytes:
    """Return the records of a frame whose stored bytes are `data`, their checksum verified before.

    Raises:
        CorruptionError: they are not zstd of the size that the head says.
    """
    if not head.compressed:
        if len(data) != head.size:
            raise CorruptionError(path, position, f"{len(data)} bytes of records, the head says {head.size}")
        return data
    try:
        # This is asked first: what the frame claims to hold would be allocated, whatever we expect.
        claimed = zstandard.get_frame_parameters(data).content_size
        if claimed != head.size:
            raise CorruptionError(path, position, f"zstd of {claimed} bytes, the head says {head.size}")
        raw = zstandard.ZstdDecompressor().decompress(data, max_output_size=head.size)
    except zstandard.ZstdError as error:
        raise CorruptionError(path, position, f"not zstd ({error})") from error
    if len(raw) != head.size:
        raise CorruptionError(path, position, f"{len(raw)} bytes decompressed, the head says {head.size}")
    return raw
