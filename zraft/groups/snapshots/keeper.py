"""When this server writes a snapshot of its state, how it does so without stalling, and how much log it keeps.

A snapshot is due when this group's own entries since the last one outgrew it (in bytes or in commands to replay); a busy
server waits for a quieter moment, but not for ever. It is also due when the group holds back too much of the log of all
groups: `zraft.groups.retention` says so. The image is taken in slices, one per turn at most, and everything that touches
the disk happens elsewhere (`snapshot_tasks`). Afterwards the log is kept back to the slowest follower that is being heard,
within a bound, so that an ordinary restart or delay needs no snapshot (D-4). That bound counts what all groups wrote.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Final

from zraft.config.sections import SnapshotConfig
from zraft.groups.identity import Identity
from zraft.groups.retention import Retention
from zraft.groups.snapshots.tasks import Abort, Begin, Finish, Purge, Result, Task, WriteBlock
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP

SLICE_ITEMS: Final = 400
"""Items packed in one turn: about a millisecond."""

SLICE_BYTES_MAX: Final = 256 * 1024

SLICE_GAP_MS: Final = 4
"""Least time between two slices: the snapshot takes at most about a third of the loop's time."""

BLOCKS_QUEUED_MAX: Final = 8
"""Pieces that wait for the disk; beyond it the image waits as well."""

MARK_BYTES: Final = 256 * 1024
"""How finely it is known where in the log of all groups this group's entries stand."""

COMPRESSION_ASSUMED: Final = 3
"""How much larger an image is than the file that another run wrote of it."""

SNAPSHOT_ID_BYTES: Final = 16

RETRY_MS: Final = 10_000
"""After a snapshot that failed (the disk was full) the next one is tried no sooner."""


class SnapshotKeeper:
    """Snapshots of one group on one server.

    Args:
        retention: what each group holds back of the log; it has a row for this one from now on.
        held_after: bytes of the log that the group's entries after an index hold back, as a start found it.

    Attributes:
        newest: the newest durable snapshot, None before the first.
    """

    def __init__(
        self,
        settings: SnapshotConfig,
        identity: Identity,
        machine: Machine,
        entropy: Callable[[int], bytes],
        newest: SnapshotInfo | None,
        retention: Retention,
        held_after: Callable[[int], int] = lambda index: 0,
    ) -> None:
        self._settings = settings
        self._retention = retention
        self._identity = identity
        self._machine = machine
        self._entropy = entropy
        self.newest = newest
        self._fallback_index = 0
        self.taken_total = 0
        self.failed_total = 0
        self.log_bytes = 0
        """Of the entries applied since the newest snapshot, or since the one being written."""
        self.commands = 0
        # (position, index): when all groups together had written so much, this one was applied up to there.
        self._marks: list[tuple[int, int]] = []
        self._begun_at = self._begun_others = 0
        self._newest_at = 0  # the position at which the newest snapshot was begun
        self._writer: ImageWriter | None = None
        self._written_bytes = 0
        self._header: SnapshotHeader | None = None
        self._queued = 0
        self._next_at = 0
        self._retry_at = 0
        self._wanted = False
        self._finishing = False
        # Servers apply the same log; if all wrote at the same moment, all would be slow at once.
        self._stagger_percent = 100 + 12 * (identity.server % 5)
        index = 0
        if newest is not None:
            self._size_up(COMPRESSION_ASSUMED * newest.size, newest.items)
            index = newest.header.meta.index
            self._newest_at = retention.written - held_after(index)
            self._marks.append((self._newest_at, index))
        else:
            self._size_up(0, 0)
        retention.holds(COORDINATION_GROUP, retention.written - held_after(0))
        retention.covered(retention.others - held_after(index))

    # -- what is applied

    def applied(self, index: int, size: int, commands: int) -> None:
        """Entry `index` of `size` bytes was applied."""
        self.log_bytes += size
        self.commands += commands
        retention, marks = self._retention, self._marks
        before = retention.written
        retention.written += size
        retention.coordination += size
        if not marks or retention.written - marks[-1][0] >= MARK_BYTES:
            # What others wrote since the entry before this one stands before this one, too.
            marks.append((before, index - 1))
            marks.append((retention.written, index))

    def restored(self, info: SnapshotInfo) -> None:
        """The state was replaced by that of a snapshot from elsewhere."""
        self.abandon()
        self.newest = info
        # Nothing older than what arrived could be continued with the log that begins after it.
        self._fallback_index = info.header.meta.index
        self._size_up(COMPRESSION_ASSUMED * info.size, info.items)
        self.log_bytes = self.commands = 0
        self._newest_at = self._retention.written
        self._retention.covered(self._retention.others)
        self._marks = [(self._newest_at, info.header.meta.index)]
        self.kept_from(info.header.meta.index, last_index=info.header.meta.index)

    # -- writing

    @property
    def writing(self) -> bool:
        """Whether a snapshot is being written."""
        return self._header is not None

    def request(self) -> None:
        """Write one as soon as possible, whatever the log's size: an operator wants it."""
        self._wanted = True

    def shorten_log(self) -> None:
        """Other groups wrote much since the newest snapshot: write one soon, unless it would say nothing new."""
        if self.newest is not None and self.newest.header.meta.index == self._machine.index:
            self._retention.covered(self._retention.others)
        else:
            self._wanted = True

    def _size_up(self, image_bytes: int, items: int) -> None:
        """How large the state is decides how much log may gather beside it, in hundredths of bytes and of commands."""
        settings = self._settings
        bytes_due = max(settings.log_bytes_min, image_bytes * settings.log_ratio_percent // 100)
        self._bytes_due_percent = bytes_due * self._stagger_percent
        self._retention.allow(image_bytes * self._stagger_percent // 100)
        self._commands_due_percent = max(settings.commands_min, items // 2) * self._stagger_percent

    def is_due(self, now_ms: int, *, idle: bool) -> bool:
        """Whether the log since the last snapshot is long enough; a busy server waits for twice as much."""
        factor = 1 if idle else 2
        long_enough = (
            self.log_bytes * 100 >= self._bytes_due_percent * factor
            or self.commands * 100 >= self._commands_due_percent * factor
        )
        if not long_enough and not self._wanted:
            return False
        return not self.writing and now_ms >= self._retry_at and self._machine.index != 0

    def step(
        self, now_ms: int, wall_ms: int, meta: Callable[[], SnapshotMeta], cluster: bytes, *, idle: bool
    ) -> list[Task]:
        """The turn's share of a snapshot. `meta` tells where the log stands at the machine's index."""
        tasks: list[Task] = []
        if self._writer is None:
            if not self.is_due(now_ms, idle=idle):
                return tasks
            machine = self._machine
            self._wanted = False
            self._writer = ImageWriter(machine)
            self._written_bytes = 0
            self._header = SnapshotHeader(
                COORDINATION_GROUP,
                meta(),
                cluster,
                self._identity.server,
                self._identity.instance,
                self._entropy(SNAPSHOT_ID_BYTES),
                machine.feature_level,
                wall_ms,
            )
            self.log_bytes = self.commands = 0
            self._begun_at, self._begun_others = self._retention.written, self._retention.others
            self._marks.append((self._begun_at, self._header.meta.index))
            self._retention.begun(COORDINATION_GROUP)
            tasks.append(Begin(self._header))
            self._queued += 1
        if now_ms < self._next_at or self._queued > BLOCKS_QUEUED_MAX or self._finishing:
            return tasks
        writer = self._writer
        self._next_at = now_ms + SLICE_GAP_MS
        block = writer.step(SLICE_ITEMS, SLICE_BYTES_MAX)
        if block:
            self._written_bytes += len(block)
            tasks.append(WriteBlock(COORDINATION_GROUP, block))
            self._queued += 1
        if writer.done and not writer.backlog:
            tasks.append(Finish(COORDINATION_GROUP, writer.items, writer.digest, writer.zxid))
            self._finishing = True
        return tasks

    def performed(self, task: Task, result: Result, now_ms: int) -> list[Task]:
        """One of the tasks of `step` is done; what follows from it."""
        if isinstance(task, (Begin, WriteBlock)):
            self._queued -= 1
        if isinstance(result, StorageError):
            if not self.writing or isinstance(task, Purge):
                return []
            self.failed_total += 1
            self._retry_at = now_ms + RETRY_MS
            # The log that made it due is still there, only no longer counted.
            self._wanted = True
            self.abandon()
            return [Abort(COORDINATION_GROUP)]
        if isinstance(task, Finish) and isinstance(result, SnapshotInfo):
            assert self._header is not None
            self._end()
            self._size_up(self._written_bytes, result.items)
            self.taken_total += 1
            if self.newest is None or self.newest.header.meta.index < result.header.meta.index:
                self._fallback_index = self.newest.header.meta.index if self.newest is not None else 0
                self.newest = result
                self._newest_at = self._begun_at
            self._retention.covered(self._begun_others)
            return [Purge(COORDINATION_GROUP, self._settings.keep)]
        return []

    def abandon(self) -> None:
        """Stop writing; the tasks under way come to nothing."""
        if self._writer is not None:
            self._writer.close()
        self._end()

    def _end(self) -> None:
        if self._header is not None:
            # What it covers is let go of later, and `kept_from` then says how far.
            self._retention.ended(COORDINATION_GROUP, durable=False, needs_more=True)
        self._writer = None
        self._header = None
        self._finishing = False

    @property
    def wake_in_ms(self) -> int | None:
        """After how long a turn can go on with a snapshot; None if there is none."""
        return SLICE_GAP_MS if self._writer is not None and not self._finishing else None

    # -- how much log is kept

    def may_compact_to(self, needed: Iterable[int], pulled: int | None = None) -> int:
        """The last index that the log need no longer hold; 0 if it is to be kept whole.

        Within the bound the log also reaches back to the snapshot before the newest: should that turn out to be damaged, a
        start does with the other. When the log of all groups is too long, it is kept for those alone who pull.

        Args:
            needed: for each follower being heard, the last index that it has.
            pulled: the oldest snapshot that a follower is pulling; without the log after it, it would have to begin anew.
        """
        newest = self.newest
        if newest is None:
            return 0
        settings = self._settings
        kept = newest.header.meta.index
        if not self._retention.is_long(COORDINATION_GROUP):
            kept = min(self._index_at(self._newest_at - settings.retain_bytes), self._fallback_index, *needed)
        if pulled is not None:
            kept = min(kept, pulled)
        return max(kept, self._index_at(self._newest_at - settings.retain_bytes_max))

    def kept_from(self, index: int, *, last_index: int) -> None:
        """The log no longer holds what comes up to `index`: from where that was on, this group holds it back.

        `last_index`: of the group's log; if that ends there, the group holds back nothing, however much others write.
        """
        if last_index <= index:
            self._marks = [(self._retention.written, index)]
        place = bisect_right(self._marks, index, key=itemgetter(1)) - 1
        if place >= 0:
            self._retention.holds(COORDINATION_GROUP, self._marks[place][0])
            # What lies further back is never asked for again.
            del self._marks[:place]

    def _index_at(self, position: int) -> int:
        """How far this group was applied when all groups together had written so much; 0 if this run does not know."""
        place = bisect_right(self._marks, position, key=itemgetter(0)) - 1
        return self._marks[place][1] if place >= 0 else 0
