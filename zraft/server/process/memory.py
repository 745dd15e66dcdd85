"""Return of memory that clients no longer hold to the operating system.

What is freed in the middle of glibc's heap stays with the process until `malloc_trim` is called: after forty clients whose
answers nobody read a server would be fifty megabytes larger for good. A call takes about a third of a millisecond per
megabyte that it gives back.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

FREED_BYTES_MIN: Final = 16 * 1024 * 1024
"""Less is not worth a call, and is soon used again."""

CONNECTION_BYTES: Final = 64 * 1024
"""What a connection takes beside what its client sent or left unread: a MessagePack reader alone has a stack of 50 kB."""

INTERVAL_MS: Final = 2_000
"""Between two calls, however often clients come and go."""


def malloc_trim() -> Callable[[int], int] | None:
    """Return the C library's function, if it has one: glibc has, musl and macOS do not need it."""
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim


class MemoryReturn:
    """Call `step` a few times a second; it costs next to nothing when there is nothing to give back."""

    def __init__(self, trim: Callable[[int], int] | None) -> None:
        """Begin without a call. `trim` gives back what is free but for so many bytes; None: nothing can."""
        self._trim = trim
        self._most = 0
        """The most that was held since the last call."""
        self._next_ms = 0

    def step(self, now_ms: int, client_bytes: int, connections: int = 0) -> None:
        """Give memory back if clients hold much less than they did.

        Args:
            now_ms: the time, of any clock.
            client_bytes: what all clients sent and left unread.
            connections: how many there are.
        """
        held_bytes = client_bytes + connections * CONNECTION_BYTES
        if held_bytes > self._most:
            self._most = held_bytes
        elif self._most - held_bytes >= FREED_BYTES_MIN and now_ms >= self._next_ms:
            self._most = held_bytes
            self._next_ms = now_ms + INTERVAL_MS
            if self._trim is not None:
                self._trim(0)
