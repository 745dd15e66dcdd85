"""The commands of a partition's log. One entry carries a batch of them."""

from __future__ import annotations

from attrs import frozen

from zraft_core.frozen import statically_frozen
from zraft_core.ids import GroupId
from zraft_core.topics.message import Message
from zraft_core.topics.stamps import FinalTime, MessageId
from zraft_core.topics.view import AnyView


@statically_frozen
class Start:
    """A producer's message. `floor`: all its numbers up to there are decided everywhere; `epoch`: of its table of groups."""

    message: Message
    floor: int
    epoch: int


@statically_frozen
class Stage:
    """A producer's message that is to be durable here and in no order yet: a round will put it in its place."""

    message: Message
    floor: int
    epoch: int


@statically_frozen
class Remote:
    """The proposal of another destination. `message` is left out if this group has it already.

    `void` is the verdict of the condition's home, None from everybody else; `floor` is the producer's, as known there.
    """

    mid: MessageId
    sender: GroupId
    time: int
    void: bool | None
    floor: int
    digest: bytes
    message: Message | None = None


@frozen
class Advance:
    """Promise that nothing will be stamped up to `time` any more.

    So a consumer of several partitions need not wait for this one.
    """

    time: int


@frozen
class Settled:
    """`group` has delivered everything up to `floor`: what was kept for it may go."""

    group: GroupId
    floor: FinalTime


@frozen
class ViewChanged:
    """News from group 0, logged here because apply reads nothing but this group's log (D-9a)."""

    view: AnyView


@frozen
class Seek:
    """Command that sets how far a consumer has consumed, whatever it was before; None forgets the consumer."""

    consumer: bytes
    offset: int | None


@frozen
class Attest:
    """Attestation of another destination about a message to groups that are given up.

    `sender` had logged a view of `epoch`, and `known` are the proposals of these groups that it knows; it takes no others.
    `void` is the verdict of the condition's home if that is one of them, None if it is not known.
    """

    mid: MessageId
    sender: GroupId
    epoch: int
    known: tuple[tuple[GroupId, int], ...]
    void: bool | None = None


PartitionCommand = Start | Stage | Remote | Advance | Settled | ViewChanged | Seek | Attest


@frozen
class Batch:
    """The commands of one entry, with the entry's log time (D-12)."""

    log_time_ms: int
    commands: tuple[PartitionCommand, ...]
