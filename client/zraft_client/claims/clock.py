"""The clock that leases are counted by."""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_ms() -> int:
    """Milliseconds that never go back and go on while the machine sleeps.

    A clock that stands still then would let a laptop that wakes up go on with what others have claimed meanwhile.
    """
    return time.clock_gettime_ns(_CLOCK) // 1_000_000
