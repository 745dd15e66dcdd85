"""How a group's snapshot, and the deliveries under it, leave for a follower that the log can no longer bring up to date.

The leader offers, the follower pulls, as for the coordination group (`snapshot_transfer`): first the image's file, then
the list of delivery segments, then those that it lacks. All that is read is paced by one budget. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from attrs import define

from zraft.groups.snapshots.delivery_tasks import ReadSegment
from zraft.groups.snapshots.delivery_tasks import Result as DeliveryResult
from zraft.groups.snapshots.pull import CHUNK_BYTES
from zraft.groups.snapshots.tasks import Read, Result
from zraft.storage.delivery.log import DeliveryLog
from zraft.storage.delivery.manifest import encode_manifest
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

OFFER_INTERVAL_MS: Final = 200
GIVE_UP_MS: Final = 10_000
"""A follower that says nothing for this long is offered the newest snapshot anew."""
READS_QUEUED_MAX: Final = 256
"""Requests that wait for their turn; more are dropped, and asked again."""


@define
class _Receiver:
    """What is known of a follower that pulls."""

    info: SnapshotInfo
    offered_at: int
    heard_at: int


class GroupSender:
    """The sending side, for all groups that this server leads.

    Args:
        newest: the newest durable snapshot of a group.
        log_of: a group's deliveries; None if they are not open.
    """

    def __init__(
        self,
        bytes_per_s: int,
        newest: Callable[[GroupId], SnapshotInfo | None],
        log_of: Callable[[GroupId], DeliveryLog | None],
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._newest = newest
        self._log_of = log_of
        self._budget = 0.0
        self._budget_at = 0
        self._receivers: dict[tuple[GroupId, ServerId], _Receiver] = {}
        self._waiting: deque[Read | ReadSegment] = deque()
        self.sent_bytes_total = 0

    def offers(
        self,
        needing: Iterable[tuple[GroupId, ServerId]],
        terms: Callable[[GroupId], int],
        matches: Callable[[GroupId, ServerId], int],
        now_ms: int,
    ) -> list[tuple[ServerId, PeerMessage]]:
        """What to offer to whom now; a follower that is pulling is left in peace.

        `matches`: up to which entry a follower's log is known to be the leader's.
        """
        offers: list[tuple[ServerId, PeerMessage]] = []
        for group, server in needing:
            receiver = self._receivers.get((group, server))
            # What it has taken over already, before it fell behind again, helps it no more.
            if receiver is not None and receiver.info.meta.index <= matches(group, server):
                receiver = None
            if receiver is None or now_ms - receiver.heard_at > GIVE_UP_MS:
                info = self._newest(group)
                if info is None:
                    continue
                receiver = self._receivers[group, server] = _Receiver(info, now_ms, now_ms)
            elif now_ms - max(receiver.offered_at, receiver.heard_at) < OFFER_INTERVAL_MS:
                continue
            receiver.offered_at = now_ms
            meta = receiver.info.meta
            offer = SnapshotOffer(
                group, terms(group), meta.index, meta.term, receiver.info.id, receiver.info.size
            )
            offers.append((server, offer))
        return offers

    def forget(self, group: GroupId) -> None:
        """It is gone."""
        for key in [key for key in self._receivers if key[0] == group]:
            del self._receivers[key]

    def forget_silent(self, now_ms: int) -> None:
        """Who has what it needs, or is gone, asks no more."""
        silent = [key for key, one in self._receivers.items() if now_ms - one.heard_at > 2 * GIVE_UP_MS]
        for key in silent:
            del self._receivers[key]

    def on_request(
        self, server: ServerId, request: SnapshotRequest | DeliveryListRequest | DeliveryRequest, now_ms: int
    ) -> PeerMessage | None:
        """A follower asks; what is to be answered at once."""
        receiver = self._receivers.get((request.group, server))
        if receiver is None:
            return None
        receiver.heard_at = now_ms
        match request:
            case DeliveryListRequest(group, id):
                if id != receiver.info.id:
                    return None
                log = self._log_of(group)
                # While it is being opened, nothing is said: a shorter list than the image needs would be wrong.
                return None if log is None else DeliveryList(group, id, encode_manifest(log.manifest()))
            case SnapshotRequest(group, _, id, offset, length):
                if id == receiver.info.id:
                    self._queue(Read(server, group, id, offset, min(length, CHUNK_BYTES)))
            case DeliveryRequest(group, id, offset, length):
                self._queue(ReadSegment(server, group, id, offset, min(length, CHUNK_BYTES)))
        return None

    def _queue(self, read: Read | ReadSegment) -> None:
        if len(self._waiting) < READS_QUEUED_MAX and read not in self._waiting:
            self._waiting.append(read)

    @property
    def waits(self) -> bool:
        """Whether a request waits for the budget."""
        return bool(self._waiting)

    def reads(self, now_ms: int) -> tuple[list[Read], list[ReadSegment]]:
        """What the budget of this moment allows to read: of snapshots, of deliveries."""
        pieces: list[Read] = []
        segments: list[ReadSegment] = []
        if not self._waiting:
            return pieces, segments
        self._budget = min(
            self._budget + (now_ms - self._budget_at) * self._bytes_per_s / 1000,
            float(max(CHUNK_BYTES, self._bytes_per_s // 20)),
        )
        self._budget_at = now_ms
        while self._waiting and self._budget > 0:
            read = self._waiting.popleft()
            self._budget -= read.length
            if isinstance(read, Read):
                pieces.append(read)
            else:
                segments.append(read)
        return pieces, segments

    def read_piece(self, task: Read, result: Result, term: int) -> PeerMessage | None:
        """A piece of a snapshot was read: the message that carries it, or None if its file is gone."""
        if not isinstance(result, bytes):
            # Purged or damaged: what is newest is offered next.
            self._receivers.pop((task.group, ServerId(task.server)), None)
            return None
        if not result:
            return None
        self.sent_bytes_total += len(result)
        return SnapshotChunk(task.group, term, task.id, task.offset, result)

    def read_segment(self, task: ReadSegment, result: DeliveryResult) -> PeerMessage:
        """The same of a delivery segment; one that retention removed is answered by nothing at all of it."""
        data = result if isinstance(result, bytes) else b""
        self.sent_bytes_total += len(data)
        return DeliveryPiece(task.group, task.id, task.offset, data)
