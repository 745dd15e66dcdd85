"""Owns how valid input is spoiled: bytes, and decoded structures of integers, bytes and tuples."""

from __future__ import annotations

import random
import struct
from typing import Any, Final

GROWTH_BYTES_MAX: Final = 4096
"""One mutation adds no more than this, so that a run's time goes into many inputs instead of long ones."""

INTEGERS: Final = (
    *(0, 1, -1, 2, 7, 8, 127, 128, 255, 256, 4095, 4096, 65_535, 65_536),
    *(2**31 - 2, 2**31 - 1, -(2**31), 2**31, 2**32 - 1, 2**32, 2**63 - 1, -(2**63), 2**63, 2**64 - 1),
)
"""Where ranges and widths end."""

_WORDS: Final = tuple(struct.pack(">I", number) for number in INTEGERS if 0 <= number < 2**32) + tuple(
    struct.pack(">i", number) for number in (-1, -2, -11, -(2**31))
)


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """`data` with one to three accidents."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = _accident(data, rng)
    return data


def _accident(data: bytes, rng: random.Random) -> bytes:
    size = len(data)
    at = rng.randrange(size + 1)
    match rng.randrange(9):
        case 0 if size:  # a bit flips
            spoiled = bytearray(data)
            spoiled[at % size] ^= 1 << rng.randrange(8)
            return bytes(spoiled)
        case 1 if size:  # a byte changes
            spoiled = bytearray(data)
            spoiled[at % size] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            return bytes(spoiled)
        case 2:  # a number changes
            return data[:at] + rng.choice(_WORDS) + data[at + 4 :]
        case 3:  # the end is cut off
            return data[:at]
        case 4:  # a part is lost
            return data[:at] + data[at + rng.randrange(1, 17) :]
        case 5:  # a part comes twice
            end = min(size, at + rng.randrange(1, GROWTH_BYTES_MAX))
            return data[:end] + data[at:]
        case 6:  # a part is overwritten with noise
            noise = rng.randbytes(rng.randrange(1, 33))
            return data[:at] + noise + data[at + len(noise) :]
        case _:  # something is put in between
            return data[:at] + rng.randbytes(rng.randrange(1, 17)) + data[at:]


def mutate_value(value: Any, rng: random.Random) -> Any:
    """A decoded structure with one accident somewhere in it; mostly of the same type, mostly near by."""
    if type(value) is tuple and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return (*value[:at], mutate_value(value[at], rng), *value[at + 1 :])
    if rng.random() < 0.1:
        return rng.choice((None, True, False, 0, -1, b"", (), b"x" * 16, 1.5, "text", {}, {1: 2}))
    match value:
        case bool():
            return not value
        case int():
            near = value + rng.choice((-2, -1, 1, 2, 10, 1000))
            return near if rng.random() < 0.7 and -(2**63) <= near < 2**64 else rng.choice(INTEGERS)
        case bytes():
            return mutate_bytes(value, rng)
        case tuple():
            return _mutate_tuple(value, rng)
        case _:
            return rng.choice(INTEGERS)


def _mutate_tuple(value: tuple[Any, ...], rng: random.Random) -> tuple[Any, ...]:
    at = rng.randrange(len(value) + 1)
    match rng.randrange(4):
        case 0:
            return value[:at]
        case 1:
            return (*value[:at], *value[at + 1 :])
        case 2:
            return (*value[:at], *value[max(0, at - 1) : at + 1], *value[at:])
        case _:
            return (*value[:at], rng.choice(INTEGERS), *value[at:])
