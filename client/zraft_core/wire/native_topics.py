"""Decodes the native requests that are about topics: what goes into group 0's log, what goes to partitions, what is read.

Messages of producers and commands of claims are decoded here, whole: what reaches a partition's leader is well typed.

Source: docs/PROTOCOL-NATIVE.md, "Topics".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import field, frozen

from zraft_core.claims.codec import decode_command
from zraft_core.claims.commands import Command as ClaimCommand
from zraft_core.claims.commands import Expire
from zraft_core.claims.values import NAME_BYTES_MAX
from zraft_core.errors import MarshallingError, ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.messagepack import shown
from zraft_core.topics import forms
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.message import Message as Multicast
from zraft_core.topics.messages import StartRequest
from zraft_core.topics.registry_commands import (
    AlterTopic,
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    RegisterProducer,
    RetainTopic,
)
from zraft_core.topics.registry_values import Retention
from zraft_core.topics.stamps import TIME_MAX
from zraft_core.wire.native_fields import (
    INT64_MAX,
    INT64_MIN,
    Message,
    binary,
    boolean,
    data_of,
    integer,
    text,
    wrong,
)
from zraft_core.znodes.txn import TOPICS, Command

PARTITIONS_MAX: Final = 1024
"""Of one fetch or need, and of a topic as far as one may ask for."""
MESSAGES_MAX: Final = 4_096
"""Of one produce."""
TOPIC_NAME_CHARACTERS_MAX: Final = 1_024
"""What is decoded; what a topic may be called is the registry's to say."""
FETCH_BYTES_MAX: Final = 1_048_576
"""Of one partition in one answer; a longer message comes alone."""
FETCH_WAIT_MS_MAX: Final = 60_000
PASSWORD_BYTES: Final = 16

REGISTER_PRODUCER: Final = "register_producer"
CLOSE_PRODUCER: Final = "close_producer"


@frozen
class ReadTopics:
    """Topics, groups and where they are; `digest`: unless they are those that the client has."""

    digest: bytes | None


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
    """What a fetch wants of one partition."""

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
    times: tuple[tuple[GroupId, int], ...]


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
    offset: int | None


@frozen
class ReadOffset:
    """How far a consumer has consumed."""

    id: int
    group: GroupId
    consumer: bytes


TopicRequest = SubscribeProducer | Produce | Fetch | Need | Claim | LookAtClaims | SeekOffset | ReadOffset


# -- commands for group 0's log


def register_command(session: int) -> Command:
    """A producer that the session owns."""
    return TOPICS, encode_registry(RegisterProducer(session))


def close_command(producer: ProducerId) -> Command:
    return TOPICS, encode_registry(CloseProducer(producer))


def _register(message: Message) -> Command:
    """Whose it is stands in no message: the connection puts its session in."""
    return TOPICS, b""


def _close(message: Message) -> Command:
    return close_command(ProducerId(integer(message, "producer", None, 1, INT64_MAX)))


def _topic(message: Message) -> str:
    name = text(message, "topic")
    if len(name) > TOPIC_NAME_CHARACTERS_MAX:
        raise wrong(message, "topic", f"a name of at most {TOPIC_NAME_CHARACTERS_MAX} characters")
    return name


def _partitions(message: Message) -> int:
    return integer(message, "partitions", None, 1, INT64_MAX)


def _create(message: Message) -> Command:
    return TOPICS, encode_registry(CreateTopic(_topic(message), _partitions(message), _retention(message)))


def _alter(message: Message) -> Command:
    return TOPICS, encode_registry(AlterTopic(_topic(message), _partitions(message)))


def _retain(message: Message) -> Command:
    return TOPICS, encode_registry(RetainTopic(_topic(message), _retention(message)))


def _retention(message: Message) -> Retention:
    return Retention(_limit(message, "retention_bytes"), _limit(message, "retention_age_ms"))


def _limit(message: Message, name: str) -> int | None:
    return None if message.get(name) is None else integer(message, name, None, 0, INT64_MAX)


def _delete(message: Message) -> Command:
    return TOPICS, encode_registry(DeleteTopic(_topic(message)))


_RETENTION_FIELDS: Final = frozenset({"retention_bytes", "retention_age_ms"})

WRITES: Final[dict[str, tuple[Callable[[Message], Command], frozenset[str]]]] = {
    REGISTER_PRODUCER: (_register, frozenset()),
    CLOSE_PRODUCER: (_close, frozenset({"producer"})),
    "create_topic": (_create, frozenset({"topic", "partitions"}) | _RETENTION_FIELDS),
    "retain_topic": (_retain, frozenset({"topic"}) | _RETENTION_FIELDS),
    "alter_topic": (_alter, frozenset({"topic", "partitions"})),
    "delete_topic": (_delete, frozenset({"topic"})),
}


# -- reads


def read_topics(message: Message) -> ReadTopics:
    return ReadTopics(data_of(message, "digest"))


# -- streams of producers

PRODUCER_FIELDS: Final = frozenset({"producer", "session", "password", "floor", "times"})


def subscribe_producer(message: Message) -> SubscribeProducer:
    session = message.get("session")
    password = b""
    if session is not None:
        session = integer(message, "session", None, INT64_MIN, INT64_MAX)
        password = binary(message, "password")
        if len(password) != PASSWORD_BYTES:
            raise wrong(message, "password", f"{PASSWORD_BYTES} bytes")
    return SubscribeProducer(
        message["id"],
        ProducerId(integer(message, "producer", None, 1, INT64_MAX)),
        session,
        password,
        integer(message, "floor", 0, 0, INT64_MAX),
        boolean(message, "times", False),
    )


def _produce(message: Message) -> Produce:
    group = _group(message)
    floor = integer(message, "floor", None, 0, INT64_MAX)
    epoch = integer(message, "epoch", None, 0, INT64_MAX)
    relayed = boolean(message, "relayed", False)
    staged = boolean(message, "staged", False)
    packed = _array(message, "messages", MESSAGES_MAX)
    unpack = (forms.staged if staged else forms.message).unpack
    found: list[StartRequest] = []
    try:
        for one in packed:
            multicast: Multicast = unpack(one, "message")
            found.append(StartRequest(multicast, floor, epoch, relayed, staged))
    except ProtocolError as error:
        raise MarshallingError(f"produce: messages[{len(found)}]: {error}") from error
    return Produce(message["id"], group, tuple(found))


# -- what is asked of partitions


def _group(message: Message) -> GroupId:
    return GroupId(integer(message, "group", None, 1, INT64_MAX))


def _array(message: Message, name: str, most: int) -> tuple[Any, ...]:
    value = message.get(name)
    if value.__class__ is not tuple or not 1 <= len(value) <= most:
        raise wrong(message, name, f"an array of 1 to {most}")
    return value


def _integers(message: Message, name: str, highest: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Arrays of integers from 0 up, each bounded by its place."""
    rows: list[tuple[int, ...]] = []
    for place, row in enumerate(_array(message, name, PARTITIONS_MAX)):
        if row.__class__ is not tuple or len(row) != len(highest):
            raise MarshallingError(
                f"{message['type']}: {name}[{place}]: found {shown(row)}, expected an array of {len(highest)}"
            )
        for value, most in zip(row, highest, strict=True):
            if value.__class__ is not int or not 0 <= value <= most:
                raise MarshallingError(
                    f"{message['type']}: {name}[{place}]: found {shown(value)}, expected an integer from 0 to {most}"
                )
        rows.append(row)
    if len({row[0] for row in rows}) != len(rows):
        raise wrong(message, name, "each partition once")
    return rows


def _fetch(message: Message) -> Fetch:
    rows = _integers(message, "partitions", (INT64_MAX, INT64_MAX, FETCH_BYTES_MAX))
    return Fetch(
        message["id"],
        tuple([Part(GroupId(group), offset, most) for group, offset, most in rows]),
        integer(message, "wait_ms", 0, 0, FETCH_WAIT_MS_MAX),
    )


def _need(message: Message) -> Need:
    rows = _integers(message, "partitions", (INT64_MAX, TIME_MAX))
    return Need(message["id"], tuple([(GroupId(group), time) for group, time in rows]))


def _claim(message: Message) -> Claim:
    group = _group(message)
    try:
        command = decode_command(binary(message, "command"))
    except ProtocolError as error:
        raise MarshallingError(f"claim: command: {error}") from error
    if isinstance(command, Expire):
        raise wrong(message, "command", "a command of a consumer: who is stale, leaders find out")
    return Claim(message["id"], group, command)


def _claims(message: Message) -> LookAtClaims:
    name = text(message, "name")
    if not 1 <= len(name.encode()) <= NAME_BYTES_MAX:
        raise wrong(message, "name", f"1 to {NAME_BYTES_MAX} bytes")
    return LookAtClaims(message["id"], _group(message), name)


def _consumer(message: Message) -> bytes:
    name = binary(message, "consumer")
    if not 1 <= len(name) <= forms.CONSUMER_BYTES_MAX:
        raise wrong(message, "consumer", f"1 to {forms.CONSUMER_BYTES_MAX} bytes")
    return name


def _seek(message: Message) -> SeekOffset:
    offset = message.get("offset")
    if offset is not None:
        offset = integer(message, "offset", None, 0, INT64_MAX)
    return SeekOffset(message["id"], _group(message), _consumer(message), offset)


def _offset(message: Message) -> ReadOffset:
    return ReadOffset(message["id"], _group(message), _consumer(message))


REQUESTS: Final[dict[str, tuple[Callable[[Message], TopicRequest], frozenset[str]]]] = {
    "produce": (_produce, frozenset({"group", "floor", "epoch", "relayed", "staged", "messages"})),
    "fetch": (_fetch, frozenset({"partitions", "wait_ms"})),
    "need": (_need, frozenset({"partitions"})),
    "claim": (_claim, frozenset({"group", "command"})),
    "claims": (_claims, frozenset({"group", "name"})),
    "seek": (_seek, frozenset({"group", "consumer", "offset"})),
    "offset": (_offset, frozenset({"group", "consumer"})),
}
