"""Rejected messages of servers and strangers: counted by reason, and logged now and then.

Nobody is answered (docs/how-to/security.md), so the log is where an operator finds a wrong key or a wrong address.
"""

from __future__ import annotations

from typing import Final

from zraft.program.limited_log import LimitedLog
from zraft.transport.sealing import Rejection

USUAL: Final = frozenset((Rejection.STALE, Rejection.REPLAYED))
"""The reasons that restarts and networks cause by themselves; the counters have them."""


class Rejections:
    """Rejected messages of one way into the server."""

    def __init__(self, what: str, limited: LimitedLog) -> None:
        """Begin with nothing counted. `what` was refused: "datagram", "stream"."""
        self._what = what
        self._limited = limited
        self.by_reason: dict[str, int] = {reason.value: 0 for reason in Rejection}

    def note(self, reason: Rejection, text: str) -> None:
        """Count and log a refusal. `text` says whose it claimed to be and why; nothing secret is in it."""
        self.by_reason[reason.value] += 1
        if reason not in USUAL:
            self._limited.warn(
                f"{self._what} refused",
                kind=f"{self._what} {reason.value}",
                reason=reason.value,
                error=text,
            )
