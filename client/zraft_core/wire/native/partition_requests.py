"""Native requests about partitions: producing, consuming, claims, and stored offsets.

Messages of producers and commands of claims are decoded here, whole: what reaches a partition's leader is well typed.

Source: docs/reference/protocol-native.md, "Topics".
"""

from __future__ import annotations

from typing import Any, Final

from attrs import field, frozen

from zraft_core.claims.codec import decode_command
from zraft_core.claims.commands import ClaimCommand, Expire
from zraft_core.claims.values import NAME_BYTES_MAX
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.layout import (
    Fields,
    Form,
    any_binary,
    any_string,
    boolean,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    ruled,
    wrong,
)
from zraft_core.records.header import check_batch
from zraft_core.topics import forms
from zraft_core.topics.message import Message
from zraft_core.topics.messages import StartRequest
from zraft_core.topics.stamps import TIME_MAX
from zraft_core.wire.native.fields import PASSWORD, int64, proof_of, request

PARTITIONS_MAX: Final = 1024
"""Of one fetch or need, and of a topic as far as one may ask for."""
MESSAGES_MAX: Final = 4_096
"""Of one produce."""
FETCH_BYTES_MAX: Final = 1_048_576
"""Of one partition in one answer; a longer message comes alone."""
FETCH_WAIT_MS_MAX: Final = 60_000


@frozen
class SubscribeProducer:
    """A stream of a producer's messages, and of what is answered. `session` None: the connection's own.

    `floor` is a zxid at which session and producer are there. `times`: answers tell up to which time is delivered.
    """

    id: int
    producer: ProducerId
    session: int | None
    password: bytes = field(repr=False)
    floor: int
    times: bool = False


@frozen
class Produce:
    """Messages of a stream, in their order, to one group. Not answered; what becomes of them is pushed."""

    stream: int
    group: GroupId
    requests: tuple[StartRequest, ...] = field(repr=lambda found: f"<{len(found)}>")


@frozen
class Part:
    """Request of a fetch for one partition."""

    group: GroupId
    offset: int
    bytes_max: int


@frozen
class Fetch:
    """Deliveries of partitions, or to be told that none came within `wait_ms`."""

    id: int
    parts: tuple[Part, ...]
    wait_ms: int


@frozen
class Need:
    """A merged consumer waits for these partitions to pass a time."""

    id: int
    partitions: tuple[tuple[GroupId, int], ...]


@frozen
class Claim:
    """A command of consumers that share partitions."""

    id: int
    group: GroupId
    command: ClaimCommand


@frozen
class LookAtClaims:
    """A group of consumers as one partition knows it."""

    id: int
    group: GroupId
    name: str


@frozen
class SeekOffset:
    """Store how far a consumer has consumed; None forgets it."""

    id: int
    group: GroupId
    consumer: bytes
    offset: int | None = None


@frozen
class ReadOffset:
    """Request for the offset that a consumer has stored."""

    id: int
    group: GroupId
    consumer: bytes


@frozen
class FindOffset:
    """Request for the offset of the first record that was delivered at `time_ms` or later, in ms since 1970."""

    id: int
    group: GroupId
    time_ms: int


@frozen
class ListConsumers:
    """Whoever stores an offset in a partition, or shares it by claims."""

    id: int
    group: GroupId


PartitionRequest = (
    SubscribeProducer
    | Produce
    | Fetch
    | Need
    | Claim
    | LookAtClaims
    | SeekOffset
    | ReadOffset
    | FindOffset
    | ListConsumers
)


def _subscribe(
    id: int,
    producer: ProducerId,
    session: int | None = None,
    password: Any = None,
    floor: int = 0,
    times: bool = False,
) -> SubscribeProducer:
    proof = b"" if session is None else proof_of("subscribe", password)
    return SubscribeProducer(id, producer, session, proof, floor, times)


def _produce(
    id: int,
    group: GroupId,
    floor: int,
    epoch: int,
    messages: tuple[Message, ...],
    relayed: bool = False,
    staged: bool = False,
) -> Produce:
    for at, message in enumerate(messages):
        if staged and not message.may_be_staged:
            raise wrong(f"produce.messages[{at}]", forms.staged.expected, message)
        if message.records:
            _check_records(message, f"produce.messages[{at}]")
    requests = tuple([StartRequest(message, floor, epoch, relayed, staged) for message in messages])
    return Produce(id, group, requests)


def _check_records(message: Message, name: str) -> None:
    """Check the header and the sum of a batch, so that every consumer can read it. No record is decoded."""
    try:
        header = check_batch(message.payload)
    except ProtocolError as error:
        raise ProtocolError(f"{name}: {error}") from error
    if header.count != message.records:
        raise wrong(f"{name}.records", f"{header.count}, as the batch says", message.records)


def _fetch(id: int, partitions: tuple[Any, ...], wait_ms: int = 0) -> Fetch:
    return Fetch(id, tuple([Part(*row) for row in partitions]), wait_ms)


def _command(value: Any, name: str) -> ClaimCommand:
    packed = any_binary.unpack(value, name)
    try:
        command = decode_command(packed)
    except ProtocolError as error:
        raise ProtocolError(f"{name}: {error}") from error
    if isinstance(command, Expire):
        raise wrong(name, "a command of a consumer: who is stale, leaders find out", value)
    return command


def _partitions(**further: Form) -> Form:
    """Rows about partitions, each of which is there once."""
    return ruled(
        listed(row(group=number, **further), PARTITIONS_MAX, 1),
        lambda rows: len({group for group, *_ in rows}) == len(rows),
        f"an array of 1 to {PARTITIONS_MAX}, of which each is [{', '.join(('group', *further))}], each partition once",
    )


_name: Final = ruled(
    any_string,
    lambda name: 1 <= len(name.encode()) <= NAME_BYTES_MAX,
    f"a string of 1 to {NAME_BYTES_MAX} bytes",
)


SUBSCRIBE: Final = request(
    "subscribe",
    _subscribe,
    producer=from_one,
    session=optional(int64),
    password=PASSWORD,
    floor=number,
    times=boolean,
)
"""A producer's stream."""

REQUESTS: Final[tuple[Fields[PartitionRequest], ...]] = (
    request(
        "produce",
        _produce,
        group=from_one,
        floor=number,
        epoch=number,
        messages=listed(forms.message, MESSAGES_MAX, 1),
        relayed=boolean,
        staged=boolean,
    ),
    request(
        "fetch",
        _fetch,
        partitions=_partitions(offset=number, bytes=integer(0, FETCH_BYTES_MAX)),
        wait_ms=integer(0, FETCH_WAIT_MS_MAX),
    ),
    request("need", Need, partitions=_partitions(time=integer(0, TIME_MAX))),
    request("claim", Claim, group=from_one, command=Form(_command, expected="the bytes of a command")),
    request("claims", LookAtClaims, group=from_one, name=_name),
    request("seek", SeekOffset, group=from_one, consumer=forms.consumer, offset=optional(number)),
    request("offset", ReadOffset, group=from_one, consumer=forms.consumer),
    request("offset_at", FindOffset, group=from_one, time_ms=number),
    request("consumers", ListConsumers, group=from_one),
)
