"""Messages as bytes, for one datagram each: a header, a MessagePack array, and a CRC-32C. Knows nothing of sealing.

Layout, big-endian: u8 format, u8 kind, 8 bytes of the tenancy's BLAKE2b, the fields in order, u32 CRC-32C of all of
it. The checksum stands even below a seal: where there is none, it is what keeps a flipped bit from being an entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import msgpack
from attrs import astuple, fields
from crc32c import crc32c

from onyxlog.errors import EntryError
from onyxlog.gossip import messages as m
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown, unpack

FORMAT: Final = 1
_HEADER: Final = struct.Struct(">BB8s")
_CRC: Final = struct.Struct(">I")
OVERHEAD: Final = _HEADER.size + _CRC.size

_KINDS: Final[tuple[type[m.Message], ...]] = (
    *(m.PoolEvent, m.Seen, m.RumourEvent, m.Known, m.TreeEvent, m.IHave, m.Graft, m.Prune),
    *(m.Join, m.ForwardJoin, m.Neighbour, m.NeighbourReply, m.Disconnect, m.Alive, m.Shuffle, m.ShuffleReply),
    *(m.Heartbeat, m.Want, m.Found),
)
"""The position here is the kind on the wire: only ever add at the end."""
_KIND_OF: Final = {cls: kind for kind, cls in enumerate(_KINDS)}


class DatagramError(EntryError):
    """A datagram that no group of this version and tenancy sent: it is dropped and counted."""


def tenancy_tag(tenancy: str) -> bytes:
    """What tells datagrams of one tenancy from those of another that uses the same ports and key."""
    return blake2b(tenancy.encode(), digest_size=8).digest()


def encode(message: m.Message, tag: bytes) -> bytes:
    fields_packed: bytes = msgpack.packb(astuple(message))
    body = _HEADER.pack(FORMAT, _KIND_OF[type(message)], tag) + fields_packed
    return body + _CRC.pack(crc32c(body))


def decode(datagram: bytes, tag: bytes) -> m.Message:
    """The message in a datagram.

    Raises:
        DatagramError: whatever else it is; no other error whatever the bytes are.
    """
    if len(datagram) < OVERHEAD or _CRC.unpack(datagram[-_CRC.size :])[0] != crc32c(datagram[: -_CRC.size]):
        raise DatagramError(f"datagram of {len(datagram)} bytes: its checksum is wrong")
    form, kind, found = _HEADER.unpack_from(datagram)
    if form != FORMAT or kind >= len(_KINDS):
        raise DatagramError(f"datagram of format {form}, kind {kind}: this peer knows format {FORMAT}")
    if found != tag:
        raise DatagramError("datagram of another tenancy: give each tenancy's peers ports of their own")
    try:
        values = unpack(datagram[_HEADER.size : -_CRC.size])
    except ProtocolError as error:
        raise DatagramError(f"datagram of kind {kind}: {error}") from error
    message: m.Message = _built(_KINDS[kind], values)
    return message


def _built(cls: Any, values: object) -> Any:
    """An instance of a message's class of a tuple of plain values."""
    shape = fields(cls)
    if not isinstance(values, tuple) or len(values) != len(shape):
        raise DatagramError(f"{cls.__name__}: expected {len(shape)} fields, found {shown(values)}")
    built = []
    for attribute, value in zip(shape, values, strict=True):
        read = _READ[attribute.type]
        try:
            built.append(read(value))
        except TypeError:
            raise DatagramError(
                f"{cls.__name__}.{attribute.name}: expected {attribute.type}, found {shown(value)}"
            ) from None
    return cls(*built)


def _plain(expected: type) -> Callable[[object], object]:
    def read(value: object) -> object:
        if type(value) is not expected:
            raise TypeError
        return value

    return read


def _many(read_one: Callable[[object], object]) -> Callable[[object], tuple[object, ...]]:
    def read(value: object) -> tuple[object, ...]:
        if not isinstance(value, tuple):
            raise TypeError
        return tuple(read_one(item) for item in value)

    return read


def _position_and_round(value: object) -> tuple[object, ...]:
    pair = _many(_plain(int))(value)
    if len(pair) != 2:
        raise TypeError
    return pair


def _event(value: object) -> object:
    return _built(m.Event, value)


_READ: Final[dict[Any, Callable[[object], object]]] = {
    # as the annotations in `messages` read
    "Position": _plain(int),
    "Stream": _plain(int),
    "int": _plain(int),
    "bool": _plain(bool),
    "bytes": _plain(bytes),
    "GroupId": _plain(str),
    "Event": _event,
    "tuple[Position, ...]": _many(_plain(int)),
    "tuple[Stream, ...]": _many(_plain(int)),
    "tuple[GroupId, ...]": _many(_plain(str)),
    "tuple[Event, ...]": _many(_event),
    "tuple[tuple[Position, int], ...]": _many(_position_and_round),
}
