"""Variable-length integers of records: zigzag, seven bits a byte, the lowest first. Pure."""

from __future__ import annotations

from typing import Final

from zraft_core.errors import ProtocolError

TABLE_SIZE: Final = 1 << 13
"""The numbers from 0 up that are looked up: those of one and two bytes."""
BITS: Final = 64
BYTES_MAX: Final = 10


def encode(number: int) -> bytes:
    """Return a signed integer of 64 bits."""
    left = number << 1 ^ number >> 63
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)


VARINTS: Final = tuple(encode(number) for number in range(TABLE_SIZE))
"""Encoded numbers from 0 to `TABLE_SIZE` - 1."""


def varint(number: int) -> bytes:
    """Return a signed integer of 64 bits; small ones come from a table."""
    return VARINTS[number] if 0 <= number < TABLE_SIZE else encode(number)


def decode(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer that begins at `at`, and where it ends.

    Raises:
        IndexError: the bytes end within it.
        ProtocolError: it has more than 64 bits.
    """
    low = data[at]
    if low < 0x80:
        return low >> 1 ^ -(low & 1), at + 1
    high = data[at + 1]
    if high < 0x80:
        return low >> 1 & 0x3F ^ -(low & 1) ^ high << 6, at + 2
    return _decode_long(data, at)


def _decode_long(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    for end in range(at, at + BYTES_MAX):
        byte = data[end]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if number >> BITS:
                break
            return number >> 1 ^ -(number & 1), end + 1
    raise ProtocolError(f"a number at byte {at}: expected at most {BITS} bits, found more")
