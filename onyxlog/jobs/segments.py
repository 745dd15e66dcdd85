"""Segments, what they may consist of, and the bytes that equal values have on every peer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgpack

from zraft_core.messagepack import unpack

Segment = Mapping[str, Any]
"""Unit that flows between tasks: a map of names to plain values. Nobody changes a segment; a function makes a
new one.

Plain are None, booleans, integers of 64 bits, floats, strings, bytes, and lists and maps of those: what
MessagePack carries and JSON, apart from bytes, can write.
"""

_pack = msgpack.Packer(use_bin_type=True).pack
SCALARS: Final = frozenset((type(None), bool, int, float, str, bytes))


def canonical(value: Any) -> bytes:
    """Return the MessagePack form of a plain value, with maps sorted by their keys' own forms.

    Equal maps have equal bytes.

    Raises:
        TypeError: the value, or something in it, is not plain.
        OverflowError: an integer has more than 64 bits.
    """
    packed: bytes = _pack(_sorted(value))
    return packed


def decoded(data: bytes) -> Any:
    """Decode what `canonical` made, with lists for tuples.

    Raises:
        ValueError: the bytes are anything else.
    """
    return unpack(data, lists=True, any_keys=True)


def _sorted(value: Any) -> Any:
    kind = type(value)
    if (
        kind in SCALARS
    ):  # Most values are of these types; asking an ABC about each would take most of the time.
        return value
    if kind is list or kind is tuple:
        return [_sorted(item) for item in value]
    if isinstance(value, Mapping):
        items = [(_pack(_sorted(key)), key, item) for key, item in value.items()]
        items.sort(key=lambda item: item[0])
        return {key: _sorted(item) for _, key, item in items}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value


def plain_fault(value: Any, where: str = "") -> str | None:
    """Return what in a value is not plain, and where in it; None if all is."""
    if isinstance(value, bool) or value is None or isinstance(value, (float, str, bytes)):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**64 else f"{where or 'it'} is {value}, beyond 64 bits"
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                return f"{where or 'it'} has the key {key!r}, where a string is expected"
            if fault := plain_fault(item, f"{where}.{key}" if where else key):
                return fault
        return None
    if isinstance(value, (list, tuple)):
        faults = (plain_fault(item, f"{where}[{number}]") for number, item in enumerate(value))
        return next((fault for fault in faults if fault), None)
    return f"{where or 'it'} is a {type(value).__name__}, where a plain value is expected"
