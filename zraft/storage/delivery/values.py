"""Deliveries, their digest chain, and positions in a log of them.

Pure.

The chain is the partition's own, which its replicated state carries: the digest after a delivery is BLAKE2b-128 of
the digest before it, offset, stamp and the BLAKE2b-128 of the payload. So equal digests at an offset mean equal
deliveries up to there, on whichever server and in whichever file they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from struct import Struct
from typing import Any, Final

import msgpack
from attrs import field, frozen

from zraft_core.frozen import statically_frozen

DIGEST_BYTES: Final = 16
PAYLOAD_BYTES_MAX: Final = 32 << 20
"""The most bytes of one delivery. A batch of writes is bounded far below this; it bounds what a reader has to
hold.
"""
NUMBER_MAX: Final = 2**64 - 1
"""The bound of every number in a delivery: each has a fixed width of eight bytes where it stands in a head or
a header.
"""

SPAN_MAX: Final = 1 << 20
"""The most offsets of one delivery, of which a frame's head counts all."""

_LINK: Final = Struct(f">{DIGEST_BYTES}sQQQQQ{DIGEST_BYTES}s")

Stamp = tuple[int, int, int, int]
"""(T, G, sub, g): strictly increasing with the offset, and equal for one message at all of its destinations."""


class DeliveryFormatError(ValueError):
    """Bytes are not a sequence of deliveries; the caller knows the file and offset and says so."""


@statically_frozen
class StoredDelivery:
    """One message as a partition delivered it.

    `offset` is dense, from 0: a message takes `span` offsets, one for each of its records. `producer` and `number` name the
    message, `payload` is what consumers are given of it.
    `index` is the Raft index of the entry that delivered it, `time` that entry's wall time in milliseconds (for people
    and for retention; it may go back between leaders). `digest` is that of the payload, if the state machine has just
    computed it.
    """

    offset: int
    stamp: Stamp
    producer: int
    number: int
    payload: bytes
    index: int
    time: int
    span: int = 1
    digest: bytes | None = field(default=None, eq=False, repr=False)

    @property
    def end(self) -> int:
        """The offset behind the message's last record."""
        return self.offset + self.span


@frozen
class Mark:
    """A place between two deliveries: before `offset`.

    `chain` is the digest up to there, `stamp` that of the delivery before (None before the first), and `index` a Raft
    index up to which every delivery lies before this place.
    """

    offset: int
    stamp: Stamp | None
    chain: bytes
    index: int


def beginning(group: int, first_offset: int = 0) -> Mark:
    """Return the position of a partition without deliveries. No two partitions share a digest."""
    seed = b"zraft deliveries of group %d" % group
    return Mark(first_offset, None, blake2b(seed, digest_size=DIGEST_BYTES).digest(), 0)


def next_digest(chain: bytes, one: StoredDelivery) -> bytes:
    """Return the digest with one more delivery."""
    payload = one.digest or blake2b(one.payload, digest_size=DIGEST_BYTES).digest()
    return blake2b(_LINK.pack(chain, one.offset, *one.stamp, payload), digest_size=DIGEST_BYTES).digest()


def encode_deliveries(deliveries: Iterable[StoredDelivery], chain: bytes) -> tuple[list[bytes], bytes]:
    """Return the record of each delivery, and the digest after the last one.

    A record is `[offset, T, G, sub, g, producer, number, index, time, payload]`, and has the span as one field more if it
    is not 1.
    """
    pack = msgpack.Packer().pack
    records: list[bytes] = []
    for one in deliveries:
        fields: tuple[Any, ...] = (
            one.offset,
            *one.stamp,
            one.producer,
            one.number,
            one.index,
            one.time,
            one.payload,
        )
        records.append(pack(fields if one.span == 1 else (*fields, one.span)))
        chain = next_digest(chain, one)
    return records, chain


def decode_deliveries(data: bytes, chain: bytes) -> Iterator[tuple[StoredDelivery, bytes]]:
    """Yield the deliveries of a frame's records, each with the digest after it.

    Raises:
        DeliveryFormatError: they are not what `encode_deliveries` makes.
    """
    for one in read_deliveries(data):
        chain = next_digest(chain, one)
        yield one, chain


def read_deliveries(data: bytes) -> list[StoredDelivery]:
    """Return the deliveries of a frame's records, without their digests.

    Raises:
        DeliveryFormatError: they are not what `encode_deliveries` makes.
    """
    unpacker: Any = msgpack.Unpacker(
        use_list=False,
        max_buffer_size=len(data) + 1,
        max_str_len=0,
        max_bin_len=PAYLOAD_BYTES_MAX,
        max_array_len=16,
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(data)
    try:
        found = [_delivery(fields) for fields in unpacker]
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        if isinstance(error, DeliveryFormatError):
            raise
        raise DeliveryFormatError(f"not MessagePack as we write it ({type(error).__name__})") from error
    if unpacker.tell() != len(data):
        raise DeliveryFormatError("the last record is incomplete")
    return found


def _delivery(fields: Any) -> StoredDelivery:
    if type(fields) is tuple and 10 <= len(fields) <= 11:
        offset, t, g, sub, group, producer, number, index, time, payload = fields[:10]
        span = fields[10] if len(fields) == 11 else 1
        if (
            type(offset) is int
            and type(t) is int
            and type(g) is int
            and type(sub) is int
            and type(group) is int
            and type(producer) is int
            and type(number) is int
            and type(index) is int
            and type(time) is int
            and type(payload) is bytes
            and type(span) is int
            and min(offset, t, g, sub, group, producer, number, index, time) >= 0
            and 1 <= span <= SPAN_MAX
        ):
            return StoredDelivery(offset, (t, g, sub, group), producer, number, payload, index, time, span)
    raise DeliveryFormatError(f"not a delivery: {str(fields)[:80]}")
