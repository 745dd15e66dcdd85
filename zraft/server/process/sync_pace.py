"""Whether the loop may sync the log itself, by how long the last syncs took.

A thread that syncs leaves the loop free, and costs a hand-off in each direction: on a fast disk as much as the sync
itself. So small frames are synced by the loop while nearly all syncs are short, and by the thread otherwise.

Pure. Times are in seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

KEPT: Final = 128
"""How many of the last syncs are remembered: the second longest of them stands for the 99th percentile."""

STALL_S: Final = 0.02
"""A sync of this length held up clients that wait for no write. A leader speaks every 50 ms and may be silent for 300."""

PROVED_FIRST: Final = 16
"""How many syncs the thread does first: not to judge by one or two, and no slow disk is met in the loop."""

PROVED_MAX: Final = 4_096
"""The most that it does after a stall. Each stall doubles their number, so that a disk which stalls again and again holds
up the loop seldom.
"""


class SyncPace:
    """How long the last syncs took.

    Args:
        usual_s: the loop may sync while the 99th percentile of the last syncs is at most this; with 0 it never may.
    """

    __slots__ = ("_last", "_proved", "_proved_from", "_slow", "_usual_s")

    def __init__(self, usual_s: float) -> None:
        self._usual_s = usual_s
        self._last: deque[bool] = deque([False] * KEPT, KEPT)  # whether each was longer than usual
        self._slow = 0  # how many of them were
        self._proved = 0  # syncs since the start, or since the last stall
        self._proved_from = PROVED_FIRST

    def took(self, seconds: float) -> None:
        """Take note of a sync, wherever it was done."""
        if seconds >= STALL_S:
            if self._proved >= self._proved_from:
                self._proved_from = min(2 * max(self._proved_from, KEPT // 2), PROVED_MAX)
            self._proved = 0
        slow = seconds > self._usual_s
        self._slow += slow - self._last[0]
        self._last.append(slow)
        self._proved += 1

    @property
    def is_fast(self) -> bool:
        """Whether the loop may do the next sync."""
        return self._usual_s > 0 and self._slow <= 1 and self._proved >= self._proved_from
