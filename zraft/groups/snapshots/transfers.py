"""Snapshots of groups between servers, both sides: who is offered and sent one, and which are being received here.

Composes `group_sending` and `group_receiving`, and knows what both need: each group's newest snapshot and its deliveries.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from attrs import define

from zraft.groups.host import GroupHost
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.receiving import GroupReceiver
from zraft.groups.snapshots.sending import SnapshotSender
from zraft.groups.snapshots.tasks import Complete, Load, Read, Receive, Result, Store, Task
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.values import Mark
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import (
    DeliveryList,
    DeliveryListRequest,
    DeliveryPiece,
    DeliveryRequest,
    PeerMessage,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
)
from zraft_core.ids import GroupId, ServerId

OF_TRANSFERS: Final = (
    *(SnapshotOffer, SnapshotRequest, SnapshotChunk),
    *(DeliveryListRequest, DeliveryList, DeliveryRequest, DeliveryPiece),
)
FETCHES: Final = (
    *(delivery_tasks.BeginFetch, delivery_tasks.StorePiece, delivery_tasks.CompleteFetch),
    *(delivery_tasks.AbandonFetch, delivery_tasks.ReadSegment),
)


@define
class TransfersShare:
    """What a turn asks of the disks, and says to other servers."""

    tasks: Sequence[Task]
    deliveries: Sequence[delivery_tasks.Task]
    outgoing: Sequence[tuple[ServerId, PeerMessage]]


class GroupTransfers:
    """All transfers of one server.

    Attributes:
        newest: the newest durable snapshot of each group here.
        logs: the deliveries of each group here, as far as they are open.
        sent_bytes_total: of images and deliveries, to other servers.
    """

    def __init__(
        self, host: GroupHost, sender: SnapshotSender, mark_of: Callable[[GroupId, bytes, int], Mark]
    ) -> None:
        """`sender` is that of all groups of this server; its owner carries to the disks what it reads."""
        self._host = host
        self.newest: dict[GroupId, SnapshotInfo] = {}
        self.logs: dict[GroupId, DeliveryLog] = {}
        self._sender = sender
        self.sent_bytes_total = 0
        self.receiver = GroupReceiver(host, mark_of)
        self._outgoing: list[tuple[ServerId, PeerMessage]] = []
        self._installed: dict[GroupId, int] = {}

    def found(self, info: SnapshotInfo) -> None:
        """This snapshot is durable here: it is its group's newest, unless a newer one came while it was written."""
        newest = self.newest.get(info.group)
        if newest is None or newest.meta.index <= info.meta.index:
            self.newest[info.group] = info

    def forget(self, group: GroupId) -> None:
        """It is gone."""
        self.newest.pop(group, None)
        self.logs.pop(group, None)
        self._installed.pop(group, None)
        self._sender.forget(group)

    def on_message(self, server: ServerId, message: PeerMessage, now_ms: int) -> None:
        """One of `OF_TRANSFERS`, of a server of this cluster."""
        match message:
            case SnapshotOffer():
                self.receiver.on_offer(server, message, now_ms)
            case SnapshotChunk():
                self.receiver.on_chunk(message, now_ms)
            case DeliveryList():
                self.receiver.on_list(message, now_ms)
            case DeliveryPiece():
                self.receiver.on_piece(message, now_ms)
            case SnapshotRequest() | DeliveryListRequest() | DeliveryRequest():
                # Also when another server leads by now: what was offered is committed, whoever leads.
                answer = self._sender.on_request(server, message, now_ms, self.logs.get(message.group))
                if answer is not None:
                    self._outgoing.append((server, answer))
            case _:
                raise AssertionError(f"{message!r} is not about transfers")

    def performed(self, task: Read | Receive | Store | Complete | Load, result: Result, now_ms: int) -> None:
        """The disk of snapshots has done a task of a transfer."""
        match task:
            case Read():
                answer = self._sender.read_piece(task, result, self._term(task.group))
                if answer is not None:
                    self.sent_bytes_total += len(answer.data)
                    self._outgoing.append((ServerId(task.server), answer))
            case Receive() | Store() | Complete() | Load():
                info = self.receiver.performed(task, result, now_ms)
                if info is not None:
                    self.found(info)
                    self._installed[task.group] = info.meta.index

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result, now_ms: int) -> None:
        """The disk of deliveries has done one of `FETCHES`."""
        if isinstance(task, delivery_tasks.ReadSegment):
            piece = self._sender.read_segment(task, result)
            self.sent_bytes_total += len(piece.data)
            self._outgoing.append((ServerId(task.server), piece))
        else:
            self.receiver.delivered(task, result, now_ms)

    @property
    def active(self) -> bool:
        """Whether anything is under way, or to be done."""
        return bool(self.receiver.active or self._outgoing or self._installed)

    @property
    def wake_in(self) -> int | None:
        """ms until a turn has something to do by itself."""
        return 0 if self._outgoing else None

    def turn(self, needing: Sequence[tuple[GroupId, ServerId]], now_ms: int) -> TransfersShare:
        """This turn's share; `needing` are followers whose leaders' logs no longer reach theirs."""
        for group, server in needing:
            offer = self._sender.offer(
                group,
                server,
                self.newest.get(group),
                term=self._term(group),
                match=self._match(group, server),
                now_ms=now_ms,
            )
            if offer is not None:
                self._outgoing.append((server, offer))
        if needing:
            self._sender.forget_silent(now_ms)
        if self.receiver.active:
            self.receiver.turn(now_ms)
        receiver = self.receiver
        share = TransfersShare(receiver.tasks, receiver.deliveries, [*self._outgoing, *receiver.outgoing])
        self._outgoing, receiver.tasks, receiver.deliveries, receiver.outgoing = [], [], [], []
        return share

    def take_compactions(self) -> list[tuple[GroupId, int]]:
        """What logs were before a state from elsewhere took their place still fills the disk, until that is in the log."""
        compactions: list[tuple[GroupId, int]] = []
        for group, index in tuple(self._installed.items()):
            replica = self._host.groups.get(group)
            if replica is None or replica.raft.durable_index >= index:
                del self._installed[group]
                if replica is not None:
                    compactions.append((group, index))
        return compactions

    def _term(self, group: GroupId) -> int:
        replica = self._host.groups.get(group)
        return 0 if replica is None else replica.raft.term

    def _match(self, group: GroupId, server: ServerId) -> int:
        replica = self._host.groups.get(group)
        return 0 if replica is None else replica.raft.matches.get(server, 0)
