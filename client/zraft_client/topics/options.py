"""Options of a producer: where messages go, when they count as sent, and how its messages are ordered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum

from attrs import frozen

from zraft_client.topics.errors import NoTopicError
from zraft_client.topics.values import Metadata
from zraft_core.ids import GroupId
from zraft_core.topics.partitioner import RoundRobin, by_key

Place = tuple[str, int]
"""A topic, and the number of a partition of it."""
Destination = str | Place
"""A topic, of which the partitioner chooses the partition, or a partition."""
Partitioner = Callable[[str, bytes | None, tuple[GroupId, ...]], GroupId]
"""Chooses a partition from a topic's name, a message's key, and the topic's partitions in their order."""


class Acknowledge(Enum):
    """Events after which a message counts as sent."""

    DELIVERED = "delivered"
    """The message is delivered at all destinations: every later message comes behind it wherever both go."""
    ACCEPTED = "accepted"
    """The message is begun somewhere: it will be delivered at all destinations, whatever breaks, or fail by its
    condition.
    """


class Order(Enum):
    """Orders in which the messages of one producer are delivered."""

    PARTITION = "partition"
    """Messages to one and the same partition alone come in order."""
    FIFO = "fifo"
    """Each message comes behind the one before, wherever both go."""
    CAUSAL = "causal"
    """Each message also comes behind every record that the program passed to `saw`."""


@frozen
class Consumed:
    """A step of a consumer that the message claims: it counts only if `consumer` has come to exactly `expected` (D-9d).

    `topic` and `partition` must be among the destinations. Of all messages that claim one step, one is
    delivered.
    """

    topic: str
    partition: int
    consumer: bytes
    expected: int
    following: int


def round_robin_partitioner() -> Partitioner:
    """Choose by key; without one, partitions take turns, record by record.

    A producer that is given none chooses so as well, but by batches: it keeps the partition of a record without a key while
    the batch there takes more.
    """
    turns = RoundRobin()

    def choose(topic: str, key: bytes | None, partitions: tuple[GroupId, ...]) -> GroupId:
        return turns.choose(topic, partitions) if key is None else by_key(key, partitions)

    return choose


def destinations_of(to: Destination | Iterable[Destination]) -> list[Destination]:
    """Return the destinations of a message.

    Raises:
        NoTopicError: there are none.
    """
    if isinstance(to, str):
        return [to]
    if isinstance(to, tuple) and len(to) == 2 and isinstance(to[0], str) and isinstance(to[1], int):
        return [(to[0], to[1])]
    names = list(to)
    if not names:
        raise NoTopicError(
            "a message without destinations; expected a topic, a (topic, partition), or several"
        )
    return names


def has_all(metadata: Metadata, names: Sequence[Destination]) -> bool:
    """Return whether all of these topics and partitions exist in `metadata`, take messages, and may be produced to."""
    for name in names:
        topic = metadata.topics.get(name if isinstance(name, str) else name[0])
        if topic is None or topic.id in metadata.unwritable or not metadata.takes(topic):
            return False
        if len(topic.partitions) <= (0 if isinstance(name, str) else name[1]):
            return False
    return True
