"""The interface by which the host of groups reaches the partitions, which are what groups replicate."""

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
    """The partitions of one server, and what their leaders do. Only the loop's thread calls it."""

    @property
    def wants_turn(self) -> bool:
        """True if something was given to them since the last `before` that needs a turn."""

    @property
    def wake_in(self) -> int | None:
        """The ms from the last `after` until `before` is due; None if it need not be called for the time alone."""

    def open(self, group: GroupId) -> StateMachine:
        """Return an empty state machine for a group of which this server has a replica from now on."""

    def closed(self, group: GroupId) -> None:
        """Take note that the replica of a group is gone, with its files."""

    def before(self, host: GroupHost, step: int, now_ms: int, wall_ms: int) -> None:
        """Propose what leaders have, before the host's turn.

        Args:
            step: ticks since the last turn in which this process ran.
            now_ms, wall_ms: the process's own clock and the wall clock, in ms.
        """

    def after(self, host: GroupHost, effects: GroupEffects, now_ms: int, wall_ms: int) -> None:
        """Take what the host's turn has done: what was applied, which roles changed, and which reads may be answered."""

    def tell(self, group: GroupId, message: ViewUpdate | StartRequest) -> None:
        """Take a message of the coordination group's leader, which is this server, for the leader of a group."""

    def receive(self, sender: ServerId, message: PeerMessage) -> None:
        """Take a message of another server's partitions, or of this server's own."""

    def take_outgoing(self) -> Sequence[tuple[ServerId, PeerMessage]]:
        """Return the messages of partitions to other servers, and to this one, since the last call."""

    def take_tasks(self) -> Sequence[delivery_tasks.Task]:
        """Return what the disk of deliveries is to do; the order counts for each group."""

    def performed(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """Take the result of a task of the disk of deliveries.

        Of appends that were written together, only the result of the last one is given.
        """

    def synced(self, durable: Mapping[GroupId, int]) -> None:
        """Take note of the index of each group's log up to which all its deliveries are durable."""

    def cut_index(self, group: GroupId) -> int:
        """Return the index of the group's log up to which all its deliveries are durable."""
