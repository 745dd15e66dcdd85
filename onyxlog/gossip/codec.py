"""Messages as bytes, for one datagram each: a header, a MessagePack array, and a CRC-32C. Knows nothing of sealing.

Layout, big-endian: u8 format, u8 kind, 8 bytes of the tenancy's BLAKE2b, the fields in order, u32 CRC-32C of all of
it. The checksum stands even below a seal: where there is none, it is what keeps a flipped bit from being an entry.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Final

from crc32c import crc32c

from onyxlog.errors import EntryError
from onyxlog.gossip import messages as m
from zraft_core.annotated import Annotated
from zraft_core.errors import ProtocolError
from zraft_core.layout import Kinds, binary, boolean, integer, string, to_bytes
from zraft_core.messagepack import unpack

FORMAT: Final = 1
_HEADER: Final = struct.Struct(">BB8s")
_CRC: Final = struct.Struct(">I")
DATAGRAM_BYTES_MAX: Final = 2**16
OVERHEAD: Final = _HEADER.size + _CRC.size

_FORMS: Final = Annotated(
    {
        int: integer(-(2**63), 2**64 - 1),
        bool: boolean,
        bytes: binary(0, DATAGRAM_BYTES_MAX),
        str: string(0, DATAGRAM_BYTES_MAX),
    },
    items_max=DATAGRAM_BYTES_MAX,
)
_KINDS: Final = Kinds[m.Message](
    "datagram",
    dict(
        enumerate(
            _FORMS.record(of)
            for of in (
                *(m.PoolEvent, m.Seen, m.RumourEvent, m.Known, m.TreeEvent, m.IHave, m.Graft, m.Prune),
                *(m.Join, m.ForwardJoin, m.Neighbour, m.NeighbourReply, m.Disconnect, m.Alive, m.Shuffle),
                *(m.ShuffleReply, m.Heartbeat, m.Want, m.Found),
            )
        )
    ),
)
"""The position here is the kind on the wire: only ever add at the end."""


class DatagramError(EntryError):
    """A datagram that no group of this version and tenancy sent: it is dropped and counted."""


def tenancy_tag(tenancy: str) -> bytes:
    """Return the tag that tells a tenancy's datagrams from those of others on the same ports and key."""
    return blake2b(tenancy.encode(), digest_size=8).digest()


def encode(message: m.Message, tag: bytes) -> bytes:
    """Return a message as one datagram."""
    kind, record = _KINDS.of(message)
    body = _HEADER.pack(FORMAT, kind, tag) + to_bytes(record.pack(message))
    return body + _CRC.pack(crc32c(body))


def decode(datagram: bytes, tag: bytes) -> m.Message:
    """Return the message in a datagram.

    Raises:
        DatagramError: whatever else it is; no other error whatever the bytes are.
    """
    if len(datagram) < OVERHEAD or _CRC.unpack(datagram[-_CRC.size :])[0] != crc32c(datagram[: -_CRC.size]):
        raise DatagramError(f"datagram of {len(datagram)} bytes: its checksum is wrong")
    form, kind, found = _HEADER.unpack_from(datagram)
    if form != FORMAT or kind not in _KINDS.records:
        raise DatagramError(f"datagram of format {form}, kind {kind}: this peer knows format {FORMAT}")
    if found != tag:
        raise DatagramError("datagram of another tenancy: give each tenancy's peers ports of their own")
    record = _KINDS.records[kind]
    try:
        message: m.Message = record.form.unpack(unpack(datagram[_HEADER.size : -_CRC.size]), record.called)
    except ProtocolError as error:
        raise DatagramError(f"datagram of kind {kind}: {error}") from error
    return message
