"""Message of a producer: destinations, payload and condition. Knows no protocol."""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import field, frozen

from zraft_core.frozen import statically_frozen
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.stamps import MessageId, Stamp


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


@frozen
class Round:
    """Round that orders its producer's staged messages from number `first` up to `upto`, both included.

    They stand one after the other at the round's place in the order of all messages. `zraft_core.topics.producer` makes it
    when each of them is durable at all its destinations, which the round's are all together. One that names a group which
    the round does not is given up: that group was deleted before.
    """

    first: int
    upto: int

    @property
    def places(self) -> int:
        """The number of stamps that the round takes."""
        return self.upto - self.first + 1


@statically_frozen
class Message:
    """A message, the same at all its destinations.

    `destinations` ascend. `number` counts the messages of the producer to this only destination, from 1; it is 0 if
    there are several (D-17b). `depends` is the largest stamp time that the producer had seen: the stamp will be above
    it (0: no claim). `partitions` is a change of a topic: its partitions from this stamp on (D-17d). With a `round` it
    carries nothing and is delivered nowhere itself; its `number` is 0. `records`: the payload is a record batch of so
    many (`zraft_core.records`), each with an offset of its own; 0: it is one record, in the form of its producer.
    """

    mid: MessageId
    destinations: tuple[GroupId, ...]
    payload: bytes = field(default=b"", repr=_length)
    number: int = 0
    after: After | None = None
    condition: Condition | None = None
    depends: int = 0
    partitions: tuple[GroupId, ...] | None = None
    round: Round | None = None
    records: int = 0

    @property
    def span(self) -> int:
        """The number of offsets that the message takes where it is delivered."""
        return self.records or 1

    @property
    def is_single(self) -> bool:
        """True if the message is numbered among the messages to one partition alone."""
        return len(self.destinations) == 1 and self.round is None

    @property
    def may_be_staged(self) -> bool:
        """A round puts it in order, and nothing else may have a say in that."""
        return (
            self.after is None and self.condition is None and self.partitions is None and self.round is None
        )


def as_fields(message: Message) -> list[object]:
    """Return a message as the array that is stored and sent (docs/explanation/topics.md, "Formats")."""
    after, condition = message.after, message.condition
    fields: list[object] = [
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
    if message.round is not None:
        fields.append((message.round.first, message.round.upto))
    elif message.records:
        fields += (None, message.records)
    return fields


class Outcome(Enum):
    """Outcomes of a message at a destination."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """Its condition did not hold: ordered like any other, delivered nowhere."""


@statically_frozen
class Delivery:
    """Message as consumers read it.

    `offset` is that of its first record: they count a partition's records from 0. `position` counts its commands (D-16).
    `encoded` and `digest`: the message's bytes and their digest, if they are at hand.
    """

    offset: int
    stamp: Stamp
    message: Message
    position: int
    encoded: bytes | None = field(default=None, eq=False, repr=False)
    digest: bytes | None = field(default=None, eq=False, repr=False)

    @property
    def end(self) -> int:
        """The offset behind the message's last record."""
        return self.offset + self.message.span


def without_payload(message: Message) -> Message:
    """Return the message without its payload, as it is kept once it is delivered here."""
    return Message(
        message.mid,
        message.destinations,
        b"",
        message.number,
        message.after,
        message.condition,
        message.depends,
        message.partitions,
        message.round,
    )


def may_change_topics(message: Message) -> bool:
    """Return whether the message may change partitions: only group 0 may multicast that."""
    return message.partitions is None or message.mid.producer == COORDINATOR
