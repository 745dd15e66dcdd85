"""The receiving side: how a follower that is too far behind pulls a group's snapshot and rebuilds the state from it.

The image's file comes first. For a partition the leader's list of delivery segments follows, then the
segments that are missing here. Only when these are a durable part of the log of deliveries does the image
become one of this server's snapshots: a start after a crash finds no image whose deliveries are missing
(D-13). Then the state is rebuilt in steps, beside the present one, and given to the owner of the group, which
takes it over within a turn (D-4). Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol

from attrs import define, frozen

from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.delivery_tasks import AbandonFetch, BeginFetch, CompleteFetch, StorePiece
from zraft.groups.snapshots.pull import ASK_AGAIN_MS, Pull
from zraft.groups.snapshots.tasks import Complete, Load, Receive, Result, Store
from zraft.groups.snapshots.work import Work
from zraft.raft.core import Raft
from zraft.storage.delivery.fetching import Piece
from zraft.storage.delivery.manifest import ManifestFormatError, decode_manifest
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
from zraft.tree.image.reader import ImageReader, ImageState
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId, ServerId

TRANSFERS_MAX: Final = 4
"""How many groups are received at a time; the others are offered again. The coordination group never waits for them."""
SILENT_MS: Final = 1_500
"""A transfer whose sender says nothing for this long gives way to another server's offer of another snapshot."""
GIVE_UP_MS: Final = 10_000
"""A transfer whose sender says nothing for this long makes room for another group's."""
AGAIN_MS: Final = 2_000
"""A group whose transfer failed is not received again before this time has passed."""
LOAD_ITEMS: Final = 500
"""How many items of an image are rebuilt per turn: znodes take some two milliseconds."""
BLOCKS_AHEAD: Final = 2
"""How many blocks of an image are asked of the disk before they are rebuilt."""


class Loader(Protocol):
    """Rebuilds a state from the blocks of its image."""

    def feed(self, block: bytes) -> None:
        """Take the next block."""

    def step(self, items: int) -> bool:
        """Rebuild up to so many items; return False if the next block is needed.

        Raises:
            ProtocolError: this is no image.
        """

    def finish(self) -> ImageState | bytes:
        """Return the state, when all blocks were fed and rebuilt.

        Raises:
            ProtocolError: this is no whole image.
        """


class SmallLoader:
    """Gathers an image that its machine takes whole, as a partition's is."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []

    def feed(self, block: bytes) -> None:
        """Take the next block."""
        self._blocks.append(block)

    def step(self, items: int) -> bool:
        """Return False, because there is nothing to rebuild."""
        return False

    def finish(self) -> bytes:
        """Return the whole image."""
        return b"".join(self._blocks)


@frozen
class ReceivedSnapshot:
    """A snapshot that is here and durable, and that its group's state machine is to take over.

    Attributes:
        info: the snapshot.
        state: rebuilt from the image; a partition's is the image itself.
        delivered_end: the offset after the last delivery that came with it.
    """

    info: SnapshotInfo
    state: ImageState | bytes
    delivered_end: int


class _Step(Enum):
    """The step at which a transfer is; each waits for a disk or for the leader."""

    OPENING = "opening"
    FILE = "file"
    LIST = "list"
    SEGMENTS = "segments"
    COMPLETING = "completing"
    LOADING = "loading"


@define
class _Transfer:
    """A group that is being received."""

    group: GroupId
    server: ServerId
    offer: SnapshotOffer
    heard_at: int
    loader: Loader
    step: _Step = _Step.OPENING
    asked_at: int = 0
    pull: Pull | None = None
    fetching: bool = False
    delivered_end: int = 0
    """The offset after the last delivery of the leader's list."""
    info: SnapshotInfo | None = None
    loads: int = 0
    """How many blocks were asked of the disk and are not here yet."""
    ended: bool = False
    """Whether all blocks are here."""


class SnapshotReceiver:
    """The receiving side, for all groups of this server.

    Args:
        work: gets what the disks are to do, and what is asked of other servers.
        core_of: returns the core of a group; None if the group is not here.

    Attributes:
        transfers: the groups that are being received.
        failed_total: how many transfers failed.
        received_bytes_total: bytes of images and deliveries that came.
    """

    def __init__(self, work: Work, core_of: Callable[[GroupId], Raft | None]) -> None:
        self._work = work
        self._core_of = core_of
        self.transfers: dict[GroupId, _Transfer] = {}
        self._not_before: dict[GroupId, int] = {}
        self.failed_total = 0
        self.received_bytes_total = 0

    @property
    def active(self) -> int:
        """The number of groups that are being received."""
        return len(self.transfers)

    def __contains__(self, group: object) -> bool:
        """Return whether a snapshot of the group is on its way, or being rebuilt."""
        return group in self.transfers

    @property
    def loading(self) -> bool:
        """True if a turn can go on with rebuilding at once."""
        return any(transfer.step is _Step.LOADING for transfer in self.transfers.values())

    def progress_of(self, group: GroupId) -> tuple[int, int] | None:
        """Return (bytes here, bytes of the file) of the group's transfer; None if there is none."""
        transfer = self.transfers.get(group)
        if transfer is None:
            return None
        size, pull = transfer.offer.size, transfer.pull
        if transfer.step in (_Step.OPENING, _Step.FILE):
            return (0 if pull is None else pull.have), size
        return size, size

    # -- what the leader says

    def on_offer(self, server: ServerId, offer: SnapshotOffer, commit_index: int, now_ms: int) -> None:
        """Take a snapshot's offer from the group's leader, and begin a transfer if one is needed and there is room."""
        group = offer.group
        if not self._is_needed(offer, commit_index):
            return
        transfer = self.transfers.get(group)
        if transfer is not None:
            if transfer.offer.id == offer.id:
                # This is the same file, perhaps from another leader that got it from the same source.
                transfer.server = server
                return
            if transfer.step in (_Step.COMPLETING, _Step.LOADING):
                return
            if transfer.server != server and now_ms - transfer.heard_at < SILENT_MS:
                return
            # The sender is gone, or has another snapshot by now.
            self.drop(group)
        full = len(self.transfers) >= TRANSFERS_MAX and group != COORDINATION_GROUP
        if full or now_ms < self._not_before.get(group, 0):
            return
        self._not_before.pop(group, None)
        loader = ImageReader() if group == COORDINATION_GROUP else SmallLoader()
        self.transfers[group] = _Transfer(group, server, offer, now_ms, loader)
        self._work.tasks.append(Receive(group, offer.id, offer.size))

    def _is_needed(self, offer: SnapshotOffer, commit_index: int) -> bool:
        """Return whether the snapshot is ahead of what is committed here; an older state would take entries back (D-4)."""
        return offer.index > commit_index

    def on_chunk(self, chunk: SnapshotChunk, now_ms: int) -> None:
        """Take a piece of an image's file."""
        transfer = self.transfers.get(chunk.group)
        if transfer is None or transfer.step is not _Step.FILE or transfer.pull is None:
            return
        if chunk.id != transfer.pull.id:
            return
        transfer.heard_at = now_ms
        for offset, data in transfer.pull.take(chunk.offset, chunk.data, now_ms):
            self.received_bytes_total += len(data)
            self._work.tasks.append(Store(chunk.group, chunk.id, offset, data))
        if transfer.pull.complete:
            self._file_is_here(transfer, now_ms)

    def on_list(self, listed: DeliveryList, now_ms: int) -> None:
        """Take the leader's list of delivery segments."""
        transfer = self.transfers.get(listed.group)
        if transfer is None or transfer.step is not _Step.LIST or listed.id != transfer.offer.id:
            return
        transfer.heard_at = now_ms
        transfer.step = _Step.SEGMENTS
        try:
            manifest = decode_manifest(listed.manifest)
        except ManifestFormatError as error:
            self._fail(transfer, str(error), now_ms)
            return
        transfer.delivered_end = manifest.end.offset
        transfer.fetching = True
        self._work.deliveries.append(BeginFetch(transfer.group, manifest))

    def on_piece(self, piece: DeliveryPiece, now_ms: int) -> None:
        """Take a piece of a delivery segment."""
        transfer = self.transfers.get(piece.group)
        if transfer is None or transfer.step is not _Step.SEGMENTS or transfer.pull is None:
            return
        if piece.id != transfer.pull.id:
            return
        transfer.heard_at = now_ms
        if not piece.data:
            self._fail(transfer, "the leader removed a delivery segment meanwhile", now_ms)
            return
        for offset, data in transfer.pull.take(piece.offset, piece.data, now_ms):
            self.received_bytes_total += len(data)
            self._work.deliveries.append(StorePiece(piece.group, piece.id, offset, data))

    # -- what the disks did

    def performed(self, task: Receive | Store | Complete | Load, result: Result, now_ms: int) -> None:
        """Take the result of a task that the disk of snapshots has done for a transfer."""
        transfer = self.transfers.get(task.group)
        if transfer is None or task.id != transfer.offer.id:
            return
        if isinstance(result, StorageError):
            self._fail(transfer, str(result), now_ms)
            return
        match task:
            case Receive():
                assert isinstance(result, int)
                transfer.step = _Step.FILE
                transfer.pull = Pull(transfer.offer.id, transfer.offer.size, result, transfer.heard_at)
                if transfer.pull.complete:
                    self._file_is_here(transfer, now_ms)
            case Complete():
                assert isinstance(result, SnapshotInfo)
                transfer.step, transfer.info = _Step.LOADING, result
                for ahead in range(BLOCKS_AHEAD):
                    self._load(transfer, result, first=not ahead)
            case Load():
                transfer.loads -= 1
                if isinstance(result, bytes):
                    transfer.loader.feed(result)
                else:
                    transfer.ended = True

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result, now_ms: int) -> None:
        """Take the result of a task that the disk of deliveries has done for a transfer."""
        transfer = self.transfers.get(task.group)
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

    def turn(self, now_ms: int) -> list[ReceivedSnapshot]:
        """Rebuild, ask for what is missing, and give up what does not come.

        Returns:
            The snapshots that are whole. Each is returned in every turn until its owner has dropped or
            refused it.
        """
        received: list[ReceivedSnapshot] = []
        for transfer in tuple(self.transfers.values()):
            core = self._core_of(transfer.group)
            if core is None:
                self.drop(transfer.group)
            elif transfer.step is _Step.LOADING:
                self._rebuild(transfer, received, now_ms)
            elif transfer.step is _Step.COMPLETING:
                pass  # the disk's result continues it
            elif not self._is_needed(transfer.offer, core.commit_index):
                self.drop(transfer.group)
            elif now_ms - transfer.heard_at > GIVE_UP_MS:
                self._fail(transfer, f"server {transfer.server} says nothing any more", now_ms)
            else:
                self._ask(transfer, core.term, now_ms)
        return received

    def _rebuild(self, transfer: _Transfer, received: list[ReceivedSnapshot], now_ms: int) -> None:
        info = transfer.info
        assert info is not None
        try:
            pending = transfer.loader.step(LOAD_ITEMS)
            if transfer.ended and not pending:
                received.append(ReceivedSnapshot(info, transfer.loader.finish(), transfer.delivered_end))
                return
        except ProtocolError as error:
            self._fail(transfer, f"{info.path}: {error}", now_ms)
            return
        if not transfer.ended and not pending and transfer.loads < BLOCKS_AHEAD:
            self._load(transfer, info)

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
                self._work.outgoing.append((transfer.server, request))

    # -- steps

    def _file_is_here(self, transfer: _Transfer, now_ms: int) -> None:
        if transfer.group == COORDINATION_GROUP:
            self._complete(transfer)
        else:
            self._ask_for_list(transfer, now_ms)

    def _ask_for_list(self, transfer: _Transfer, now_ms: int) -> None:
        transfer.step, transfer.pull = _Step.LIST, None
        transfer.asked_at = now_ms
        request = DeliveryListRequest(transfer.group, transfer.offer.id)
        self._work.outgoing.append((transfer.server, request))

    def _fetch(self, transfer: _Transfer, piece: Piece | None, now_ms: int) -> None:
        """Go on with what the disk of deliveries wants next: more of the segment under way, another one, or nothing."""
        if piece is None:
            transfer.pull = None
            self._work.deliveries.append(CompleteFetch(transfer.group))
        elif transfer.pull is None or transfer.pull.id != piece.id:
            transfer.pull = Pull(piece.id, piece.size, piece.offset, now_ms)

    def _complete(self, transfer: _Transfer) -> None:
        transfer.step, transfer.pull = _Step.COMPLETING, None
        self._work.tasks.append(Complete(transfer.group, transfer.offer.id))

    def _load(self, transfer: _Transfer, info: SnapshotInfo, *, first: bool = False) -> None:
        transfer.loads += 1
        self._work.tasks.append(Load(info, first))

    # -- its end

    def refuse(self, group: GroupId, why: str, now_ms: int) -> None:
        """Let a transfer fail because the `ReceivedSnapshot` is of no use."""
        self._fail(self.transfers[group], why, now_ms)

    def drop(self, group: GroupId) -> None:
        """End a transfer that is over, or not needed."""
        transfer = self.transfers.pop(group, None)
        if transfer is not None and transfer.fetching:
            self._work.deliveries.append(AbandonFetch(group))

    def forget(self, group: GroupId) -> None:
        """Forget a group that is gone."""
        self.transfers.pop(group, None)
        self._not_before.pop(group, None)

    def _fail(self, transfer: _Transfer, why: str, now_ms: int) -> None:
        group = transfer.group
        self.failed_total += 1
        self._not_before[group] = now_ms + AGAIN_MS
        self._work.failed(
            f"the snapshot of group {group} from server {transfer.server} could not be taken over: {why}"
        )
        self.drop(group)
