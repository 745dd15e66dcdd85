"""Native requests about topics and the fields of each: what goes into group 0's log, to partitions, and what is read.

Messages of producers and commands of claims are decoded here, whole: what reaches a partition's leader is well typed.

Source: docs/PROTOCOL-NATIVE.md, "Topics".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import NOTHING, field, frozen

from zraft_core.claims.codec import decode_command
from zraft_core.claims.commands import ClaimCommand, Expire
from zraft_core.claims.values import NAME_BYTES_MAX
from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId, ProducerId
from zraft_core.layout import (
    NUMBER_MAX,
    Fields,
    Form,
    any_binary,
    any_string,
    anything,
    boolean,
    from_one,
    integer,
    listed,
    number,
    optional,
    parameters,
    row,
    ruled,
    string,
    wrong,
)
from zraft_core.topics import forms
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.message import Message
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
from zraft_core.znodes.txn import TOPICS, Command

T = TypeVar("T")

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

    digest: bytes | None = None


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
    """The end of a producer."""
    return TOPICS, encode_registry(CloseProducer(producer))


def _register() -> Command:
    """Whose it is stands in no message: the connection puts its session in."""
    return TOPICS, b""


def _create(
    topic: str, partitions: int, retention_bytes: int | None = None, retention_age_ms: int | None = None
) -> Command:
    retention = Retention(retention_bytes, retention_age_ms)
    return TOPICS, encode_registry(CreateTopic(topic, partitions, retention))


def _retain(topic: str, retention_bytes: int | None = None, retention_age_ms: int | None = None) -> Command:
    return TOPICS, encode_registry(RetainTopic(topic, Retention(retention_bytes, retention_age_ms)))


def _alter(topic: str, partitions: int) -> Command:
    return TOPICS, encode_registry(AlterTopic(topic, partitions))


def _delete(topic: str) -> Command:
    return TOPICS, encode_registry(DeleteTopic(topic))


_topic: Final = string(0, TOPIC_NAME_CHARACTERS_MAX)
_limit: Final = optional(number)

WRITES: Final = (
    Fields.of(REGISTER_PRODUCER, _register),
    Fields.of(CLOSE_PRODUCER, close_command, producer=from_one),
    Fields.of(
        "create_topic",
        _create,
        topic=_topic,
        partitions=from_one,
        retention_bytes=_limit,
        retention_age_ms=_limit,
    ),
    Fields.of("retain_topic", _retain, topic=_topic, retention_bytes=_limit, retention_age_ms=_limit),
    Fields.of("alter_topic", _alter, topic=_topic, partitions=from_one),
    Fields.of("delete_topic", _delete, topic=_topic),
)
"""Their own fields; those of any write are beside them."""

READS: Final = (Fields.of("topics", ReadTopics, digest=optional(any_binary)),)
"""Their own fields; those of any read are beside them."""


# -- what is asked of partitions


ID: Final = anything("an integer from 0 to 2^32 - 1")
"""Is looked at before anything else of a message."""


def request(called: str, made: Callable[..., T], **own: Form) -> Fields[T]:
    """The fields of a request: these beside its id and its type."""
    return Fields(called, made, parameters(made, id=ID, **own), skips="type")


def proof_of(called: str, password: Any) -> bytes:
    """The password that must stand beside a session; without one it may be anything.

    Raises:
        FieldError: it is no password.
    """
    if type(password) is bytes and len(password) == PASSWORD_BYTES:
        return password
    raise wrong(f"{called}.password", PASSWORD.expected, NOTHING if password is None else password)


PASSWORD: Final = anything(f"{PASSWORD_BYTES} bytes")


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
    if staged:
        for at, message in enumerate(messages):
            if not message.may_be_staged:
                raise wrong(f"produce.messages[{at}]", forms.staged.expected, message)
    requests = tuple([StartRequest(message, floor, epoch, relayed, staged) for message in messages])
    return Produce(id, group, requests)


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


_session: Final = optional(integer(-(2**63), NUMBER_MAX))

SUBSCRIBE: Final = request(
    "subscribe",
    _subscribe,
    producer=from_one,
    session=_session,
    password=PASSWORD,
    floor=number,
    times=boolean,
)
"""A producer's stream."""

REQUESTS: Final[tuple[Fields[TopicRequest], ...]] = (
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
)
