"""Data of any size in znodes of limited size: a head, and parts that it names. Pure.

Small data is in the head itself. Large data is in znodes `parts-ORDER-DIGEST/NNNN` below the head's, made
before the head names them and removed after it names others, so that a reader of the head finds the whole of
one version. ORDER grows with each version: parts with a lower one than the head are garbage, whoever left
them.

Head: MessagePack [1, order, data], or [1, order, nil, count, length, digest].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final

import msgpack
from attrs import frozen

from onyxlog.errors import EntryError
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown, unpack

FORMAT: Final = 1
PART_BYTES: Final = 512 * 1024
"""Half of ZooKeeper's jute.maxbuffer, so that paths and a multi's other parts have room beside it."""
PREFIX: Final = "parts-"
DIGEST_BYTES: Final = 16


@frozen
class Head:
    """A head. `data` None: the data is in `count` parts."""

    order: int
    data: bytes | None
    count: int = 0
    length: int = 0
    digest: bytes = b""

    @property
    def directory(self) -> str:
        """The name of the znode, below the head's, that has the parts."""
        return f"{PREFIX}{self.order:010d}-{self.digest.hex()}"


def head_of(order: int, data: bytes, part_bytes: int = PART_BYTES) -> Head:
    """Return the head of a version of data, which has the data itself if it is small."""
    if len(data) <= part_bytes:
        return Head(order, data)
    return Head(order, None, -(-len(data) // part_bytes), len(data), _digest(data))


def split(data: bytes, part_bytes: int = PART_BYTES) -> Iterator[tuple[str, bytes]]:
    """Return names and contents of the parts."""
    for number, start in enumerate(range(0, len(data), part_bytes)):
        yield part_name(number), data[start : start + part_bytes]


def part_name(number: int) -> str:
    """Return the name of a part."""
    return f"{number:04d}"


def join(head: Head, parts: Sequence[bytes], where: str) -> bytes:
    """Join the parts.

    Raises:
        EntryError: they are not what the head says.
    """
    data = b"".join(parts)
    if len(data) != head.length or _digest(data) != head.digest:
        raise EntryError(
            f"{where}/{head.directory}: found {len(data)} bytes of digest {_digest(data).hex()}, "
            f"expected {head.length} of {head.digest.hex()}: somebody changed the parts"
        )
    return data


def is_parts(name: str) -> bool:
    """Return whether a child of a head has parts of some version, and is not a znode of its own."""
    return name.startswith(PREFIX)


def order_of(name: str) -> int:
    """Return the order in the name of a directory of parts."""
    number = name[len(PREFIX) :].partition("-")[0]
    return int(number) if number.isdecimal() else -1


def encode_head(head: Head) -> bytes:
    """Return a head as bytes."""
    if head.data is not None:
        packed: bytes = msgpack.packb([FORMAT, head.order, head.data])
    else:
        packed = msgpack.packb([FORMAT, head.order, None, head.count, head.length, head.digest])
    return packed


def decode_head(data: bytes, where: str) -> Head:
    """Decode a head.

    Raises:
        EntryError: the bytes are no head of this version.
    """
    try:
        found = unpack(data, lists=True)
    except ProtocolError as error:
        raise EntryError(f"{where}: found {len(data)} bytes that are no MessagePack ({error})") from error
    match found:
        case [int(number), *_] if number != FORMAT:
            raise EntryError(f"{where}: found format {number}, expected {FORMAT}; upgrade this peer")
        case [_, int(order), bytes(inline)]:
            return Head(order, inline)
        case [_, int(order), None, int(count), int(length), bytes(digest)] if count > 0:
            return Head(order, None, count, length, digest)
    raise EntryError(f"{where}: found {shown(found)}, expected a head: [format, order, data or parts]")


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()
