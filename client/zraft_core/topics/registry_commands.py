"""The commands of group 0's log that concern topics."""

from __future__ import annotations

from attrs import frozen

from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.registry_values import KEEP_ALL, Disks, Retention


@frozen
class RegisterProducer:
    """A new producer, named by the command's zxid. It is closed when `owner`, a session, ends."""

    owner: int


@frozen
class CloseProducer:
    """Command after which nothing of a producer is accepted; what was begun is delivered."""

    producer: ProducerId


@frozen
class EndOwner:
    """A session ended: all its producers are closed."""

    owner: int


@frozen
class CreateTopic:
    """A topic, without partitions yet: each is a group, created by a command of its own, for the sake of its id."""

    name: str
    partitions: int
    retention: Retention = KEEP_ALL


@frozen
class AlterTopic:
    """More partitions; the groups are created by commands of their own, then the change is multicast."""

    name: str
    partitions: int


@frozen
class RetainTopic:
    """Command that sets how long a topic's deliveries are kept from now on."""

    name: str
    retention: Retention


@frozen
class CreateGroup:
    """The next partition of a topic, named by the command's zxid; `founders` vote from the start (D-18)."""

    topic: int
    founders: Disks
    preferred: ServerId | None = None


@frozen
class PlaceGroup:
    """These disks are to be the group's voters, and `preferred` its leader."""

    group: GroupId
    wanted: Disks
    preferred: ServerId | None = None


@frozen
class Placed:
    """The group's voters are these disks, which is committed there: any other replica of it may go."""

    group: GroupId
    voters: Disks


@frozen
class TopicChanged:
    """The change with this number is delivered at all its destinations."""

    seq: int


@frozen
class DeleteTopic:
    """Command that deletes a topic.

    Its groups accept nothing new, and are removed when nothing of them is left anywhere (D-18).
    """

    name: str


@frozen
class Cleared:
    """`group` has logged the end of these, and nothing of them is pending or settled there (D-8e).

    `position`: that of the view which it had logged, said if a group was ever given up.
    """

    group: GroupId
    producers: tuple[ProducerId, ...]
    deleting: tuple[GroupId, ...]
    position: int = 0


@frozen
class GiveUp:
    """Command that gives up a group which has lost its majority for good.

    It takes no part in anything any more: others decide without it, and it is removed when nothing of it is left there.
    """

    group: GroupId


RegistryCommand = (
    RegisterProducer
    | CloseProducer
    | EndOwner
    | CreateTopic
    | AlterTopic
    | RetainTopic
    | CreateGroup
    | PlaceGroup
    | Placed
    | TopicChanged
    | DeleteTopic
    | Cleared
    | GiveUp
)
