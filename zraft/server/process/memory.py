"""Return of memory that clients and the log no longer hold to the operating system.

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

QUIET_BYTES_MAX: Final = 1024 * 1024
"""In an interval in which the log grew by no more than this, what earlier entries took is not soon used again."""


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
        self._logged_at_call = 0
        self._logged_at_look = 0
        self._look_ms = 0
        """When the log will have been quiet for an interval, if it grows by little until then."""

    def step(self, now_ms: int, client_bytes: int, connections: int = 0, logged_bytes: int = 0) -> None:
        """Give memory back if clients hold much less than they did, or much was logged and no more follows.

        An entry is in memory several times on its way, and stays until it is evicted or a snapshot covers it. After
        writes of a megabyte a server would be thirty megabytes larger for good than what its log still holds.

        Args:
            now_ms: the time, of any clock.
            client_bytes: what all clients sent and left unread.
            connections: how many there are.
            logged_bytes: what was written to the log since the process began.
        """
        held_bytes = client_bytes + connections * CONNECTION_BYTES
        if held_bytes > self._most:
            self._most = held_bytes
        if now_ms < self._next_ms:
            return
        let_go = self._most - held_bytes >= FREED_BYTES_MIN
        if logged_bytes - self._logged_at_look > QUIET_BYTES_MAX:
            # Look again when an interval has passed; what clients let go does not wait for that.
            self._logged_at_look, self._look_ms = logged_bytes, now_ms + INTERVAL_MS
        elif now_ms >= self._look_ms and logged_bytes - self._logged_at_call >= FREED_BYTES_MIN:
            let_go = True
        if let_go:
            self._most, self._logged_at_call = held_bytes, logged_bytes
            self._next_ms = now_ms + INTERVAL_MS
            if self._trim is not None:
                self._trim(0)
