"""Requests of snapshots to the disks and to other servers in a turn: one value to which all of their parts add. Pure."""

from __future__ import annotations

from attrs import Factory, define

from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.tasks import Task
from zraft.transport.messages import PeerMessage
from zraft_core.ids import ServerId

PROBLEMS_KEPT_MAX = 16
"""How many problems wait for the log; older ones are dropped."""


@define
class Work:
    """Work that has gathered since it was last taken.

    Attributes:
        tasks: for the disk of snapshots, in this order.
        deliveries: for the disk of deliveries, in this order.
        outgoing: messages to other servers.
        problems: sentences for the log about what went wrong; the newest ones.
    """

    tasks: list[Task] = Factory(list)
    deliveries: list[delivery_tasks.Task] = Factory(list)
    outgoing: list[tuple[ServerId, PeerMessage]] = Factory(list)
    problems: list[str] = Factory(list)

    def failed(self, problem: str) -> None:
        """Note a problem for the log."""
        self.problems.append(problem)
        del self.problems[:-PROBLEMS_KEPT_MAX]

    def take_tasks(self) -> list[Task]:
        """Take what the disk of snapshots is to do."""
        taken, self.tasks = self.tasks, []
        return taken

    def take_deliveries(self) -> list[delivery_tasks.Task]:
        """Take what the disk of deliveries is to do."""
        taken, self.deliveries = self.deliveries, []
        return taken

    def take_outgoing(self) -> list[tuple[ServerId, PeerMessage]]:
        """Take what is to be sent."""
        taken, self.outgoing = self.outgoing, []
        return taken
