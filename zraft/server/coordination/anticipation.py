"""Decides whether the next round waits a moment for those whom the last one answered, and who may ask again at once.

What arrives while a round is under way shares the next one (docs/decisions/0005). So clients that ask again as soon as
they are answered come to stand in two groups: each is answered while the other one's round is under way, and every round
is half full. A short wait brings them together, and then they stay together. It is the idea of anticipatory scheduling of
disks (Iyer and Druschel, SOSP 2001), which wait for the next request of the process that they have served last.

Pure: time is handed in. Source: docs/decisions/0014.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

MEMORY: Final = 1 / 8
"""The weight of the newest round in the average share of those who ask again in time."""

WAIT_MS_MIN: Final = 2
"""The shortest wait: times are whole ms, and most rounds on fast disks are not much longer than one."""

ROUNDS_WAITED: Final = 2
"""The length of a wait, in rounds. After one, a quarter of the origins were not back yet, and formed a group again."""

WAIT_MS_MAX: Final = 10
"""The longest wait, however long rounds take."""


class _Answered:
    """Those who were answered at a time, and who of them has not asked again by `until`, in ms."""

    __slots__ = ("count", "missing", "until")

    def __init__(self, who: Iterable[Hashable], until: int) -> None:
        self.missing = set(who)
        self.count = len(self.missing)
        self.until = until

    @property
    def share(self) -> float:
        """The part of them that has asked again in time."""
        return 1 - len(self.missing) / self.count


class Anticipation:
    """Those who were answered last, and which part of them usually asks again before a wait would end.

    A wait ends when as many have come as usually do, and after twice the time that the last round took: the clients of other
    servers are answered later than those of the leader, and what they ask has to come back. It is observed, too, who would
    have come in time when nobody waits.

    Args:
        share_min: nobody waits if fewer of those who were answered have asked again in time, on average.

    Attributes:
        until: until then, in ms, `waits` has to be asked.
    """

    __slots__ = ("_before", "_last", "_may_miss", "_share", "_share_min", "until")

    def __init__(self, share_min: float) -> None:
        self._share_min = share_min
        self.until = 0
        self._last: _Answered | None = None
        self._before: _Answered | None = None
        """Those who were answered before the last ones: they may still come in time after the next round has begun."""
        self._may_miss = 0
        self._share = 0.0

    def answered(self, who: Iterable[Hashable], now: int, round_ms: int) -> None:
        """Take note that `who` are answered now, by a round that took `round_ms`."""
        if self._before is not None and self._before.count:
            self._share += (self._before.share - self._share) * MEMORY
        # Both times are rounded down.
        self.until = now + max(WAIT_MS_MIN, min(ROUNDS_WAITED * round_ms, WAIT_MS_MAX)) + 1
        self._before, self._last = self._last, _Answered(who, self.until)
        count = self._last.count
        self._may_miss = round(count * (1 - self._share)) if self._share >= self._share_min else count

    def forget(self, one: Hashable) -> None:
        """Wait no longer for one that has left, and keep it no longer in memory."""
        for answered in (self._last, self._before):
            if answered is not None and one in answered.missing:
                answered.missing.remove(one)
                answered.count -= 1

    def waits(self, here: Iterable[Hashable], now: float) -> bool:
        """Take note of who has asked by now, in ms; return whether others are waited for."""
        last, before = self._last, self._before
        if last is None or now >= last.until:
            return False
        came = set(here)
        last.missing -= came
        if before is not None and now < before.until:
            before.missing -= came
        return len(last.missing) > self._may_miss
