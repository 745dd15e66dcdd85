"""How time passes for one server: a clock that counts sleep, and one of the time in which this process ran.

Silence is judged by the first, because the other servers do not sleep when we do (D-14); nobody ages on the
second while this process could not hear them (D-11). Milliseconds; told with each turn and when messages arrive, never
read.

Pure. Source: rules D-11 and D-14 in docs/RULES.md.
"""

from __future__ import annotations

from typing import Final

TURN_STEP_MS_MAX: Final = 100
"""The most time one step may count as passed (D-11): a process that was stopped for a minute ages nobody.

Only the time up to the alarm that the last turn asked for counts whole, for in it this process may have slept on purpose.
"""


class TurnClock:
    """The time of the present turn."""

    def __init__(self, now_ms: int, asleep_after_ms: int) -> None:
        self.now = now_ms
        """Counts sleep."""
        self.run = 0
        """Counts only what the turns counted, each a bounded step."""
        self.woke = now_ms
        """When this process started, or last came back from a pause of more than `asleep_after_ms`."""
        self.asked_at = now_ms
        """When the next turn was asked for by the last one."""
        self.passed = 0
        """What counted as passed and was not taken by a turn yet."""
        self._asleep_after_ms = asleep_after_ms

    def advance(self, now_ms: int) -> int:
        """It is `now_ms`: the time that passed since the last call, as far as it counts."""
        elapsed = now_ms - self.now
        if elapsed > self._asleep_after_ms:
            self.woke = now_ms
        most = TURN_STEP_MS_MAX
        if elapsed > most and self.asked_at - self.now > most:
            most = self.asked_at - self.now
        step = elapsed if 0 < elapsed < most else 0 if elapsed <= 0 else most
        self.now = now_ms
        self.run += step
        self.passed += step
        return step

    def take_passed(self) -> int:
        """The time that counted as passed since the last call: what a turn has to judge by."""
        passed, self.passed = self.passed, 0
        return passed
