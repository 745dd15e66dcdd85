"""Keys of maps that CPython's dict takes long to tell apart, and the MessagePack maps that they are keys of.

Anybody can make them, as hashes of numbers are no secret: arrays of -1 and -2, which hash alike, and integers that look at
the same places of a dict's table, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgpack


def alike(count: int) -> list[tuple[int, ...]]:
    """So many arrays of one hash."""
    length = max(8, (count - 1).bit_length())
    return [tuple(-1 - (number >> bit & 1) for bit in range(length)) for number in range(count)]


def crowding(bits: int) -> list[int]:
    """Integers that fill two thirds of a dict's table of 2^bits places; half of them go past nearly all others.

    The first half take, at their first look, places that lie behind one another on the way that a dict goes when no bits
    of a hash are left. All others look at nothing but these places, and get onto that way near its beginning.
    """
    size = 1 << bits
    mask = size - 1
    count = size * 2 // 3
    first = [0]
    while len(first) < count // 2:
        first.append((first[-1] * 5 + 1) & mask)
    rank = {place: at for at, place in enumerate(first)}
    low = len(first) // 4

    def ends_well(key: int) -> bool:
        place, rest = key & mask, key
        while place in rank:
            if not rest:
                return rank[place] < low
            rest >>= 5
            place = (place * 5 + rest + 1) & mask
        return False

    def grown(key: int, known: int, place: int) -> Iterable[int]:
        """Keys that begin with these low bits: five more of them decide the next place."""
        if known > bits + 20:
            if ends_well(key):
                yield key
            return
        for five in range(32):
            longer = key | five << known
            step = (known - bits) // 5 + 1
            following = (place * 5 + ((longer >> 5 * step) & mask) + 1) & mask
            if following in rank:
                yield from grown(longer, known + 5, following)

    others = (key for place in first for key in grown(place, bits, place) if key not in rank)
    return first + list(islice(others, count - len(first)))


def packed_map(keys: Iterable[Any]) -> bytes:
    """A map of these keys, each with the value 1; nothing is hashed."""
    items = [msgpack.packb(key) + b"\x01" for key in keys]
    return b"\xdf" + len(items).to_bytes(4, "big") + b"".join(items)


def packed_message(**fields: Any) -> bytes:
    """A message whose fields are values, or, as a memoryview, values that are packed already."""
    parts = [
        msgpack.packb(name) + (bytes(value) if isinstance(value, memoryview) else msgpack.packb(value))
        for name, value in fields.items()
    ]
    return bytes([0x80 | len(parts)]) + b"".join(parts)
