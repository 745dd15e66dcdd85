"""Payload of a message that is no record batch: key, value and headers as bytes, the value compressed or not.

Pure.

Messages to servers of a feature level below 6 have it. It is the MessagePack array [1, codec, key or nil, value,
headers or nil]; headers is a map of strings to bin. Codec 0 leaves the value unchanged, 1 is one zstd frame that
tells its size. A payload of anything else is a value without a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgpack
import zstandard
from attrs import field, frozen

from zraft_client.errors import EncodingError
from zraft_core.layout import NUMBER_MAX
from zraft_core.records import Codec, Headers
from zraft_core.records.header import HEADER_BYTES as BATCH_HEADER_BYTES
from zraft_core.topics.forms import PAYLOAD_BYTES_MAX

FORMAT: Final = 1
COMPRESS_BYTES_MIN: Final = 256
"""Compressing shorter values is hardly ever worth it."""
LEVEL: Final = 3

RECORD_BYTES: Final = 32
"""The bytes that a record takes beside its key, value and headers, or more, in a batch or without one."""
HEADER_BYTES: Final = 10
"""The same of a header."""

_FIELDS: Final = 5
_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Compression(IntEnum):
    """Ways to compress records. What does not shrink is not compressed.

    The numbers are those of payloads that are no batches; these know only the first two, and are not compressed
    otherwise. SNAPPY and LZ4 need the package cramjam, which comes with the extra `compression`.
    """

    NONE = 0
    ZSTD = 1
    GZIP = 2
    SNAPPY = 3
    LZ4 = 4

    @property
    def codec(self) -> Codec:
        """The same for batches."""
        return Codec[self.name]


@frozen
class Content:
    """A message's content for programs."""

    value: bytes = field(repr=lambda value: f"<{len(value)} bytes>")
    key: bytes | None = None
    headers: Mapping[str, bytes] = _NO_HEADERS


class PayloadError(EncodingError):
    """A message's payload is damaged, or its value is larger than any may be."""


def checked_headers(headers: Mapping[str, bytes]) -> Headers:
    """Return the headers in their order.

    Raises:
        EncodingError: names are no strings, or values no bytes.
    """
    if any(not isinstance(name, str) or not isinstance(one, bytes) for name, one in headers.items()):
        raise EncodingError("a record's headers: expected strings as names and bytes as values")
    return tuple(headers.items())


def check_size(key: bytes | None, value: bytes, headers: Headers, timestamp: int | None) -> int:
    """Return about how many bytes a record takes, or a few more.

    Raises:
        EncodingError: it is larger than a record may be, key or value are no bytes, or the timestamp is no number.
    """
    if not isinstance(value, bytes) or not (key is None or isinstance(key, bytes)):
        raise EncodingError(
            f"a record: found a value of type {type(value).__name__} and a key of type {type(key).__name__}, expected "
            "bytes, and bytes or None"
        )
    if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= NUMBER_MAX):
        raise EncodingError(f"a record's timestamp: found {timestamp!r}, expected milliseconds since 1970")
    size = RECORD_BYTES + len(value)
    if key is not None:
        size += len(key)
    for name, one in headers:
        size += HEADER_BYTES + len(name.encode()) + len(one or b"")
    if size > PAYLOAD_BYTES_MAX - BATCH_HEADER_BYTES:
        raise EncodingError(
            f"a record of {size} bytes, expected at most {PAYLOAD_BYTES_MAX - BATCH_HEADER_BYTES}"
        )
    return size


def encode_content(content: Content, compression: Compression = Compression.NONE) -> bytes:
    """Encode a payload; `check_size` has checked what is in it."""
    value = content.value
    codec = Compression.NONE
    if compression is Compression.ZSTD and len(value) >= COMPRESS_BYTES_MIN:
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(value)
        if len(packed) < len(value):
            codec, value = compression, packed
    payload: bytes = msgpack.packb((FORMAT, int(codec), content.key, value, dict(content.headers) or None))
    return payload


def decode_content(payload: bytes) -> Content:
    """Decode a payload.

    Raises:
        PayloadError: the value is compressed, and the bytes are not what a compressor made, or too many.
    """
    if not payload or payload[0] != 0x90 | _FIELDS:
        return Content(payload)
    try:
        # No array within is longer: room is made for what headers of arrays promise.
        fields: Any = msgpack.unpackb(payload, use_list=False, max_array_len=_FIELDS)
    except (ValueError, TypeError, msgpack.UnpackException):
        return Content(payload)
    _, codec, key, value, headers = fields
    if not _is_content(fields):
        return Content(payload)
    if codec == Compression.ZSTD:
        value = _decompressed(value)
    return Content(value, key, headers or _NO_HEADERS)


def _is_content(fields: tuple[Any, ...]) -> bool:
    form, codec, key, value, headers = fields
    return (
        type(form) is int
        and form == FORMAT
        and type(codec) is int
        and codec in (Compression.NONE, Compression.ZSTD)
        and (key is None or type(key) is bytes)
        and type(value) is bytes
        and (
            headers is None
            or (
                type(headers) is dict
                and all(type(name) is str and type(one) is bytes for name, one in headers.items())
            )
        )
    )


def _decompressed(value: bytes) -> bytes:
    try:
        size = zstandard.frame_content_size(value)
        if not 0 <= size <= PAYLOAD_BYTES_MAX:
            raise PayloadError(
                f"a compressed value says that it is of {size} bytes, expected 0 to {PAYLOAD_BYTES_MAX}"
            )
        return zstandard.ZstdDecompressor().decompress(value, max_output_size=size)
    except zstandard.ZstdError as error:
        raise PayloadError(f"a compressed value cannot be read: {error}") from error
