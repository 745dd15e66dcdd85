"""All snapshots of one server: they are written, sent and received, and the coordination group's log is cut behind them.

One writer, one sender and one receiver do the same for every group. What is special about the coordination
group is in `keeper`. When a topic's group is snapshotted, and how much of its log goes then, is in
`zraft.groups.keeping`. The driver gives all of it a share of every turn and carries the tasks to the disks.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from zraft.config.sections import SnapshotConfig
from zraft.groups.effects import SnapshotTask
from zraft.groups.identity import Identity
from zraft.groups.retention import LogRetention
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.keeper import SnapshotKeeper
from zraft.groups.snapshots.receiving import ReceivedSnapshot, SnapshotReceiver
from zraft.groups.snapshots.sending import SnapshotSender
from zraft.groups.snapshots.tasks import (
    Abort,
    Begin,
    Complete,
    Finish,
    Load,
    Purge,
    ReadSnapshot,
    Receive,
    Result,
    Store,
    Task,
    WriteBlock,
)
from zraft.groups.snapshots.work import Work
from zraft.groups.snapshots.writing import SLICE_BYTES_MAX, SmallImage, SnapshotWriter, Written
from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.delivery.log import DeliveryLog
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
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, GroupId, ServerId

SNAPSHOTS_KEPT: Final = 2
"""How many snapshots of a topic's group are kept: the newest, and the one before it, which may still be pulled."""

GROUP_IMAGE_LEVEL: Final = 1
"""The feature level in the header of a topic's group's snapshot; the image itself says which format it has."""

OPERATOR_READS_MAX: Final = 64
"""How many pieces that operators read may wait for the disk."""

COMPACT_INTERVAL_MS: Final = 1_000
"""How often the log's beginning is reconsidered."""

ABOUT_SNAPSHOTS: Final = (
    *(SnapshotOffer, SnapshotRequest, SnapshotChunk),
    *(DeliveryListRequest, DeliveryList, DeliveryRequest, DeliveryPiece),
)
"""Kinds of messages that `Snapshots.on_message` takes."""

FETCHES: Final = (
    *(delivery_tasks.BeginFetch, delivery_tasks.StorePiece, delivery_tasks.CompleteFetch),
    *(delivery_tasks.AbandonFetch, delivery_tasks.ReadSegment),
)
"""Kinds of tasks whose end `Snapshots.delivered` takes."""


class Snapshots:
    """The snapshots of all groups of one server.

    Args:
        newest, held_after: the coordination group's: see `SnapshotKeeper`.
        core_of: returns the core of a group; None if the group is not here.
        cut_index: returns the index of a topic's group up to which all its deliveries are durable.

    Attributes:
        work: what the disks are to do and what goes to other servers; the owner takes it after each turn.
        newest: the newest durable snapshot of each topic's group.
        logs: the deliveries of each group here, as far as they are open.
        restored_total: how often a snapshot took the place of the coordination group's state.
        sent_bytes_total: bytes of images and deliveries that were sent to other servers.
    """

    def __init__(
        self,
        settings: SnapshotConfig,
        identity: Identity,
        machine: Machine,
        entropy: Callable[[int], bytes],
        newest: SnapshotInfo | None,
        retention: LogRetention,
        held_after: Callable[[int], int],
        core_of: Callable[[GroupId], Raft | None],
        cut_index: Callable[[GroupId], int],
    ) -> None:
        """Begin without work; `newest` and `held_after` are the coordination group's."""
        self._settings = settings
        self._machine = machine
        self._core_of = core_of
        self.work = work = Work()
        self.keeper = SnapshotKeeper(settings, identity.server, machine, newest, retention, held_after)
        self.writer = SnapshotWriter(identity, entropy, work, cut_index)
        self.receiver = SnapshotReceiver(work, core_of)
        self.sender = SnapshotSender(settings.send_bytes_per_s)
        self.newest: dict[GroupId, SnapshotInfo] = {}
        self.logs: dict[GroupId, DeliveryLog] = {}
        self._led_term = 0  # the term in which this server, leading, offers snapshots; 0 if it does not
        self._compact_to = 0
        self._restored_index = 0
        self._compact_at = 0
        self.restored_total = self.sent_bytes_total = 0
        self._operators: deque[tuple[ReadSnapshot, Callable[[Result], None]]] = deque()

    # -- a turn

    def is_quiet(self, now_ms: int, raft: Raft, *, idle: bool) -> bool:
        """Return whether there is nothing to do now, nothing to take, and nothing to wake for, as in nearly every turn."""
        work = self.work
        if (
            now_ms >= self._compact_at
            or work.tasks
            or work.outgoing
            or work.deliveries
            or self.receiver.transfers
            or self.writer.images
            or (self.keeper.may_be_due and self._is_due(now_ms, idle=idle))
        ):
            return False
        if raft.role is not Role.LEADER:
            return not self._led_term
        return self._led_term == raft.term and not (self.sender.receivers or raft.followers_needing_snapshot)

    def turn(
        self,
        now_ms: int,
        wall_ms: int,
        raft: Raft,
        meta: Callable[[], SnapshotMeta],
        cluster: bytes | None,
        *,
        idle: bool,
    ) -> list[ReceivedSnapshot]:
        """Do this turn's share; return the states that arrived and are to be taken over now.

        The owner takes over each of them and tells `restored`, or lets the receiver `drop` or `refuse` it.
        `raft` and `meta` are the coordination group's: its core, and where its log stands at the machine's
        index.
        """
        received = self.receiver.turn(now_ms) if self.receiver.transfers else []
        # While another server's state is on its way, an image of the present one would be obsolete.
        if (
            cluster is not None
            and COORDINATION_GROUP not in self.receiver
            and self._is_due(now_ms, idle=idle)
        ):
            image, covered = ImageWriter(self._machine), meta()
            self.writer.write(
                COORDINATION_GROUP,
                covered,
                image,
                cluster=cluster,
                feature_level=self._machine.feature_level,
                wall_ms=wall_ms,
            )
            self.keeper.begun(covered)
        if self.writer.images:
            self.writer.step(now_ms, self.receiver, self._next_slice_hurries)
        if raft.role is Role.LEADER:
            self._lead(now_ms, raft)
        elif self._led_term:
            self._led_term = 0
            self.sender.forget(COORDINATION_GROUP)
        if now_ms >= self._compact_at:
            self._compact_at = now_ms + COMPACT_INTERVAL_MS
            self.sender.forget_silent(now_ms)
            self._compact(raft)
        return received

    def _next_slice_hurries(self) -> bool:
        """Return whether the next slice of an image may not wait for the server's other work.

        Images of topics' groups are small. Of a large one, what changes before its turn comes is kept until it is taken.
        """
        image = self._machine.image_writer
        return (
            image is None
            or len(self.writer.images) > 1
            or image.backlog >= SLICE_BYTES_MAX
            or self.keeper.next_slice_hurries(image.part)
        )

    def _is_due(self, now_ms: int, *, idle: bool) -> bool:
        return self.keeper.is_due(idle=idle) and self.writer.may_begin(COORDINATION_GROUP, now_ms)

    def _lead(self, now_ms: int, raft: Raft) -> None:
        sender, needing = self.sender, raft.followers_needing_snapshot
        if sender.receivers:
            sender.forget(COORDINATION_GROUP, needing if self._led_term == raft.term else ())
        self._led_term = raft.term
        if needing and self.keeper.newest is None:
            self.keeper.request()
        self.offer([(COORDINATION_GROUP, server) for server in needing], now_ms)

    def _compact(self, raft: Raft) -> None:
        """Cut the log that a durable snapshot covers and no follower is going to ask for."""
        if 0 < self._restored_index <= raft.durable_index and not self._compact_to:
            # The log from before a state from elsewhere took its place still fills the disk.
            self._compact_to, self._restored_index = self._restored_index, 0
            return
        leads = raft.role is Role.LEADER
        needed = raft.matches_of_heard_followers if leads else []
        pulled = self.sender.oldest_index(COORDINATION_GROUP) if leads else None
        index = min(self.keeper.may_compact_to(needed, pulled), raft.applicable_index)
        if index >= raft.log.first_index and not self._compact_to:
            raft.compact(index)
            self._compact_to = index
        self.keeper.kept_from(raft.log.first_index - 1, last_index=raft.log.last_index)

    def take_compaction(self) -> int | None:
        """Return the index up to which the write-ahead log no longer needs entries; None if there is nothing to do."""
        index, self._compact_to = self._compact_to, 0
        return index or None

    @property
    def wake_in_ms(self) -> int | None:
        """The ms after which a turn has work to do here, once the present work is taken; None if it waits for results."""
        if self.work.outgoing or self.receiver.loading:
            return 0
        return self.writer.wake_in_ms

    # -- other servers

    def offer(self, needing: Iterable[tuple[GroupId, ServerId]], now_ms: int) -> None:
        """Offer the newest snapshots to these followers of groups led here, which lack entries that the log has lost."""
        for group, server in needing:
            raft = self._core_of(group)
            if raft is None:
                continue
            offer = self.sender.offer(
                group,
                server,
                self.keeper.newest if group == COORDINATION_GROUP else self.newest.get(group),
                term=raft.term,
                match=raft.matches.get(server, 0),
                now_ms=now_ms,
            )
            if offer is not None:
                self.work.outgoing.append((server, offer))

    def on_message(self, server: ServerId, message: PeerMessage, now_ms: int) -> None:
        """Take one of the messages `ABOUT_SNAPSHOTS`, from a member of the cluster."""
        match message:
            case SnapshotOffer():
                raft = self._core_of(message.group)
                if raft is not None and message.term >= raft.term and server == raft.leader:
                    self.receiver.on_offer(server, message, raft.commit_index, now_ms)
            case SnapshotChunk():
                self.receiver.on_chunk(message, now_ms)
            case DeliveryList():
                self.receiver.on_list(message, now_ms)
            case DeliveryPiece():
                self.receiver.on_piece(message, now_ms)
            case SnapshotRequest() | DeliveryListRequest() | DeliveryRequest():
                # This server answers for a topic's group even if another one leads by now: the snapshot is committed.
                answer = self.sender.on_request(server, message, now_ms, self.logs.get(message.group))
                if answer is not None:
                    self.work.outgoing.append((server, answer))
            case _:
                raise AssertionError(f"{message!r} is not about snapshots")

    # -- the disks

    def performed(self, task: Task, result: Result, now_ms: int) -> Written | None:
        """Take the result of a task that the disk of snapshots has done.

        Returns:
            The attempt to write an image that ended with this task; None if none did.
        """
        match task:
            case ReadSnapshot() if task.server == 0:
                # Tasks are done in the order in which they were given.
                _, done = self._operators.popleft()
                done(result)
            case ReadSnapshot():
                raft = self._core_of(task.group)
                chunk = self.sender.read_piece(task, result, 0 if raft is None else raft.term)
                if chunk is not None:
                    self.sent_bytes_total += len(chunk.data)
                    self.work.outgoing.append((ServerId(task.server), chunk))
            case Receive() | Store() | Complete() | Load():
                self.receiver.performed(task, result, now_ms)
            case Begin() | WriteBlock() | Finish() | Abort() | Purge():
                written = self.writer.performed(task, result, now_ms)
                if written is not None:
                    self._written(written)
                return written
        return None

    def _written(self, written: Written) -> None:
        if written.group == COORDINATION_GROUP:
            self.keeper.written(written)
        elif written.info is not None:
            self.found(written.info)
        if written.info is not None:
            self._purge(written.group)

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result, now_ms: int) -> None:
        """Take the result of one of the tasks `FETCHES`, which the disk of deliveries has done."""
        if isinstance(task, delivery_tasks.ReadSegment):
            piece = self.sender.read_segment(task, result)
            self.sent_bytes_total += len(piece.data)
            self.work.outgoing.append((ServerId(task.server), piece))
        else:
            self.receiver.delivered(task, result, now_ms)

    def read_for_operator(self, read: ReadSnapshot, done: Callable[[Result], None]) -> None:
        """Read a piece of a finished snapshot, for an operator who saves it.

        Args:
            done: gets the result; None if too many of these wait already.
        """
        if len(self._operators) >= OPERATOR_READS_MAX:
            done(None)
            return
        self._operators.append((read, done))
        self.work.tasks.append(read)

    # -- groups

    def write(self, task: SnapshotTask, cluster: bytes, wall_ms: int) -> None:
        """Make this image of a topic's group durable; `performed` tells when it is."""
        self.writer.write(
            task.group,
            task.meta,
            SmallImage(task.image, task.digest),
            cluster=cluster,
            feature_level=GROUP_IMAGE_LEVEL,
            wall_ms=wall_ms,
        )

    def found(self, info: SnapshotInfo) -> None:
        """Take note that this snapshot of a topic's group is durable here. It is the newest one, unless a newer one came."""
        newest = self.newest.get(info.group)
        if newest is None or newest.meta.index <= info.meta.index:
            self.newest[info.group] = info

    def restored(self, info: SnapshotInfo) -> None:
        """Take note that the group has taken over the state of `info`, which was received."""
        group = info.group
        self.receiver.drop(group)
        self.writer.abandon(group)
        if group == COORDINATION_GROUP:
            self.keeper.restored(info)
            self._restored_index = info.meta.index
            self.restored_total += 1
        else:
            self.found(info)
        self._purge(group)

    def _purge(self, group: GroupId) -> None:
        keep = self._settings.keep if group == COORDINATION_GROUP else SNAPSHOTS_KEPT
        self.work.tasks.append(Purge(group, keep))

    def forget(self, group: GroupId) -> None:
        """Forget a group that is gone."""
        self.newest.pop(group, None)
        self.logs.pop(group, None)
        self.writer.forget(group)
        self.receiver.forget(group)
        self.sender.forget(group)
