"""Requests of the driver to its shell after a turn, or in its place."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.tasks import Task
from zraft.server.clients.output import Output
from zraft.storage.records import Record
from zraft.transport.messages import PeerMessage
from zraft_core.ids import GroupId, ServerId

Beat = tuple[Sequence[tuple[ServerId, PeerMessage]], int]
"""What the shell does in the place of a turn, when its alarm rings and nothing is under way: (sends, wake at).

The first has a message to each of some servers, the second is as in `Effects`.
"""


@frozen
class Effects:
    """Work for the shell after a turn, to be done in any order.

    Attributes:
        sends: messages by receiver.
        write: one frame to make durable. `Driver.persisted` is called when it is, and no further frame comes
            before that.
        outputs: what goes to clients.
        wake_at: when the next turn is due even if nothing arrives, in ms of the driver's clock.
        tasks: for the snapshot disk, in order; `Driver.performed` is told of each.
        compact_to: the write-ahead log no longer needs the coordination group's entries up to this index.
        deliveries: for the disk of deliveries, in order; `HostedGroups.refused` is told of those that it does
            not take.
        group_compactions: (group, index) of other groups, as `compact_to`.
    """

    sends: Sequence[tuple[ServerId, list[PeerMessage]]]
    write: list[Record] | None
    outputs: Sequence[Output]
    wake_at: int
    tasks: Sequence[Task] = ()
    compact_to: int | None = None
    deliveries: Sequence[delivery_tasks.Task] = ()
    group_compactions: Sequence[tuple[GroupId, int]] = ()
