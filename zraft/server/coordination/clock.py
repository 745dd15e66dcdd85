"""The clocks of one server: one counts time in which the machine sleeps, the other only time in which this process ran.

Silence is judged by the first, because the other servers do not sleep when this one does (D-14). By the
second nobody ages while this process could not hear them (D-11). Times are in milliseconds. They are handed
in with each turn and when messages arrive, and never read here.

Pure. Source: rules D-11 and D-14 in docs/explanation/rules.md.
"""

from __future__ import annotations

from typing import Final

TURN_STEP_MS_MAX: Final = 100
"""The most time that one step may count as passed (D-11): a process that was stopped for a minute makes nobody older.

Only the time up to the alarm that the last turn asked for counts whole, because this process may have slept
on purpose.
"""


class TurnClock:
    """The time of the present turn, in ms.

    Attributes:
        now: the clock that counts sleep.
        run: the clock of the time that turns counted, each a bounded step.
        woke: when this process started, or last came back from a pause of more than `asleep_after_ms`.
        asked_at: for when the last turn asked for the next one.
        passed: time that counted as passed and that no turn has taken yet.
    """

    def __init__(self, now_ms: int, asleep_after_ms: int) -> None:
        self.now = now_ms
        self.run = 0
        self.woke = now_ms
        self.asked_at = now_ms
        self.passed = 0
        self._asleep_after_ms = asleep_after_ms

    def advance(self, now_ms: int) -> int:
        """Set the clock to `now_ms`; return the time that passed since the last call, as far as it counts."""
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

    def begin_turn(self, now_ms: int) -> tuple[int, int]:
        """Set the clock to `now_ms` for a turn.

        Returns:
            What passed since the last call of `advance`, and since the last turn, by which this one has to judge: as far
            as it counts.
        """
        rest = self.advance(now_ms) if now_ms != self.now else 0
        passed, self.passed = self.passed, 0
        return rest, passed
