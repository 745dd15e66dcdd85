"""Topics, records and receipts as programs see them, and where everything is: frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from attrs import field, frozen

from zraft_client.topics.errors import NoTopicError
from zraft_core.address import Address
from zraft_core.frozen import statically_frozen
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.registry_values import Table, numbered
from zraft_core.topics.stamps import MessageId, Stamp

FEATURES_OF_ROUNDS: Final = 5
FEATURES_OF_RECORDS: Final = 6
"""docs/how-to/upgrades.md, "Feature levels"."""


@frozen
class Topic:
    """A topic: `partitions` are its groups in their order, `wanted` how many there should be.

    Data of a partition may be removed once `retention_bytes` are behind it, or if it is older than
    `retention_age_ms`; None: that is no reason.
    """

    id: int
    name: str
    wanted: int
    partitions: tuple[GroupId, ...]
    adding: tuple[GroupId, ...] = ()
    retention_bytes: int | None = None
    retention_age_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        """True when all wanted partitions exist."""
        return len(self.partitions) >= self.wanted and not self.adding


@frozen
class Placement:
    """Place of a group: the preferred leader (None if unknown), and all servers that have a replica."""

    leader: ServerId | None
    servers: tuple[ServerId, ...]


@frozen
class Metadata:
    """All topics and groups, as of a position of group 0's log; `digest` is that of the server's answer.

    `destinations_max`: how many partitions one message may go to. `features`: the servers' feature level. `unwritable`: ids
    of topics that this client may see and not produce to.
    """

    table: Table
    topics: Mapping[str, Topic]
    placements: Mapping[GroupId, Placement]
    servers: Mapping[ServerId, Address]
    digest: bytes = b""
    destinations_max: int = 64
    features: int = 4
    unwritable: frozenset[int] = frozenset()
    replaced: frozenset[GroupId] = frozenset()
    """Groups that are given up, and whose place in a topic another one has taken."""
    homes: Mapping[GroupId, tuple[str, int]] = field(init=False, repr=False, eq=False)
    """The name of the topic and the number of the partition of each group."""

    def __attrs_post_init__(self) -> None:
        deleting = self.table.deleting
        homes = {
            group: (topic.name, number)
            for topic in self.topics.values()
            for number, group in numbered(topic.partitions, topic.adding, topic.wanted, deleting)
        }
        object.__setattr__(self, "homes", homes)

    @property
    def knows_rounds(self) -> bool:
        """True if the servers know rounds, claims of intervals and commits of ranges."""
        return self.features >= FEATURES_OF_ROUNDS

    @property
    def knows_batches(self) -> bool:
        """True if the servers know messages that are record batches."""
        return self.features >= FEATURES_OF_RECORDS

    def takes(self, topic: Topic) -> bool:
        """Return whether all partitions of a topic take messages: none of them waits for another in its place."""
        return self.table.groups.issuperset(topic.partitions)

    def topic(self, name: str) -> Topic:
        """Return a topic.

        Raises:
            NoTopicError: there is none of this name.
        """
        found = self.topics.get(name)
        if found is None:
            raise NoTopicError(f"topic {name!r}: found {len(self.topics)} topics, none of this name")
        return found

    def group(self, name: str, partition: int) -> GroupId:
        """Return the group of a partition.

        Raises:
            NoTopicError: there is no such topic or partition.
        """
        partitions = self.topic(name).partitions
        if not 0 <= partition < len(partitions):
            raise NoTopicError(
                f"topic {name!r}: found {len(partitions)} partitions, numbered from 0, and none with number {partition}"
            )
        return partitions[partition]


@statically_frozen
class Record:
    """A record as a consumer gets it.

    `stamp` is the place of its message in the order of all messages: the same message has the same one in other partitions.
    `id` names the message: its producer and its number there; `index` is the record's place in it. `timestamp` is what its
    producer said, in milliseconds since 1970; None where producers say none.

    Producers of Kafka may send null: a value is empty then, with `is_null`, and so is the value of a header. Of several
    headers of one name the last one is shown.
    """

    topic: str
    partition: int
    offset: int
    stamp: Stamp
    value: bytes = field(repr=lambda value: f"<{len(value)} bytes>")
    key: bytes | None
    headers: Mapping[str, bytes]
    id: MessageId
    destinations: tuple[GroupId, ...]
    timestamp: int | None = None
    index: int = 0
    is_null: bool = False


@frozen
class Receipt:
    """A record that is delivered at all its destinations or, with acknowledgement "accepted", certainly will be.

    `id` is that of its message, and `index` its place in it. `offsets` has its offsets in those of (topic, partition) that
    destinations told; they may tell none if answers were lost.
    """

    id: MessageId
    offsets: Mapping[tuple[str, int], int]
    index: int = 0


@frozen
class ConsumerPlace:
    """Place of a consumer in a partition: the offset that it continues with. `end` is behind the partition's last record.

    `owners`: who claims the partition now, if the consumer is a group that shares partitions by claims; None if it is one
    that stores its offset itself.
    """

    topic: str
    partition: int
    name: bytes
    offset: int
    end: int
    owners: tuple[str, ...] | None

    @property
    def lag(self) -> int:
        """The number of records that are still to be consumed."""
        return max(0, self.end - self.offset)


@frozen
class Bounds:
    """Bounds of a partition: its first offset, and the offset behind its last record."""

    first: int
    end: int
