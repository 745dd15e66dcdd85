"""MessagePack that is made to cost more than it is long: what it costs is what the fuzzer's judge of time looks at.

Hashes of numbers are no secret, so anybody can make keys of maps that CPython's dict takes long to tell apart: arrays of -1
and -2, which hash alike, and integers that look at the same places of a dict's table, one after the other.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache
from itertools import islice
from typing import Any, Final

import msgpack

COUNT_MAX: Final = 4_000
"""Things in one message."""


def alike(count: int) -> list[tuple[int, ...]]:
    """So many arrays of one hash."""
    length = max(8, (count - 1).bit_length())
    return [tuple(-1 - (number >> bit & 1) for bit in range(length)) for number in range(count)]


@cache
def crowding(bits: int) -> tuple[int, ...]:
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
    return (*first, *islice(others, count - len(first)))


# -- bytes


def packed_map(keys: Iterable[Any]) -> bytes:
    """A map of these keys, each with the value 1; nothing is hashed."""
    items = [msgpack.packb(key) + b"\x01" for key in keys]
    return b"\xdf" + len(items).to_bytes(4, "big") + b"".join(items)


def packed_array(count: int, item: bytes) -> bytes:
    """An array of so many equal items."""
    return b"\xdd" + count.to_bytes(4, "big") + item * count


def packed_message(**fields: Any) -> bytes:
    """A message whose fields are values, or, as a memoryview, values that are packed already."""
    parts = [
        msgpack.packb(name) + (bytes(value) if isinstance(value, memoryview) else msgpack.packb(value))
        for name, value in fields.items()
    ]
    return bytes([0x80 | len(parts)]) + b"".join(parts)


_ITEMS: Final = (
    *(
        b"\xc0",
        b"\xc3",
        b"\x80",
        b"\x90",
        b"\xa0",
        b"\x91\xc0",
        b"\x81\xa0\xc0",
        b"\x81\x01\x80",
        b"\x81\x91\x01\xc0",
    ),
    *(b"\xd4\x07\x07", b"\xd6\xff\x00\x00\x00\x01", b"\xcb" + bytes(8), b"\xcf" + b"\xff" * 8, b"\xa3abc"),
)


def _wide(rng: random.Random) -> bytes:
    return packed_array(rng.randrange(COUNT_MAX), rng.choice(_ITEMS))


def _deep(rng: random.Random) -> bytes:
    return rng.choice((b"\x91", b"\x81\xa0", b"\x81\x01")) * rng.choice((20, 400, 520, 950)) + b"\xc0"


def _promising(rng: random.Random) -> bytes:
    count = rng.randrange(2, COUNT_MAX)
    return (b"\xdd" + count.to_bytes(4, "big")) * rng.randrange(2, 1_020) + bytes(count)


def _keyed(rng: random.Random) -> bytes:
    count = rng.choice((2, 255, 257, 1_000, COUNT_MAX))
    numbers = range(rng.getrandbits(40), 2**41, rng.choice((1, 1 << 20)))
    keys: list[Callable[[], Iterable[Any]]] = [
        lambda: alike(count),
        lambda: crowding(rng.choice((9, 11))),
        lambda: map(msgpack.Timestamp, islice(numbers, count)),
        lambda: (msgpack.ExtType(1, number.to_bytes(8)) for number in islice(numbers, count)),
        lambda: islice(numbers, count),
        lambda: (float(number) for number in islice(numbers, count)),
        lambda: (str(number) for number in islice(numbers, count)),
        lambda: ({}, 1),
    ]
    return packed_map(rng.choice(keys)())


def costly_value(rng: random.Random) -> bytes:
    """One packed value, whole."""
    return rng.choice((_wide, _deep, _keyed))(rng)


def costly_message(number: int, rng: random.Random) -> bytes:
    """A message of the native protocol with this id, which is answered once."""
    value = memoryview(costly_value(rng))
    match rng.randrange(7):
        case 0:
            return packed_message(id=number, type="put", key=value, value=1)
        case 1:
            return packed_message(id=number, type="get", key=value)
        case 2:
            return packed_message(id=number, type="multi", operations=value)
        case 3:
            field: dict[str, Any] = {rng.choice(("type", "key", "data", "path", "x")): value}
            return packed_message(id=number, **({"type": "ping"} | field))
        case 4:
            command = rng.choice((bytes(value), _promising(rng), b"\x93\x01\x00" + bytes(value)))
            return packed_message(id=number, type="claim", group=1, command=command)
        case _:
            return packed_message(id=number, type="put", key="costly", value=value)
