"""Encodes what native clients are told of topics: where they are, deliveries, answers of partitions' leaders.

Source: docs/PROTOCOL-NATIVE.md, "Topics".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgpack

from zraft_core.errors import Code
from zraft_core.topics.messages import Answer, Reply
from zraft_core.topics.registry_values import Refusal, Topic
from zraft_core.wire.native_answers import encode_error, encode_pushed, encode_result, text_of
from zraft_core.znodes.outcome import Outcome

DIGEST_BYTES: Final = 16

ANSWERS: Final = tuple(Answer)
"""An answer's place here is its number on the wire."""

Refused = tuple[int, str, int | None, int | None, str]
"""(group, kind, leader or None, first or None, words for people)."""

Placed = tuple[int, int, int | None, Sequence[int]]
"""(group, topic, the server that should lead it or None, the servers that have it)."""


def encode_topic_outcome(number: int, outcome: Outcome) -> bytes:
    """What a command about topics came to, be it that group 0 refused it."""
    zxid, position, code, body = outcome
    if not code:
        return encode_result(number, zxid, {"position": position, "created": body[0]})
    further = {"zxid": zxid, "position": position}
    text = text_of(Code(code)) if body is None else Refusal[body[0].upper()].value
    return encode_error(number, Code(code), text, further=further)


def encode_topics(
    number: int,
    zxid: int,
    *,
    position: int,
    epoch: int,
    servers: Mapping[int, str],
    topics: Iterable[Topic],
    groups: Iterable[Placed],
    deleting: Iterable[int],
    destinations_max: int,
    features: int,
    known: bytes | None,
) -> bytes:
    """Where everything is. `known` is the digest of what the client has: that is not sent again."""
    rows = {
        "topics": [
            (
                *(topic.topic, topic.name, topic.wanted, topic.partitions, topic.adding),
                *(topic.retention.bytes_min, topic.retention.age_ms_max),
            )
            for topic in topics
        ],
        "groups": list(groups),
        "deleting": list(deleting),
    }
    digest = blake2b(msgpack.packb(rows), digest_size=DIGEST_BYTES).digest()
    fields = {"position": position, "epoch": epoch, "servers": dict(servers), "digest": digest}
    fields |= {"destinations_max": destinations_max, "features": features}
    return encode_result(number, zxid, fields | (rows if digest != known else {}))


def encode_fetched(number: int, zxid: int, parts: list[tuple[Any, ...]], refused: list[Refused]) -> bytes:
    """Of each partition that has an answer: (group, first, next, end, frontier, [(offset, stamp, message), ...])."""
    return encode_result(number, zxid, {"partitions": parts, "refused": refused})


_NUMBERS: Final = {answer: number for number, answer in enumerate(ANSWERS)}


def reply_row(reply: Reply, times: bool) -> tuple[Any, ...]:
    """A leader's answer about one message of the stream's producer; `times`: the stream asked for them."""
    row = (
        reply.mid.seq,
        reply.sender,
        _NUMBERS[reply.answer],
        reply.everywhere,
        reply.offset,
        reply.epoch,
        reply.view_epoch,
    )
    return (*row, reply.time) if times else row


def encode_replies(number: int, zxid: int, replies: list[tuple[Any, ...]], refused: list[Refused]) -> bytes:
    """What became of messages of a stream, and which groups took nothing."""
    return encode_pushed(number, "replies", zxid, {"replies": replies, "refused": refused})
