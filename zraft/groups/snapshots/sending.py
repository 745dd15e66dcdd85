"""The sending side: how a leader sends a group's snapshot, and the deliveries under it, to a follower beyond its log.

The leader offers, the follower pulls: it asks for one piece after the other, a few at a time. So what it
cannot take is never sent, a lost piece is simply asked for again, and an interrupted transfer continues where
it stopped. The image's file comes first; for a partition, the list of delivery segments and those that the
follower lacks come after it. One budget of bytes limits what is read for all groups, so that live traffic
keeps its latency.

Pure. Source: dissertation, section 5 ("log compaction"), except that the receiver controls the flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from attrs import define

from zraft.groups.snapshots.delivery_tasks import ReadSegment
from zraft.groups.snapshots.delivery_tasks import Result as DeliveryResult
from zraft.groups.snapshots.pull import CHUNK_BYTES
from zraft.groups.snapshots.tasks import ReadSnapshot, Result
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import encode_manifest
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import (
    DeliveryList,
    DeliveryListRequest,
    DeliveryPiece,
    DeliveryRequest,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
)
from zraft_core.ids import GroupId, ServerId

OFFER_INTERVAL_MS: Final = 200
"""How long after an offer, or a request, a follower is offered a snapshot again."""
GIVE_UP_MS: Final = 10_000
"""A follower that says nothing for this long is offered whatever snapshot is the newest then."""
READS_QUEUED_MAX: Final = 256
"""How many requests may wait for their turn; more are dropped, and followers ask again."""
WAKE_MS: Final = 5
"""A request that waits for the budget is looked at again after this."""


@define
class _Receiver:
    """A follower that pulls a snapshot, or is offered one."""

    info: SnapshotInfo
    offered_at: int
    heard_at: int
    offset: int = 0


class SnapshotSender:
    """The sending side, for all groups that this server leads.

    Args:
        bytes_per_s: how much may be read for all followers of all groups together.

    Attributes:
        receivers: the followers that are offered or sent a snapshot, by group and server.
        waiting: requests that wait for the budget, in the order in which they came.
    """

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._budget = 0.0
        self._budget_at = 0
        self.receivers: dict[tuple[GroupId, ServerId], _Receiver] = {}
        self.waiting: deque[ReadSnapshot | ReadSegment] = deque()

    # -- who is sent what

    def offer(
        self,
        group: GroupId,
        server: ServerId,
        newest: SnapshotInfo | None,
        *,
        term: int,
        match: int,
        now_ms: int,
    ) -> SnapshotOffer | None:
        """Return what to offer now to a follower that needs a snapshot.

        Args:
            newest: the group's newest durable snapshot.
            match: index up to which the follower's log is known to agree with the leader's.

        Returns:
            None if there is no snapshot, or the follower was offered one or asked for a piece a moment ago.
        """
        receiver = self.receivers.get((group, server))
        # A snapshot that it took over before it fell behind again does not help it any more.
        if receiver is None or receiver.info.meta.index <= match:
            if newest is None:
                return None
            receiver = self.receivers[group, server] = _Receiver(newest, now_ms, now_ms)
        elif now_ms - max(receiver.offered_at, receiver.heard_at) < OFFER_INTERVAL_MS:
            return None
        elif newest is not None and now_ms - receiver.heard_at > GIVE_UP_MS:
            # It makes no progress with the old one, so it may as well begin with the newest.
            receiver.info = newest
        receiver.offered_at = now_ms
        info = receiver.info
        return SnapshotOffer(group, term, info.meta.index, info.meta.term, info.id, info.size)

    def forget(self, group: GroupId, but: Collection[ServerId] = ()) -> None:
        """Forget the followers of a group, none of which needs a snapshot from here except those of `but`."""
        for key in [key for key in self.receivers if key[0] == group and key[1] not in but]:
            del self.receivers[key]
        if self.waiting:
            self.waiting = deque(one for one in self.waiting if one.group != group or one.server in but)

    def forget_silent(self, now_ms: int) -> None:
        """Forget followers that ask no more, because they have what they need or are gone."""
        silent = [key for key, one in self.receivers.items() if now_ms - one.heard_at > 2 * GIVE_UP_MS]
        for key in silent:
            del self.receivers[key]

    def progress_of(self, group: GroupId, server: ServerId) -> tuple[int, int] | None:
        """Return (bytes that the follower has, roughly, bytes of the file); None if it is offered no snapshot."""
        receiver = self.receivers.get((group, server))
        return None if receiver is None else (min(receiver.offset, receiver.info.size), receiver.info.size)

    def oldest_index(self, group: GroupId) -> int | None:
        """Return the index after which the group's log must be kept for followers that pull; None if none does."""
        return min(
            (one.info.meta.index for key, one in self.receivers.items() if key[0] == group), default=None
        )

    # -- what followers ask for

    def on_request(
        self,
        server: ServerId,
        request: SnapshotRequest | DeliveryListRequest | DeliveryRequest,
        now_ms: int,
        log: DeliveryLog | None = None,
    ) -> DeliveryList | None:
        """Take a follower's request; return what is to be answered at once, which only a list of segments is.

        Args:
            log: the group's deliveries; None if they are not open.
        """
        receiver = self.receivers.get((request.group, server))
        if receiver is None or (request.id != receiver.info.id and not isinstance(request, DeliveryRequest)):
            return None
        receiver.heard_at = now_ms
        match request:
            case DeliveryListRequest(group, id):
                # While the log is being opened, nothing is answered: its list may be shorter than the image needs.
                return None if log is None else DeliveryList(group, id, encode_manifest(log.manifest()))
            case SnapshotRequest(group, _, id, offset, length):
                receiver.offset = offset
                self._queue(ReadSnapshot(server, group, id, offset, min(length, CHUNK_BYTES)))
            case DeliveryRequest(group, id, offset, length):
                self._queue(ReadSegment(server, group, id, offset, min(length, CHUNK_BYTES)))
        return None

    def _queue(self, read: ReadSnapshot | ReadSegment) -> None:
        if len(self.waiting) < READS_QUEUED_MAX and read not in self.waiting:
            self.waiting.append(read)

    def reads(self, now_ms: int) -> tuple[list[ReadSnapshot], list[ReadSegment]]:
        """Return what the budget of this moment allows to read: pieces of snapshots, and pieces of delivery segments."""
        pieces: list[ReadSnapshot] = []
        segments: list[ReadSegment] = []
        self._budget = min(
            self._budget + (now_ms - self._budget_at) * self._bytes_per_s / 1000,
            float(max(CHUNK_BYTES, self._bytes_per_s // 20)),
        )
        self._budget_at = now_ms
        while self.waiting and self._budget > 0:
            read = self.waiting.popleft()
            self._budget -= read.length
            if isinstance(read, ReadSnapshot):
                pieces.append(read)
            else:
                segments.append(read)
        return pieces, segments

    def read_piece(self, task: ReadSnapshot, result: Result, term: int) -> SnapshotChunk | None:
        """Return the message that carries a piece of a snapshot, which was read; None if its file is gone."""
        if isinstance(result, bytes):
            return SnapshotChunk(task.group, term, task.id, task.offset, result) if result else None
        key = task.group, ServerId(task.server)
        receiver = self.receivers.get(key)
        if receiver is not None and receiver.info.id == task.id:
            # It was purged or is damaged: the newest snapshot is offered next.
            del self.receivers[key]
        return None

    def read_segment(self, task: ReadSegment, result: DeliveryResult) -> DeliveryPiece:
        """Return the message that carries a piece of a delivery segment; it is empty if retention removed the segment."""
        return DeliveryPiece(task.group, task.id, task.offset, result if isinstance(result, bytes) else b"")
