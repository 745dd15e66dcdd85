"""Bytes of what groups log and of what leaders say to each other. Pure.

The forms of fields are in `zraft_core.topics.forms`. docs/explanation/topics.md, "Formats". A batch is one entry's payload;
a bundle is what goes to one group in one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import frozen

from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.layout import (
    NUMBER_MAX,
    Form,
    Kinds,
    Record,
    array,
    binary,
    boolean,
    formatted,
    from_bytes,
    from_one,
    integer,
    listed,
    number,
    optional,
    row,
    to_bytes,
    wrong,
)
from zraft_core.topics import commands, forms, messages
from zraft_core.topics import registry_commands as registry
from zraft_core.topics.commands import Batch, PartitionCommand
from zraft_core.topics.message import Message, as_fields
from zraft_core.topics.messages import Answer, GroupMessage, Reply, Report, StartRequest
from zraft_core.topics.registry_commands import RegistryCommand

FORMAT: Final = 1
BUNDLE_BYTES_MAX: Final = 1024 * 1024
"""A bundle is begun anew above this; one large message may exceed it alone."""

_ANSWERS: Final = tuple(Answer)
_answer_number: Final = integer(0, len(_ANSWERS) - 1)
_answer: Final = Form(lambda value, name: _ANSWERS[_answer_number.unpack(value, name)], _ANSWERS.index)
_proposal: Final = (
    *(forms.message_id, forms.group, from_one, optional(boolean), number, forms.digest),
    optional(forms.message),
)
_testimony: Final = (
    *(forms.message_id, forms.group, number),
    listed(row(group=forms.group, time=from_one), forms.DESTINATIONS_MAX),
    optional(boolean),
)
_topic_name: Final = forms.topic_name
_leader: Final = optional(forms.server)

_COMMANDS: Final = Kinds[PartitionCommand](
    "command",
    {
        1: Record(commands.Start, forms.message, number, number),
        2: Record(commands.Remote, *_proposal),
        3: Record(commands.Advance, forms.asked_time),
        4: Record(commands.Settled, forms.group, forms.final_time),
        5: Record(commands.ViewChanged, forms.view),
        6: Record(commands.Seek, forms.consumer, optional(number)),
        7: Record(commands.Stage, forms.staged, number, number),
        8: Record(commands.Attest, *_testimony),
    },
    quick={
        1: forms.plain_start(commands.Start),
        2: forms.plain_proposal(commands.Remote),
        7: forms.plain_start(commands.Stage),
    },
)
_MESSAGES: Final = Kinds[GroupMessage](
    "message between groups",
    {
        1: Record(messages.Propose, *_proposal),
        2: Record(messages.NeedPayload, forms.message_id, forms.group),
        3: Record(messages.Query, forms.message_id, forms.group),
        4: Record(messages.Told, forms.message_id, forms.group),
        5: Record(messages.FloorReport, forms.group, forms.final_time, boolean),
        6: Record(messages.Need, forms.asked_time),
        7: Record(messages.ViewUpdate, forms.view),
        8: Record(messages.Attestation, *_testimony),
    },
    quick={1: forms.plain_proposal(messages.Propose)},
)
_EDGE: Final = Kinds[Report | StartRequest | Reply](
    "message of a group to group 0 or to a producer",
    {
        1: Record(Report, forms.group, number, forms.producers, forms.groups),
        2: Record(StartRequest, forms.message, number, number, boolean),
        3: Record(Reply, forms.message_id, forms.group, _answer, boolean, optional(number), number, number),
    },
)
_REGISTRY: Final = Kinds[RegistryCommand](
    "registry command",
    {
        1: Record(registry.RegisterProducer, forms.session),
        2: Record(registry.CloseProducer, forms.producer),
        3: Record(registry.EndOwner, forms.session),
        4: Record(registry.CreateTopic, _topic_name, number, forms.retention),
        5: Record(registry.AlterTopic, _topic_name, number),
        6: Record(registry.CreateGroup, number, forms.disks, _leader),
        7: Record(registry.TopicChanged, number),
        8: Record(registry.DeleteTopic, _topic_name),
        9: Record(registry.Cleared, forms.group, forms.producers, forms.groups),
        10: Record(registry.RetainTopic, _topic_name, forms.retention),
        11: Record(registry.PlaceGroup, forms.group, forms.disks, _leader),
        12: Record(registry.Placed, forms.group, forms.disks),
        13: Record(registry.GiveUp, forms.group),
        14: Record(registry.Cleared, forms.group, forms.producers, forms.groups, number),
    },
)
_packed_message: Final = binary(0, NUMBER_MAX)


def encode_batch(batch: Batch) -> bytes:
    """Return the payload of one entry of a group's log."""
    return to_bytes((FORMAT, batch.log_time_ms, [_COMMANDS.pack(command) for command in batch.commands]))


def decode_batch(payload: bytes | memoryview) -> Batch:
    """Return the batch of exactly these bytes.

    Raises:
        ProtocolError: they are not one; the group must stop, because all its replicas would have to guess alike (D-5).
    """
    _, log_time_ms, packed = formatted(from_bytes(payload), "entry of a group's log", FORMAT, 3)
    return Batch(
        number.unpack(log_time_ms, "entry's log time"),
        tuple(_COMMANDS.unpack_all(_few(packed, "entry's commands"))),
    )


@frozen
class Bundle:
    """Messages to the leader of one group."""

    to: GroupId
    messages: tuple[GroupMessage, ...]


Packed = dict[int, bytes]
"""Bytes of messages, by the identity of objects that outlive it: what goes to several groups is packed once."""


def encode_bundles(
    to: GroupId, messages_to: Iterable[GroupMessage], known: Packed | None = None
) -> Iterator[bytes]:
    """Yield as few bundles of messages as the size bound allows.

    `known` has the packed messages of this turn, and gets those of this call, so that none is
    packed twice.
    """
    packed: list[bytes] = []
    size = 0
    known = {} if known is None else known
    for message in messages_to:
        one = known.get(id(message))
        if one is None:
            one = known[id(message)] = to_bytes(_MESSAGES.pack(message))
        if packed and size + len(one) > BUNDLE_BYTES_MAX:
            yield to_bytes((FORMAT, to, packed))
            packed, size = [], 0
        packed.append(one)
        size += len(one)
    if packed:
        yield to_bytes((FORMAT, to, packed))


def decode_bundle(buffer: bytes | memoryview) -> tuple[Bundle, list[ProtocolError]]:
    """Return the messages of exactly these bytes, and the errors of those that are not understood.

    Raises:
        ProtocolError: the bytes are not a bundle.
    """
    _, to, packed = formatted(from_bytes(buffer), "bundle", FORMAT, 3)
    found: list[GroupMessage] = []
    errors: list[ProtocolError] = []
    for one in _few(packed, "bundle's messages"):
        try:
            found.append(_MESSAGES.unpack(from_bytes(_packed_message.unpack(one, "bundle's message"))))
        except ProtocolError as error:
            errors.append(error)
    return Bundle(GroupId(forms.group.unpack(to, "bundle's destination")), tuple(found)), errors


def encode_edge(message: Report | StartRequest | Reply) -> bytes:
    """Return a message between a group and group 0 or a producer."""
    return to_bytes((FORMAT, _EDGE.pack(message)))


def decode_edge(buffer: bytes | memoryview) -> Report | StartRequest | Reply:
    """Return the message of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed message.
    """
    _, packed = formatted(from_bytes(buffer), "message", FORMAT, 2)
    return _EDGE.unpack(packed)


def encode_registry(command: RegistryCommand) -> bytes:
    """Return one command of group 0's log that concerns topics."""
    return to_bytes((FORMAT, _REGISTRY.pack(command)))


def decode_registry(buffer: bytes | memoryview) -> RegistryCommand:
    """Return the command of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed command.
    """
    _, packed = formatted(from_bytes(buffer), "registry command", FORMAT, 2)
    return _REGISTRY.unpack(packed)


def encode_message(message: Message) -> bytes:
    """Return a producer's message as bytes: the contents of a delivery record."""
    return to_bytes(as_fields(message))


def decode_message(buffer: bytes | memoryview) -> Message:
    """Return the message of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed message.
    """
    message: Message = forms.message.unpack(from_bytes(buffer), "message")
    return message


def _few(value: Any, name: str) -> tuple[Any, ...]:
    items = array(value, name)
    if len(items) > forms.VALUES_MAX:
        raise wrong(name, f"at most {forms.VALUES_MAX} items", value)
    return items
