"""Settings of a partition's leader, the output of a turn of it, and its statistics: values."""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from zraft_core.ids import GroupId
from zraft_core.topics.commands import PartitionCommand
from zraft_core.topics.message import Message
from zraft_core.topics.messages import GroupMessage, Reply, Report


class Exchange(Enum):
    """Ways in which leaders exchange proposals, as long as nothing is lost; repeats go to everybody.

    `ALL`: every destination every other, k (k - 1) messages for k destinations, as in the thesis' first algorithm.
    `ENTRY`: all of them one, which passes on what it got, 2 (k - 1) messages and three steps more, as in the second. Leaders
    need not agree on it.
    """

    ALL = "all"
    ENTRY = "entry"


@frozen
class LeaderSettings:
    """Settings of paces in ticks, and of limits of what is admitted from producers.

    Other groups' messages are never refused.

    `inline_bytes_max`: payloads up to this go with the first PROPOSE, larger ones by their digest. `pending_max`,
    `pending_bytes_max`: at this START is answered BUSY. `awaited_max`: the same for messages to a group of which so many
    proposals are awaited, so that one that is down cannot fill the others (the convoy of docs/explanation/topics.md).
    `staged_bytes_max`: payloads that wait for their rounds; the oldest undecided message of a producer is always taken, so
    that none waits for room for ever.
    `started_max`, `started_bytes_max`: STARTs in the log that are not applied yet, and their payloads.
    `gather_ticks`: how long a proposal waits for the other ones of a message that is alone, to share their entry;
    `settle_ticks`: how long the news that a group has delivered something waits for any other entry.
    `report_unchanged`: group 0 is told even if it was told the same before. Without, it is told what changed, what it
    asks for by repeating a view, and again and again what it has to do something about.
    """

    resend_ticks: int = 50
    resend_ticks_max: int = 1600
    resends_per_tick_max: int = 256
    floor_ticks: int = 20
    advance_ticks: int = 5
    report_ticks: int = 100
    gather_ticks: int = 2
    settle_ticks: int = 2
    inline_bytes_max: int = 512
    pending_max: int = 65_536
    pending_bytes_max: int = 64 * 1024 * 1024
    awaited_max: int = 16_384
    staged_bytes_max: int = 64 * 1024 * 1024
    started_max: int = 16_384
    started_bytes_max: int = 64 * 1024 * 1024
    report_unchanged: bool = True
    exchange: Exchange = Exchange.ALL


@frozen
class MulticastOutput:
    """Output of a turn: one batch for the log, messages by destination, the report to group 0, replies."""

    commands: tuple[PartitionCommand, ...]
    messages: dict[GroupId, list[GroupMessage]]
    reports: tuple[Report, ...]
    replies: tuple[Reply, ...]


@frozen
class MulticastStatistics:
    """`pending_age_ms` is the age of the oldest pending message; `awaited`: messages that wait for each other group."""

    pending: int
    pending_bytes: int
    pending_age_ms: int
    settled: int
    started: int
    awaited: dict[GroupId, int]


def entry_of(message: Message) -> GroupId:
    """Return the destination that collects the proposals; all leaders compute the same one.

    It differs between messages.
    """
    return message.destinations[message.mid.seq % len(message.destinations)]
