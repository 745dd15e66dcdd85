"""Decision whether the loop may sync the log itself, by how long the last syncs took.

A thread that syncs leaves the loop free, and costs a hand-off in each direction: on a fast disk as much as the sync
itself. So small frames are synced by the loop while nearly all of its syncs are short, and by the thread otherwise.

The loop is judged by its own syncs, and may be given up by one. What the thread measures contains its wait for the
interpreter, which a busy loop keeps for 5 ms at a time: a long time there says little of the disk, a short one
everything. So the thread proves that the disk works, not that it is always fast.

Pure. Times are in seconds.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = 128
"""How many of the loop's last syncs are remembered."""

LATE_S: Final = 0.005
"""Only one of them may take longer, so this bounds the 99th percentile. It is a tenth of the interval of heartbeats and a
sixtieth of an election timeout, and no more than any thread that computes holds up the loop for.
"""

LATE_MAX: Final = 1

SLOW_MAX: Final = KEPT // 4
"""So many of them may take longer than usual. The loop does nothing else meanwhile, so a disk that is always slow would cost
more than the hand-off does.
"""

STALL_S: Final = 0.02
"""One sync of this length is enough to go to the thread: it held up clients that wait for no write. It is still short beside
an election timeout of 300 ms.
"""

PROVED_FIRST: Final = 16
"""How many syncs the thread does first: not to judge by one or two, and no slow disk is met in the loop."""

PROVED_MAX: Final = 4_096
"""The most that it does after the loop had to give up. The first time there are `KEPT`, and twice as many each time that the
loop has to give up before it has done this number: so a disk that stalls again and again holds up the loop seldom.
"""

SHORT_OF: Final = 16
"""One of so many of the thread's syncs has to be short. A disk that is always slow has none of these."""


class SyncPace:
    """Record of how long the last syncs took, which decides who does the next one.

    Args:
        usual_s: three of four syncs by the loop have to take at most this; with 0 it never may.
    """

    __slots__ = (
        "_at",
        "_done",
        "_grades",
        "_late",
        "_late_s",
        "_proof",
        "_proved",
        "_short",
        "_slow",
        "_usual_s",
    )

    def __init__(self, usual_s: float) -> None:
        self._usual_s = usual_s
        self._late_s = max(LATE_S, usual_s)
        self._grades = bytearray(KEPT)  # of the loop's syncs since it began: 0 as usual, 1 slow, 2 late
        self._at = 0
        self._slow = 0  # how many of them are 1 or 2
        self._late = 0  # how many are 2
        self._done = 0  # all of the loop's syncs since it began
        self._proof = PROVED_FIRST  # syncs of the thread before the loop begins
        self._proved = 0  # those since the loop gave up; -1 while it syncs
        self._short = 0  # how many of them were short

    @property
    def is_fast(self) -> bool:
        """True if the loop may do the next sync."""
        return self._proved < 0

    def took(self, seconds: float) -> None:
        """Take note of a sync of the loop."""
        self._done += 1
        grade = (seconds > self._usual_s) + (seconds > self._late_s)
        at = self._at
        known = self._grades[at]
        self._at = (at + 1) % KEPT
        if grade != known:
            self._grades[at] = grade
            self._slow += (grade > 0) - (known > 0)
            self._late += (grade > 1) - (known > 1)
        if self._late > LATE_MAX or self._slow > SLOW_MAX or seconds >= STALL_S:
            self._give_up()

    def thread_took(self, seconds: float) -> None:
        """Take note of a sync of the thread, of a frame that the loop could have written."""
        if self._proved < 0:
            # The thread was at work with something else, which says nothing of the loop's syncs.
            return
        if seconds >= STALL_S:
            self._proof = max(self._proof, KEPT)
            self._proved = self._short = 0
            return
        self._proved += 1
        self._short += seconds <= self._usual_s
        if self._proved >= self._proof:
            if self._usual_s > 0 and self._short * SHORT_OF >= self._proof:
                self._begin()
            else:
                self._proved = self._short = 0

    def _begin(self) -> None:
        """Let the loop sync, of which nothing bad is remembered."""
        self._done = 0
        self._proved = -1

    def _give_up(self) -> None:
        """Let the thread sync; for twice as long as the last time if the loop did not hold out for long."""
        again = self._proof >= KEPT and self._done < PROVED_MAX
        self._proof = min(2 * self._proof, PROVED_MAX) if again else KEPT
        self._proved = self._short = 0
        self._grades = bytearray(KEPT)
        self._slow = self._late = 0
