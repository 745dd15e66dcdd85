"""Reads that wait on the leader for the proof that it still leads (dissertation section 6.4).

A read may use the commit index of a moment at or after its arrival, once a round of heartbeats that began
after that moment was answered by a quorum. All reads that arrived before a round share it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from zraft_core.ids import ServerId

Read = tuple[ServerId, int]
"""(who asked, its own number for the read)."""


class ReadIndexQueue:
    """Reads of one leadership: those that wait for a round to begin, then those that wait for its answer.

    Attributes:
        count: how many there are.
        need_round: whether reads wait for a round to begin.
    """

    __slots__ = ("_confirming", "_count_max", "_unassigned", "count", "need_round")

    def __init__(self, count_max: int) -> None:
        self._unassigned: list[Read] = []
        self._confirming: deque[tuple[int, int, list[Read]]] = deque()  # (round, index, reads)
        self.count = 0
        self._count_max = count_max
        self.need_round = False

    def add(self, read: Read) -> bool:
        """Take a read; False if there are too many already (it is dropped, its asker repeats it)."""
        if self.count >= self._count_max:
            return False
        self._unassigned.append(read)
        self.need_round = True
        self.count += 1
        return True

    def begin_round(self, number: int, commit_index: int) -> None:
        """Round `number` begins now: all reads so far may use `commit_index` once it is confirmed."""
        if self._unassigned:
            self._confirming.append((number, commit_index, self._unassigned))
            self._unassigned = []
            self.need_round = False

    def confirmed(self, number: int) -> Iterator[tuple[Read, int]]:
        """Yield (read, index) of everything that round `number`, which a quorum answered, and earlier ones prove."""
        while self._confirming and self._confirming[0][0] <= number:
            _, index, reads = self._confirming.popleft()
            self.count -= len(reads)
            for read in reads:
                yield read, index

    def clear(self) -> None:
        """Forget all reads, since the leadership ended; every asker repeats its reads elsewhere."""
        self._unassigned = []
        self.need_round = False
        self._confirming.clear()
        self.count = 0
