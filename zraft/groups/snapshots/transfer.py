"""How a follower that is too far behind pulls a snapshot of the coordination group, and rebuilds the state from it.

Pure.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen

from zraft.groups.snapshots.pull import Pull
from zraft.groups.snapshots.tasks import Complete, Load, Receive, Result, Store, Task
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import SnapshotChunk, SnapshotOffer, SnapshotRequest
from zraft.tree.image.reader import ImageReader, ImageState
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import COORDINATION_GROUP, ServerId

GIVE_UP_MS: Final = 10_000
"""A transfer whose sender says nothing for this long makes room for an offer of somebody else."""

LOAD_ITEMS: Final = 500
"""Znodes rebuilt per turn while an image is loaded: some two milliseconds."""

BLOCKS_AHEAD: Final = 2


@frozen
class Received:
    """A snapshot is here, durable and rebuilt: what the state machine is to become."""

    info: SnapshotInfo
    state: ImageState


class SnapshotReceiver:
    """The follower's side: pulls a file, has it made durable, rebuilds the state in steps."""

    def __init__(self) -> None:
        self._from: ServerId | None = None
        self._offer: SnapshotOffer | None = None
        self._pull: Pull | None = None
        self._heard_at = 0
        self._completing = False
        self._info: SnapshotInfo | None = None
        self._image: ImageReader | None = None
        self._loads = 0
        self._ended = False
        self.failed_total = 0
        self.problem: str | None = None
        """Why the last transfer came to nothing, for the log."""

    @property
    def active(self) -> bool:
        """Whether a snapshot is on its way, or being rebuilt."""
        return self._offer is not None

    @property
    def progress(self) -> tuple[int, int] | None:
        """(bytes here, bytes of the file) of a transfer under way."""
        if self._offer is None:
            return None
        return (0 if self._pull is None else self._pull.have), self._offer.size

    def on_offer(self, server: ServerId, offer: SnapshotOffer, commit_index: int, now_ms: int) -> list[Task]:
        """A leader has a snapshot for us."""
        if offer.index <= commit_index:
            return []
        current = self._offer
        if current is not None:
            if current.id == offer.id:
                # The same file, perhaps from another leader that got it from the same source.
                self._from = server
                return []
            busy = self._completing or self._image is not None
            if busy or (self._from != server and now_ms - self._heard_at < GIVE_UP_MS):
                return []
        self.reset()
        self._from, self._offer = server, offer
        self._heard_at = now_ms
        return [Receive(offer.group, offer.id, offer.size)]

    def on_chunk(self, server: ServerId, chunk: SnapshotChunk, now_ms: int) -> list[Task]:
        """A piece arrived."""
        offer = self._offer
        pull = self._pull
        if offer is None or chunk.id != offer.id or pull is None or self._completing:
            return []
        self._heard_at = now_ms
        tasks: list[Task] = [
            Store(offer.group, offer.id, offset, data)
            for offset, data in pull.take(chunk.offset, chunk.data, now_ms)
        ]
        if pull.complete:
            self._completing = True
            tasks.append(Complete(offer.group, offer.id))
        return tasks

    def requests(self, now_ms: int, term: int) -> list[tuple[ServerId, SnapshotRequest]]:
        """What to ask for now."""
        offer = self._offer
        if offer is None or self._pull is None or self._completing or self._from is None:
            return []
        asks = self._pull.asks(now_ms)
        return [
            (self._from, SnapshotRequest(COORDINATION_GROUP, term, offer.id, offset, length))
            for offset, length in asks
        ]

    def performed(self, task: Task, result: Result) -> list[Task]:
        """One of our tasks is done; what follows."""
        offer = self._offer
        if offer is None:
            return []
        if isinstance(task, (Receive, Store, Complete)) and task.id != offer.id:
            return []
        if isinstance(result, StorageError):
            self.failed_total += 1
            self.problem = str(result)
            self.reset()
            return []
        match task:
            case Receive():
                assert isinstance(result, int)
                self._pull = Pull(offer.id, offer.size, result, self._heard_at)
                if self._pull.complete:
                    self._completing = True
                    return [Complete(offer.group, offer.id)]
            case Complete():
                assert isinstance(result, SnapshotInfo)
                return self.load(result)
            case Load(info):
                if self._info is not None and info.header.id == self._info.header.id:
                    self._loads -= 1
                    assert self._image is not None
                    if isinstance(result, bytes):
                        self._image.feed(result)
                    else:
                        self._ended = True
        return []

    def load(self, info: SnapshotInfo) -> list[Task]:
        """The file is durable here: rebuild the state from it."""
        self._info = info
        self._image = ImageReader()
        self._loads = BLOCKS_AHEAD
        return [Load(info, first=True), *[Load(info)] * (BLOCKS_AHEAD - 1)]

    def step(self) -> tuple[list[Task], Received | None]:
        """The turn's share of rebuilding; the state once it is whole."""
        image, info = self._image, self._info
        if image is None or info is None:
            return [], None
        try:
            pending = image.step(LOAD_ITEMS)
            if self._ended and not pending:
                return [], Received(info, image.finish())
        except ProtocolError as error:
            self.failed_total += 1
            self.problem = f"{info.path}: {error}"
            self.reset()
            return [], None
        tasks: list[Task] = []
        if not self._ended and not pending and self._loads < BLOCKS_AHEAD:
            self._loads += 1
            tasks.append(Load(info))
        return tasks, None

    @property
    def loading(self) -> bool:
        """Whether a turn can go on with rebuilding at once."""
        return self._image is not None

    def reset(self) -> None:
        """Nothing is under way any more."""
        self._from = self._offer = self._pull = self._info = self._image = None
        self._loads = 0
        self._completing = self._ended = False


def meta_of(info: SnapshotInfo) -> SnapshotMeta:
    """Where the log goes on after the snapshot."""
    meta: SnapshotMeta = info.header.meta
    return meta
