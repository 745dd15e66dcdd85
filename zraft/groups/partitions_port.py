"""What the host of groups asks of those who know what a group replicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from zraft.groups.effects import GroupEffects
from zraft.groups.host import GroupHost
from zraft.groups.machine import StateMachine
from zraft.groups.snapshots import delivery_tasks
from zraft.transport.messages import PeerMessage
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import StartRequest, ViewUpdate


class PartitionsPort(Protocol):
    """What the groups of one server replicate, and what their leaders do. Called from the loop's thread alone."""

    @property
    def wants_turn(self) -> bool:
        """Whether something was given to them since the last `before` that wants a turn."""

    @property
    def wake_in(self) -> int | None:
        """ms from the last `after` until `before` is due; None if it need not be called for the time alone."""

    def open(self, group: GroupId) -> StateMachine:
        """This server has a replica of the group from now on: its state machine, empty."""

    def closed(self, group: GroupId) -> None:
        """The replica is gone, with its files."""

    def before(self, host: GroupHost, step: int, now_ms: int, wall_ms: int) -> None:
        """Before the host's turn: what leaders propose, for `step` more ticks in which this process ran."""

    def after(self, host: GroupHost, effects: GroupEffects, now_ms: int, wall_ms: int) -> None:
        """After the host's turn: what was applied, which roles changed, which reads may be answered."""

    def tell(self, group: GroupId, message: ViewUpdate | StartRequest) -> None:
        """What the coordination group's leader, which is this server, has for the leader of a group."""

    def receive(self, sender: ServerId, message: PeerMessage) -> None:
        """What another server's partitions, or this server's own, say."""

    def take_outgoing(self) -> Sequence[tuple[ServerId, PeerMessage]]:
        """What they say to other servers, and to this one."""

    def take_tasks(self) -> Sequence[delivery_tasks.Task]:
        """What the disk of deliveries is to do, in this order for each group."""

    def performed(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """The disk of deliveries has done a task; of appends that were written together only the last is told."""

    def synced(self, durable: Mapping[GroupId, int]) -> None:
        """By group, the index of its log up to which everything delivered is durable."""

    def cut_index(self, group: GroupId) -> int:
        """The index of the group's log up to which everything that it delivered is durable."""
