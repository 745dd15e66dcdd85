"""Everything about snapshots on one server: writing them, sending and receiving them, and cutting the log behind.

Composes `snapshot_keeper` and `snapshot_transfer`; the driver gives it a share of every turn and carries its tasks
to the snapshot disk.

Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from zraft.config.sections import SnapshotConfig
from zraft.groups.identity import Identity
from zraft.groups.retention import Retention
from zraft.groups.snapshots.keeper import SnapshotKeeper
from zraft.groups.snapshots.sending import SnapshotSender
from zraft.groups.snapshots.tasks import (
    Abort,
    Begin,
    Complete,
    Finish,
    Load,
    Purge,
    Read,
    Receive,
    Result,
    Store,
    Task,
    WriteBlock,
)
from zraft.groups.snapshots.transfer import Received, SnapshotReceiver
from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, SnapshotChunk, SnapshotOffer, SnapshotRequest
from zraft.tree.machine import Machine
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, ServerId

OPERATOR_READS_MAX: Final = 64

COMPACT_INTERVAL_MS: Final = 1_000
"""How often the log's beginning is reconsidered."""


class Snapshots:
    """Snapshots of the coordination group.

    Attributes:
        problems: what went wrong since it was last taken, for the log.
    """

    def __init__(
        self,
        settings: SnapshotConfig,
        identity: Identity,
        machine: Machine,
        entropy: Callable[[int], bytes],
        newest: SnapshotInfo | None,
        retention: Retention,
        held_after: Callable[[int], int],
        sender: SnapshotSender,
    ) -> None:
        """`sender` is that of all groups of this server; its owner carries to the disk what it reads."""
        self._settings = settings
        self.keeper = SnapshotKeeper(settings, identity, machine, entropy, newest, retention, held_after)
        self.receiver = SnapshotReceiver()
        self.sender = sender
        self._led_term = 0  # of the leadership in which followers are offered snapshots; 0: there is none
        self._tasks: list[Task] = []
        self._outgoing: list[tuple[ServerId, PeerMessage]] = []
        self._compact_to = 0
        self._restored_index = 0
        self._compact_at = 0
        self.problems: list[str] = []
        self.restored_total = 0
        self._operators: deque[tuple[Read, Callable[[Result], None]]] = deque()

    def is_quiet(self, now_ms: int, raft: Raft, *, idle: bool) -> bool:
        """Whether there is nothing to do now, nothing to take, and nothing to wake for, as in nearly every turn."""
        keeper = self.keeper
        if (
            now_ms >= self._compact_at
            or self._tasks
            or self._outgoing
            or self.receiver.active
            or keeper.writing
        ):
            return False
        if keeper.is_due(now_ms, idle=idle):
            return False
        if raft.role is not Role.LEADER:
            return not self._led_term
        return self._led_term == raft.term and not self.sender.busy and not raft.followers_needing_snapshot

    def turn(
        self,
        now_ms: int,
        wall_ms: int,
        raft: Raft,
        meta: Callable[[], SnapshotMeta],
        cluster: bytes | None,
        *,
        idle: bool,
    ) -> Received | None:
        """This turn's share; a state that arrived and is to be taken over now, if there is one."""
        received: Received | None = None
        if self.receiver.active:
            tasks, received = self.receiver.step()
            self._tasks += tasks
            self._outgoing += self.receiver.requests(now_ms, raft.term)
            self._note_problem()
        elif cluster is not None and (self.keeper.writing or self.keeper.is_due(now_ms, idle=idle)):
            # Not while another server's state is on its way: ours would be obsolete.
            self._tasks += self.keeper.step(now_ms, wall_ms, meta, cluster, idle=idle)
        if raft.role is Role.LEADER:
            self._lead(now_ms, raft)
        elif self._led_term:
            self._led_term = 0
            self.sender.forget(COORDINATION_GROUP)
        if now_ms >= self._compact_at:
            self._compact_at = now_ms + COMPACT_INTERVAL_MS
            self._compact(raft)
        return received

    def _lead(self, now_ms: int, raft: Raft) -> None:
        sender, newest, needing = self.sender, self.keeper.newest, raft.followers_needing_snapshot
        if sender.busy:
            sender.forget(COORDINATION_GROUP, needing if self._led_term == raft.term else ())
        self._led_term = raft.term
        if needing and newest is None:
            self.keeper.request()
        for server in needing:
            offer = sender.offer(
                COORDINATION_GROUP,
                server,
                newest,
                term=raft.term,
                match=raft.matches.get(server, 0),
                now_ms=now_ms,
            )
            if offer is not None:
                self._outgoing.append((server, offer))

    def _compact(self, raft: Raft) -> None:
        """Forget the log that a durable snapshot covers and nobody is going to ask for."""
        if 0 < self._restored_index <= raft.durable_index and not self._compact_to:
            # What the log was before a state from elsewhere took its place still fills the disk.
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

    def on_message(self, server: ServerId, message: PeerMessage, raft: Raft, now_ms: int) -> None:
        """An offer, a request or a piece of a snapshot, from a member."""
        match message:
            case SnapshotOffer():
                if message.term >= raft.term and server == raft.leader:
                    self._tasks += self.receiver.on_offer(server, message, raft.commit_index, now_ms)
            case SnapshotRequest():
                self.sender.on_request(server, message, now_ms)
            case SnapshotChunk():
                self._tasks += self.receiver.on_chunk(server, message, now_ms)
            case _:
                raise AssertionError(f"{message!r} is not about snapshots")

    def performed(self, task: Task, result: Result, term: int, now_ms: int) -> None:
        """The disk has done a task."""
        match task:
            case Read() if task.server == 0:
                # Tasks are done in the order in which they were given.
                _, done = self._operators.popleft()
                done(result)
            case Read():
                chunk = self.sender.read_piece(task, result, term)
                if chunk is not None:
                    self._outgoing.append((ServerId(task.server), chunk))
            case Receive() | Store() | Complete() | Load():
                self._tasks += self.receiver.performed(task, result)
                self._note_problem()
            case Begin() | WriteBlock() | Finish() | Abort() | Purge():
                if isinstance(result, StorageError) and self.keeper.writing:
                    self.problems.append(f"no snapshot could be written: {result}")
                self._tasks += self.keeper.performed(task, result, now_ms)

    def _note_problem(self) -> None:
        problem, self.receiver.problem = self.receiver.problem, None
        if problem is not None:
            self.problems.append(f"a snapshot from the leader could not be taken over: {problem}")

    def restored(self, info: SnapshotInfo) -> None:
        """The state of `info` was taken over."""
        self.receiver.reset()
        self.keeper.restored(info)
        self._restored_index = info.header.meta.index
        self._tasks.append(Purge(COORDINATION_GROUP, self._settings.keep))
        self.restored_total += 1

    def discard(self) -> None:
        """What arrived is no longer needed: the log has brought us further meanwhile."""
        self.receiver.reset()

    def read_for_operator(self, read: Read, done: Callable[[Result], None]) -> None:
        """A piece of a finished snapshot, for whoever saves it."""
        if len(self._operators) >= OPERATOR_READS_MAX:
            done(None)
            return
        self._operators.append((read, done))
        self._tasks.append(read)

    def take_tasks(self) -> list[Task]:
        """What the disk is to do, in this order."""
        taken, self._tasks = self._tasks, []
        return taken

    def take_compaction(self) -> int | None:
        """The write-ahead log no longer needs the entries up to this index; None if there is nothing to do."""
        index, self._compact_to = self._compact_to, 0
        return index or None

    def take_outgoing(self) -> Sequence[tuple[ServerId, PeerMessage]]:
        """Messages to send."""
        if not self._outgoing:
            return ()
        taken, self._outgoing = self._outgoing, []
        return taken

    @property
    def wake_in_ms(self) -> int | None:
        """After how long a turn can go on by itself, its tasks taken; None if only somebody else can."""
        if self._outgoing or self.receiver.loading:
            return 0
        return self.keeper.wake_in_ms
