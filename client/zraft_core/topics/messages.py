"""Messages of groups' leaders to each other, to group 0 and to producers.

Each may be lost, late or repeated.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from zraft_core.frozen import statically_frozen
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.message import Message
from zraft_core.topics.stamps import FinalTime, MessageId
from zraft_core.topics.view import AnyView


@statically_frozen
class Propose:
    """`sender`'s committed proposal for a message, to another destination. `message` only if that may lack it."""

    mid: MessageId
    sender: GroupId
    time: int
    void: bool | None
    floor: int
    digest: bytes
    message: Message | None = None


@frozen
class NeedPayload:
    """`sender` was told of a message by its digest, and does not have it."""

    mid: MessageId
    sender: GroupId


@statically_frozen
class Query:
    """`sender` lacks the receiver's proposal for a message."""

    mid: MessageId
    sender: GroupId


@statically_frozen
class Told:
    """`sender` has the receiver's proposal for a message in its log. Only stops repeats (D-8a)."""

    mid: MessageId
    sender: GroupId


@frozen
class FloorReport:
    """Report that everything up to `floor` is delivered at `sender`.

    `wanted`: it waits for the receiver's floor.
    """

    sender: GroupId
    floor: FinalTime
    wanted: bool


@frozen
class Need:
    """A consumer of several partitions waits for the receiver to pass `time` - 1 (D-17b)."""

    time: int


@frozen
class ViewUpdate:
    """Group 0 to a group."""

    view: AnyView


@frozen
class Attestation:
    """`sender` tells what it knows of the proposals of groups that are given up: see `commands.Attest`."""

    mid: MessageId
    sender: GroupId
    epoch: int
    known: tuple[tuple[GroupId, int], ...]
    void: bool | None = None


GroupMessage = Propose | NeedPayload | Query | Told | FloorReport | Need | ViewUpdate | Attestation


@frozen
class Report:
    """A group to group 0: the view that it has logged, and the closed producers and doomed groups it is done with."""

    sender: GroupId
    position: int
    producers: tuple[ProducerId, ...] = ()
    deleting: tuple[GroupId, ...] = ()


@statically_frozen
class StartRequest:
    """A producer to a destination. `relayed`: it told this destination only, which passes the payload on.

    `staged`: the message is to be durable there, and in no order until its round.
    """

    message: Message
    floor: int
    epoch: int
    relayed: bool = False
    staged: bool = False


class Answer(Enum):
    """Answers of a destination about a message."""

    ACCEPTED = "accepted"
    """Begun: it will be delivered, or fail by its condition, whatever breaks."""
    DELIVERED = "delivered"
    FAILED = "failed"
    DECIDED = "decided"
    """Delivered or failed; which of them is forgotten."""
    EXPIRED = "expired"
    STALE = "stale"
    """Refused here, under the epoch that it was sent with."""
    RETRY = "retry"
    BUSY = "busy"
    """Too much is pending; the leader took nothing."""
    STAGED = "staged"
    """Durable at this destination, and in no order yet."""

    __hash__ = object.__hash__  # that of `Enum` takes two calls for each reply


@statically_frozen
class Reply:
    """A destination's leader to a producer.

    `everywhere`: the answer holds for all destinations. `offset`: of the delivery here. `epoch` is that of the request
    (a refusal of an older one is no refusal), `view_epoch` that of the group. `time`: what the destination has delivered so
    far has stamps up to this one; of a round `offset` is that of the first of its messages there.
    """

    mid: MessageId
    sender: GroupId
    answer: Answer
    everywhere: bool = False
    offset: int | None = None
    epoch: int = 0
    view_epoch: int = 0
    time: int = 0
