"""The log of one group: a tail in memory, what is needed to reason about the rest, and a way to fetch it.

Old entries leave memory (`evict_to`) and are read back through the archive, which the driver provides from
its segments. Older ones, which a snapshot covers, are forgotten (`compact_to`), or the log begins anew after a
snapshot (`restart_after`); of what lies before the log, the *base*, only the term and the newest membership are
known. Terms are remembered for the whole log as runs (first index, term), so that every question of
the protocol about (index, term) is answered exactly and without the disk. The log knows nothing of commit or
fsync.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Final

from zraft.raft.messages import Entry, EntryKind
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.errors import StorageError

Archive = Callable[[int, int, int], Sequence[Entry]]
"""(lo, hi, bytes_max) -> entries lo, lo+1, ... below hi: at least one, stopping before bytes_max is exceeded.

Raises StorageError if the entries cannot be read.
"""

ENTRY_OVERHEAD_BYTES: Final = 32
"""The bytes that an entry takes beside its payload, roughly, so that entries without payload count too."""


def entry_bytes(entry: Entry) -> int:
    """Size of an entry as all bounds count it."""
    return len(entry.payload) + ENTRY_OVERHEAD_BYTES


class Log:
    """Entries `first_index` to `last_index`, contiguous, terms never decreasing, positions contiguous (D-16).

    Args:
        entries: the tail to hold in memory.
        first_index: index of the oldest entry that can be read; what lies before it is in a snapshot.
        base_term: term of the entry before `first_index`, 0 if there is none.
        base_position: position of the first command at or after `first_index`.
        base_membership: payload of the newest MEMBERSHIP entry before `first_index`, None if there is none.
        archive: reads entries that are not in memory; needed by `evict_to`, or if `entries` begins later.
        term_runs: (first index, term) for the entries between `first_index` and `entries`.
        memberships: the MEMBERSHIP entries between `first_index` and `entries`.

    A driver that recovers a log may also begin with an empty one and append and evict as it reads.

    Raises:
        StorageError: what was recovered does not form a log.
    """

    __slots__ = (
        "_archive",
        "_base_term",
        "_entries",
        "_memberships",
        "_memory_index",
        "_run_starts",
        "_run_terms",
        "bytes_in_memory",
        "first_index",
        "last_index",
        "last_term",
        "next_position",
    )

    def __init__(
        self,
        *,
        entries: Iterable[Entry] = (),
        first_index: int = 1,
        base_term: int = 0,
        base_position: int = 1,
        base_membership: bytes | None = None,
        archive: Archive | None = None,
        term_runs: Sequence[tuple[int, int]] = (),
        memberships: Iterable[Entry] = (),
    ) -> None:
        tail = tuple(entries)
        self.first_index = first_index
        self.bytes_in_memory = 0
        self._base_term = base_term
        self._archive = archive
        self._entries: list[Entry] = []
        self._memory_index = tail[0].index if tail else first_index
        self._run_starts = [start for start, _ in term_runs]
        self._run_terms = [term for _, term in term_runs]
        self._memberships = [(entry.index, entry.payload) for entry in memberships]
        if base_membership is not None:
            self._memberships.insert(0, (first_index - 1, base_membership))
        self.last_index = self._memory_index - 1
        self.last_term = self._run_terms[-1] if term_runs else base_term
        self.next_position = tail[0].position if tail else base_position
        if (self._memory_index > first_index) != bool(term_runs) or (term_runs and archive is None):
            raise StorageError(
                f"log begins at index {first_index} and its tail at {self._memory_index}: "
                "exactly the entries between them need term runs and an archive"
            )
        for entry in tail:
            if (
                entry.index != self.last_index + 1
                or entry.term < self.last_term
                or entry.position != self.next_position
            ):
                raise StorageError(
                    f"log entry {entry.index} (term {entry.term}, position {entry.position}) follows entry "
                    f"{self.last_index} (term {self.last_term}), expected position {self.next_position}: "
                    "the log is damaged; restore this server as a new one"
                )
            self.append(entry)

    # -- questions about (index, term)

    def term_at(self, index: int) -> int:
        """Return the term of any entry of the log, evicted or not, and of the one before `first_index`."""
        assert self.first_index - 1 <= index <= self.last_index, (
            f"{index=} outside [{self.first_index - 1}, {self.last_index}]"
        )
        starts = self._run_starts
        if starts and index >= starts[-1]:
            return self.last_term
        if index < self.first_index:
            return self._base_term
        return self._run_terms[bisect_right(starts, index) - 1]

    def first_index_of_term_at(self, index: int) -> int:
        """Return the first index of the run of equal terms that holds `index`."""
        assert self.first_index <= index <= self.last_index
        return self._run_starts[bisect_right(self._run_starts, index) - 1]

    def last_index_of_term_at_most(self, term: int, index: int) -> int:
        """Return the greatest index not above `index` whose term is not above `term`."""
        run = bisect_right(self._run_terms, term)
        end = self._run_starts[run] - 1 if run < len(self._run_starts) else self.last_index
        return min(index, max(end, self.first_index - 1))

    @property
    def memberships(self) -> tuple[tuple[int, bytes], ...]:
        """(index, payload) of each MEMBERSHIP entry of the log, committed or not, in order.

        The first may stand for the base: its index is then that of its entry or, if the log began anew
        there, that of the snapshot, which is not below it.
        """
        return tuple(self._memberships)

    def membership_at(self, index: int) -> bytes | None:
        """Return the payload of the newest MEMBERSHIP entry at or before `index`: a snapshot there must hold it."""
        assert self.first_index - 1 <= index <= self.last_index, (
            f"{index=} outside [{self.first_index - 1}, {self.last_index}]"
        )
        at = bisect_right(self._memberships, index, key=itemgetter(0))
        return self._memberships[at - 1][1] if at else None

    @property
    def memory_index(self) -> int:
        """The first index whose entry is in memory; `last_index + 1` if none is."""
        return self._memory_index

    # -- entries

    def slice(self, lo: int, hi: int, bytes_max: int) -> tuple[Entry, ...]:
        """Return entries lo <= index < hi: at least one, then as many as `bytes_max` allows.

        Evicted entries come from the archive, and then no further than memory begins.

        Raises:
            StorageError: the archive could not read them.
        """
        assert self.first_index <= lo < hi <= self.last_index + 1, (
            f"[{lo}, {hi}) outside [{self.first_index}, {self.last_index}]"
        )
        if lo < self._memory_index:
            assert self._archive is not None
            archived = tuple(self._archive(lo, min(hi, self._memory_index), bytes_max))
            assert archived, f"the archive gave nothing from {lo} on"
            assert archived[0].index == lo, f"the archive gave {archived[0].index} for {lo}"
            return archived
        start = lo - self._memory_index
        if hi == lo + 1:
            return (self._entries[start],)
        stop = start
        size = 0
        for entry in self._entries[start : hi - self._memory_index]:
            size += len(entry.payload) + ENTRY_OVERHEAD_BYTES
            if size > bytes_max and stop > start:
                break
            stop += 1
        return tuple(self._entries[start:stop])

    def entry(self, index: int) -> Entry:
        """Return one entry, from memory or the archive."""
        return self.slice(index, index + 1, 0)[0]

    def append(self, entry: Entry) -> None:
        """Add the next entry."""
        assert entry.index == self.last_index + 1, f"entry {entry.index} after {self.last_index}"
        assert entry.term >= self.last_term, f"entry {entry.index}: term {entry.term} after {self.last_term}"
        assert entry.position == self.next_position, (
            f"entry {entry.index}: {entry.position} is not {self.next_position}"
        )
        if entry.term != self.last_term or not self._run_starts:
            self._run_starts.append(entry.index)
            self._run_terms.append(entry.term)
            self.last_term = entry.term
        if entry.kind is EntryKind.MEMBERSHIP:
            self._memberships.append((entry.index, entry.payload))
        self._entries.append(entry)
        self.last_index = entry.index
        self.next_position = entry.position + entry.count
        self.bytes_in_memory += len(entry.payload) + ENTRY_OVERHEAD_BYTES

    def truncate_from(self, index: int) -> None:
        """Drop the entries from `index` on. Whether they may be dropped is the caller's responsibility."""
        assert self.first_index <= index <= self.last_index, (
            f"{index=} outside [{self.first_index}, {self.last_index}]"
        )
        self.next_position = self.entry(index).position
        kept = max(0, index - self._memory_index)
        self.bytes_in_memory -= sum(map(entry_bytes, self._entries[kept:]))
        del self._entries[kept:]
        self._memory_index = min(self._memory_index, index)
        while self._run_starts and self._run_starts[-1] >= index:
            self._run_starts.pop()
            self._run_terms.pop()
        while self._memberships and self._memberships[-1][0] >= index:
            self._memberships.pop()
        self.last_index = index - 1
        self.last_term = self._run_terms[-1] if self._run_terms else self._base_term

    def evict_to(self, index: int, bytes_kept: int = 0) -> None:
        """Drop entries up to `index` from memory, the oldest first; they must be durable, so that the archive has them.

        Args:
            bytes_kept: how much stays in memory of what could go: followers that are a little behind are sent the newest.
        """
        assert self._archive is not None, "evicted entries could not be read back"
        most = min(index, self.last_index) + 1 - self._memory_index
        if most <= 0:
            return
        count, left = 0, self.bytes_in_memory
        while count < most and left > bytes_kept:
            left -= entry_bytes(self._entries[count])
            count += 1
        self.bytes_in_memory = left
        del self._entries[:count]
        self._memory_index += count

    def compact_to(self, index: int) -> None:
        """Forget all entries up to `index`, which a snapshot covers. Nothing happens if that was done."""
        assert index <= self.last_index, f"{index=} beyond {self.last_index}"
        if index < self.first_index:
            return
        base_term = self.term_at(index)
        in_memory = index + 1 - self._memory_index
        if in_memory > 0:
            self.bytes_in_memory -= sum(map(entry_bytes, self._entries[:in_memory]))
            del self._entries[:in_memory]
            self._memory_index = index + 1
        runs = bisect_right(self._run_starts, index)
        if index < self.last_index and (runs == len(self._run_starts) or self._run_starts[runs] > index + 1):
            runs -= 1  # the run that holds the base goes on after it
            self._run_starts[runs] = index + 1
        del self._run_starts[:runs], self._run_terms[:runs]
        covered = bisect_right(self._memberships, index, key=itemgetter(0))
        del self._memberships[: max(0, covered - 1)]
        self._base_term = base_term
        self.first_index = index + 1

    def restart_after(self, meta: SnapshotMeta) -> None:
        """Forget everything; the next entry is the one after the snapshot of `meta`."""
        self._entries.clear()
        self._run_starts.clear()
        self._run_terms.clear()
        self._memberships = [(meta.index, meta.membership)]
        self.bytes_in_memory = 0
        self._base_term = self.last_term = meta.term
        self.last_index = meta.index
        self.first_index = self._memory_index = meta.index + 1
        self.next_position = meta.next_position
