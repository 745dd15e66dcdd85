"""The clients' share of one turn of the server: what they have taken of it, and how much more they may."""

from __future__ import annotations

from typing import Final

from zraft.server.clients.connection import UNCOUNTED_BYTES
from zraft.server.coordination.origin import OriginStream

REQUESTS_PER_TURN_MAX: Final = 4_096
"""About 20 ms: however many clients send at once, heartbeats and pings are answered between two turns. A kibibyte of
answers counts as one more."""


EACH_MIN: Final = 8
"""However many clients wait, each of them may ask for this much before the next one has its turn."""

LONG_TURN_MS: Final = 50
"""Ms after which a turn that took large requests was long. A few such turns in a row cost a leader its followers."""

RESTS: Final = 3
"""The next large requests wait this many times as long as a long turn took: others have three quarters of the time."""


class TurnShare:
    """The clients' share of the turn that runs now. `Clients.begin_turn` begins it anew: nothing is taken then.

    Attributes:
        now: the time of this turn, in ms of the turn's clock; the driver sets it.
        each: how many requests of one client are taken before the next one has its turn.
        taken: requests that were taken from clients since the turn began. Further ones wait, in order, for the next turn.
        cut_short: whether something is left that the next turn can answer, although this one had enough.
        took_large: whether requests of more than `LARGE_BYTES` were among those taken.
        rests_until: the time until which no further large requests are taken, in ms of the turn's clock.
    """

    __slots__ = ("_origin", "cut_short", "each", "now", "rests_until", "taken", "took_large")

    def __init__(self, origin: OriginStream) -> None:
        self._origin = origin
        self.now = 0
        self.each = REQUESTS_PER_TURN_MAX
        self.taken = 0
        self.cut_short = False
        self.took_large = False
        self.rests_until = 0

    def lasted(self, ms: int) -> None:
        """Take note of how long the turn lasted.

        What a request costs follows from its length only as far as the machine is as fast as was thought, and as idle.
        """
        if self.took_large and ms > LONG_TURN_MS:
            self.rests_until = self.now + (1 + RESTS) * ms

    @property
    def rests_ms(self) -> int:
        """The ms for which large requests still wait, because others took long."""
        return max(0, self.rests_until - self.now)

    @property
    def full(self) -> bool:
        """True if requests have to wait: for room in the origin stream, or for the next turn."""
        return self.taken >= REQUESTS_PER_TURN_MAX or self._origin.full

    @property
    def busy(self) -> bool:
        """True if this turn has no time left for a request that takes milliseconds."""
        return self.taken >= REQUESTS_PER_TURN_MAX

    @property
    def room(self) -> int:
        """The number of requests that this turn may still take of one client."""
        return max(0, min(self.each, REQUESTS_PER_TURN_MAX - self.taken))

    def lets_pass(self, size: int) -> bool:
        """Return whether `size` bytes of a client that waits for nothing pass although the share is `full`.

        Otherwise a client that fills the origin stream, or all turns, would make everybody else wait for all that it asks
        for. What takes long does not pass; see `busy`.
        """
        return size <= UNCOUNTED_BYTES and self.taken < 2 * REQUESTS_PER_TURN_MAX
