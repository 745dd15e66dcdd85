"""How a follower that is too far behind pulls a group's snapshot, and the deliveries under it, and becomes it.

The image's file first, then the leader's list of delivery segments, then the segments that are missing here. Only when
these are part of the log of deliveries, and durable, the image becomes one of ours: a start after a crash finds no image
whose deliveries are not there (D-13). A few groups at a time. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from attrs import Factory, define

from zraft.groups.host import GroupHost
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.delivery_tasks import AbandonFetch, BeginFetch, CompleteFetch, StorePiece
from zraft.groups.snapshots.group_snapshots import SNAPSHOTS_KEPT
from zraft.groups.snapshots.pull import ASK_AGAIN_MS, Pull
from zraft.groups.snapshots.tasks import Complete, Load, Purge, Receive, Result, Store, Task
from zraft.storage.delivery.fetching import Piece
from zraft.storage.delivery.manifest import ManifestFormatError, decode_manifest
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
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import GroupId, ServerId

TRANSFERS_MAX: Final = 4
"""Groups that are received at a time; the others are offered again."""
SILENT_MS: Final = 1_500
"""A transfer whose sender says nothing for this long gives way to an offer of another snapshot."""
GIVE_UP_MS: Final = 10_000
"""A transfer whose sender says nothing for this long makes room for another."""
AGAIN_MS: Final = 2_000
"""A group whose transfer came to nothing is not begun anew before this."""
PROBLEMS_KEPT_MAX: Final = 16


class _Step(Enum):
    OPENING = "opening"
    FILE = "file"
    LIST = "list"
    SEGMENTS = "segments"
    COMPLETING = "completing"


@define
class _Transfer:
    """A group that is being received."""

    group: GroupId
    server: ServerId
    offer: SnapshotOffer
    heard_at: int
    step: _Step = _Step.OPENING
    asked_at: int = 0
    pull: Pull | None = None
    fetching: bool = False
    delivered_end: int = 0
    """The offset after the last delivery of the leader's list."""
    blocks: list[bytes] = Factory(list)
    """Of the image, as far as it was read again from the file."""


class GroupReceiver:
    """The receiving side, for all groups of this server.

    Args:
        mark_of: where a group's deliveries stood at the index of an image of it.

    Attributes:
        tasks, deliveries: for the disks; the owner takes them.
        outgoing: for other servers; the owner takes them.
        problems: what went wrong since they were last taken, for the log.
    """

    def __init__(self, host: GroupHost, mark_of: Callable[[GroupId, bytes, int], Mark]) -> None:
        self._host = host
        self._mark_of = mark_of
        self._transfers: dict[GroupId, _Transfer] = {}
        self._not_before: dict[GroupId, int] = {}
        self.tasks: list[Task] = []
        self.deliveries: list[delivery_tasks.Task] = []
        self.outgoing: list[tuple[ServerId, PeerMessage]] = []
        self.problems: list[str] = []
        self.installed_total = 0
        self.failed_total = 0
        self.received_bytes_total = 0

    @property
    def active(self) -> int:
        """How many groups are being received."""
        return len(self._transfers)

    # -- what the leader says

    def on_offer(self, server: ServerId, offer: SnapshotOffer, now_ms: int) -> None:
        """A leader has a snapshot for us."""
        group = offer.group
        replica = self._host.groups.get(group)
        if replica is None or offer.term < replica.raft.term or offer.index <= replica.applied_index:
            return
        if replica.raft.leader not in (None, server):
            return
        transfer = self._transfers.get(group)
        if transfer is not None:
            if transfer.offer.id == offer.id:
                transfer.server = server
                return
            if transfer.step is _Step.COMPLETING or now_ms - transfer.heard_at < SILENT_MS:
                return
            # Its sender is gone, or has forgotten it; somebody else has another one.
            self._drop(transfer)
        if len(self._transfers) >= TRANSFERS_MAX or now_ms < self._not_before.get(group, 0):
            return
        self._not_before.pop(group, None)
        self._transfers[group] = _Transfer(group, server, offer, now_ms)
        self.tasks.append(Receive(group, offer.id, offer.size))

    def on_chunk(self, chunk: SnapshotChunk, now_ms: int) -> None:
        """A piece of the image's file."""
        transfer = self._heard(chunk.group, now_ms)
        if transfer is None or transfer.step is not _Step.FILE or transfer.pull is None:
            return
        if chunk.id != transfer.pull.id:
            return
        for offset, data in transfer.pull.take(chunk.offset, chunk.data, now_ms):
            self.received_bytes_total += len(data)
            self.tasks.append(Store(chunk.group, chunk.id, offset, data))
        if transfer.pull.complete:
            self._ask_for_list(transfer, now_ms)

    def on_list(self, listed: DeliveryList, now_ms: int) -> None:
        """The leader's delivery segments."""
        transfer = self._heard(listed.group, now_ms)
        if transfer is None or transfer.step is not _Step.LIST or listed.id != transfer.offer.id:
            return
        transfer.step = _Step.SEGMENTS
        try:
            manifest = decode_manifest(listed.manifest)
        except ManifestFormatError as error:
            self._fail(transfer, str(error), now_ms)
            return
        transfer.delivered_end = manifest.end.offset
        transfer.fetching = True
        self.deliveries.append(BeginFetch(transfer.group, manifest))

    def on_piece(self, piece: DeliveryPiece, now_ms: int) -> None:
        """A piece of a delivery segment."""
        transfer = self._heard(piece.group, now_ms)
        if transfer is None or transfer.step is not _Step.SEGMENTS or transfer.pull is None:
            return
        if piece.id != transfer.pull.id:
            return
        if not piece.data:
            self._fail(transfer, "the leader removed a delivery segment meanwhile", now_ms)
            return
        for offset, data in transfer.pull.take(piece.offset, piece.data, now_ms):
            self.received_bytes_total += len(data)
            self.deliveries.append(StorePiece(piece.group, piece.id, offset, data))

    # -- what the disks did

    def performed(
        self, task: Receive | Store | Complete | Load, result: Result, now_ms: int
    ) -> SnapshotInfo | None:
        """The disk of snapshots has done one of our tasks; the snapshot that was taken over, if one was."""
        transfer = self._transfers.get(task.group)
        if transfer is None or task.id != transfer.offer.id:
            return None
        if isinstance(result, StorageError):
            self._fail(transfer, str(result), now_ms)
            return None
        match task:
            case Receive():
                assert isinstance(result, int)
                transfer.step = _Step.FILE
                transfer.pull = Pull(transfer.offer.id, transfer.offer.size, result, now_ms)
                if transfer.pull.complete:
                    self._ask_for_list(transfer, now_ms)
            case Complete():
                assert isinstance(result, SnapshotInfo)
                self.tasks.append(Load(result, first=True))
            case Load(info):
                if isinstance(result, bytes):
                    transfer.blocks.append(result)
                    self.tasks.append(Load(info))
                else:
                    self.tasks.append(Purge(info.group, SNAPSHOTS_KEPT))
                    return self._install(transfer, info, now_ms)
        return None

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result, now_ms: int) -> None:
        """The disk of deliveries has done one of our tasks."""
        transfer = self._transfers.get(task.group)
        if transfer is None or transfer.step is not _Step.SEGMENTS:
            return
        if isinstance(result, StorageError):
            self._fail(transfer, str(result), now_ms)
            return
        match task:
            case BeginFetch() | StorePiece():
                assert result is None or isinstance(result, Piece)
                self._fetch(transfer, result, now_ms)
            case CompleteFetch():
                transfer.fetching = False
                self._complete(transfer)

    # -- a turn

    def turn(self, now_ms: int) -> None:
        """Ask for what is missing; give up what does not come."""
        for transfer in tuple(self._transfers.values()):
            replica = self._host.groups.get(transfer.group)
            if replica is None:
                self._drop(transfer)
            elif transfer.step is _Step.COMPLETING:
                pass  # it ends with the disk's next word
            elif replica.applied_index >= transfer.offer.index:
                self._drop(transfer)
            elif now_ms - transfer.heard_at > GIVE_UP_MS:
                self._fail(transfer, f"server {transfer.server} says nothing any more", now_ms)
            else:
                self._ask(transfer, replica.raft.term, now_ms)

    def _ask(self, transfer: _Transfer, term: int, now_ms: int) -> None:
        group, pull = transfer.group, transfer.pull
        if transfer.step is _Step.LIST:
            if now_ms - transfer.asked_at >= ASK_AGAIN_MS:
                self._ask_for_list(transfer, now_ms)
        elif pull is not None:
            of_file = transfer.step is _Step.FILE
            for offset, length in pull.asks(now_ms):
                request: PeerMessage = (
                    SnapshotRequest(group, term, pull.id, offset, length)
                    if of_file
                    else DeliveryRequest(group, pull.id, offset, length)
                )
                self.outgoing.append((transfer.server, request))

    # -- steps

    def _heard(self, group: GroupId, now_ms: int) -> _Transfer | None:
        transfer = self._transfers.get(group)
        if transfer is not None:
            transfer.heard_at = now_ms
        return transfer

    def _ask_for_list(self, transfer: _Transfer, now_ms: int) -> None:
        transfer.step, transfer.pull = _Step.LIST, None
        transfer.asked_at = now_ms
        self.outgoing.append((transfer.server, DeliveryListRequest(transfer.group, transfer.offer.id)))

    def _fetch(self, transfer: _Transfer, piece: Piece | None, now_ms: int) -> None:
        """The disk says what it wants next: more of the segment under way, another one, or nothing."""
        if piece is None:
            transfer.pull = None
            self.deliveries.append(CompleteFetch(transfer.group))
        elif transfer.pull is None or transfer.pull.id != piece.id:
            transfer.pull = Pull(piece.id, piece.size, piece.offset, now_ms)

    def _complete(self, transfer: _Transfer) -> None:
        transfer.step, transfer.pull = _Step.COMPLETING, None
        self.tasks.append(Complete(transfer.group, transfer.offer.id))

    def _install(self, transfer: _Transfer, info: SnapshotInfo, now_ms: int) -> SnapshotInfo | None:
        group, meta, image = transfer.group, info.meta, b"".join(transfer.blocks)
        if group not in self._host.groups:
            self._drop(transfer)
            return None
        needed = self._mark_of(group, image, meta.index).offset
        if needed > transfer.delivered_end:
            self._fail(
                transfer,
                f"it needs deliveries up to offset {needed}, the leader's list ends at {transfer.delivered_end}",
                now_ms,
            )
            return None
        try:
            taken = self._host.install(group, meta, image)
        except ProtocolError as error:
            self._fail(transfer, str(error), now_ms)
            return None
        del self._transfers[group]
        if not taken:
            return None
        self.installed_total += 1
        return info

    def _fail(self, transfer: _Transfer, why: str, now_ms: int) -> None:
        self.failed_total += 1
        self._not_before[transfer.group] = now_ms + AGAIN_MS
        if len(self.problems) < PROBLEMS_KEPT_MAX:
            self.problems.append(
                f"the snapshot of group {transfer.group} from server {transfer.server} could not be taken over: {why}"
            )
        self._drop(transfer)

    def _drop(self, transfer: _Transfer) -> None:
        del self._transfers[transfer.group]
        if transfer.fetching:
            self.deliveries.append(AbandonFetch(transfer.group))
