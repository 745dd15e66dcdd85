"""The clock by which leases are counted."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_ms() -> int:
    """Return milliseconds that never go back and continue while the machine sleeps.

    A clock that stands still then would let a laptop that wakes up process what others have claimed
    meanwhile.
    """
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
