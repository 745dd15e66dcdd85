"""Writes that must become durable, by number, and how far the disk has got (D-7).

The number of a write stands for "that write and all before it are durable": whatever promises something
waits for one. Several writes may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zraft.raft.messages import Entry, HardState
from zraft.raft.ready import LogWrite
from zraft.raft.snapshot import SnapshotMeta


class Writes:
    """Collector of changes for the next write, and record of those under way.

    Attributes:
        durable_index: end of the log that survives a crash.
        hard_state_write, log_write: the writes that hold the newest hard state and the newest entries, maybe
            the one not taken yet; 0 if recovered.
        pending: whether there is anything for the next write.
    """

    __slots__ = (
        "_hard_state",
        "_newest",
        "_persisted",
        "_restore",
        "_truncate_from",
        "_under_way",
        "_unwritten",
        "durable_index",
        "hard_state_write",
        "log_write",
        "pending",
    )

    def __init__(self, durable_index: int) -> None:
        self.durable_index = durable_index
        self.hard_state_write = 0
        self.log_write = 0
        self.pending = False
        self._newest = 0  # the newest number handed out
        self._persisted = 0
        self._hard_state: HardState | None = None
        self._restore: SnapshotMeta | None = None
        self._truncate_from: int | None = None
        self._unwritten: list[Entry] = []
        self._under_way: deque[tuple[int, int]] = deque()  # (number, last index once it is durable)

    def replace_hard_state(self, hard_state: HardState) -> None:
        """Add a new term and vote to the next write."""
        self._hard_state = hard_state
        self.hard_state_write = self._newest + 1
        self.pending = True

    def append(self, entries: Iterable[Entry]) -> None:
        """Add entries to the next write."""
        self._unwritten += entries
        self.log_write = self._newest + 1
        self.pending = True

    def truncate_from(self, index: int) -> None:
        """Drop entries from `index` on; new ones follow."""
        unwritten = self._unwritten
        if unwritten and unwritten[0].index <= index:
            del unwritten[index - unwritten[0].index :]
        else:
            assert self._restore is None, "a log that begins anew holds nothing but what is unwritten"
            unwritten.clear()
            if self._truncate_from is None or index < self._truncate_from:
                self._truncate_from = index
        self._limit_durable(index - 1)
        self.pending = (
            bool(unwritten)
            or self._hard_state is not None
            or self._truncate_from is not None
            or self._restore is not None
        )

    def restore(self, meta: SnapshotMeta) -> None:
        """Drop the whole log, which begins after `meta.index`; new entries follow.

        Until that is durable, `meta.index` does not count as durable either, whatever the old log held there.
        """
        self._unwritten.clear()
        self._truncate_from = None
        self._restore = meta
        self.log_write = self._newest + 1
        self.pending = True
        self._limit_durable(meta.index - 1)

    def _limit_durable(self, index: int) -> None:
        """Limit what counts as durable: writes under way will put back what was just dropped."""
        self.durable_index = min(self.durable_index, index)
        self._under_way = deque((number, min(last, index)) for number, last in self._under_way)

    def holding(self, index: int) -> int:
        """Return the write after which the newest hard state and the log up to `index` are durable."""
        if index > self.durable_index and self.log_write > self.hard_state_write:
            return self.log_write
        return self.hard_state_write

    @property
    def hard_state_waits(self) -> bool:
        """True if the newest term and vote are not durable yet."""
        return self.hard_state_write > self._persisted

    def take(self, last_index: int) -> LogWrite | None:
        """Return the next write, if there is anything to write; the log ends at `last_index` once it is durable."""
        if not self.pending:
            return None
        self._newest += 1
        write = LogWrite(
            self._newest, self._hard_state, self._truncate_from, tuple(self._unwritten), self._restore
        )
        self._hard_state = None
        self._restore = None
        self._truncate_from = None
        self._unwritten = []
        self.pending = False
        self._under_way.append((self._newest, last_index))
        return write

    def persisted(self, number: int) -> bool:
        """Write `number` and all before it are durable; False if that was known."""
        assert number <= self._newest, f"write {number} was never handed out, the newest is {self._newest}"
        if number <= self._persisted:
            return False
        self._persisted = number
        while self._under_way and self._under_way[0][0] <= number:
            self.durable_index = self._under_way.popleft()[1]
        return True
