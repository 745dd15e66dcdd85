"""Snapshots of the coordination group: when this server writes one, and how much of that group's log it keeps.

A snapshot is due when the group's own entries since the last one have grown too many (in bytes, or in the time that
a restart would need to apply them). A busy server waits for a quieter moment, but not for ever, and writes slowly, so
that the image is done when half of the log has gathered after which it writes the next one. A snapshot is also due when
the group holds back too much of the log of all groups, as `zraft.groups.retention` says. `writing` says how it gets to
the disk. Afterwards the log is kept back to the slowest follower that is being heard, within a bound, so that
an ordinary restart or delay needs no snapshot (D-4). That bound counts what all groups wrote.

Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import inf
from operator import itemgetter
from typing import Final

from zraft.config.sections import SnapshotConfig
from zraft.groups.retention import LogRetention
from zraft.groups.snapshots.writing import Written
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, ServerId

MARK_BYTES: Final = 256 * 1024
"""How precisely it is known where in the log of all groups this group's entries stand, in bytes."""

COMMAND_S_ASSUMED: Final = 10e-6
"""Seconds that applying a command takes, before any was measured."""

MEASURED_COMMAND_S_MAX: Final = 100e-6
"""A command that takes longer is a transaction of many, and says nothing about others."""

MEASURED_OVER: Final = 50_000
"""How many commands the measured time of one is a mean of, at least; older ones count for less and less."""

REPLAY_PARTS: Final = 4.5
"""A restart may find this many times the log that makes a snapshot due on an idle server: a busy one waits for twice as
much, as much again gathers until the image is written, and servers wait for up to half as much more than each other."""

COMPRESSION_ASSUMED: Final = 3
"""How many times larger an image is assumed to be than the file that another run wrote of it."""


class SnapshotKeeper:
    """Keeper of the coordination group's snapshots: it says when one is due, and how much log is kept.

    Args:
        server: this server; each one waits for a little more log than another.
        newest: the newest durable snapshot, None before the first.
        retention: what each group holds back of the log; it has a row for this group from now on.
        held_after: returns the bytes of the log that the group's entries after an index hold back, as a start
            found it.

    Attributes:
        newest: the newest durable snapshot, None before the first.
        writing: whether one is being written.
        may_be_due: whether `is_due` may be true; if not, it need not be asked.
        taken_total, failed_total: how many were written, and could not be written.
        log_bytes, commands: bytes and commands of the entries applied since the newest snapshot, or since the
            one that is being written was begun.
        replay_s: seconds of work that it would take to apply them again. Large entries were measured when
            they were applied here; a command of a small one counts as much as one of a large one took.
    """

    def __init__(
        self,
        settings: SnapshotConfig,
        server: ServerId,
        machine: Machine,
        newest: SnapshotInfo | None,
        retention: LogRetention,
        held_after: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self._settings = settings
        self._retention = retention
        self._machine = machine
        self.newest = newest
        self.writing = False
        self.may_be_due = True
        self._fallback_index = 0
        self.taken_total = 0
        self.failed_total = 0
        self.log_bytes = 0
        self.commands = 0
        self.replay_s = 0.0
        self._covered_s = 0.0  # of the entries that the image covers which is being written
        self._command_s = COMMAND_S_ASSUMED
        self._measured_commands = 0
        self._measured_s = 0.0
        # (position, index): when all groups together had written so much, this one was applied up to there.
        self._marks: list[tuple[int, int]] = []
        self._begun_at = self._begun_others = 0
        self._newest_at = 0  # the position at which the newest snapshot was begun
        self._wanted = self._hurried = False
        self._bytes_at_slice = 0
        # Servers apply the same log; if all wrote at the same moment, all would be slow at once.
        self._stagger_percent = 100 + 12 * (server % 5)
        index = 0
        if newest is not None:
            self._size_up(COMPRESSION_ASSUMED * newest.size, newest.items)
            index = newest.meta.index
            self._newest_at = retention.written - held_after(index)
            self._marks.append((self._newest_at, index))
        else:
            self._size_up(0, 0)
        retention.holds(COORDINATION_GROUP, retention.written - held_after(0))
        retention.covered(retention.others - held_after(index))

    @property
    def restart_s(self) -> float:
        """Seconds of work that a restart would spend on the entries after the newest durable snapshot."""
        return self._covered_s + self.replay_s

    # -- what is applied

    def applied(self, index: int, size: int, commands: int, took_s: float = 0.0) -> None:
        """Take note that entry `index`, of `size` bytes and so many commands, was applied.

        Args:
            took_s: seconds of work that it took, 0 if it was not measured.
        """
        self.log_bytes += size
        self.commands += commands
        if took_s:
            self._measured(commands, took_s)
        self.replay_s += took_s or commands * self._command_s
        if (
            self.log_bytes * 100 >= self._bytes_due_percent
            or self.replay_s * 100 >= self._replay_due_percent
            or self.commands * 100 >= self._commands_due_percent
        ):
            self.may_be_due = True
        retention, marks = self._retention, self._marks
        before = retention.written
        retention.written += size
        retention.coordination += size
        if not marks or retention.written - marks[-1][0] >= MARK_BYTES:
            # What others wrote since the entry before this one comes before this one in the log.
            marks.append((before, index - 1))
            marks.append((retention.written, index))

    def _measured(self, commands: int, took_s: float) -> None:
        """Learn from a large entry how long a command takes. A few large transactions are not like the small entries."""
        if took_s > MEASURED_COMMAND_S_MAX * commands:
            return
        self._measured_commands += commands
        self._measured_s += took_s
        if self._measured_commands >= MEASURED_OVER:
            self._command_s = self._measured_s / self._measured_commands
            self._measured_commands //= 2
            self._measured_s /= 2

    def restored(self, info: SnapshotInfo) -> None:
        """Take note that a snapshot from elsewhere has replaced the state."""
        self._end()
        self.newest = info
        # The log begins after the snapshot that arrived, so no older one could be continued with it.
        self._fallback_index = info.meta.index
        self._size_up(COMPRESSION_ASSUMED * info.size, info.items)
        self._count_anew()
        self._covered_s = 0.0
        self._newest_at = self._retention.written
        self._retention.covered(self._retention.others)
        self._marks = [(self._newest_at, info.meta.index)]
        self.kept_from(info.meta.index, last_index=info.meta.index)

    # -- when one is written

    def request(self) -> None:
        """Write a snapshot as soon as possible, whatever the log's size: an operator or a follower needs one."""
        self._want()

    def shorten_log(self) -> None:
        """Write a snapshot soon, because other groups wrote much since the newest one, unless it would say nothing new."""
        if self.newest is not None and self.newest.meta.index == self._machine.index:
            self._retention.covered(self._retention.others)
        else:
            self._want()

    def _want(self) -> None:
        self._wanted = self._hurried = self.may_be_due = True

    def _size_up(self, image_bytes: int, items: int) -> None:
        """Compute from the state's size how much log may gather beside it, in hundredths of bytes, seconds and commands."""
        settings = self._settings
        bytes_due = max(settings.log_bytes_min, image_bytes * settings.log_ratio_percent // 100)
        self._bytes_due_percent = bytes_due * self._stagger_percent
        self._retention.allow(image_bytes * self._stagger_percent // 100)
        # An image of many items costs more than it saves, if it is written sooner than after half as many commands.
        replay_due_s = max(settings.replay_ms / 1000 / REPLAY_PARTS, items // 2 * self._command_s)
        self._replay_due_percent = replay_due_s * self._stagger_percent
        commands_due = max(settings.commands_min, items // 2) if settings.commands_min else inf
        self._commands_due_percent = commands_due * self._stagger_percent
        self.may_be_due = True

    def _count_anew(self) -> None:
        self.log_bytes = self.commands = 0
        self.replay_s = 0.0

    def is_due(self, *, idle: bool) -> bool:
        """Return whether the log since the last snapshot is long enough; a busy server waits for twice as much."""
        self.may_be_due = self._wanted or self._is_long(1)
        long_enough = self.may_be_due and (idle or self._wanted or self._is_long(2))
        return long_enough and not self.writing and self._machine.index != 0

    def _is_long(self, times: float) -> bool:
        """Return whether the log since the last snapshot is so many times as long as it may become beside an idle server."""
        return (
            self.log_bytes * 100 >= times * self._bytes_due_percent
            or self.replay_s * 100 >= times * self._replay_due_percent
            or self.commands * 100 >= times * self._commands_due_percent
        )

    def next_slice_hurries(self, written: float) -> bool:
        """Return whether the image's next slice is to come soon, of which this part is written, from 0 to 1.

        It is if somebody waits for the image, if the log has grown faster than the image, and if nothing was
        applied since the slice before, when this was asked last.
        """
        quiet = self.log_bytes == self._bytes_at_slice
        self._bytes_at_slice = self.log_bytes
        return quiet or self._hurried or self._is_long(written)

    def begun(self, meta: SnapshotMeta) -> None:
        """Take note that an image of the present state is being written, which covers what `meta` says."""
        self.writing, self._hurried, self._wanted = True, self._wanted, False
        self._covered_s += self.replay_s
        self._count_anew()
        self._begun_at, self._begun_others = self._retention.written, self._retention.others
        self._marks.append((self._begun_at, meta.index))
        self._retention.begun(COORDINATION_GROUP)

    def written(self, written: Written) -> None:
        """Take note that an image is durable, or could not be written."""
        self._end()
        info = written.info
        if info is None:
            self.failed_total += 1
            # The log that made it due is still there, only no longer counted.
            self._want()
            return
        self._size_up(written.size, info.items)
        self._covered_s = 0.0
        self.taken_total += 1
        if self.newest is None or self.newest.meta.index < info.meta.index:
            self._fallback_index = self.newest.meta.index if self.newest is not None else 0
            self.newest = info
            self._newest_at = self._begun_at
        self._retention.covered(self._begun_others)

    def _end(self) -> None:
        if self.writing:
            # The log that it covers is let go of later, and `kept_from` then says how far.
            self._retention.ended(COORDINATION_GROUP, durable=False, needs_more=True)
        self.writing = False

    # -- how much log is kept

    def may_compact_to(self, needed: Iterable[int], pulled: int | None = None) -> int:
        """Return the last index that the log need no longer hold; 0 if it is to be kept whole.

        Within the bound the log also reaches back to the snapshot before the newest: if the newest turns out
        to be damaged, a start can use the other. When the log of all groups is too long, it is kept only for
        followers that pull.

        Args:
            needed: for each follower being heard, the last index that it has.
            pulled: the index of the oldest snapshot that a follower is pulling; without the log after it, the
                follower would have to begin anew.
        """
        newest = self.newest
        if newest is None:
            return 0
        settings = self._settings
        kept = newest.meta.index
        if not self._retention.is_long(COORDINATION_GROUP):
            kept = min(self._index_at(self._newest_at - settings.retain_bytes), self._fallback_index, *needed)
        if pulled is not None:
            kept = min(kept, pulled)
        return max(kept, self._index_at(self._newest_at - settings.retain_bytes_max))

    def kept_from(self, index: int, *, last_index: int) -> None:
        """Take note that the log no longer holds the entries up to `index`, so that this group holds it back from there.

        Args:
            last_index: the group's last index. If the log ends at `index`, the group holds back nothing,
                however much others write.
        """
        if last_index <= index:
            self._marks = [(self._retention.written, index)]
        place = bisect_right(self._marks, index, key=itemgetter(1)) - 1
        if place >= 0:
            self._retention.holds(COORDINATION_GROUP, self._marks[place][0])
            # Nobody asks for anything further back again.
            del self._marks[:place]

    def _index_at(self, position: int) -> int:
        """Return how far this group was applied when all groups together had written so much; 0 if that is not known."""
        place = bisect_right(self._marks, position, key=itemgetter(0)) - 1
        return self._marks[place][1] if place >= 0 else 0
