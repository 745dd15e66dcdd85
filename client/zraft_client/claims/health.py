"""Judgement whether a consumer keeps up with a partition, at each heartbeat over the last ten. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

BEATS: Final = 10
"""The number of heartbeats over which a velocity is the mean."""
CYCLES_BEHIND_MAX: Final = 3
"""The number of heartbeats in a row behind, after which the claim should be released."""


class Health:
    """Positions of the consumer and of the partition's end, beat by beat.

    Velocities are messages per heartbeat interval.
    """

    def __init__(self, heartbeat_ms: int) -> None:
        self._heartbeat_ms = heartbeat_ms
        self._beats: deque[tuple[int, int, int]] = deque(maxlen=BEATS + 1)
        self.cycles_behind = 0

    def on_beat(self, now_ms: int, current: int, end: int) -> bool:
        """Record a beat; return True if the consumer has been behind for so long that it should release."""
        self._beats.append((now_ms, current, end))
        if self._is_behind(current, end):
            self.cycles_behind += 1
        else:
            self.cycles_behind = 0
        return self.cycles_behind >= CYCLES_BEHIND_MAX

    def _is_behind(self, current: int, end: int) -> bool:
        if len(self._beats) < 2 or end <= current:
            return False
        # Lag alone is no fault: a consumer that started far behind, and gains, or catches up by the next
        # beat, is healthy.
        consumed, produced = self.velocity, self.partition_velocity
        return consumed <= produced and current + consumed < end

    @property
    def velocity(self) -> float:
        """The number of messages that the consumer commits per interval."""
        return self._mean(1)

    @property
    def partition_velocity(self) -> float:
        """The number of messages that come into the partition per interval."""
        return self._mean(2)

    def _mean(self, position: int) -> float:
        if len(self._beats) < 2:
            return 0.0
        first, last = self._beats[0], self._beats[-1]
        elapsed = last[0] - first[0]
        return (last[position] - first[position]) * self._heartbeat_ms / elapsed if elapsed > 0 else 0.0
