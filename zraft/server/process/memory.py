"""Return of memory that is free but still with the process to the operating system.

What is freed in the middle of glibc's heap stays with the process until `malloc_trim` is called: after forty clients whose
answers nobody read a server would be fifty megabytes larger for good, and after pipelined requests of many clients seventy.
A call takes about a third of a millisecond per megabyte that it gives back.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from math import inf
from typing import Final

FREED_BYTES_MIN: Final = 16 * 1024 * 1024
"""Less is not worth a call, and is soon used again."""

CONNECTION_BYTES: Final = 64 * 1024
"""What a connection takes beside what its client sent or left unread: a MessagePack reader alone has a stack of 50 kB."""

INTERVAL_MS: Final = 2_000
"""Between two calls, however often clients come and go, and between two looks at the memory of the process."""

QUIET_BYTES_MAX: Final = 1024 * 1024
"""A server whose log grew by no more than this in an interval, and whose clients hold no more, does not need soon again
what is free.
"""


def malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function, if it has one: glibc has, musl and macOS do not need it."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


@cache
def resident_memory() -> Callable[[], int] | None:
    """Return a function that tells the resident memory of this process in bytes; None where the kernel does not say.

    The file stays open, since opening a file may block the loop. Source: proc_pid_statm(5).
    """
    try:
        file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return lambda: int(os.pread(file, 256, 0).split()[1]) * page_bytes


class MemoryReturn:
    """Call `step` a few times a second; it costs next to nothing when there is nothing to give back."""

    def __init__(self, trim: Callable[[int], int] | None, resident: Callable[[], int] | None = None) -> None:
        """Begin without a call.

        Args:
            trim: gives back what is free but for so many bytes; None: nothing can.
            resident: returns the memory of the process in bytes; None: nobody knows.
        """
        self._trim = trim
        self._resident = resident
        self._most = 0
        """The most that clients held since the last call."""
        self._least: float = inf
        """The least memory that the process was seen to have since the last call."""
        self._logged_bytes = 0
        self._look_ms = self._next_ms = 0

    def step(self, now_ms: int, client_bytes: int, connections: int = 0, logged_bytes: int = 0) -> None:
        """Give memory back if clients hold much less than they did, or the process grew by much and is quiet now.

        What clients hold is counted, and can be given back at once. What is decoded, applied and logged is in memory
        several times on its way and nobody counts it, so the memory of the process is looked at as well.

        Args:
            now_ms: the time, of any clock.
            client_bytes: what all clients sent and left unread.
            connections: how many there are.
            logged_bytes: what was written to the log since the process began.
        """
        held_bytes = client_bytes + connections * CONNECTION_BYTES
        self._most = max(self._most, held_bytes)
        let_go = self._most - held_bytes >= FREED_BYTES_MIN
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + INTERVAL_MS
            grown, self._logged_bytes = logged_bytes - self._logged_bytes, logged_bytes
            if self._resident is not None and max(grown, client_bytes) <= QUIET_BYTES_MAX:
                resident = self._resident()
                self._least = min(self._least, resident)
                let_go = let_go or resident - self._least >= FREED_BYTES_MIN
        if let_go and now_ms >= self._next_ms:
            self._next_ms = now_ms + INTERVAL_MS
            self._most = held_bytes
            if self._trim is not None:
                self._trim(0)
            if self._resident is not None:
                self._least = self._resident()
