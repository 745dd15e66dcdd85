"""Requests about topics as maps, and their answers as values. Pure; docs/reference/protocol-native.md, "Topics"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from attrs import frozen

from zraft_client.calls import Answer, Kind, Request
from zraft_client.errors import WireError
from zraft_client.topics.values import Metadata, Placement, Topic
from zraft_core.address import parse_address
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.claims.codec import decode_answer, decode_view, encode_command
from zraft_core.claims.commands import ClaimCommand
from zraft_core.errors import ConfigError, ProtocolError
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.layout import NUMBER_MAX, any_binary, number, wrong
from zraft_core.topics.codec import decode_message
from zraft_core.topics.message import Delivery, as_fields
from zraft_core.topics.messages import Reply, StartRequest
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId, Stamp
from zraft_core.wire.native.topic_pushes import ANSWERS, REPLIES
from zraft_core.wire.native.topic_results import (
    FETCH,
    REFUSED,
    RESULTS,
    TOPICS,
    ClaimResult,
    ClaimsResult,
    ConsumersResult,
    OffsetResult,
    ReplicaRefusal,
    TopicResult,
)

FETCH_BYTES_MAX: Final = 1_048_576
BEYOND: Final = 2**62
"""An offset that no partition reaches: a request for it gets the bounds."""


@frozen
class Part:
    """One partition's part of a fetch; `deliveries` have no position."""

    group: GroupId
    first: int
    next: int
    end: int
    frontier: Stamp
    deliveries: tuple[Delivery, ...]


@frozen
class Fetched:
    """Result of a fetch: parts of some partitions, refusals of others."""

    parts: tuple[Part, ...]
    refused: tuple[ReplicaRefusal, ...]


# -- group 0


def _created(answer: Answer) -> int:
    result: TopicResult = RESULTS["create_topic"].unpack_map(answer, "created")
    return number.unpack(result.created, "created.created")  # type: ignore[no-any-return]


def _nothing(_: Answer) -> None:
    return None


def create_topic(
    name: str, partitions: int, retention_bytes: int | None = None, retention_age_ms: int | None = None
) -> Request[int]:
    """Make a request that creates a topic."""
    fields = {"type": "create_topic", "topic": name, "partitions": partitions}
    return Request(fields | _retention(retention_bytes, retention_age_ms), Kind.WRITE, _created)


def retain_topic(name: str, retention_bytes: int | None, retention_age_ms: int | None) -> Request[None]:
    """Make a request that changes how much of a topic is kept; None is without limit."""
    fields: dict[str, Any] = {"type": "retain_topic", "topic": name}
    return Request(fields | _retention(retention_bytes, retention_age_ms), Kind.WRITE, _nothing)


def _retention(size: int | None, age_ms: int | None) -> dict[str, Any]:
    found = {"retention_bytes": size, "retention_age_ms": age_ms}
    return {name: limit for name, limit in found.items() if limit is not None}


def alter_topic(name: str, partitions: int) -> Request[None]:
    """Make a request that gives a topic this many partitions."""
    return Request({"type": "alter_topic", "topic": name, "partitions": partitions}, Kind.WRITE, _nothing)


def delete_topic(name: str) -> Request[None]:
    """Make a request that deletes a topic with all its messages."""
    return Request({"type": "delete_topic", "topic": name}, Kind.WRITE, _nothing)


def register_producer() -> Request[tuple[ProducerId, int]]:
    """Register; the answer has the producer's id, and a zxid at which it exists."""
    return Request(
        {"type": "register_producer"},
        Kind.WRITE,
        lambda answer: (ProducerId(_created(answer)), answer["zxid"]),
    )


def close_producer(producer: ProducerId) -> Request[None]:
    """Make a request that forgets a producer."""
    return Request({"type": "close_producer", "producer": producer}, Kind.WRITE, _nothing)


def _groups(numbers: Iterable[int]) -> tuple[GroupId, ...]:
    return tuple(map(GroupId, numbers))


def topics(known: Metadata | None) -> Request[Metadata]:
    """Ask for all topics, linearizable. What is `known` is not sent again."""

    def metadata(answer: Answer) -> Metadata:
        result = TOPICS.unpack_map(answer, "topics")
        servers = {}
        for server, address in result.servers.items():
            with suppress(ConfigError):
                servers[ServerId(server)] = parse_address(address, "topics")
        position, epoch, digest = result.position, result.epoch, result.digest
        limits = result.destinations_max, result.features, frozenset(result.unwritable or ())
        if known is not None and known.digest == digest:
            table = Table(position, epoch, known.table.groups, known.table.deleting)
            return Metadata(
                *(table, known.topics, known.placements, servers, digest, *limits), replaced=known.replaced
            )
        if result.topics is None or result.groups is None or result.deleting is None:
            raise wrong("topics.topics", "the topics, as they are not those that are known", result.topics)
        found = [
            Topic(
                *(row.id, row.name, row.wanted, _groups(row.groups), _groups(row.adding)),
                *(row.retention_bytes, row.retention_age_ms),
            )
            for row in result.topics
        ]
        placements = {
            GroupId(group): Placement(ServerId(leader) if leader else None, tuple(map(ServerId, replicas)))
            for group, _, leader, replicas in result.groups
        }
        deleting = frozenset(_groups(result.deleting))
        table = Table(position, epoch, frozenset(placements) - deleting, deleting)
        there = {topic.id: {*topic.partitions, *topic.adding} for topic in found}
        replaced = frozenset(
            GroupId(group)
            for group, topic, _, _ in result.groups
            if group in deleting and topic in there and group not in there[topic]
        )
        return Metadata(
            *(table, {topic.name: topic for topic in found}, placements, servers, digest, *limits),
            replaced=replaced,
        )

    fields: dict[str, Any] = {"type": "topics"}
    if known is not None:
        fields["digest"] = known.digest
    return Request(fields, Kind.READ, metadata)


# -- producing


def subscribe_producer(
    producer: ProducerId, session: int, password: bytes, floor: int, *, times: bool
) -> Request[None]:
    """Ask for a stream.

    `times`: answers tell up to which time the partition has delivered; servers know that with rounds.
    """
    fields: dict[str, Any] = {
        "type": "subscribe",
        "producer": producer,
        "session": session,
        "password": password,
        "floor": floor,
    }
    if times:
        fields["times"] = True
    return Request(fields, Kind.READ, _nothing)


def kind_of(request: StartRequest) -> tuple[int, int, bool, bool]:
    """Return what all messages of one `produce` have in common."""
    return request.floor, request.epoch, request.relayed, request.staged


def produce(stream: int, group: GroupId, requests: Sequence[StartRequest]) -> Mapping[str, Any]:
    """Return messages of one kind, which have no answer."""
    first = requests[0]
    fields: dict[str, Any] = {
        "type": "produce",
        "id": stream,
        "group": group,
        "floor": first.floor,
        "epoch": first.epoch,
        "relayed": first.relayed,
        "messages": [as_fields(one.message) for one in requests],
    }
    if first.staged:
        fields["staged"] = True
    return fields


def replies_of(producer: ProducerId, message: Answer) -> tuple[list[Reply], list[ReplicaRefusal]]:
    """Return what a push of a stream says.

    Raises:
        ProtocolError: it is not well-formed.
    """
    if not _are_replies(message):
        REPLIES.unpack_map(message, "replies")
    replies = [
        Reply(
            MessageId(producer, number),
            GroupId(group),
            ANSWERS[answer],
            everywhere,
            offset,
            epoch,
            view_epoch,
            *times,
        )
        for number, group, answer, everywhere, offset, epoch, view_epoch, *times in message["replies"]
    ]
    refused = message["refused"]
    return replies, [_refusal(row, "replies.refused") for row in refused] if refused else []


def _are_replies(message: Answer) -> bool:
    """Return whether a push of a stream is well-formed, by the same bounds as its layout; there is a row per message."""
    try:
        rows = message["replies"]
        if type(rows) is not tuple:
            return False
        for number_, group, answer, everywhere, offset, epoch, view_epoch, *times in rows:
            if (
                type(number_) is not int
                or type(group) is not int
                or type(answer) is not int
                or type(everywhere) is not bool
                or (offset is not None and (type(offset) is not int or not 0 <= offset <= NUMBER_MAX))
                or type(epoch) is not int
                or type(view_epoch) is not int
                or not 0 <= number_ | group | epoch | view_epoch <= NUMBER_MAX
                or not group
                or not 0 <= answer < _ANSWERS
            ):
                return False
            if times:
                (time,) = times
                if type(time) is not int or not 0 <= time <= NUMBER_MAX:
                    return False
    except (KeyError, TypeError, ValueError):
        return False
    return "refused" in message and type(message["refused"]) is tuple


_ANSWERS: Final = len(ANSWERS)
_refusal: Final = REFUSED.form.unpack
_as_tuple: Final[Any] = tuple.__new__
"""Makes a named tuple of a tuple, in one call less than its class."""


# -- consuming


def fetch(parts: Iterable[tuple[GroupId, int, int]], wait_ms: int) -> Request[Fetched]:
    """Ask for records; `parts`: (group, offset, bytes at most) each."""
    fields = {"type": "fetch", "partitions": [list(part) for part in parts], "wait_ms": wait_ms}
    return Request(fields, Kind.READ, _fetched)


def _fetched(answer: Answer) -> Fetched:
    if not _are_deliveries(answer):
        FETCH.unpack_map(answer, "fetch")
    try:
        parts = tuple(
            [
                Part(
                    GroupId(group),
                    first,
                    following,
                    end,
                    _as_tuple(Stamp, frontier),
                    tuple(
                        [
                            Delivery(offset, _as_tuple(Stamp, stamp), decode_message(packed), 0)
                            for offset, stamp, packed in deliveries
                        ]
                    ),
                )
                for group, first, following, end, frontier, deliveries in answer["partitions"]
            ]
        )
    except ProtocolError as error:
        raise WireError(f"fetch: {error}") from error
    refused = answer["refused"]
    return Fetched(parts, tuple([_refusal(row, "fetch.refused") for row in refused]) if refused else ())


def _are_deliveries(answer: Answer) -> bool:
    """Return whether an answer to a fetch is well-formed, by the same bounds as its layout; there is a row per record."""
    try:
        rows = answer["partitions"]
        if type(rows) is not tuple:
            return False
        for group, first, following, end, frontier, deliveries in rows:
            if (
                type(frontier) is not tuple
                or type(deliveries) is not tuple
                or type(group) is not int
                or type(first) is not int
                or type(following) is not int
                or type(end) is not int
                or not 0 <= group | first | following | end <= NUMBER_MAX
            ):
                return False
            time, sender, sub, single = frontier
            if (
                type(time) is not int
                or type(sender) is not int
                or type(sub) is not int
                or type(single) is not int
                or not 0 <= time | sender | sub | single <= NUMBER_MAX
            ):
                return False
            for offset, stamp, packed in deliveries:
                if type(stamp) is not tuple:
                    return False
                time, sender, sub, single = stamp
                if (
                    type(offset) is not int
                    or type(time) is not int
                    or type(sender) is not int
                    or type(sub) is not int
                    or type(single) is not int
                    or not 0 <= offset | time | sender | sub | single <= NUMBER_MAX
                    or type(packed) is not bytes
                ):
                    return False
    except (KeyError, TypeError, ValueError):
        return False
    return "refused" in answer and type(answer["refused"]) is tuple


def need(times: Mapping[GroupId, int]) -> Request[None]:
    """Make a request that tells partitions up to which time a consumer needs them."""
    fields = {"type": "need", "partitions": [[group, time] for group, time in times.items()]}
    return Request(fields, Kind.READ, _nothing)


# -- what one leader answers


def claim(group: GroupId, command: ClaimCommand) -> Request[ClaimAnswer | ReplicaRefusal]:
    """Ask for a command of claims.

    It may be carried out again if it is repeated: commands of claims are made for that.
    """

    def answered(answer: Answer) -> ClaimAnswer | ReplicaRefusal:
        result: ClaimResult = RESULTS["claim"].unpack_map(answer, "claim")
        if result.refused is not None:
            return result.refused
        return decode_answer(any_binary.unpack(result.answer, "claim.answer"))

    return Request({"type": "claim", "group": group, "command": encode_command(command)}, Kind.READ, answered)


def claims(group: GroupId, name: str) -> Request[ClaimsView | ReplicaRefusal]:
    """Make a request for a group's claims on a partition."""

    def answered(answer: Answer) -> ClaimsView | ReplicaRefusal:
        result: ClaimsResult = RESULTS["claims"].unpack_map(answer, "claims")
        if result.refused is not None:
            return result.refused
        return decode_view(any_binary.unpack(result.view, "claims.view"))

    return Request({"type": "claims", "group": group, "name": name}, Kind.READ, answered)


def _offset(answer: Answer) -> int | ReplicaRefusal | None:
    result: OffsetResult = RESULTS["offset"].unpack_map(answer, "offset")
    return result.offset if result.refused is None else result.refused


def seek(group: GroupId, consumer: bytes, offset: int | None) -> Request[int | ReplicaRefusal | None]:
    """Make a request that stores a consumer's offset; None removes it."""
    fields = {"type": "seek", "group": group, "consumer": consumer, "offset": offset}
    return Request(fields, Kind.READ, _offset)


def offset(group: GroupId, consumer: bytes) -> Request[int | ReplicaRefusal | None]:
    """Make a request for a consumer's stored offset."""
    return Request({"type": "offset", "group": group, "consumer": consumer}, Kind.READ, _offset)


def offset_at(group: GroupId, time_ms: int) -> Request[int | ReplicaRefusal]:
    """Make a request for the offset of the first record that was delivered at a time, in ms since 1970, or later."""

    def answered(answer: Answer) -> int | ReplicaRefusal:
        result: OffsetResult = RESULTS["offset_at"].unpack_map(answer, "offset_at")
        if result.refused is not None:
            return result.refused
        return number.unpack(result.offset, "offset_at.offset")  # type: ignore[no-any-return]

    return Request({"type": "offset_at", "group": group, "time_ms": time_ms}, Kind.READ, answered)


def consumers(group: GroupId) -> Request[ConsumersResult | ReplicaRefusal]:
    """Make a request for who consumes a partition."""

    def answered(answer: Answer) -> ConsumersResult | ReplicaRefusal:
        result: ConsumersResult = RESULTS["consumers"].unpack_map(answer, "consumers")
        return result if result.refused is None else result.refused

    return Request({"type": "consumers", "group": group}, Kind.READ, answered)
