"""Topics, groups and changes as group 0 keeps them, the table that producers get, and why a command is refused: values."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from enum import Enum
from typing import Final

from attrs import field, frozen

from zraft_core.ids import GroupId, Instance, ServerId
from zraft_core.topics.message import COORDINATOR, Message
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import View

TOPIC_NAME_BYTES_MAX: Final = 249
OFFSETS_SKIPPED: Final = 1 << 44
"""By so many offsets a group that takes another's place begins above it: more than any partition ever delivers. First
offsets of groups are multiples of it.
"""

Disks = tuple[tuple[ServerId, Instance], ...]
"""The disk of each of some servers, in the order of servers, each server once."""


class Refusal(Enum):
    """Reasons for which a command changed nothing."""

    EXISTS = "a topic of this name exists"
    NO_TOPIC = "there is no such topic"
    NO_PRODUCER = "there is no such producer"
    BAD_NAME = "a topic's name has 1 to 249 letters, digits, dots, dashes and underscores"
    BAD_COUNT = (
        "a topic has at least one partition, and at most as many as the setting topics_partitions_max says"
    )
    SHRINKING = "a topic cannot have fewer partitions: create another one"
    CHANGING = "the last change of the topic is not finished"
    COMPLETE = "the topic has all its partitions"
    TOO_MANY = "as many as the settings topics_max, topics_groups_max or topics_producers_max allow exist"
    NO_GROUP = "there is no such group"
    BAD_PLACEMENT = "a group needs a disk, and its leader is to be one of the servers that hold it"
    NOT_WANTED = "these are not the disks that are wanted now"


@frozen
class PartitionSettings:
    """These limits are consulted by apply, so they are part of the group's creation (D-5).

    `window` is how many numbers a producer may have above its floor. `consumers_max` is of how many consumers
    offsets are kept for conditions.
    """

    window: int = 1024
    consumers_max: int = 1024


@frozen
class RegistrySettings:
    """Limits that apply consults: replicated configuration (D-5). `destinations_max` is for leaders and producers alone."""

    topics_max: int = 4096
    groups_max: int = 16_384
    partitions_max: int = 1024
    producers_max: int = 262_144
    destinations_max: int = 64


@frozen
class Retention:
    """Bounds of how much of each partition of a topic is kept; None is no bound.

    `bytes_min`: what may go is what has as much behind it. `age_ms_max`: and what is older. Either is enough.
    """

    bytes_min: int | None = None
    age_ms_max: int | None = None


KEEP_ALL: Final = Retention()


@frozen
class GroupRecord:
    """A group: one partition of a topic.

    `founders` voted from the start, any other disk begins as a learner (D-18). `preferred` is to lead it, None if that
    does not matter. `wanted` are to be its voters now; `former`, by server, were, and some of them may be as long as
    nobody has reported that the voters are as wanted. `born`: it takes messages without being told by a change of its
    topic. A group that takes the place of one that was given up begins at `first_offset`, above all offsets of the
    former one, and behind `first_time`, above all times of stamps so far (docs/decisions/0012, G-9 and G-10).
    """

    group: GroupId
    topic: int
    founders: Disks
    preferred: ServerId | None
    wanted: Disks
    born: bool
    former: tuple[tuple[ServerId, Instance], ...] = ()
    first_offset: int = 0
    first_time: int = 0

    @property
    def placed(self) -> bool:
        """True if the voters are known to be as wanted, so that any other replica may retire."""
        return not self.former

    @property
    def holders(self) -> frozenset[tuple[ServerId, Instance]]:
        """The disks whose replicas count."""
        return frozenset((*self.wanted, *self.former))


@frozen
class Birth:
    """Values that a new group begins with."""

    record: GroupRecord
    view: View
    settings: PartitionSettings


@frozen
class Change:
    """A change of a topic's partitions, itself a multicast to old and new ones (D-17d)."""

    seq: int
    topic: int
    partitions: tuple[GroupId, ...]
    epoch: int

    def message(self) -> Message:
        """Return the change as the message that is multicast."""
        return Message(
            MessageId(COORDINATOR, self.seq),
            tuple(sorted(self.partitions)),
            number=1 if len(self.partitions) == 1 else 0,
            partitions=self.partitions,
        )


@frozen
class Topic:
    """`partitions` take messages; `adding` will once the change is delivered; `wanted` is how many there are to be.

    Those of `partitions` that are given up take none: groups of `adding` take their places, in order.
    """

    topic: int
    name: str
    wanted: int
    partitions: tuple[GroupId, ...] = ()
    adding: tuple[GroupId, ...] = ()
    change: int | None = None
    retention: Retention = KEEP_ALL


def numbered(
    partitions: Sequence[GroupId], adding: Sequence[GroupId], wanted: int, given_up: Container[GroupId]
) -> Iterator[tuple[int, GroupId]]:
    """Yield the groups of a topic with the numbers of their partitions.

    While a given-up group is replaced, it and the one that is to take its place have the same number; it comes first.
    """
    yield from enumerate(partitions)
    if len(partitions) < wanted:
        yield from enumerate(adding, len(partitions))
    else:
        lost = [number for number, group in enumerate(partitions) if group in given_up]
        yield from zip(lost, adding, strict=False)


@frozen
class Table:
    """Table of groups for producers' libraries. `epoch` goes with every START."""

    position: int
    epoch: int
    groups: frozenset[GroupId]
    """The groups that take messages."""
    deleting: frozenset[GroupId] = frozenset()

    def removed(self, group: GroupId) -> bool:
        """Return whether the group existed once and is removed."""
        return group <= self.position and group not in self.groups and group not in self.deleting


@frozen
class Result:
    """Result of a command.

    `created` is the id of a producer, topic or group, `removed` are groups that are gone.
    """

    refusal: Refusal | None = None
    created: int | None = None
    removed: tuple[GroupId, ...] = field(factory=tuple)


_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_topic_name(name: str) -> bool:
    """Return whether the name is permitted for a topic."""
    return (
        1 <= len(name) <= TOPIC_NAME_BYTES_MAX
        and _NAME_CHARACTERS.issuperset(name)
        and name not in (".", "..")
    )
