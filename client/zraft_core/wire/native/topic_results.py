"""Results of native requests about topics: servers pack them, and clients read them, by these declarations.

Source: docs/reference/protocol-native.md, "Topics"; its tables of results come from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from zraft_core.ids import GroupId, ServerId
from zraft_core.layout import (
    Form,
    Record,
    any_binary,
    any_string,
    listed,
    number,
    optional,
    or_absent,
    row,
    wrong,
)
from zraft_core.topics import forms
from zraft_core.wire.native.results import MANY, EmptyResult, server

FEATURES_UNTOLD: Final = 4
"""The feature level of servers that do not tell theirs."""


@frozen
class TopicResult:
    """The id of what a command created, None if it created nothing."""

    created: int | None


@frozen
class TopicRow:
    """A topic: `groups` take messages, `adding` will, `wanted` is how many there are to be."""

    id: int
    name: str
    wanted: int
    groups: tuple[int, ...]
    adding: tuple[int, ...]
    retention_bytes: int | None
    retention_age_ms: int | None


@frozen
class TopicsResult:
    """All topics and groups, as of a position of group 0's log.

    Each of `groups` is (group, topic, the server that should lead it or None, the servers that have it). Of what has
    the digest that the client has, `topics`, `groups` and `deleting` are left out. `topics` are those that the client may
    see, and `unwritable` those among them that it may not produce to; `groups` are all.
    """

    position: int
    epoch: int
    servers: dict[int, str]
    digest: bytes
    destinations_max: int
    features: int = FEATURES_UNTOLD
    topics: tuple[TopicRow, ...] | None = None
    groups: tuple[tuple[int, int, int | None, Sequence[int]], ...] | None = None
    deleting: tuple[int, ...] | None = None
    unwritable: tuple[int, ...] | None = None


@frozen
class ReplicaRefusal:
    """A partition's replica refused something; docs/reference/protocol-native.md has the kinds. `detail` is for people."""

    group: GroupId
    kind: str
    leader: ServerId | None
    first: int | None
    detail: str


@frozen
class FetchResult:
    """Partitions that have an answer, and those that refused.

    Each of `partitions` is (group, first, next, end, frontier, deliveries), and each delivery (offset, stamp, message).
    """

    partitions: tuple[tuple[Any, ...], ...]
    refused: tuple[ReplicaRefusal, ...]


@frozen
class RefusedResult:
    """A partition's replica refused a request of claims or offsets."""

    refused: ReplicaRefusal


@frozen
class ClaimResult:
    """Answer of a partition's leader to a command of claims, unless the replica refused it."""

    answer: bytes | None = None
    refused: ReplicaRefusal | None = None


@frozen
class ClaimsResult:
    """A partition's view of a group of consumers, unless the replica refused to give it."""

    view: bytes | None = None
    refused: ReplicaRefusal | None = None


@frozen
class OffsetResult:
    """Offset that a partition keeps for a consumer, or has found, unless the replica refused."""

    offset: int | None = None
    refused: ReplicaRefusal | None = None


@frozen
class ConsumersResult:
    """Consumers of a partition, unless the replica refused to tell; `end` is the offset behind its last record.

    Each of `consumers` is (name, the offset that it continues with, owners): of a group that shares the partition by
    claims the owners of these, None of one that stores its offset itself.
    """

    consumers: tuple[tuple[bytes, int, tuple[str, ...] | None], ...] | None = None
    end: int | None = None
    refused: ReplicaRefusal | None = None


def _addresses(value: Any, name: str) -> dict[int, str]:
    if type(value) is dict and all(type(one) is int and type(at) is str for one, at in value.items()):
        return value
    raise wrong(name, _ADDRESSES, value)


_ADDRESSES: Final = "a map of ids to HOST:PORT"

REFUSED: Final = Record(ReplicaRefusal, number, any_string, optional(server), optional(number), any_string)
NOT_TAKEN: Final = Record(RefusedResult, REFUSED.form)
_refused: Final = optional(REFUSED.form)
_numbers: Final = listed(number, MANY)
_topic: Final = Record(
    TopicRow, number, any_string, number, _numbers, _numbers, optional(number), optional(number)
).form
_placed: Final = row(group=number, topic=number, leader=optional(server), servers=listed(server, MANY))
_delivery: Final = row(offset=number, stamp=forms.stamp, message=any_binary)
_fetched: Final = row(
    group=number,
    first=number,
    next=number,
    end=number,
    frontier=forms.stamp,
    deliveries=listed(_delivery, MANY),
)

TOPICS: Final = Record(
    TopicsResult,
    number,
    number,
    Form(_addresses, expected=_ADDRESSES),
    any_binary,
    number,
    number,
    or_absent(listed(_topic, MANY)),
    or_absent(listed(_placed, MANY)),
    or_absent(_numbers),
    or_absent(_numbers),
)
FETCH: Final = Record(FetchResult, listed(_fetched, MANY), listed(REFUSED.form, MANY))
TOPIC: Final = Record(TopicResult, optional(number))
_offset: Final = Record(OffsetResult, optional(number), _refused)

RESULTS: Final[Mapping[str, Record[Any]]] = {
    "topics": TOPICS,
    "create_topic": TOPIC,
    "retain_topic": TOPIC,
    "alter_topic": TOPIC,
    "delete_topic": TOPIC,
    "register_producer": TOPIC,
    "close_producer": TOPIC,
    "fetch": FETCH,
    "need": Record(EmptyResult),
    "claim": Record(ClaimResult, any_binary, _refused),
    "claims": Record(ClaimsResult, any_binary, _refused),
    "seek": _offset,
    "offset": _offset,
    "offset_at": _offset,
    "consumers": Record(
        ConsumersResult,
        optional(
            listed(row(name=any_binary, offset=number, owners=optional(listed(any_string, MANY))), MANY)
        ),
        optional(number),
        _refused,
    ),
}
"""The own fields of results, beside those of every result and of every write."""
