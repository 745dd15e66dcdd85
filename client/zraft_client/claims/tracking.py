"""Record of which messages of a claim are processed, in any order.

Pure.

The current offset is the first one that is not committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from zraft_core.claims.progress import Range


class Tracking:
    """Offsets handed out, in order, and which of them were committed. As large as what is outstanding."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._outstanding: deque[int] = deque()
        self._committed: set[int] = set()

    def add(self, offset: int) -> None:
        """Add a message to process; offsets only rise, and may leave gaps."""
        assert offset >= self._next, f"{offset=} is below {self._next}"
        self._outstanding.append(offset)
        self._next = offset + 1

    def skip_to(self, offset: int) -> None:
        """Note that everything below which is not outstanding needs no processing."""
        self._next = max(self._next, offset)

    def commit(self, offset: int) -> bool:
        """Commit a message; return False if it was committed before, or never added."""
        if offset in self._committed or not self._is_outstanding(offset):
            return False
        self._committed.add(offset)
        while self._outstanding and self._outstanding[0] in self._committed:
            self._committed.remove(self._outstanding.popleft())
        return True

    def _is_outstanding(self, offset: int) -> bool:
        if not self._outstanding or not self._outstanding[0] <= offset <= self._outstanding[-1]:
            return False
        low, high = 0, len(self._outstanding)
        # Without gaps the offset is at its own place; with gaps it is further to the front.
        guess = offset - self._outstanding[0]
        if guess < high and self._outstanding[guess] == offset:
            return True
        while low < high:
            middle = (low + high) // 2
            if self._outstanding[middle] < offset:
                low = middle + 1
            else:
                high = middle
        return self._outstanding[low] == offset

    @property
    def current(self) -> int:
        """The first offset that is not committed."""
        return self._outstanding[0] if self._outstanding else self._next

    def committed_ranges(self, limit: int) -> tuple[Range, ...]:
        """Return the first so many ranges of committed offsets above `current`.

        What is not outstanding belongs to the ranges around it. This takes O(outstanding), as long as there
        is any.
        """
        if not self._committed:
            return ()
        return tuple(islice(self._ranges(), limit))

    def _ranges(self) -> Iterator[Range]:
        first: int | None = None
        last = 0
        for offset in self._outstanding:
            if offset in self._committed:
                first = offset if first is None else first
                last = offset
            elif first is not None:
                yield first, last + 1
                first = None
        if first is not None:
            yield first, last + 1

    @property
    def outstanding(self) -> int:
        """The number of messages that were added and are not yet behind `current`."""
        return len(self._outstanding)
