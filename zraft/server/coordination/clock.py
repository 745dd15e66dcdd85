"""How time passes for one server: a clock that counts sleep, and one of the time in which this process ran.

Silence is judged by the first, because the other servers do not sleep when we do (D-14); nobody ages on the
second while this process could not hear them (D-11). Milliseconds; told once per turn, never read.

Pure. Source: rules D-11 and D-14 in docs/RULES.md.
"""

from __future__ import annotations

from typing import Final

TURN_STEP_MS_MAX: Final = 100
"""The most time one turn may count as passed (D-11): a process that was stopped for a minute ages nobody."""


class TurnClock:
    """The time of the present turn."""

    def __init__(self, now_ms: int, asleep_after_ms: int) -> None:
        self.now = now_ms
        """Counts sleep."""
        self.run = 0
        """Counts only what the turns counted, each a bounded step."""
        self.woke = now_ms
        """When this process started, or last came back from a pause of more than `asleep_after_ms`."""
        self._asleep_after_ms = asleep_after_ms

    def advance(self, now_ms: int) -> int:
        """A turn begins: the time that passed since the last one, as far as it counts."""
        elapsed = now_ms - self.now
        if elapsed > self._asleep_after_ms:
            self.woke = now_ms
        step = elapsed if 0 < elapsed < TURN_STEP_MS_MAX else 0 if elapsed <= 0 else TURN_STEP_MS_MAX
        self.now = now_ms
        self.run += step
        return step
