"""Bytes of what native clients are told of topics: where they are, deliveries, answers of partitions' leaders.

Source: docs/reference/protocol-native.md, "Topics".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgpack

from zraft_core.errors import Code
from zraft_core.topics.messages import Reply
from zraft_core.topics.registry_values import Refusal, Topic
from zraft_core.wire.native.failures import RETRIABLE, Failure, encode_failure, text_of
from zraft_core.wire.native.topic_pushes import ANSWERS
from zraft_core.wire.native.topic_results import (
    REFUSED,
    TOPIC,
    TOPICS,
    ReplicaRefusal,
    TopicResult,
    TopicRow,
    TopicsResult,
)
from zraft_core.znodes.outcome import Outcome

_pack: Final = msgpack.Packer().pack

DIGEST_BYTES: Final = 16

Placed = tuple[int, int, int | None, Sequence[int]]
"""(group, topic, the server that should lead it or None, the servers that have it)."""


def encode_topic_outcome(number: int, outcome: Outcome, denied: str = "") -> bytes:
    """Return the bytes of what a command about topics came to, be it that group 0 refused it; `denied`: why with NO_AUTH."""
    zxid, position, code, body = outcome
    if not code:
        return _result(number, zxid, {"position": position} | TOPIC.pack_map(TopicResult(body[0])))
    text = denied or text_of(Code(code)) if body is None else Refusal[body[0].upper()].value
    return encode_failure(
        number, Failure(Code(code).name, text, Code(code) in RETRIABLE, False, zxid, position)
    )


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
    unwritable: Sequence[int] = (),
) -> bytes:
    """Return the bytes of where everything is.

    `known` is the digest of what the client has, which is not sent again.
    """
    rows = [
        TopicRow(
            *(topic.topic, topic.name, topic.wanted, topic.partitions, topic.adding),
            *(topic.retention.bytes_min, topic.retention.age_ms_max),
        )
        for topic in topics
    ]
    where = TopicsResult(
        *(position, epoch, dict(servers), b"", destinations_max, features),
        *(tuple(rows), tuple(groups), tuple(deleting), tuple(unwritable) or None),
    )
    packed = TOPICS.pack_map(where)
    told = {name: packed[name] for name in ("topics", "groups", "deleting")}
    packed["digest"] = blake2b(_pack(told), digest_size=DIGEST_BYTES).digest()
    if packed["digest"] == known:
        for name in told:
            del packed[name]
    return _result(number, zxid, packed)


def encode_fetched(
    number: int, zxid: int, parts: list[tuple[Any, ...]], refused: list[ReplicaRefusal]
) -> bytes:
    """Return the bytes of a `FetchResult`.

    By hand, since consumers ask for it again and again, and the rows are those that partitions gave.
    """
    rows = [REFUSED.pack(one) for one in refused] if refused else ()
    return _result(number, zxid, {"partitions": parts, "refused": rows})


def _result(number: int, zxid: int, fields: Mapping[str, Any]) -> bytes:
    return _pack({"id": number, "type": "result", "success": True, "zxid": zxid, **fields})  # type: ignore[no-any-return]


_NUMBERS: Final = {answer: number for number, answer in enumerate(ANSWERS)}


def reply_rows(replies: Iterable[Reply], times: bool) -> list[tuple[Any, ...]]:
    """Return the rows of leaders' answers, each about one message; `times`: the stream asked for them."""
    rows: list[tuple[Any, ...]] = [
        (
            one.mid[1],
            one.sender,
            _NUMBERS[one.answer],
            one.everywhere,
            one.offset,
            one.epoch,
            one.view_epoch,
            one.time,
        )
        for one in replies
    ]
    return rows if times else [row[:-1] for row in rows]


def encode_replies(
    number: int, zxid: int, replies: list[tuple[Any, ...]], refused: list[ReplicaRefusal]
) -> bytes:
    """Return the bytes of a `RepliesPush`.

    By hand, since there is one for every turn in which messages are produced.
    """
    rows = [REFUSED.pack(one) for one in refused] if refused else ()
    return _pack({"id": number, "type": "replies", "zxid": zxid, "replies": replies, "refused": rows})  # type: ignore[no-any-return]
