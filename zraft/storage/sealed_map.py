"""Files that are one MessagePack map: `format` is its first key, and its last the CRC-32C of all bytes before that.

Every format keeps these two, so that any release can tell damage from what another release wrote. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack
from crc32c import crc32c

CRC_BYTES: Final = 4
_ANY_CRC: Final = 2**32 - 1
"""Takes as many bytes as the checksum that is put in its place."""
_CRC_KEY: Final = b"\xa3crc\xce"
_FORMAT_KEY: Final = b"\xa6format"
_FORMAT_AT: Final = 1 + len(_FORMAT_KEY)


class SealError(ValueError):
    """Bytes are no such map; the caller knows where they come from and says so."""


class OtherFormatError(SealError):
    """Another release wrote the map."""

    def __init__(self, found: int, known: int) -> None:
        super().__init__(f"format {found}, this release knows {known}")
        self.found = found


def seal(version: int, values: Mapping[str, Any]) -> bytes:
    """Return the bytes of a map of this format with these values."""
    packed: bytes = msgpack.packb({"format": version, **values, "crc": _ANY_CRC})
    covered = packed[:-CRC_BYTES]
    return covered + crc32c(covered).to_bytes(CRC_BYTES)


def unseal(data: bytes, version: int, items_max: int = 0) -> Any:
    """Return the map, with arrays as tuples.

    Args:
        data: all of it.
        version: the one format that is known.
        items_max: the longest array in it.

    Raises:
        OtherFormatError: it is of another format.
        SealError: its checksum does not match.
    """
    covered, stored = data[:-CRC_BYTES], data[-CRC_BYTES:]
    if (
        not covered.endswith(_CRC_KEY)
        or crc32c(covered).to_bytes(CRC_BYTES) != stored
        or covered[1:_FORMAT_AT] != _FORMAT_KEY
    ):
        raise SealError(f"{len(data)} bytes that do not match their checksum")
    if covered[_FORMAT_AT] != version:
        raise OtherFormatError(covered[_FORMAT_AT], version)
    try:
        return msgpack.unpackb(data, use_list=False, max_array_len=items_max)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise SealError(f"not a MessagePack map ({error})") from error
