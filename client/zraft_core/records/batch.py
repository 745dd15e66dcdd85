"""Records into a batch, and out of it again. Pure.

Both ways take about a microsecond and a half per record, so what is done for each of them is written out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from crc32c import crc32c

from zraft_core.errors import ProtocolError
from zraft_core.frozen import statically_frozen
from zraft_core.records.compression import Codec, compress, decompress
from zraft_core.records.header import (
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_AT,
    MAGIC,
    BatchHeader,
    read_header,
)
from zraft_core.records.varints import TABLE_SIZE, VARINTS, decode, encode, varint

NOBODY: Final = -1
"""Producer id, epoch and sequence of a batch whose producer is not idempotent in Kafka's sense, and its leader's epoch."""
RECORD_BYTES_MIN: Final = 7

Headers = tuple[tuple[str, bytes | None], ...]
"""Headers in their order. Names may repeat, and a value may be null (None)."""

HEADER_FIELD_BYTES_MIN: Final = 2
"""A header's name and its value, each of which may be empty."""

_NULL: Final = 1
"""The length -1."""
_NULL_BYTES: Final = bytes([_NULL])
_NO_HEADERS: Final = VARINTS[0]


@statically_frozen
class BatchRecord:
    """One record of a batch: key and value may be null (None), `timestamp` counts milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class BatchBuilder:
    """A batch that records are appended to, encoded as they come."""

    __slots__ = ("_buffer", "_first", "_latest", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buffer = bytearray(HEADER_BYTES)
        self._first = self._latest = 0

    @property
    def size(self) -> int:
        """The number of bytes so far, the header's included, nothing compressed."""
        return len(self._buffer)

    def append(self, key: bytes | None, value: bytes | None, headers: Headers, timestamp: int) -> int:
        """Append a record; return its place in the batch."""
        place = self.count
        if not place:
            self._first = self._latest = timestamp
        elif timestamp > self._latest:
            self._latest = timestamp
        self.count = place + 1
        delta = timestamp - self._first
        body = b"".join(
            (
                b"\0",
                VARINTS[delta] if 0 <= delta < TABLE_SIZE else encode(delta),
                VARINTS[place] if place < TABLE_SIZE else encode(place),
                *((_NULL_BYTES,) if key is None else (varint(len(key)), key)),
                *((_NULL_BYTES,) if value is None else (varint(len(value)), value)),
                _encoded_headers(headers) if headers else _NO_HEADERS,
            )
        )
        size = len(body)
        self._buffer += VARINTS[size] if size < TABLE_SIZE else encode(size)
        self._buffer += body
        return place

    def finish(self, codec: Codec = Codec.NONE) -> bytes:
        """Return the batch. It is not compressed if that would not make it smaller.

        Raises:
            MissingPackageError: the codec's package is not installed.
        """
        assert self.count, "a batch has a record"
        buffer = self._buffer
        used = Codec.NONE
        if codec is not Codec.NONE:
            with memoryview(buffer) as view:
                packed = compress(view[HEADER_BYTES:], codec)
            if len(packed) < len(buffer) - HEADER_BYTES:
                used, buffer = codec, bytearray(HEADER_BYTES) + packed
        fields = (used, self.count - 1, self._first, self._latest, NOBODY, NOBODY, NOBODY, self.count)
        length = len(buffer) - LENGTH_AT
        HEADER.pack_into(buffer, 0, 0, length, NOBODY, MAGIC, 0, *fields)
        with memoryview(buffer) as view:
            crc = crc32c(view[CRC_FROM:])
        HEADER.pack_into(buffer, 0, 0, length, NOBODY, MAGIC, crc, *fields)
        return bytes(buffer)


def _encoded_headers(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL_BYTES,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def encode_batch(records: Iterable[BatchRecord], codec: Codec = Codec.NONE) -> bytes:
    """Return a batch of these records, at least one, as a producer sends it.

    Raises:
        MissingPackageError: the codec's package is not installed.
    """
    builder = BatchBuilder()
    for record in records:
        builder.append(record.key, record.value, record.headers, record.timestamp)
    return builder.finish(codec)


def decode_batch(payload: bytes, bytes_max: int) -> list[BatchRecord]:
    """Return all records of a batch. At no time do they come to more than `bytes_max`, decompressed.

    Raises:
        ProtocolError: the bytes are not exactly one batch of well-formed records, or too many.
        MissingPackageError: the codec's package is not installed.
    """
    return list(read_batch(payload, bytes_max))


def read_batch(payload: bytes, bytes_max: int, skip: int = 0, count: int = 0) -> Iterator[BatchRecord]:
    """Yield the records of a batch one by one, without the first `skip`; nothing is decoded ahead.

    With a `count` there must be so many.

    Raises:
        ProtocolError: as `decode_batch`, when the first record is asked for, or the one that is wrong.
        MissingPackageError: the codec's package is not installed.
    """
    header = read_header(payload)
    if count and header.count != count:
        raise ProtocolError(f"a record batch: expected {count} records, found {header.count}")
    if header.codec is Codec.NONE:
        yield from _records(payload, HEADER_BYTES, header, skip)
    else:
        with memoryview(payload) as view:
            data = decompress(view[HEADER_BYTES:], header.codec, bytes_max)
        yield from _records(data, 0, header, skip)


def _records(data: bytes, at: int, header: BatchHeader, skip: int) -> Iterator[BatchRecord]:
    """Yield the records that begin at `at`. Numbers of one byte are read in place, as most are of one."""
    first, end = header.first_timestamp, len(data)
    try:
        for place in range(header.count):
            begin = at
            size, at = decode(data, at)
            stop = at + size
            if size < RECORD_BYTES_MIN - 1 or stop > end:
                raise _wrong(
                    place, begin, f"{RECORD_BYTES_MIN - 1} to {end - at} bytes", f"a length of {size}"
                )
            if place < skip:
                at = stop
                continue
            # The first byte is of attributes, none of which mean anything.
            at += 1
            delta = data[at]
            if delta < 0x80 and not delta & 1:
                delta >>= 1
                at += 1
            else:
                delta, at = decode(data, at)
            offset = data[at]
            if offset < 0x80 and not offset & 1:
                offset >>= 1
                at += 1
            else:
                offset, at = decode(data, at)
            if offset != place:
                raise _wrong(place, begin, f"offset delta {place}", str(offset))
            key: bytes | None = None
            if data[at] == _NULL:
                at += 1
            else:
                key, at = _decoded_bytes(data, at, stop)
            value, at = _decoded_bytes(data, at, stop)
            headers: Headers = ()
            if data[at]:
                headers, at = _decoded_headers(data, at, stop)
            else:
                at += 1
            if at != stop:
                raise _wrong(place, begin, f"its end at byte {stop}", f"the end of its fields at byte {at}")
            yield BatchRecord(key, value, headers, first + delta)
    except IndexError:
        raise ProtocolError(
            f"a record batch: expected {header.count} records, found the end of the bytes in one"
        ) from None
    if at != end:
        raise ProtocolError(
            f"a record batch: expected nothing behind its last record, found {end - at} bytes"
        )


def _decoded_bytes(data: bytes, at: int, stop: int) -> tuple[bytes | None, int]:
    """Return what stands behind its length, None if that is -1."""
    size, at = decode(data, at)
    if size == -1:
        return None, at
    end = at + size
    if not at <= end <= stop:
        raise ProtocolError(f"bytes of a record: expected a length of -1 to {stop - at}, found {size}")
    return data[at:end], end


def _decoded_headers(data: bytes, at: int, stop: int) -> tuple[Headers, int]:
    count, at = decode(data, at)
    if not 0 <= count <= (stop - at) // HEADER_FIELD_BYTES_MIN:
        raise ProtocolError(f"a record's headers: expected as many as {stop - at} bytes hold, found {count}")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        name, at = _decoded_bytes(data, at, stop)
        if name is None:
            raise ProtocolError("a header of a record: expected a name, found null")
        value, at = _decoded_bytes(data, at, stop)
        # What is no UTF-8 is shown as Java's client shows it.
        found.append((name.decode(errors="replace"), value))
    return tuple(found), at


def _wrong(place: int, at: int, expected: str, found: str) -> ProtocolError:
    return ProtocolError(f"a record batch: record {place}, at byte {at}: expected {expected}, found {found}")
