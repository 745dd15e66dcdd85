"""Small partitions and messages for the tests of topics."""

from __future__ import annotations

from typing import Any

from zraft.topics.applied import Applied
from zraft.topics.chain import message_digest
from zraft.topics.partition import Partition
from zraft_core.ids import GroupId, ProducerId
from zraft_core.topics.commands import Batch, PartitionCommand, Remote, Start
from zraft_core.topics.message import Message
from zraft_core.topics.registry_values import PartitionSettings
from zraft_core.topics.stamps import MessageId
from zraft_core.topics.view import View

A, B, C = GroupId(2), GroupId(4), GroupId(6)
P, Q = ProducerId(10), ProducerId(12)
VIEW = View(20, 0, frozenset((ProducerId(0), P, Q)), frozenset(), frozenset((A, B, C)), frozenset())


def partition(group: GroupId = A, view: View = VIEW, *, born: bool = True, window: int = 8) -> Partition:
    return Partition(group, view, born=born, settings=PartitionSettings(window, consumers_max=2))


def message(seq: int, *groups: GroupId, producer: ProducerId = P, **fields: Any) -> Message:
    """A message; one to a single partition is taken for the first of its producer there."""
    fields.setdefault("number", 1 if len(groups) == 1 else 0)
    return Message(MessageId(producer, seq), groups, b"payload %d" % seq, **fields)


def apply(state: Partition, *commands: PartitionCommand, log_time_ms: int = 0, position: int = 1) -> Applied:
    return state.apply(Batch(log_time_ms, commands), position)


def start(m: Message, floor: int = 0, epoch: int = 0) -> Start:
    return Start(m, floor, epoch)


def remote(
    m: Message, sender: GroupId, time: int, *, void: bool | None = None, floor: int = 0, whole: bool = True
) -> Remote:
    return Remote(m.mid, sender, time, void, floor, message_digest(m), m if whole else None)


def delivered(applied: Applied) -> list[int]:
    return [delivery.message.mid.seq for delivery in applied.delivered]
