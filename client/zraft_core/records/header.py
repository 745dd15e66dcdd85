"""The header of a record batch, and what a server checks of a batch: it decodes no records. Pure."""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from zraft_core.errors import ProtocolError
from zraft_core.frozen import statically_frozen
from zraft_core.records.compression import Codec
from zraft_core.topics.forms import RECORDS_MAX

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length behind it, partition leader epoch, magic, CRC-32C, attributes, last offset delta, first and largest
timestamp, producer id and epoch, first sequence, number of records.
"""
HEADER_BYTES: Final = HEADER.size
PLACED: Final = struct.Struct(">qii")
"""The fields before the checksum's range: base offset, length, and partition leader epoch."""
LENGTH_AT: Final = 12
"""The length counts what comes behind its own field, which ends here."""
CRC_AT: Final = 17
CRC_FROM: Final = 21
"""The checksum's range: from the attributes to the end."""
MAGIC: Final = 2

CODEC_BITS: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_CODECS: Final = tuple(Codec)


@statically_frozen
class BatchHeader:
    """Header of a batch. `producer_id` is -1 without an idempotent producer, and so are epoch and sequence."""

    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def codec(self) -> Codec:
        """The compression of the records."""
        return _CODECS[self.attributes & CODEC_BITS]

    @property
    def is_transactional(self) -> bool:
        """True if the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL != 0


def check_batch(payload: bytes) -> BatchHeader:
    """Return the header of a batch as a producer may send it: these bytes are one batch and nothing else.

    Timestamps are for the caller to judge, who has a clock.

    Raises:
        ProtocolError: it is something else; says what was found and what was expected.
    """
    header = read_header(payload)
    if header.base_offset:
        raise _wrong("the base offset", "0, as a producer sends it", header.base_offset)
    if header.attributes & CONTROL:
        raise _wrong("the attributes", "no control bit", hex(header.attributes))
    if header.attributes & LOG_APPEND_TIME:
        raise _wrong("the attributes", "no bit for times of appending", hex(header.attributes))
    if header.is_transactional and (header.producer_id < 0 or header.producer_epoch < 0):
        raise _wrong(
            "a transactional batch",
            "a producer id and epoch of 0 or more",
            f"{header.producer_id} and {header.producer_epoch}",
        )
    return header


def read_header(payload: bytes) -> BatchHeader:
    """Return the header of a batch, wherever it stands in its partition.

    Raises:
        ProtocolError: the bytes are not exactly one batch, or damaged.
    """
    if len(payload) < HEADER_BYTES:
        raise _wrong("its length", f"{HEADER_BYTES} bytes or more", len(payload))
    base_offset, length, leader_epoch, magic, crc, attributes, *rest = HEADER.unpack_from(payload)
    if magic != MAGIC:
        raise _wrong("the magic byte", str(MAGIC), magic)
    if length + LENGTH_AT != len(payload):
        raise _wrong("the length field", f"{len(payload) - LENGTH_AT}, up to the end of the payload", length)
    header = BatchHeader(base_offset, leader_epoch, attributes, *rest)
    if not 1 <= header.count <= RECORDS_MAX:
        raise _wrong("the number of records", f"1 to {RECORDS_MAX}", header.count)
    if header.last_offset_delta + 1 != header.count:
        raise _wrong(
            "the last offset delta",
            f"{header.count - 1}, as of {header.count} records",
            header.last_offset_delta,
        )
    if attributes & CODEC_BITS >= len(_CODECS):
        raise _wrong("the compression", f"0 to {len(_CODECS) - 1}", attributes & CODEC_BITS)
    with memoryview(payload) as view:
        found = crc32c(view[CRC_FROM:])
    if found != crc:
        raise _wrong("the CRC-32C", f"{crc:#010x}, as it says", f"{found:#010x}")
    return header


def with_base_offset(payload: bytes, offset: int, leader_epoch: int) -> bytes:
    """Return a batch as it stands in its partition: with the offset of its first record, and a leader epoch.

    Both lie before the checksum's range.
    """
    return PLACED.pack(offset, len(payload) - LENGTH_AT, leader_epoch) + payload[PLACED.size :]


def _wrong(what: str, expected: str, found: object) -> ProtocolError:
    return ProtocolError(f"a record batch: {what}: expected {expected}, found {found}")
