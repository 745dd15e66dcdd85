"""A dictionary as znodes: which znode an entry is, and what stands in it. Servers and clients share this.

A dictionary is the directory /zraft/dictionaries/NAME, an entry one child of it, whose data is the MessagePack array
[key, value]. Keys are those of a Python dict: what compares equal there is one entry here. Values are any MessagePack
value and never looked into. docs/reference/protocol-native.md, "Dictionaries", has the rules; they are those of stored
data, so none of them can be changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgpack

from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.messagepack import READER_LEVELS_MAX, shown, unpack

DICTIONARIES: Final = "/zraft/dictionaries"
DEFAULT: Final = "default"
"""The dictionary of messages that name none, as Zatt's."""

NAME_CHARACTERS_MAX: Final = 128
ENTRY_NAME_BYTES_MAX: Final = 200
"""Names of znodes up to here hold their key; longer ones would, too, but few file a thing under a kilobyte."""

KEY_PARTS_MAX: Final = 16_384
"""The most parts of a key that is an array, with those of the arrays in it: each costs far more than its
byte.
"""

KEY_DEPTH_MAX: Final = 32
VALUE_DEPTH_MAX: Final = 512
_AS_DEEP: Final = b"\x91" * (READER_LEVELS_MAX - VALUE_DEPTH_MAX)
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1
PAIR: Final = b"\x92"
"""The beginning of an entry's data: an array of two."""

# It is kept between calls because making a packer costs as much as using it.
_packed: Final = msgpack.Packer(use_bin_type=True).pack

_SAFE: Final = "_.~-"  # beside letters and digits
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*")
_TEXT, _INT, _PACKED, _HASHED = "=", "#", "*", "!"


def pack(value: Any) -> bytes:
    """Return one MessagePack value, always the same bytes for the same value.

    Raises:
        MarshallingError: it is none, or nested too deeply.
    """
    try:
        return _packed(value)  # type: ignore[no-any-return]
    except (ValueError, TypeError, OverflowError) as error:
        raise MarshallingError(f"no MessagePack value: {error}") from error


def pack_value(value: Any) -> bytes:
    """Return the bytes of a value as they are stored.

    A reader gets it inside of an answer, and readers have a limit, too.

    Raises:
        MarshallingError: the value cannot be packed, or is nested deeper than we allow.
    """
    packed = pack(value)
    if len(packed) > VALUE_DEPTH_MAX and isinstance(value, tuple | list | dict):
        walker = msgpack.Unpacker(read_size=64, max_buffer_size=0)
        walker.feed(_AS_DEEP + packed)
        try:
            walker.skip()
        except msgpack.StackError:
            raise MarshallingError(f"a value nested deeper than {VALUE_DEPTH_MAX} levels") from None
    return packed


@lru_cache(maxsize=1024)  # few dictionaries, many requests that name them
def directory_of(name: str) -> str:
    """Return the path of a dictionary.

    Raises:
        MarshallingError: no dictionary can have this name.
    """
    if not 1 <= len(name) <= NAME_CHARACTERS_MAX:
        raise MarshallingError(
            f"name of a dictionary of {len(name)} characters, expected 1 to {NAME_CHARACTERS_MAX}"
        )
    # "." and ".." are no names of znodes.
    return f"{DICTIONARIES}/{_quoted(name) if name.strip('.') else '%2E' * len(name)}"


def _quoted(text: str) -> str:
    if _PLAIN.fullmatch(text):
        return text  # most keys; quoting costs three times as much
    try:
        return quote(text, safe=_SAFE)
    except UnicodeEncodeError as error:
        raise MarshallingError(f"text that is no UTF-8: {error.reason}") from error


def normalised(key: Any, depth: int = 0) -> Any:
    """Return the one form of all keys that Python takes for equal.

    True and 1.0 are 1, -0.0 is 0, a list is a tuple.

    Raises:
        MarshallingError: no dictionary has such a key: NaN, a map, an extension type, an integer beyond 64 bits.
    """
    kind = key.__class__
    if kind is tuple or kind is list:
        if not depth and _is_normal(key):
            return key
        if depth >= KEY_DEPTH_MAX:
            raise MarshallingError(f"a key nested deeper than {KEY_DEPTH_MAX} levels")
        return tuple(
            [
                part
                if part.__class__ in _AS_THEY_ARE
                else int(part)
                if part.__class__ is bool
                else normalised(part, depth + 1)
                for part in key
            ]
        )
    if kind is str or kind is bytes or kind is msgpack.Timestamp or key is None:
        return key
    if isinstance(key, int):
        if INT_MIN <= key <= INT_MAX:
            return int(key)
        raise MarshallingError("a key that is an integer beyond 64 bits")
    if isinstance(key, float):
        if math.isnan(key):
            raise MarshallingError("NaN as a key: it is not equal to itself")
        return int(key) if key.is_integer() and INT_MIN <= key <= INT_MAX else key
    raise MarshallingError(
        f"a key that is {shown(key)}, expected nil, a boolean, a number, str, bin, a timestamp or an array of these"
    )


_AS_THEY_ARE: Final = frozenset((str, bytes, int, type(None)))
"""The types that stay as they are in an array; `pack` checks the integers."""
_WITH_ARRAYS: Final = _AS_THEY_ARE | {tuple}


def _is_normal(key: Sequence[Any]) -> bool:
    """Return whether all parts of an array stay as they are.

    They are looked at level by level, as there may be many of them.

    Raises:
        MarshallingError: there are more than `KEY_PARTS_MAX`.
    """
    level: list[Any] = [key]
    normal = type(key) is tuple
    count = 0
    for _ in range(KEY_DEPTH_MAX):
        parts = list(chain.from_iterable(level))
        count += len(parts)
        if count > KEY_PARTS_MAX:
            raise MarshallingError(
                f"a key that is an array of more than {KEY_PARTS_MAX} parts; use its packed bytes, or a hash of them"
            )
        kinds = set(map(type, parts))
        if kinds <= _AS_THEY_ARE:
            return normal
        normal = normal and kinds <= _WITH_ARRAYS
        level = [part for part in parts if type(part) is tuple or type(part) is list]
        if not level:
            break
    return False


def entry_name(key: Any) -> str:
    """Return the name of a key's znode.

    Raises:
        MarshallingError: the key is not permitted; see `normalised`.
    """
    if key.__class__ is str:
        name = _TEXT + _quoted(key)
        return name if len(name) <= ENTRY_NAME_BYTES_MAX else _hashed(pack(key))
    key = normalised(key)
    return f"{_INT}{key}" if key.__class__ is int else _name_of(pack(key))


def _name_of(packed: bytes) -> str:
    if len(packed) < ENTRY_NAME_BYTES_MAX:
        name = _PACKED + base64.urlsafe_b64encode(packed).rstrip(b"=").decode()
        if len(name) <= ENTRY_NAME_BYTES_MAX:
            return name
    return _hashed(packed)


def _hashed(packed: bytes) -> str:
    return _HASHED + hashlib.sha256(packed).hexdigest()


def entry_path(dictionary: str, key: Any) -> str:
    """Return the path of a key's znode in a dictionary.

    Raises:
        MarshallingError: the dictionary or the key is not permitted; see `directory_of` and
            `normalised`.
    """
    return f"{directory_of(dictionary)}/{entry_name(key)}"


def entry_of(key: Any) -> tuple[str, bytes]:
    """Return the name of a key's znode, and what its data begins with; the value follows, packed.

    Raises:
        MarshallingError: see `normalised`.
    """
    if key.__class__ is str:
        return entry_name(key), PAIR + pack(key)
    key = normalised(key)
    packed = pack(key)
    return f"{_INT}{key}" if key.__class__ is int else _name_of(packed), PAIR + packed


def entry_with(key: Any, value: Any) -> tuple[str, bytes]:
    """Return the name of a key's znode, and its data, which hold the key and this value.

    Raises:
        MarshallingError: see `normalised` and `pack_value`.
    """
    if key.__class__ is str and value.__class__ in _FLAT and _PLAIN.fullmatch(key):
        name = _TEXT + key
        if len(name) <= ENTRY_NAME_BYTES_MAX:
            return name, pack((key, value))
    name, head = entry_of(key)
    return name, head + pack_value(value)


_FLAT: Final = frozenset((bytes, str, int, bool, float, type(None)))
"""Types of values in which nothing is nested."""


def packed_key_of(name: str) -> bytes | None:
    """Return the key, packed, that stands in a znode's name.

    None if only its data tell, or it is no name of an entry.
    """
    kind, rest = name[:1], name[1:]
    try:
        if kind == _TEXT:
            return pack(unquote_to_bytes(rest).decode())
        if kind == _INT:
            return pack(int(rest)) if rest.removeprefix("-").isdecimal() else None
        if kind == _PACKED:
            return base64.urlsafe_b64decode(rest + "=" * (-len(rest) % 4))
    except (UnicodeDecodeError, MarshallingError, binascii.Error, ValueError):
        return None
    return None


def split_entry(data: bytes | None) -> tuple[bytes, bytes] | None:
    """Return (key, value), both packed; None if it is no entry.

    Anybody may write into the directory by other means.

    It is walked and not built, so that headers of what is not there cost nothing.
    """
    if data is None or data[:1] != PAIR:
        return None
    walker = msgpack.Unpacker(read_size=64, max_buffer_size=0)
    walker.feed(data[1:])
    try:
        walker.skip()
        end_of_key = 1 + walker.tell()
        walker.skip()
    except (msgpack.OutOfData, ValueError):
        return None
    return (data[1:end_of_key], data[end_of_key:]) if walker.tell() + 1 == len(data) else None


def are_entries(datas: Iterable[bytes]) -> bool:
    """Return whether all of these are entries; cheaper than asking one by one."""
    walker = msgpack.Unpacker(read_size=64, max_buffer_size=0)
    end = 0
    try:
        for data in datas:
            if data[:1] != PAIR:
                return False
            walker.feed(data)
            walker.skip()
            end += len(data)
            if walker.tell() != end:
                return False
    except (msgpack.OutOfData, ValueError):
        return False
    return True


def decode_entry(data: bytes) -> tuple[Any, Any]:
    """Return (key, value) of an entry, for those who use them.

    Raises:
        MarshallingError: it is no entry, or none that Python can hold.
    """
    if split_entry(data) is None:
        raise MarshallingError(f"{len(data)} bytes that are not the entry of a dictionary")
    try:
        key, value = unpack(data, any_keys=True, levels=READER_LEVELS_MAX)
    except ProtocolError as error:
        raise MarshallingError(f"an entry that Python cannot hold: {error}") from error
    return key, value
