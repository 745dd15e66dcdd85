"""Requests about topics as maps, and their answers as values. Pure; docs/PROTOCOL-NATIVE.md, "Topics"."""

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
from zraft_core.topics.codec import decode_message
from zraft_core.topics.message import Delivery, as_fields
from zraft_core.topics.messages import Reply, StartRequest
from zraft_core.topics.registry_values import Table
from zraft_core.topics.stamps import MessageId, Stamp
from zraft_core.wire.native_topic_answers import ANSWERS

FETCH_BYTES_MAX: Final = 1_048_576
FEATURES_UNTOLD: Final = 4
"""The feature level of servers that do not tell theirs."""
BEYOND: Final = 2**62
"""An offset that no partition reaches: a request for it gets the bounds."""


@frozen
class Refused:
    """A partition's replica refused something; docs/PROTOCOL-NATIVE.md has the kinds."""

    group: GroupId
    kind: str
    leader: ServerId | None
    first: int | None
    detail: str


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
    refused: tuple[Refused, ...]


# -- group 0


def _created(answer: Answer) -> int:
    return int(answer["created"])


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


def topics(known: Metadata | None) -> Request[Metadata]:
    """Ask for all topics, linearizable. What is `known` is not sent again."""

    def metadata(answer: Answer) -> Metadata:
        servers = {}
        for server, address in answer["servers"].items():
            with suppress(ConfigError):
                servers[ServerId(server)] = parse_address(address, "topics")
        position, epoch, digest = answer["position"], answer["epoch"], answer["digest"]
        limits = answer["destinations_max"], answer.get("features", FEATURES_UNTOLD)
        if known is not None and known.digest == digest:
            table = Table(position, epoch, known.table.groups, known.table.deleting)
            return Metadata(table, known.topics, known.placements, servers, digest, *limits)
        found = [
            Topic(number, name, wanted, tuple(partitions), tuple(adding), size, age_ms)
            for number, name, wanted, partitions, adding, size, age_ms in answer["topics"]
        ]
        placements = {
            GroupId(group): Placement(ServerId(leader) if leader else None, tuple(replicas))
            for group, _, leader, replicas in answer["groups"]
        }
        deleting = frozenset(answer["deleting"])
        table = Table(position, epoch, frozenset(placements) - deleting, deleting)
        return Metadata(table, {topic.name: topic for topic in found}, placements, servers, digest, *limits)

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


def replies_of(producer: ProducerId, message: Answer) -> tuple[list[Reply], list[Refused]]:
    """Return what a push of a stream says."""
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
    return replies, [refused_of(row) for row in message["refused"]]


def refused_of(row: Sequence[Any]) -> Refused:
    """Return a refusal from its row on the wire."""
    group, kind, leader, first, detail = row
    return Refused(
        GroupId(group), str(kind), None if leader is None else ServerId(leader), first, str(detail)
    )


# -- consuming


def fetch(parts: Iterable[tuple[GroupId, int, int]], wait_ms: int) -> Request[Fetched]:
    """Ask for records; `parts`: (group, offset, bytes at most) each."""
    fields = {"type": "fetch", "partitions": [list(part) for part in parts], "wait_ms": wait_ms}
    return Request(fields, Kind.READ, _fetched)


def _fetched(answer: Answer) -> Fetched:
    try:
        parts = tuple(
            [
                Part(
                    GroupId(group),
                    first,
                    following,
                    end,
                    Stamp(*frontier),
                    tuple(
                        [
                            Delivery(offset, Stamp(*stamp), decode_message(packed), 0)
                            for offset, stamp, packed in deliveries
                        ]
                    ),
                )
                for group, first, following, end, frontier, deliveries in answer["partitions"]
            ]
        )
    except ProtocolError as error:
        raise WireError(f"fetch: {error}") from error
    return Fetched(parts, tuple([refused_of(row) for row in answer["refused"]]))


def need(times: Mapping[GroupId, int]) -> Request[None]:
    """Make a request that tells partitions up to which time a consumer needs them."""
    fields = {"type": "need", "partitions": [[group, time] for group, time in times.items()]}
    return Request(fields, Kind.READ, _nothing)


# -- what one leader answers


def claim(group: GroupId, command: ClaimCommand) -> Request[ClaimAnswer | Refused]:
    """Ask for a command of claims.

    It may be carried out again if it is repeated: commands of claims are made for that.
    """

    def answered(answer: Answer) -> ClaimAnswer | Refused:
        row = answer["refused"]
        return decode_answer(answer["answer"]) if row is None else refused_of(row)

    return Request({"type": "claim", "group": group, "command": encode_command(command)}, Kind.READ, answered)


def claims(group: GroupId, name: str) -> Request[ClaimsView | Refused]:
    """Make a request for a group's claims on a partition."""

    def answered(answer: Answer) -> ClaimsView | Refused:
        row = answer["refused"]
        return decode_view(answer["view"]) if row is None else refused_of(row)

    return Request({"type": "claims", "group": group, "name": name}, Kind.READ, answered)


def _offset(answer: Answer) -> int | Refused | None:
    row = answer["refused"]
    found: int | None = answer["offset"] if row is None else None
    return found if row is None else refused_of(row)


def seek(group: GroupId, consumer: bytes, offset: int | None) -> Request[int | Refused | None]:
    """Make a request that stores a consumer's offset; None removes it."""
    fields = {"type": "seek", "group": group, "consumer": consumer, "offset": offset}
    return Request(fields, Kind.READ, _offset)


def offset(group: GroupId, consumer: bytes) -> Request[int | Refused | None]:
    """Make a request for a consumer's stored offset."""
    return Request({"type": "offset", "group": group, "consumer": consumer}, Kind.READ, _offset)
