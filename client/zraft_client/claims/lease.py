"""Lease of an owner: how long it may continue without an answer, by its own clock. Pure."""

from __future__ import annotations

from typing import Final

BEATS_KEPT: Final = 8
"""The number of heartbeats whose send times are kept; an answer to an older one is ignored."""


class Lease:
    """The right to process that one claim gives.

    It holds until one heartbeat interval after the *send* time of what was confirmed. The service hears a
    heartbeat after it was sent and lets the claim expire two intervals after that, by its own clock: an owner
    whose clock runs at more than half that speed has stopped before (M-4). Times are milliseconds of a clock
    that never goes back and counts the time in which the machine sleeps.
    """

    def __init__(self, heartbeat_ms: int, claim_sent_ms: int) -> None:
        self.heartbeat_ms = heartbeat_ms
        self._confirmed_ms = claim_sent_ms
        self._sent: dict[int, int] = {}

    def on_sent(self, beat: int, now_ms: int) -> None:
        """Note when a heartbeat was sent; its answer extends the lease from this time on."""
        self._sent[beat] = now_ms
        if len(self._sent) > BEATS_KEPT:
            del self._sent[min(self._sent)]

    def on_confirmed(self, beat: int) -> None:
        """Note that a heartbeat is in the log.

        The answer's own time says nothing: it may have been under way for long.
        """
        self._confirmed_ms = max(self._confirmed_ms, self._sent.get(beat, self._confirmed_ms))
        for older in [one for one in self._sent if one <= beat]:
            del self._sent[older]

    @property
    def lapses_ms(self) -> int:
        """The time in milliseconds at which the lease ends unless a heartbeat is answered."""
        return self._confirmed_ms + self.heartbeat_ms

    def holds(self, now_ms: int) -> bool:
        """Return whether the lease holds at this time."""
        return now_ms < self.lapses_ms
