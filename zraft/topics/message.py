"""What a producer multicasts: destinations, payload, and what has to hold for it. Knows no protocol."""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import field, frozen

from zraft.frozen import statically_frozen
from zraft.ids import GroupId, ProducerId
from zraft.topics.stamps import MessageId, Stamp


def _length(payload: bytes) -> str:
    return f"<{len(payload)} bytes>"


COORDINATOR: Final = ProducerId(0)
"""Group 0 as a producer: it multicasts the changes of topics, and nobody else may."""

DIGEST_BYTES: Final = 16


@frozen
class After:
    """An earlier message of the same producer or another one that comes first wherever both are addressed (D-17a)."""

    mid: MessageId
    destinations: tuple[GroupId, ...]


@frozen
class Condition:
    """The message counts only if `consumer` has consumed up to exactly `expected` at `home`; then it has up to `following`.

    So a program that consumes, computes and produces does each step once (D-9d). `home` is a destination.
    """

    home: GroupId
    consumer: bytes
    expected: int
    following: int


@statically_frozen
class Message:
    """A message, the same at all its destinations.

    `destinations` ascend. `number` counts the messages of the producer to this only destination, from 1; it is 0 if
    there are several (D-17b). `depends` is the largest stamp time that the producer had seen: the stamp will be above
    it (0: no claim). `partitions` is a change of a topic: its partitions from this stamp on (D-17d).
    """

    mid: MessageId
    destinations: tuple[GroupId, ...]
    payload: bytes = field(default=b"", repr=_length)
    number: int = 0
    after: After | None = None
    condition: Condition | None = None
    depends: int = 0
    partitions: tuple[GroupId, ...] | None = None

    @property
    def is_single(self) -> bool:
        return len(self.destinations) == 1


def as_fields(message: Message) -> list[object]:
    """A message as the array that is stored and sent (docs/TOPICS.md, "Formats")."""
    after, condition = message.after, message.condition
    return [
        message.mid,
        message.destinations,
        message.payload,
        message.number,
        None if after is None else (after.mid, after.destinations),
        None
        if condition is None
        else (condition.home, condition.consumer, condition.expected, condition.following),
        message.depends,
        message.partitions,
    ]


class Outcome(Enum):
    """What a message came to at a destination."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """Its condition did not hold: ordered like any other, delivered nowhere."""


@statically_frozen
class Delivery:
    """What consumers read. `offset` counts a partition's deliveries from 0, `position` its commands (D-16)."""

    offset: int
    stamp: Stamp
    message: Message
    position: int


def without_payload(message: Message) -> Message:
    """What is kept of a message that is delivered here."""
    return Message(
        message.mid,
        message.destinations,
        b"",
        message.number,
        message.after,
        message.condition,
        message.depends,
        message.partitions,
    )


def may_change_topics(message: Message) -> bool:
    """Only group 0 multicasts a change of partitions."""
    return message.partitions is None or message.mid.producer == COORDINATOR
