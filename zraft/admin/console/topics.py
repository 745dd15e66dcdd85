"""Topics, their records and consumers: the requests of the native protocol, and their answers as values. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from zraft.admin.console.values import (
    ConsumerRow,
    Consumers,
    Elsewhere,
    PartitionRow,
    Records,
    RecordShown,
    ReplicaHere,
    Topics,
    TopicShown,
)
from zraft.server.operators.inner_clients import Message
from zraft.server.operators.status import PartitionsStatus, PartitionStatus
from zraft_core.errors import ProtocolError
from zraft_core.records.batch import read_batch
from zraft_core.records.compression import MissingPackageError
from zraft_core.topics.codec import decode_message
from zraft_core.topics.registry_values import numbered

TOPICS_MAX: Final = 200
PARTITIONS_MAX: Final = 500
"""Partitions of all topics together that are shown."""
ASKED_MAX: Final = 64
"""Partitions of a topic whose consumers are asked for."""
CONSUMERS_MAX: Final = 500
RECORDS_MAX: Final = 50
FETCH_BYTES: Final = 65_536
"""A longer message comes alone."""
BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""The most that a batch is decompressed to."""
SHOWN_BYTES_MAX: Final = 2_048
"""Bytes of a key or a value that are shown."""
HEADERS_MAX: Final = 20

TOPICS_REQUEST: Final[Message] = {"id": 1, "type": "topics", "consistency": "local"}


def consumers_requests(groups: Sequence[int]) -> list[Message]:
    """Return the requests for the consumers of partitions; the ids count from 1."""
    return [{"id": at, "type": "consumers", "group": group} for at, group in enumerate(groups, 1)]


def fetch_request(group: int, offset: int) -> Message:
    """Return the request for records from an offset on."""
    return {"id": 1, "type": "fetch", "partitions": [[group, offset, FETCH_BYTES]], "wait_ms": 0}


def groups_of(answer: Message, topic: str) -> list[int] | None:
    """Return the groups of a topic's partitions, in order; None if there is no such topic for the caller."""
    for _, name, wanted, groups, adding, _, _ in answer["topics"]:
        if name == topic:
            # The last of a number takes messages, or will.
            return list(dict(numbered(groups, adding, wanted, answer["deleting"])).values())
    return None


def topics_of(answer: Message, here: PartitionsStatus, pages: Mapping[int, str | None]) -> Topics:
    """Return the topics of an answer to `TOPICS_REQUEST`, and what this server has of their partitions."""
    replicas = {one.state.group: one for one in here.partitions}
    placed = {group: (leader, tuple(servers)) for group, _, leader, servers in answer["groups"]}
    rows = sorted(answer["topics"], key=lambda row: row[1])
    left = PARTITIONS_MAX
    found = []
    for _, name, wanted, groups, adding, retention_bytes, retention_age_ms in rows[:TOPICS_MAX]:
        all_groups = list(numbered(groups, adding, wanted, answer["deleting"]))
        partitions = []
        for number, group in all_groups[:left]:
            should_lead, servers = placed.get(group, (None, ()))
            partitions.append(PartitionRow(number, group, servers, should_lead, _here(replicas.get(group))))
        left -= len(partitions)
        found.append(
            TopicShown(
                name,
                retention_bytes,
                retention_age_ms,
                tuple(partitions),
                len(all_groups) - len(partitions),
            )
        )
    return Topics(tuple(found), len(rows) - len(found), tuple(sorted(pages.items())))


def _here(replica: PartitionStatus | None) -> ReplicaHere | None:
    if replica is None:
        return None
    state = replica.state
    return ReplicaHere(
        state.leader,
        state.leads,
        state.first,
        state.end,
        state.stored_bytes,
        replica.oldest_age_ms,
        state.problem,
        state.delivered.records,
        state.delivered.bytes,
        tuple([one.server for one in state.followers if one.in_sync]),
        tuple([one.server for one in state.followers if not one.in_sync]),
    )


# -- records


def records_of(answer: Message, group: int, offset: int) -> Records | str:
    """Return the records of an answer to a `fetch_request`, from `offset` on; or why there are none, in words."""
    for refused in answer["refused"]:
        _, kind, leader, first, detail = refused
        if kind == "gone" and first is not None:
            return Records(group, first, first, first, ())
        where = "" if leader is None else f"; server {leader} leads it"
        return f"{kind.replace('_', ' ')}: {detail or 'the replica on this server cannot tell'}{where}"
    for _, first, following, end, _, deliveries in answer["partitions"]:
        found: list[RecordShown] = []
        for record in _records(deliveries, offset):
            if len(found) >= RECORDS_MAX:
                return Records(group, first, end, record.offset, tuple(found))
            found.append(record)
        return Records(group, first, end, following, tuple(found))
    return "the server did not tell of this partition"


def _records(deliveries: Sequence[tuple[int, Any, bytes]], offset: int) -> Iterator[RecordShown]:
    for at, _, packed in deliveries:
        message = decode_message(packed)
        if not message.records:
            if at >= offset:
                yield _record(at, None, None, message.payload, ())
            continue
        try:
            batch = read_batch(message.payload, BATCH_BYTES_MAX, max(0, offset - at))
            for place, one in enumerate(batch, max(at, offset)):
                yield _record(place, one.timestamp, one.key, one.value, one.headers)
        except (ProtocolError, MissingPackageError) as error:
            yield _record(at, None, None, f"a batch that cannot be read: {error}".encode(), ())


def _record(
    offset: int,
    timestamp: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> RecordShown:
    return RecordShown(
        offset,
        timestamp,
        None if key is None else key[:SHOWN_BYTES_MAX],
        0 if key is None else len(key),
        None if value is None else value[:SHOWN_BYTES_MAX],
        0 if value is None else len(value),
        tuple([(name, (of or b"")[:SHOWN_BYTES_MAX]) for name, of in headers[:HEADERS_MAX]]),
    )


# -- consumers


def consumers_of(
    topic: str,
    groups: Sequence[int],
    answers: Sequence[Message],
    pages: Mapping[int, str | None],
) -> Consumers:
    """Return the consumers of a topic from the answers to `consumers_requests` of its first partitions."""
    rows: list[ConsumerRow] = []
    elsewhere: list[Elsewhere] = []
    for answer in sorted(answers, key=lambda one: int(one["id"])):
        partition = answer["id"] - 1
        refused = answer.get("refused")
        if not answer.get("success"):
            elsewhere.append(Elsewhere(partition, None, None, str(answer.get("error", "refused"))))
        elif refused is not None:
            _, kind, leader, _, detail = refused
            page = None if leader is None else pages.get(leader)
            elsewhere.append(Elsewhere(partition, leader, page, detail or kind.replace("_", " ")))
        else:
            end = answer["end"] or 0
            for name, offset, owners in answer["consumers"] or ():
                rows.append(
                    ConsumerRow(
                        name.decode(errors="backslashreplace"),
                        partition,
                        offset,
                        end,
                        max(0, end - offset),
                        None if owners is None else tuple(owners),
                    )
                )
    rows.sort(key=lambda row: (row.name, row.partition))
    return Consumers(topic, tuple(rows[:CONSUMERS_MAX]), tuple(elsewhere), len(groups) - len(answers))
