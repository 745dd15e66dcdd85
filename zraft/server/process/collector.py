"""Schedule of Python's cyclic garbage collector, so that it never stops the server for long.

A full collection over a million znodes takes a quarter of a second, an election timeout; one over what a start leaves,
a tenth. So the automatic collector is off, and what a start leaves is frozen, out of its sight. Young objects are
collected often and cheaply; what survives is old. Reference counting frees everything that is not part of a cycle. Old
cycles that became garbage, such as connections that are over, are found by a full collection, which runs only when the
server is idle; if there are too many old objects for it, they are frozen instead.

A start leaves two megabytes in cycles, and looking for them at once would take a tenth of its time. They are looked for
once, an interval later, when the server is idle and leads nobody: whoever follows can miss a heartbeat.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_MAX: Final = 20_000
"""New container objects between two young collections: about a millisecond of work."""

FULL_INTERVAL_MS: Final = 600_000
OLD_MAX: Final = 50_000
"""Above this a full collection would take a good part of an election timeout, and others may elect another leader."""
OLD_OF_FOLLOWERS_MAX: Final = 200_000
"""The same of a server that leads nobody; such a heap is nearly all znodes anyway."""


class Collector:
    """Call `step` every turn; it costs a fraction of a microsecond when there is nothing to do."""

    def __init__(self, now_ms: int) -> None:
        gc.disable()
        gc.freeze()
        self._next_full = now_ms + FULL_INTERVAL_MS
        self._start_waits = True

    def step(self, now_ms: int, *, idle: bool, leads: bool) -> None:
        """Collect if there is reason to.

        Args:
            idle: no client waits for anything.
            leads: others elect another leader if this server is silent.
        """
        if gc.get_count()[0] > YOUNG_MAX:
            gc.collect(1)
        elif idle and now_ms >= self._next_full:
            self._next_full = now_ms + FULL_INTERVAL_MS
            if len(gc.get_objects(2)) > (OLD_MAX if leads else OLD_OF_FOLLOWERS_MAX):
                gc.freeze()
            elif self._start_waits and not leads:
                self._start_waits = False
                gc.unfreeze()
                gc.collect()
                gc.freeze()
            else:
                gc.collect()
