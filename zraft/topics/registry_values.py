"""Topics, groups and changes as group 0 keeps them, the table that producers get, and why a command is refused: values."""

from __future__ import annotations

from enum import Enum
from typing import Final

from attrs import field, frozen

from zraft.ids import GroupId, Instance
from zraft.topics.applied import PartitionSettings
from zraft.topics.message import COORDINATOR, Message
from zraft.topics.stamps import MessageId
from zraft.topics.view import View

TOPIC_NAME_BYTES_MAX: Final = 249


class Refusal(Enum):
    """Why a command changed nothing."""

    EXISTS = "a topic of this name exists"
    NO_TOPIC = "there is no such topic"
    NO_PRODUCER = "there is no such producer"
    BAD_NAME = "a topic's name has 1 to 249 letters, digits, dots, dashes and underscores"
    BAD_COUNT = (
        "a topic has at least one partition, and at most as many as the setting topics.partitions_max says"
    )
    SHRINKING = "a topic cannot have fewer partitions: create another one"
    CHANGING = "the last change of the topic is not finished"
    COMPLETE = "the topic has all its partitions"
    TOO_MANY = (
        "as many as the settings topics.groups_max, topics.topics_max or topics.producers_max allow exist"
    )


@frozen
class RegistrySettings:
    """Limits that apply consults: replicated configuration (D-5)."""

    topics_max: int = 4096
    groups_max: int = 16_384
    partitions_max: int = 1024
    producers_max: int = 262_144


@frozen
class GroupRecord:
    """A group. Its replica is bootstrapped by `founder` alone; any other begins as a learner (D-18)."""

    group: GroupId
    topic: int
    founder: Instance
    born: bool


@frozen
class Birth:
    """What a new group begins with."""

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
        return Message(
            MessageId(COORDINATOR, self.seq),
            self.partitions,
            number=1 if len(self.partitions) == 1 else 0,
            partitions=self.partitions,
        )


@frozen
class Topic:
    """`partitions` take messages; `adding` will once the change is delivered; `wanted` is how many there are to be."""

    topic: int
    name: str
    wanted: int
    partitions: tuple[GroupId, ...] = ()
    adding: tuple[GroupId, ...] = ()
    change: int | None = None


@frozen
class Table:
    """What producers' libraries know of groups. `epoch` goes with every START."""

    position: int
    epoch: int
    groups: frozenset[GroupId]
    """That take messages."""
    deleting: frozenset[GroupId] = frozenset()

    def removed(self, group: GroupId) -> bool:
        return group <= self.position and group not in self.groups and group not in self.deleting


@frozen
class Result:
    """What a command came to: `created` is the id of a producer, topic or group, `birth` that of a group."""

    refusal: Refusal | None = None
    created: int | None = None
    birth: Birth | None = None
    removed: tuple[GroupId, ...] = field(factory=tuple)


_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def is_topic_name(name: str) -> bool:
    return (
        1 <= len(name) <= TOPIC_NAME_BYTES_MAX
        and _NAME_CHARACTERS.issuperset(name)
        and name not in (".", "..")
    )
