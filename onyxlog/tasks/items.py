"""Items that travel on channels between workers, as values and as MessagePack.

Pure; docs/explanation/onyxlog.md, "Items".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgpack
from attrs import define, frozen

from onyxlog.errors import OnyxlogError
from zraft_core.errors import ProtocolError
from zraft_core.messagepack import shown, unpack


class ChannelError(OnyxlogError):
    """Error of a connection between groups: what came is not what this version sends; it ends the connection."""


@define
class Batch:
    """Segments in order.

    With `roots` and `values`, one of each per segment, trees of roots are tracked (at-least-once).

    Nobody changes a batch, nor its lists, after it was sent: within a group it is handed over without a copy.
    """

    segments: list[Any]
    roots: list[int] | None = None
    values: list[int] | None = None


@frozen
class BarrierItem:
    """Barrier on a channel: everything before it belongs to checkpoint `epoch`."""

    epoch: int


@frozen
class End:
    """No more segments come on this channel."""


@frozen
class Acks:
    """XOR, per root, of the values that were received and sent while segments of its tree were processed."""

    values: Mapping[int, int]


@frozen
class Retry:
    """Message to the worker that read these roots: send them again at once."""

    roots: Sequence[int]


@frozen
class Ask:
    """Message to the coordinator: this worker waits to be told where to begin."""


@frozen
class Recover:
    """The coordinator's answer: begin from this encoded checkpoint, or from nothing if it is empty."""

    checkpoint: bytes


@frozen
class Inject:
    """The coordinator tells workers of input tasks to send barrier `epoch`."""

    epoch: int


@frozen
class Stored:
    """Message to the coordinator: this worker's part of checkpoint `epoch` is stored."""

    epoch: int


@frozen
class Finished:
    """Message to the coordinator: this worker has done all its work.

    What it wrote is durable, and its last part is stored under `epoch`.
    """

    epoch: int


Item = Batch | BarrierItem | End | Acks | Retry | Ask | Recover | Inject | Stored | Finished

_BATCH: Final = 0
_TRACKED: Final = 1
_BARRIER: Final = 2
_END: Final = 3
_ACKS: Final = 4
_ASK: Final = 5
_RECOVER: Final = 6
_INJECT: Final = 7
_STORED: Final = 8
_FINISHED: Final = 9
_RETRY: Final = 10


def to_wire(item: Item) -> list[Any]:
    """Return the item as an array for MessagePack."""
    match item:
        case Batch(segments, None):
            return [_BATCH, segments]
        case Batch(segments, roots, values):
            return [_TRACKED, segments, roots, values]
        case BarrierItem(epoch):
            return [_BARRIER, epoch]
        case End():
            return [_END]
        case Acks(values):
            return [_ACKS, values]
        case Retry(roots):
            return [_RETRY, list(roots)]
        case Ask():
            return [_ASK]
        case Recover(checkpoint):
            return [_RECOVER, checkpoint]
        case Inject(epoch):
            return [_INJECT, epoch]
        case Stored(epoch):
            return [_STORED, epoch]
        case Finished(epoch):
            return [_FINISHED, epoch]


def from_wire(fields: list[Any]) -> Item:
    """Return the item of an array.

    Raises:
        ChannelError: it is no item of this version.
    """
    match fields:
        case [0, list(segments)]:
            return Batch(segments)
        case [1, list(segments), list(roots), list(values)] if len(segments) == len(roots) == len(values):
            return Batch(segments, roots, values)
        case [2, int(epoch)]:
            return BarrierItem(epoch)
        case [3]:
            return End()
        case [4, dict(values)]:
            return Acks(values)
        case [5]:
            return Ask()
        case [6, bytes(checkpoint)]:
            return Recover(checkpoint)
        case [7, int(epoch)]:
            return Inject(epoch)
        case [8, int(epoch)]:
            return Stored(epoch)
        case [9, int(epoch)]:
            return Finished(epoch)
        case [10, list(roots)]:
            return Retry(roots)
    raise ChannelError(f"item of a channel: expected one of kinds 0 to 10, found {shown(fields)}")


class Purpose(StrEnum):
    """Purposes of a channel; the values are on the wire."""

    DATA = "data"
    ACKS = "acks"
    COORDINATION = "coordination"
    """The channel leads to the worker that coordinates the job."""
    DIRECTION = "direction"
    """The channel comes from the worker that coordinates the job."""


PURPOSES: Final = tuple(Purpose)


@frozen
class ChannelEnd:
    """One end of a channel: a virtual peer in one attempt of a job."""

    job: str
    version: int
    peer: str


# -- messages of a connection between groups

FORMAT: Final = 1
HELLO: Final = 1
OPEN: Final = 2
GRANT: Final = 3
ITEM: Final = 4
REFUSE: Final = 5
CLOSE: Final = 6


@frozen
class Hello:
    """The first message of each end: who it is."""

    tenancy: str


@frozen
class Open:
    """Message that opens a channel."""

    channel: int
    purpose: Purpose
    sender: ChannelEnd
    receiver: ChannelEnd


@frozen
class Grant:
    """Message that gives a sender credit."""

    channel: int
    expected: int
    limit: int


@frozen
class Sent:
    """Message that carries an item of a channel."""

    channel: int
    sequence: int
    item: Item


@frozen
class Refuse:
    """Message that refuses a channel, as the receiver has left this attempt."""

    channel: int
    version: int


@frozen
class Close:
    """Message that closes a channel."""

    channel: int


Message = Hello | Open | Grant | Sent | Refuse | Close


def pack(fields: list[Any]) -> bytes:
    """Encode a message.

    Raises:
        ChannelError: a segment holds something that MessagePack cannot carry.
    """
    try:
        packed: bytes = msgpack.packb(fields, use_bin_type=True, strict_types=False)
    except (TypeError, ValueError, OverflowError) as error:
        raise ChannelError(
            f"a segment cannot be sent: {error}; expected what MessagePack carries: dict, list, str, bytes, int of "
            f"64 bits, float, bool, None"
        ) from error
    return packed


def encode(message: Message) -> bytes:
    """Return a message of a connection as bytes."""
    match message:
        case Hello(tenancy):
            return pack([HELLO, FORMAT, tenancy])
        case Open(channel, purpose, sender, receiver):
            return pack([OPEN, channel, purpose, receiver.job, receiver.version, sender.peer, receiver.peer])
        case Grant(channel, expected, limit):
            return pack([GRANT, channel, expected, limit])
        case Sent(channel, sequence, item):
            return encode_sent(channel, sequence, item)
        case Refuse(channel, version):
            return pack([REFUSE, channel, version])
        case Close(channel):
            return pack([CLOSE, channel])


def encode_sent(channel: int, sequence: int, item: Item) -> bytes:
    """Return an item of a channel as bytes, with its sequence number."""
    return pack([ITEM, channel, sequence, *to_wire(item)])


def decode(message: bytes) -> Message:
    """Decode a message.

    Raises:
        ChannelError: the bytes are no message of this version.
    """
    try:
        fields = unpack(message, lists=True, any_keys=True)
    except ProtocolError as error:
        raise ChannelError(f"message between groups: {error}") from error
    match fields:
        case [4, int(channel), int(sequence), *item]:
            return Sent(channel, sequence, from_wire(item))
        case [3, int(channel), int(expected), int(limit)]:
            return Grant(channel, expected, limit)
        case [1, int(form), str(tenancy)]:
            if form != FORMAT:
                raise ChannelError(
                    f"message between groups: expected format {FORMAT}, found {form}; groups of one tenancy must run "
                    f"releases that understand each other"
                )
            return Hello(tenancy)
        case [2, int(channel), str(purpose), str(job), int(version), str(sender), str(receiver)]:
            if purpose not in PURPOSES:
                raise ChannelError(
                    f"open of a channel: expected purpose {', '.join(PURPOSES)}, found {purpose[:40]}"
                )
            return Open(
                channel,
                Purpose(purpose),
                ChannelEnd(job, version, sender),
                ChannelEnd(job, version, receiver),
            )
        case [5, int(channel), int(version)]:
            return Refuse(channel, version)
        case [6, int(channel)]:
            return Close(channel)
    raise ChannelError(f"message between groups: expected one of kinds 1 to 6, found {shown(fields)}")
