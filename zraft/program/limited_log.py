"""Limited log of what strangers can cause any number of times: each kind now and then, with a count.

Whoever can reach a port can have connections and requests refused, so a line for each would give them the disk.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import structlog

INTERVAL_S: Final = 10.0

KINDS_MAX: Final = 64
"""The number of kinds that are told of in one interval; what else there is counts as one more kind."""

OTHERS: Final = "others"

_PARTICULARS: Final = re.compile(r"'[^']*'|\"[^\"]*\"|0x[0-9a-f]+|[0-9]+")
"""The particulars of a text: numbers, and what is quoted."""

log = structlog.get_logger()


class LimitedLog:
    """Limited log of one process, or of one way into it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with nothing told. The clock is monotonic, in seconds."""
        self._clock = clock
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def warn(self, event: str, *, kind: str, **fields: Any) -> bool:
        """Log `event`, unless one of its kind was told of less than `INTERVAL_S` ago; whether it was logged.

        `count` is how many of its kind came since the last that was told of. Nothing secret may be in `fields`.
        """
        now = self._clock()
        if kind not in self._told_at and len(self._told_at) >= KINDS_MAX:
            self._forget(now)
            if len(self._told_at) >= KINDS_MAX:
                kind = OTHERS
        count = self._untold[kind] = self._untold.get(kind, 0) + 1
        if now - self._told_at.get(kind, now - INTERVAL_S) < INTERVAL_S:
            return False
        self._told_at[kind] = now
        self._untold[kind] = 0
        log.warning(event, **fields, count=count)
        return True

    def _forget(self, now: float) -> None:
        """Make room: what was told of long ago, and did not come since, may be told of at once."""
        for kind, told_at in list(self._told_at.items()):
            if now - told_at >= INTERVAL_S and not self._untold[kind]:
                del self._told_at[kind], self._untold[kind]


def kind_of(text: str) -> str:
    """Return what texts have in common that differ in numbers and in what is quoted."""
    return _PARTICULARS.sub("#", text)
