"""Bytes of what groups log and of what leaders say to each other. Pure.

The forms of fields are in `zraft_core.topics.layouts`. docs/TOPICS.md, "Formats". A batch is one entry's payload; a
bundle is what goes to one group in one turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import frozen

from zraft_core.errors import ProtocolError
from zraft_core.ids import GroupId
from zraft_core.topics import commands, layouts, messages
from zraft_core.topics import registry_commands as registry
from zraft_core.topics.commands import Batch, Command
from zraft_core.topics.layouts import Form, Layouts, formatted, from_bytes, number, to_bytes
from zraft_core.topics.message import Message
from zraft_core.topics.messages import Answer, GroupMessage, Reply, Report, StartRequest
from zraft_core.topics.registry_commands import RegistryCommand

FORMAT: Final = 1
BUNDLE_BYTES_MAX: Final = 1024 * 1024
"""A bundle is begun anew above this; one large message may exceed it alone."""

_ANSWERS: Final = tuple(Answer)
_VOID: Final = layouts.optional(layouts.boolean)
_MAYBE_MESSAGE: Final = layouts.optional(layouts.message)


def _unpack_answer(value: Any, name: str) -> Answer:
    return _ANSWERS[layouts.integer(0, len(_ANSWERS) - 1).unpack(value, name)]


_ANSWER: Final = Form(_unpack_answer, _ANSWERS.index)
_PROPOSAL: Final = (
    *(layouts.message_id, layouts.group, layouts.from_one, _VOID, number, layouts.digest),
    _MAYBE_MESSAGE,
)
_TOPIC_NAME: Final = layouts.text(1024)

_COMMANDS: Final = Layouts[Command](
    "command",
    {
        1: (commands.Start, (layouts.message, number, number)),
        2: (commands.Remote, _PROPOSAL),
        3: (commands.Advance, (layouts.asked_time,)),
        4: (commands.Settled, (layouts.group, layouts.final_time)),
        5: (commands.ViewChanged, (layouts.view,)),
        6: (commands.Seek, (layouts.consumer, layouts.optional(number))),
        7: (commands.Stage, (layouts.staged, number, number)),
    },
    quick={
        1: layouts.plain_start(commands.Start),
        2: layouts.plain_proposal(commands.Remote),
        7: layouts.plain_start(commands.Stage),
    },
)
_MESSAGES: Final = Layouts[GroupMessage](
    "message between groups",
    {
        1: (messages.Propose, _PROPOSAL),
        2: (messages.NeedPayload, (layouts.message_id, layouts.group)),
        3: (messages.Query, (layouts.message_id, layouts.group)),
        4: (messages.Told, (layouts.message_id, layouts.group)),
        5: (messages.FloorReport, (layouts.group, layouts.final_time, layouts.boolean)),
        6: (messages.Need, (layouts.asked_time,)),
        7: (messages.ViewUpdate, (layouts.view,)),
    },
    quick={1: layouts.plain_proposal(messages.Propose)},
)
_EDGE: Final = Layouts[Report | StartRequest | Reply](
    "message of a group to group 0 or to a producer",
    {
        1: (Report, (layouts.group, number, layouts.producers, layouts.groups)),
        2: (StartRequest, (layouts.message, number, number, layouts.boolean)),
        3: (
            Reply,
            (
                *(layouts.message_id, layouts.group, _ANSWER, layouts.boolean, layouts.optional(number)),
                *(number, number),
            ),
        ),
    },
)
_REGISTRY: Final = Layouts[RegistryCommand](
    "registry command",
    {
        1: (registry.RegisterProducer, (layouts.integer(-(2**63), 2**64 - 1),)),
        2: (registry.CloseProducer, (layouts.producer,)),
        3: (registry.EndOwner, (layouts.integer(-(2**63), 2**64 - 1),)),
        4: (registry.CreateTopic, (_TOPIC_NAME, number, layouts.retention)),
        5: (registry.AlterTopic, (_TOPIC_NAME, number)),
        6: (registry.CreateGroup, (number, layouts.disks, layouts.optional(layouts.server))),
        7: (registry.TopicChanged, (number,)),
        8: (registry.DeleteTopic, (_TOPIC_NAME,)),
        9: (registry.Cleared, (layouts.group, layouts.producers, layouts.groups)),
        10: (registry.RetainTopic, (_TOPIC_NAME, layouts.retention)),
        11: (registry.PlaceGroup, (layouts.group, layouts.disks, layouts.optional(layouts.server))),
        12: (registry.Placed, (layouts.group, layouts.disks)),
    },
)


def encode_batch(batch: Batch) -> bytes:
    """The payload of one entry of a group's log."""
    return to_bytes((FORMAT, batch.log_time_ms, [_COMMANDS.pack(command) for command in batch.commands]))


def decode_batch(payload: bytes | memoryview) -> Batch:
    """The batch of exactly these bytes.

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
    """As few bundles as the bound allows. `known`: of other groups' bundles of this turn, and for those after it."""
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
    """The messages of exactly these bytes. One that is not understood costs itself only: its error is returned beside.

    Raises:
        ProtocolError: the bytes are not a bundle.
    """
    _, to, packed = formatted(from_bytes(buffer), "bundle", FORMAT, 3)
    found: list[GroupMessage] = []
    errors: list[ProtocolError] = []
    for one in _few(packed, "bundle's messages"):
        try:
            found.append(_MESSAGES.unpack(from_bytes(_bytes(one, "bundle's message"))))
        except ProtocolError as error:
            errors.append(error)
    return Bundle(GroupId(layouts.group.unpack(to, "bundle's destination")), tuple(found)), errors


def encode_edge(message: Report | StartRequest | Reply) -> bytes:
    """A message between a group and group 0 or a producer."""
    return to_bytes((FORMAT, _EDGE.pack(message)))


def decode_edge(buffer: bytes | memoryview) -> Report | StartRequest | Reply:
    """The message of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed message.
    """
    _, packed = formatted(from_bytes(buffer), "message", FORMAT, 2)
    return _EDGE.unpack(packed)


def encode_registry(command: RegistryCommand) -> bytes:
    """One command of group 0's log that concerns topics."""
    return to_bytes((FORMAT, _REGISTRY.pack(command)))


def decode_registry(buffer: bytes | memoryview) -> RegistryCommand:
    """The command of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed command.
    """
    _, packed = formatted(from_bytes(buffer), "registry command", FORMAT, 2)
    return _REGISTRY.unpack(packed)


def encode_message(message: Message) -> bytes:
    """What a producer said: the contents of a delivery record."""
    return to_bytes(layouts.message.pack(message) if layouts.message.pack else message)


def decode_message(buffer: bytes | memoryview) -> Message:
    """The message of exactly these bytes.

    Raises:
        ProtocolError: they are not one well-formed message.
    """
    message: Message = layouts.message.unpack(from_bytes(buffer), "message")
    return message


def _few(value: Any, name: str) -> tuple[Any, ...]:
    items = layouts.array(value, name)
    if len(items) > layouts.VALUES_MAX:
        raise layouts.wrong(name, f"at most {layouts.VALUES_MAX}", value)
    return items


def _bytes(value: Any, name: str) -> bytes:
    if type(value) is not bytes:
        raise layouts.wrong(name, "bytes", value)
    return value
