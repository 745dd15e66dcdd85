"""The image of a partition's group as bytes: the partition, the claims on it, and where its deliveries end. Pure.

docs/explanation/topics.md, "Formats".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from zraft.topics.image import partition_image
from zraft.topics.partition import Partition
from zraft_core.claims.snapshot import encode_snapshot
from zraft_core.claims.state import Claims
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.layout import binary, formatted, from_bytes, listed, number, optional, row, to_bytes
from zraft_core.topics import forms
from zraft_core.topics.stamps import Stamp

FORMAT: Final = 1
_FIELDS: Final = 5
_BLOB: Final = binary(1, 1 << 30)
_PLACE: Final = row(next_offset=number, last_stamp=optional(forms.stamp), chain=forms.digest)
_PIECES: Final = listed(_BLOB, 1 << 30, 1)


@frozen
class DeliveredPlace:
    """End of the deliveries: the next offset, the stamp of the last delivery (None before the first), and their chain."""

    next_offset: int
    last_stamp: Stamp | None
    chain: bytes


@frozen
class GroupImage:
    """An image that was taken apart: the place, the claims' snapshot, and the pieces of the partition's snapshot."""

    place: DeliveredPlace
    claims: bytes
    pieces: tuple[bytes, ...]


def encode_group_image(partition: Partition, claims: Claims, last_stamp: tuple[int, ...] | None) -> bytes:
    """Return the image of a group whose partition is born; `last_stamp` is that of its last delivery."""
    place = (partition.next_offset, last_stamp, partition.chain)
    return to_bytes(
        (FORMAT, partition.group, place, encode_snapshot(claims), list(partition_image(partition)))
    )


def encode_unborn(group: GroupId) -> bytes:
    """Return the image of a group before its partition's birth."""
    return to_bytes((FORMAT, group, None, None, ()))


def decode_group_image(image: bytes, group: GroupId) -> GroupImage | None:
    """Take an image apart; None before the birth.

    Raises:
        ProtocolError: the bytes are no image of this group.
    """
    what = f"image of group {group}"
    _, found, place, claims, pieces = formatted(from_bytes(image), what, FORMAT, _FIELDS)
    if found != group:
        raise ProtocolError(f"{what}: it is one of group {found}")
    if place is None:
        return None
    fields: tuple[Any, ...] = _PLACE.unpack(place, f"{what}: place")
    return GroupImage(
        DeliveredPlace(*fields),
        _BLOB.unpack(claims, f"{what}: claims"),
        _PIECES.unpack(pieces, f"{what}: pieces"),
    )
