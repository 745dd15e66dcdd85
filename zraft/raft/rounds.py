"""Rounds of heartbeats: which one is the newest, and which one a quorum has answered (section 6.4).

A quorum's answer proves that the leader led when the round was *sent*; check-quorum, reads and promises to
clients rest on that (D-11c, D-14).
"""

from __future__ import annotations

from collections import deque
from typing import Final

JOINED_SHARE: Final = 5
"""Who was made to send early by somebody else waits this fraction (1/n) of an interval longer the next time."""


class Rounds:
    """The rounds of one leadership after the other, numbered from 1 in each.

    Attributes:
        newest, confirmed: newest round begun, and newest one answered by a quorum; 0 before the first.
        contact: tick at which `confirmed` was sent; before the first, the tick given to `lead`.
        wanted: whether one is to begin with the next ready().
        awaited: whether somebody waits for that one.
        everybody: whether the newest one asks all followers.
        interval: ticks that the newest one leaves until the next.
        next_at: tick at which the next one is due.
    """

    __slots__ = (
        "_leading_since",
        "_sent",
        "awaited",
        "confirmed",
        "contact",
        "everybody",
        "interval",
        "newest",
        "next_at",
        "wanted",
    )

    def __init__(self) -> None:
        self.newest = 0
        self.confirmed = 0
        self.contact = 0
        self.wanted = False
        self.awaited = False
        self.everybody = True
        self.interval = 0
        self.next_at = 0
        self._leading_since = 0
        self._sent: deque[tuple[int, int]] = deque()  # (round, tick sent), not answered by a quorum yet

    def lead(self, now: int, contact: int) -> None:
        """Begin a leadership; the vote that was won was asked for at tick `contact`."""
        self._leading_since = now
        self.contact = contact
        self.request()

    def stop(self) -> None:
        """End the leadership; `contact` remains what it was."""
        self._sent.clear()
        self.wanted = self.awaited = False
        self.newest = self.confirmed = 0

    def request(self) -> None:
        """Ask for a round, for which somebody waits: it begins now or later."""
        self.wanted = self.awaited = True

    def silence(self, now: int) -> int:
        """Return the ticks since a quorum was last heard, or since the leadership began."""
        contact, since = self.contact, self._leading_since
        return now - (contact if contact > since else since)

    def note_contact(self, tick: int) -> None:
        """Note that a quorum confirmed, outside of these rounds, that the leader led at `tick`.

        No round is answered by it.
        """
        self.contact = max(self.contact, tick)

    @property
    def silent_at(self) -> int:
        """The tick of the newest proof that a quorum follows, or of the begin of the leadership."""
        return max(self.contact, self._leading_since)

    def join(self, now: int) -> bool:
        """Want the next round now if more than half of the time to it is over; return whether that is so."""
        if self.wanted or not 0 < self.next_at - now <= self.interval // 2:
            return False
        self.wanted = True
        return True

    def begin(self, now: int, interval: int, *, everybody: bool) -> int:
        """Begin a round, to all followers or to as many as a quorum needs, and return its number.

        One that joined what others had to say leaves them a fifth of the interval more to begin the next time, too.
        """
        joined = not self.awaited and now < self.next_at
        self.wanted = self.awaited = False
        self.everybody = everybody
        self.interval = interval
        self.next_at = now + interval + (interval // JOINED_SHARE if joined else 0)
        self.newest += 1
        self._sent.append((self.newest, now))
        return self.newest

    def confirm(self, number: int) -> bool:
        """Note that a quorum answered round `number` or a later one; return False if that was known."""
        if number <= self.confirmed:
            return False
        self.confirmed = number
        sent = self._sent
        while sent and sent[0][0] <= number:
            at = sent.popleft()[1]
            if at > self.contact:
                self.contact = at
        return True
