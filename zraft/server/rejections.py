"""What peers and strangers sent that was not believed: counted by reason, and told to the log now and then.

Nobody is answered (docs/SECURITY.md), so the log is where an operator finds a wrong key or a wrong address. Whoever can
reach the port can cause these, so a reason is logged at most once in `INTERVAL_S`, with how often it came since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from zraft.transport.sealing import Rejection

INTERVAL_S: Final = 10.0

USUAL: Final = frozenset((Rejection.STALE, Rejection.REPLAYED))
"""What restarts and networks cause by themselves; the counters have them."""

log = structlog.get_logger()


class Rejections:
    """Of one way into the server."""

    def __init__(self, what: str, clock: Callable[[], float]) -> None:
        """`what` was refused: "datagram", "stream"; the clock is monotonic, in seconds."""
        self._what = what
        self._clock = clock
        self._told_at: dict[Rejection, float] = {}
        self._untold: dict[Rejection, int] = {}
        self.by_reason: dict[str, int] = {reason.value: 0 for reason in Rejection}

    def note(self, reason: Rejection, text: str) -> None:
        """One was refused. `text` says whose it claimed to be and why; nothing secret is in it."""
        self.by_reason[reason.value] += 1
        if reason in USUAL:
            return
        count = self._untold[reason] = self._untold.get(reason, 0) + 1
        now = self._clock()
        if now - self._told_at.get(reason, -INTERVAL_S) < INTERVAL_S:
            return
        self._told_at[reason] = now
        self._untold[reason] = 0
        log.warning(f"{self._what} refused", reason=reason.value, error=text, count=count)
