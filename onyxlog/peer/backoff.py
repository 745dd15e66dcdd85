"""Waits before something is tried again. Pure; the randomness is handed in."""

from __future__ import annotations

from typing import Final

JOIN_MEAN_MS: Final = 200.0
"""The mean wait before a join is tried again, for each group that has its turn first and for the joiner itself: the
time of a round through the log when many groups join."""
JOIN_MEAN_MS_MAX: Final = 60_000.0
RESTART_MEAN_MS: Final = 250.0
RESTART_MEAN_MS_MAX: Final = 15_000.0
PROVEN_S: Final = 30.0
"""A group or peer that lived so long begins again as if for the first time."""


def join_again_ms(ahead: int, draw: float) -> float:
    """Return the wait before a group tries to join again although its turn has not come.

    Its turn does not come while those that have theirs first are dead, and nobody has noticed. `ahead`: how many
    groups these are. `draw` is uniform in [0, 1).
    """
    return _spread(min(JOIN_MEAN_MS * (1 + ahead), JOIN_MEAN_MS_MAX), draw)


def restart_ms(failures: int, draw: float) -> float:
    """Return the wait before a group or virtual peer that failed `failures` times in a row (at least 1) begins again."""
    return _spread(_doubled(RESTART_MEAN_MS, failures - 1, RESTART_MEAN_MS_MAX), draw)


def _doubled(mean: float, times: int, most: float) -> float:
    return min(mean * float(1 << min(times, 32)), most)


def _spread(mean: float, draw: float) -> float:
    """Spread uniformly around the mean, by half of it: those that failed together do not try together."""
    return mean * (0.5 + draw)
