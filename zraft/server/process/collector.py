"""Schedule of Python's cyclic garbage collector, so that it never stops the server for long.

A full collection over a million znodes takes a quarter of a second, an election timeout; one over what a start leaves,
a tenth. So the automatic collector is off, and what a start leaves is frozen, out of its sight. Young objects are
collected often and cheaply; what survives is old. Reference counting frees everything that is not part of a cycle. Old
cycles that became garbage, such as connections that are over, are found by a full collection, which runs only when the
server is idle; if there are too many old objects for it, they are frozen instead. To count them, Python lists them,
which takes a quarter of a second for a million znodes as well; so memory blocks tell first whether there are many.

A start leaves two megabytes in cycles, and looking for them at once would take a tenth of its time. They are looked for
once, an interval later, when the server is idle and leads nobody: whoever follows can miss a heartbeat. With many znodes
nobody looks for them.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

YOUNG_MAX: Final = 20_000
"""New container objects between two young collections: about a millisecond of work."""

FULL_INTERVAL_MS: Final = 600_000
OLD_MAX: Final = 50_000
"""Above this a full collection would take a good part of an election timeout, and others may elect another leader."""
BLOCKS_MAX: Final = 6 * OLD_MAX
"""New memory blocks above which old objects are too many to be counted. Such an object takes two blocks on average, and
what it refers to takes others.
"""
OBJECTS_MAX: Final = 200_000
"""The same of all objects, those of the start included, for a server that leads nobody."""


class Collector:
    """Call `step` every turn; it costs a fraction of a microsecond when there is nothing to do."""

    def __init__(self, now_ms: int) -> None:
        gc.disable()
        self._freeze()
        self._next_full = now_ms + FULL_INTERVAL_MS
        self._start_waits = True

    def _freeze(self) -> None:
        """Take all objects out of the collector's sight, at no cost. Blocks are counted in some milliseconds."""
        gc.freeze()
        self._blocks = sys.getallocatedblocks()

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
            if sys.getallocatedblocks() - self._blocks > BLOCKS_MAX:
                self._start_waits = False
                self._freeze()
                return
            old = len(gc.get_objects(2))
            looks_at_start = self._start_waits and not leads
            self._start_waits = self._start_waits and leads
            if looks_at_start and gc.get_freeze_count() + old <= OBJECTS_MAX:
                gc.unfreeze()
                gc.collect()
                self._freeze()
            elif old <= OLD_MAX:
                gc.collect()
            else:
                self._freeze()
