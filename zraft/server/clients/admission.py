"""Admission of clients that ask for a session.

Storms of reconnecting clients are taken in order, in portions.

An attach goes through the log and costs every server; with a thousand of them in one batch, everybody else's next
write waits for all. Only so many may be on their way at a time, and so many per second if the operator says so; the
rest waits in the order in which it came, and is never refused for it. Pings and requests of attached sessions do not
pass here.

Pure: time is handed in. Source: ZooKeeper's connection throttle, which is a token bucket, too, but drops.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ATTACHES_IN_FLIGHT_MAX: Final = 128
"""A few milliseconds of work on every server; a storm of thousands is through in a fraction of a second."""

MS_PER_S: Final = 1_000


class Admission(Generic[T]):
    """Queue of clients that wait to be admitted, those being admitted, and the rate of admission."""

    def __init__(self, *, in_flight_max: int = ATTACHES_IN_FLIGHT_MAX, per_second_max: int = 0) -> None:
        """Begin with nobody.

        `per_second_max` of 0 is no limit; otherwise as many may come at once as in one second.
        """
        self._in_flight_max = in_flight_max
        self._per_second_max = per_second_max
        self.waiting: dict[T, None] = {}
        """Those who wait, in order; only to be read."""
        self._in_flight: dict[T, None] = {}
        # In thousandths of an attach, so that a rate below one per millisecond loses nothing to rounding.
        self._tokens = per_second_max * MS_PER_S
        self._filled_at: int | None = None

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self.waiting)

    def ask(self, one: T) -> bool:
        """Admit `one` at once and return True, or let it wait from now on and return False."""
        if not self.waiting and self._may_go():
            self._in_flight[one] = None
            return True
        self.waiting[one] = None
        return False

    def begin_turn(self, now_ms: int) -> list[T]:
        """Begin a turn, and return those who waited and are admitted now."""
        if self._per_second_max:
            if self._filled_at is not None:
                elapsed = max(0, now_ms - self._filled_at)
                full = self._per_second_max * MS_PER_S
                self._tokens = min(full, self._tokens + elapsed * self._per_second_max)
            self._filled_at = now_ms
        admitted: list[T] = []
        while self.waiting and self._may_go():
            one = next(iter(self.waiting))
            del self.waiting[one]
            self._in_flight[one] = None
            admitted.append(one)
        return admitted

    def finish(self, one: T) -> None:
        """Forget `one`, which is attached, or gone, whether it was admitted, waited, or neither."""
        if one in self._in_flight:
            del self._in_flight[one]
        if one in self.waiting:
            del self.waiting[one]

    def due_in_ms(self) -> int | None:
        """Return after how long a turn can admit somebody, in ms.

        None if nobody waits, or if an earlier admission must end first.
        """
        if not self.waiting or len(self._in_flight) >= self._in_flight_max:
            return None
        if not self._per_second_max or self._tokens >= MS_PER_S:
            return 0
        return -(-(MS_PER_S - self._tokens) // self._per_second_max)

    def _may_go(self) -> bool:
        if len(self._in_flight) >= self._in_flight_max:
            return False
        if self._per_second_max:
            if self._tokens < MS_PER_S:
                return False
            self._tokens -= MS_PER_S
        return True


class AddressCount:
    """Connections per client address, for those who want to bound them; ZooKeeper's bound of 60 is nobody's default.

    Attributes:
        bounded: whether there is a bound; if not, nobody has to be counted.
    """

    def __init__(self, per_address_max: int = 0) -> None:
        """Begin with no address. A bound of 0 is none, and nothing is counted then."""
        self._max = per_address_max
        self.bounded = per_address_max > 0
        self._counts: Counter[str] = Counter()

    def admit(self, host: str) -> bool:
        """Count one more of `host` and return True, if it may have one more."""
        if not self._max:
            return True
        if self._counts[host] >= self._max:
            return False
        self._counts[host] += 1
        return True

    def release(self, host: str) -> None:
        """Give back the place of one that was admitted."""
        if self._max:
            self._counts[host] -= 1
            if not self._counts[host]:
                del self._counts[host]

    def __len__(self) -> int:
        """Return the number of addresses that are counted now."""
        return len(self._counts)
