"""Estimate of how far a machine's clock is from the head's (Cristian, 1989).

Pure.

Both clocks are monotonic ones with origins of their own, so that nothing depends on dates being right. An
answer was written between question and answer: the estimate is the middle, wrong by half of the round trip at
most. The shortest round trip is the best one.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from zraft_bench.results import Skew


@frozen
class ClockSample:
    """A question asked at `asked_s` and answered at `answered_s` on our clock; the head's clock said `head_s` in between."""

    asked_s: float
    answered_s: float
    head_s: float


@frozen
class ClockOffset:
    """An offset: our clock plus `offset_s` is the head's, right within `uncertainty_s`."""

    offset_s: float
    uncertainty_s: float


def offset_of(samples: Sequence[ClockSample]) -> ClockOffset:
    """Return the offset by the sample with the shortest round trip; at least one is needed."""
    best = min(samples, key=lambda one: one.answered_s - one.asked_s)
    return ClockOffset(
        offset_s=best.head_s - (best.asked_s + best.answered_s) / 2,
        uncertainty_s=(best.answered_s - best.asked_s) / 2,
    )


def skew_of(beginnings: Sequence[tuple[float, float]]) -> Skew | None:
    """Return the skew of (time on the head's clock, uncertainty), both in seconds; None if nothing began."""
    if not beginnings:
        return None
    times = [at for at, _ in beginnings]
    return Skew(
        spread_ms=(max(times) - min(times)) * 1000,
        uncertainty_ms=sum(sorted(uncertainty for _, uncertainty in beginnings)[-2:]) * 1000,
    )
