"""Payload of a message: key, value and headers as bytes, the value compressed or not.

Pure.

A payload is the MessagePack array [1, codec, key or nil, value, headers or nil]; headers is a map of strings
to bin. Codec 0 leaves the value unchanged, 1 is one zstd frame that tells its size. A payload of anything
else is a value without a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgpack
import zstandard
from attrs import field, frozen

from zraft_client.errors import EncodingError
from zraft_core.topics.forms import PAYLOAD_BYTES_MAX

FORMAT: Final = 1
COMPRESS_BYTES_MIN: Final = 256
"""Compressing shorter values is hardly ever worth it."""
LEVEL: Final = 3

_FIELDS: Final = 5
_NO_HEADERS: Final[Mapping[str, bytes]] = {}


class Compression(IntEnum):
    """Ways to pack values. A value that does not shrink is not compressed."""

    NONE = 0
    ZSTD = 1


@frozen
class Content:
    """A message's content for programs."""

    value: bytes = field(repr=lambda value: f"<{len(value)} bytes>")
    key: bytes | None = None
    headers: Mapping[str, bytes] = _NO_HEADERS


class PayloadError(EncodingError):
    """A message's payload is damaged, or its value is larger than any may be."""


def encode_content(content: Content, compression: Compression = Compression.NONE) -> bytes:
    """Encode a payload.

    Raises:
        EncodingError: it is larger than a message may be, or key, value or headers are no bytes.
    """
    key, value, headers = content.key, content.value, content.headers
    if not isinstance(value, bytes) or not (key is None or isinstance(key, bytes)):
        raise EncodingError(
            f"a message: found a value of type {type(value).__name__} and a key of type {type(key).__name__}, expected "
            "bytes, and bytes or None"
        )
    if any(not isinstance(name, str) or not isinstance(one, bytes) for name, one in headers.items()):
        raise EncodingError("a message's headers: expected strings as names and bytes as values")
    codec = Compression.NONE
    if compression is Compression.ZSTD and len(value) >= COMPRESS_BYTES_MIN:
        packed = zstandard.ZstdCompressor(level=LEVEL).compress(value)
        if len(packed) < len(value):
            codec, value = compression, packed
    payload: bytes = msgpack.packb((FORMAT, int(codec), key, value, dict(headers) or None))
    if len(payload) > PAYLOAD_BYTES_MAX or len(content.value) > PAYLOAD_BYTES_MAX:
        raise EncodingError(
            f"a message of {max(len(payload), len(content.value))} bytes, expected at most {PAYLOAD_BYTES_MAX}"
        )
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
