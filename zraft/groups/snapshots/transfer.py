"""How a snapshot gets from a leader to a follower that the log can no longer bring up to date.

The leader offers, the follower pulls: it asks for one piece after the other, a few at a time, so that what it
cannot take is never sent, a lost piece is simply asked for again, and a transfer that was interrupted goes on
where it stopped. The leader paces what it reads by a budget of bytes, so that live traffic keeps its latency.

Pure. Source: dissertation, section 5 ("log compaction"), with the flow of control turned round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from attrs import define, frozen

from zraft.groups.snapshots.tasks import Complete, Load, Read, Receive, Result, Store, Task
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, SnapshotChunk, SnapshotOffer, SnapshotRequest
from zraft.tree.image.reader import ImageReader, ImageState
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import COORDINATION_GROUP, ServerId

CHUNK_BYTES: Final = 256 * 1024
"""Of a file per message: a few milliseconds of a busy network, and of its receiver."""

CHUNKS_AHEAD: Final = 3
"""Pieces asked for and not yet here."""

OFFER_INTERVAL_MS: Final = 200
ASK_AGAIN_MS: Final = 500
GIVE_UP_MS: Final = 10_000
"""A transfer whose sender says nothing for this long makes room for an offer of somebody else."""

READS_QUEUED_MAX: Final = 64
"""Requests that wait for their turn at the leader; more are dropped, and asked again."""

LOAD_ITEMS: Final = 500
"""Znodes rebuilt per turn while an image is loaded: some two milliseconds."""

BLOCKS_AHEAD: Final = 2


@define
class _Receiver:
    """What the leader knows of a follower that pulls a snapshot."""

    info: SnapshotInfo
    offered_at: int
    heard_at: int
    offset: int = 0


class SnapshotSender:
    """The leader's side, for the time of one leadership."""

    def __init__(self, bytes_per_s: int, now_ms: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._budget = 0.0
        self._budget_at = now_ms
        self._receivers: dict[ServerId, _Receiver] = {}
        self._waiting: deque[Read] = deque()
        self.sent_bytes_total = 0

    def offers(
        self, now_ms: int, term: int, needing: Iterable[ServerId], newest: SnapshotInfo | None
    ) -> list[tuple[ServerId, SnapshotOffer]]:
        """What to offer to whom now; a follower that is pulling is left in peace."""
        needing = tuple(needing)
        for server in [server for server in self._receivers if server not in needing]:
            del self._receivers[server]
        offers: list[tuple[ServerId, SnapshotOffer]] = []
        if newest is None:
            return offers
        for server in needing:
            receiver = self._receivers.get(server)
            if receiver is None:
                receiver = self._receivers[server] = _Receiver(newest, now_ms, now_ms)
            elif now_ms - max(receiver.offered_at, receiver.heard_at) < OFFER_INTERVAL_MS:
                continue
            elif now_ms - receiver.heard_at > GIVE_UP_MS:
                # It may begin anew as well with what is newest now.
                receiver.info = newest
            receiver.offered_at = now_ms
            header = receiver.info.header
            offers.append(
                (
                    server,
                    SnapshotOffer(
                        COORDINATION_GROUP,
                        term,
                        header.meta.index,
                        header.meta.term,
                        header.id,
                        receiver.info.size,
                    ),
                )
            )
        return offers

    def progress_of(self, server: ServerId) -> tuple[int, int] | None:
        """(bytes it has about got to, bytes of the file) of a follower that a snapshot is offered or sent to."""
        receiver = self._receivers.get(server)
        return None if receiver is None else (min(receiver.offset, receiver.info.size), receiver.info.size)

    @property
    def oldest_index(self) -> int | None:
        """The log must be kept from here on for those who are pulling; None if nobody is."""
        return min((r.info.header.meta.index for r in self._receivers.values()), default=None)

    def on_request(self, server: ServerId, request: SnapshotRequest, now_ms: int) -> None:
        """A follower asks for a piece."""
        receiver = self._receivers.get(server)
        if receiver is None or receiver.info.header.id != request.id:
            return
        receiver.heard_at = now_ms
        receiver.offset = request.offset
        wanted = Read(
            server, COORDINATION_GROUP, request.id, request.offset, min(request.length, CHUNK_BYTES)
        )
        if len(self._waiting) < READS_QUEUED_MAX and wanted not in self._waiting:
            self._waiting.append(wanted)

    def reads(self, now_ms: int) -> list[Task]:
        """What the budget of this moment allows to read."""
        if not self._waiting:
            return []
        self._budget = min(
            self._budget + (now_ms - self._budget_at) * self._bytes_per_s / 1000,
            float(max(CHUNK_BYTES, self._bytes_per_s // 20)),
        )
        self._budget_at = now_ms
        tasks: list[Task] = []
        while self._waiting and self._budget > 0:
            read = self._waiting.popleft()
            self._budget -= read.length
            tasks.append(read)
        return tasks

    def performed(self, task: Read, result: Result, term: int) -> tuple[ServerId, PeerMessage] | None:
        """A piece was read: the message that carries it, or None if its file is gone."""
        server = ServerId(task.server)
        receiver = self._receivers.get(server)
        if not isinstance(result, bytes):
            if receiver is not None and receiver.info.header.id == task.id:
                # Purged or damaged: offer what is newest.
                del self._receivers[server]
            return None
        if not result:
            return None
        self.sent_bytes_total += len(result)
        return server, SnapshotChunk(COORDINATION_GROUP, term, task.id, task.offset, result)

    @property
    def busy(self) -> bool:
        """Whether anybody is being offered or sent a snapshot."""
        return bool(self._receivers) or bool(self._waiting)

    @property
    def waiting(self) -> bool:
        """Whether a request waits for the budget."""
        return bool(self._waiting)


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
        self._have = 0  # bytes handed to the disk
        self._asked = 0  # bytes asked for
        self._early: dict[int, bytes] = {}
        self._heard_at = 0
        self._asked_at = 0
        self._begun = False
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
        return None if self._offer is None else (self._have, self._offer.size)

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
        if offer is None or chunk.id != offer.id or not self._begun or self._completing:
            return []
        self._heard_at = now_ms
        if chunk.offset < self._have or chunk.offset + len(chunk.data) > offer.size:
            return []
        self._early[chunk.offset] = chunk.data
        tasks: list[Task] = []
        while (data := self._early.pop(self._have, None)) is not None:
            tasks.append(Store(offer.group, offer.id, self._have, data))
            self._have += len(data)
        if len(self._early) > 2 * CHUNKS_AHEAD:
            self._early.clear()
        if self._have == offer.size:
            self._completing = True
            tasks.append(Complete(offer.group, offer.id))
        return tasks

    def requests(self, now_ms: int, term: int) -> list[tuple[ServerId, SnapshotRequest]]:
        """What to ask for now."""
        offer = self._offer
        if offer is None or not self._begun or self._completing or self._from is None:
            return []
        if now_ms - max(self._heard_at, self._asked_at) >= ASK_AGAIN_MS:
            self._asked = self._have
        requests: list[tuple[ServerId, SnapshotRequest]] = []
        self._asked = max(self._asked, self._have)
        while self._asked < offer.size and self._asked - self._have < CHUNKS_AHEAD * CHUNK_BYTES:
            length = min(CHUNK_BYTES, offer.size - self._asked)
            requests.append(
                (self._from, SnapshotRequest(COORDINATION_GROUP, term, offer.id, self._asked, length))
            )
            self._asked += length
            self._asked_at = now_ms
        return requests

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
                self._begun = True
                self._have = self._asked = result
                if result == offer.size:
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
        self._from = self._offer = self._info = self._image = None
        self._have = self._asked = self._loads = 0
        self._early.clear()
        self._begun = self._completing = self._ended = False


def meta_of(info: SnapshotInfo) -> SnapshotMeta:
    """Where the log goes on after the snapshot."""
    meta: SnapshotMeta = info.header.meta
    return meta
