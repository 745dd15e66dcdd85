"""Schedule of Python's cyclic garbage collector, so that it never stops the server for long.

A full collection over a million znodes takes a quarter of a second, an election timeout. So the automatic
collector is off; young objects are collected often and cheaply, and what survives is frozen, out of its sight.
Reference counting frees everything that is not part of a cycle; cycles that became garbage after being frozen
are found by a full collection, which runs only when the server is idle and its heap small enough for it.

The first full collection comes an interval after the start. A start leaves two megabytes in cycles, and looking for
them at once would take a tenth of its time.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 20_000
"""New container objects between two young collections: about a millisecond of work."""

FULL_INTERVAL_MS: Final = 600_000
FULL_OBJECTS_MAX: Final = 200_000
"""Above this a full collection would take tens of milliseconds; such a heap is nearly all znodes anyway."""


class Collector:
    """Call `step` every turn; it costs a fraction of a microsecond when there is nothing to do."""

    def __init__(self, now_ms: int) -> None:
        gc.disable()
        gc.freeze()
        self._next_full = now_ms + FULL_INTERVAL_MS

    def step(self, now_ms: int, *, idle: bool) -> None:
        """Collect if there is reason to. `idle`: no client waits for anything."""
        if gc.get_count()[0] > YOUNG_MAX:
            gc.collect(0)
            gc.freeze()
        elif idle and now_ms >= self._next_full:
            self._next_full = now_ms + FULL_INTERVAL_MS
            if gc.get_freeze_count() <= FULL_OBJECTS_MAX:
                gc.unfreeze()
                gc.collect()
                gc.freeze()
