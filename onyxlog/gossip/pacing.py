"""Times at which a group mends a gap, looks at the log, and tells how far it is.

All waits are randomised by half of them either way: groups that miss the same entry must not ask for it at
the same moment.
"""

from __future__ import annotations

from random import Random

from onyxlog.gossip.settings import GossipSettings
from onyxlog.ids import Position


def about(ms: int, generator: Random) -> int:
    """Return a random time from half of `ms` to one and a half of it."""
    return max(1, round(ms * generator.uniform(0.5, 1.5)))


class Gap:
    """The first missing entry: since when it is missing, and how many peers were asked for it."""

    def __init__(self, settings: GossipSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._first: Position | None = None
        self.at: int | None = None
        self.attempts = 0

    def noticed(self, first: Position, now: int) -> None:
        """Note that an entry is missing. Nothing changes if it was missing already."""
        if first != self._first:
            self._first, self.attempts = first, 0
            self.at = now + about(self._settings.gap_ms, self._random)

    def due(self, now: int) -> bool:
        """Return whether a peer, or the log, is to be asked for the entry now."""
        return self.at is not None and self.at <= now

    def asked(self, now: int) -> None:
        """Note that a peer was asked, and set the time of the next request."""
        self.attempts += 1
        self.at = now + about(self._settings.repair_ms, self._random)

    def hurry(self, now: int) -> None:
        """Note that the peer that was asked does not have the entry: there is no need to wait for its answer."""
        if self.at is not None:
            self.at = now

    def forget(self) -> None:
        """Forget the gap, which is closed."""
        self._first, self.at, self.attempts = None, None, 0


class Idle:
    """Time since this group or, as far as it knows, any other last looked at the log itself."""

    def __init__(self, settings: GossipSettings, random: Random, now: int) -> None:
        self._settings = settings
        self._random = random
        self._period = settings.poll_ms
        self._looked = now
        self.at = now + about(self._period, random)

    def looked(self, at: int, *, found: bool) -> None:
        """Note that somebody knew the newest entry at this time; `found`: it was not known here."""
        if found:
            self._period = self._settings.poll_ms
        elif at <= self._looked:
            return
        else:
            self._period = min(2 * self._period, self._settings.poll_ms_max)
        self._looked = max(self._looked, at)
        self.at = self._looked + about(self._period, self._random)

    def polling(self, now: int) -> None:
        """Note that this group looks now. If it finds nothing, it waits twice as long the next time."""
        self._period = min(2 * self._period, self._settings.poll_ms_max)
        self.at = now + about(self._period, self._random)

    def due(self, now: int) -> bool:
        """Return whether the log is to be looked at now."""
        return self.at <= now

    def back_off(self, now: int) -> None:
        """Wait for a random time again, without having seen the log."""
        self.at = now + about(self._period, self._random)

    def age(self, now: int) -> int:
        """Return the time in ms since somebody looked at the log."""
        return max(0, now - self._looked)


class Pulse:
    """Times of heartbeats: soon after something happened, then less and less often."""

    def __init__(self, settings: GossipSettings, random: Random, now: int) -> None:
        self._settings = settings
        self._random = random
        self._period = settings.heartbeat_ms
        self._newest: Position | None = None
        self.at = now + about(self._period, random)

    def at_position(self, newest: Position, now: int) -> None:
        """Set the newest entry known. If it changed, heartbeats become frequent again."""
        if newest != self._newest:
            self._newest = newest
            if self._period > self._settings.heartbeat_ms:
                self._period = self._settings.heartbeat_ms
                self.at = min(self.at, now + about(self._period, self._random))

    def due(self, now: int) -> bool:
        """Return whether a heartbeat is to be sent now."""
        return self.at <= now

    def beaten(self, now: int) -> None:
        """Note that a heartbeat goes out."""
        self._period = min(2 * self._period, self._settings.heartbeat_ms_max)
        self.at = now + about(self._period, self._random)


class Watch:
    """Times at which a sentinel looks at the log's end, to tell everybody that there is nothing new.

    The times are not randomised, as sentinels are few.
    """

    def __init__(self, settings: GossipSettings, now: int) -> None:
        self._settings = settings
        self._newest: Position | None = None
        self._asked: int | None = None
        self.at = now + settings.sentinel_quiet_ms

    def at_position(self, newest: Position, now: int) -> None:
        """Note the newest known position; a new one delays the next look."""
        if newest != self._newest:
            self._newest = newest
            self.at = now + self._settings.sentinel_quiet_ms

    def due(self, now: int) -> bool:
        """Return whether a look is due."""
        return self.at <= now

    def beaten(self, now: int) -> None:
        """Note that the others were told, and set the time of the next look."""
        self.at = now + self._settings.sentinel_beat_ms

    def asks(self, now: int) -> bool:
        """Return whether to ask the log now; false while an earlier answer is awaited."""
        if self._asked is not None:
            return False
        self._asked = now
        return True

    def answered(self) -> int | None:
        """Note that the log answered, or will not; return since when that look was under way."""
        asked, self._asked = self._asked, None
        return asked
