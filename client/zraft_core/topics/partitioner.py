"""Choice of a message's partition, made once, by the producer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b

from zraft_core.errors import ZraftError
from zraft_core.ids import GroupId

Partitions = tuple[GroupId, ...]
"""The partitions of one topic, in their order."""


class NoPartitionError(ZraftError):
    """A topic has no partition to choose from."""


def by_key(key: bytes, partitions: Partitions) -> GroupId:
    """Return the same partition for the same key, as long as the topic keeps its partitions; keys spread evenly."""
    return partitions[_hash(key) % _some(partitions)]


def layer(key: bytes, topics: Sequence[Partitions]) -> list[GroupId]:
    """Return one partition of each topic, the same place in all of them.

    These are the partition layers of the AtomicKafka thesis.

    Messages of one layer share their groups, so layers do not wait for each other. Order across layers is that of stamps: a
    merged consumer of a topic sees it. Topics with fewer partitions share theirs among layers.
    """
    place = _hash(key)
    return [partitions[place % _some(partitions)] for partitions in topics]


class RoundRobin:
    """Partitioner that takes each topic's partitions in turn."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()

    def choose(self, topic: str, partitions: Partitions) -> GroupId:
        """Return the topic's next partition."""
        place = self._next[topic] % _some(partitions)
        self._next[topic] = place + 1
        return partitions[place]


def _hash(key: bytes) -> int:
    return int.from_bytes(blake2b(key, digest_size=8).digest())


def _some(partitions: Partitions) -> int:
    if not partitions:
        raise NoPartitionError(
            "expected a topic with at least one partition, found none: is it just being created?"
        )
    return len(partitions)
