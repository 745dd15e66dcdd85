"""Comparison of what a state machine delivers, or says of its deliveries, with what is on this disk.

Entries are applied again after a start, so most of what comes first is here already: it is recognised, and a
difference is never written over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zraft.storage.delivery.reading import DeliveryReader
from zraft.storage.delivery.values import PAYLOAD_BYTES_MAX, Mark, StoredDelivery
from zraft.storage.errors import DeliveriesDifferError

_ADVICE = "one of the two is wrong: keep this directory aside and let the server join again with an empty one"


def count_known(
    reader: DeliveryReader, path: str, group: int, base: Mark, end: Mark, deliveries: Sequence[StoredDelivery]
) -> int:
    """Return how many of the deliveries are here already; the others continue what is here.

    Raises:
        DeliveriesDifferError: one is another than the one that is here, or offsets are missing between, or stamps and
            Raft indices do not grow.
        StorageError: what is here cannot be read.
    """

    def differs(offset: int, ours: str, theirs: str) -> DeliveriesDifferError:
        return DeliveriesDifferError(
            f"{path}: at offset {offset} this disk {ours}, but the state machine of group {group} {theirs}; {_ADVICE}"
        )

    known = 0
    here: Iterator[StoredDelivery] = iter(())
    for one in deliveries:
        if one.offset >= end.offset:
            break
        known += 1
        if one.offset < base.offset:
            continue  # it was durable, and retention removed it
        stored = next(here, None)
        if stored is None:
            here = iter(reader.read(one.offset))
            stored = next(here)
        if stored != one:
            raise differs(one.offset, f"has {_brief(stored)}", f"delivers {_brief(one)}")
    offset, stamp, index = end.offset, end.stamp, end.index
    for one in deliveries[known:]:
        if one.offset != offset:
            raise differs(offset, "ends", f"delivers offset {one.offset} next")
        first = offset == end.offset
        if (stamp is not None and one.stamp <= stamp) or one.index < index + first:
            raise differs(offset, f"comes after stamp {stamp} and entry {index}", f"delivers {_brief(one)}")
        assert len(one.payload) <= PAYLOAD_BYTES_MAX, f"payload of {len(one.payload)} bytes"
        offset, stamp, index = one.end, one.stamp, one.index
    return known


def compare_marks(path: str, ours: Mark, theirs: Mark, whose: str) -> None:
    """Check that the digests at one offset are equal, and with them the stamps, which are in them.

    Raises:
        DeliveriesDifferError: they are not.
    """
    if ours.chain != theirs.chain:
        raise DeliveriesDifferError(
            f"{path}: at offset {ours.offset} the digest of all deliveries is {ours.chain.hex()}, {whose} says "
            f"{theirs.chain.hex()}; {_ADVICE}"
        )


def _brief(one: StoredDelivery) -> str:
    return (
        f"message {one.producer}:{one.number} with stamp {one.stamp} of entry {one.index}, "
        f"{len(one.payload)} bytes"
    )
