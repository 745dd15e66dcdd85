"""Compression of records in a batch, with a bound on what comes out.

gzip is Python's own, zstd comes with the library; snappy and lz4 need the package cramjam (extra `compression`).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final

import zstandard

from zraft_core.errors import ProtocolError, ZraftError

try:
    import cramjam
except ImportError:
    HAS_CRAMJAM = False
else:
    HAS_CRAMJAM = True

GZIP_WBITS: Final = 31
"""A gzip header and trailer around the deflated bytes."""
GZIP_LEVEL: Final = 6
ZSTD_LEVEL: Final = 3
LZ4_LEVEL: Final = 1
ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
"""Every reader should take a window of so many, however little comes out of it."""
ZSTD_CHUNK_BYTES: Final = 256
"""Bytes read at a time where the size is not told: 8 MiB at most come out of them."""
LZ4_BYTES_MIN: Final = 64 * 1024
LZ4_RATIO: Final = 8

XERIAL: Final = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
"""The beginning of what Java calls snappy; blocks follow, each behind its length."""
XERIAL_BLOCK_BYTES: Final = 32 * 1024


class Codec(IntEnum):
    """Ways to compress a batch, with Kafka's numbers."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class MissingPackageError(ZraftError, ImportError):
    """A package that a codec needs is not installed; the message says how to install it."""


def require(codec: Codec) -> None:
    """Check that a codec can be used here.

    Raises:
        MissingPackageError: its package is not installed.
    """
    if not HAS_CRAMJAM and codec in (Codec.SNAPPY, Codec.LZ4):
        raise MissingPackageError(
            f"compression {codec.name.lower()}: expected the package cramjam, which is not installed; it comes with the "
            "extra `compression`: pip install 'zraft-client[compression]'"
        )


def compress(data: bytes | bytearray | memoryview, codec: Codec) -> bytes:
    """Return compressed bytes.

    Raises:
        MissingPackageError: the codec's package is not installed.
    """
    require(codec)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return zlib.compress(data, GZIP_LEVEL, wbits=GZIP_WBITS)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(data)
        case Codec.SNAPPY:
            return _snappy(data)
        case Codec.LZ4:
            # Kafka's readers take no blocks that depend on others (KIP-57).
            compressor = cramjam.lz4.Compressor(level=LZ4_LEVEL, content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))
            return bytes(compressor.finish())


def decompress(data: bytes | memoryview, codec: Codec, bytes_max: int) -> bytes:
    """Return decompressed bytes. At no time are many more than `bytes_max` held.

    Raises:
        ProtocolError: the bytes are damaged, something follows them, or they come to more than `bytes_max`.
        MissingPackageError: the codec's package is not installed.
    """
    require(codec)
    name = codec.name.lower()
    try:
        found = _DECOMPRESSORS[codec](data, bytes_max)
    except _DAMAGE as error:
        raise ProtocolError(
            f"{len(data)} bytes: expected {name}, found bytes that are none: {error}"
        ) from error
    if len(found) > bytes_max:
        raise _too_many(data, name, bytes_max)
    return found


def _too_many(data: bytes | memoryview, name: str, bytes_max: int) -> ProtocolError:
    return ProtocolError(
        f"{len(data)} bytes of {name}: expected at most {bytes_max} bytes in them, found more"
    )


def _none(data: bytes | memoryview, _: int) -> bytes:
    return bytes(data)


def _from_gzip(data: bytes | memoryview, bytes_max: int) -> bytes:
    stream = zlib.decompressobj(wbits=GZIP_WBITS)
    found = stream.decompress(data, bytes_max + 1)
    if len(found) <= bytes_max:
        _check_end(stream)
    return found


def _from_zstd(data: bytes | memoryview, bytes_max: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor(max_window_size=max(bytes_max, ZSTD_WINDOW_BYTES))
    size = zstandard.frame_content_size(data)
    if size > bytes_max:
        raise ProtocolError(f"a zstd frame: expected at most {bytes_max} bytes in it, found {size}")
    if size >= 0:
        return decompressor.decompress(data, max_output_size=size, allow_extra_data=False)
    # Java's writer does not know the size when it begins.
    stream = decompressor.decompressobj()
    found = bytearray()
    for at in range(0, len(data), ZSTD_CHUNK_BYTES):
        if stream.eof:
            raise ProtocolError(f"a zstd frame: expected its end at byte {len(data)}, found it before {at}")
        part = stream.decompress(data[at : at + ZSTD_CHUNK_BYTES])
        if len(found) + len(part) > bytes_max:
            raise _too_many(data, "zstd", bytes_max)
        found += part
    _check_end(stream)
    return bytes(found)


def _check_end(stream: Any) -> None:
    if not stream.eof or stream.unused_data:
        raise ProtocolError(
            f"a compressed stream: expected its end at the end of the batch, found "
            f"{f'{len(stream.unused_data)} bytes behind it' if stream.eof else 'no end'}"
        )


def _snappy(data: bytes | bytearray | memoryview) -> bytes:
    """Return blocks as Java's snappy frames them: its reader takes no others."""
    found = bytearray(XERIAL)
    with memoryview(data) as view:
        for at in range(0, len(view), XERIAL_BLOCK_BYTES):
            block = cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK_BYTES])
            found += struct.pack(">i", len(block))
            found += block
    return bytes(found)


def _from_snappy(data: bytes | memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL)]) != XERIAL:
        return _from_snappy_block(data, bytes_max)
    found = bytearray()
    at = len(XERIAL)
    while at < len(data):
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if not 0 < length <= len(data) - at:
            raise ProtocolError(f"a block of snappy: expected 1 to {len(data) - at} bytes, found {length}")
        found += _from_snappy_block(data[at : at + length], bytes_max - len(found))
        at += length
    return bytes(found)


def _from_snappy_block(data: bytes | memoryview, bytes_max: int) -> bytes:
    size = cramjam.snappy.decompress_raw_len(data)
    if size > bytes_max:
        raise ProtocolError(f"a block of snappy: expected at most {bytes_max} bytes in it, found {size}")
    return bytes(cramjam.snappy.decompress_raw(data))


def _from_lz4(data: bytes | memoryview, bytes_max: int) -> bytes:
    """Return the contents of a frame.

    Frames rarely tell their size, and the reader fails if there is too little room: it is given more.
    """
    size = min(bytes_max, max(LZ4_BYTES_MIN, LZ4_RATIO * len(data)))
    while True:
        found = bytearray(size)
        try:
            return bytes(memoryview(found)[: cramjam.lz4.decompress_into(data, found)])
        except cramjam.DecompressionError:
            if size == bytes_max:
                raise
        size = min(bytes_max, LZ4_RATIO * size)


_DECOMPRESSORS: Final[dict[Codec, Callable[[bytes | memoryview, int], bytes]]] = {
    Codec.NONE: _none,
    Codec.GZIP: _from_gzip,
    Codec.SNAPPY: _from_snappy,
    Codec.LZ4: _from_lz4,
    Codec.ZSTD: _from_zstd,
}
_DAMAGE: Final = (
    *(zlib.error, zstandard.ZstdError, struct.error),
    *((cramjam.DecompressionError, OSError) if HAS_CRAMJAM else ()),
)
