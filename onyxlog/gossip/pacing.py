"""When a group mends a gap, looks at the log, and says how far it is. All waits are randomised by half of them either
way: groups that miss the same thing are not to ask for it at the same moment."""

from __future__ import annotations

from random import Random

from onyxlog.gossip.settings import GossipSettings
from onyxlog.ids import Position


def about(ms: int, generator: Random) -> int:
    return max(1, round(ms * generator.uniform(0.5, 1.5)))


class Gap:
    """The first missing entry: since when, and how many peers were asked for it."""

    def __init__(self, settings: GossipSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._first: Position | None = None
        self.at: int | None = None
        self.attempts = 0

    def noticed(self, first: Position, now: int) -> None:
        """An entry is missing. Nothing changes if it was missing already."""
        if first != self._first:
            self._first, self.attempts = first, 0
            self.at = now + about(self._settings.gap_ms, self._random)

    def due(self, now: int) -> bool:
        return self.at is not None and self.at <= now

    def asked(self, now: int) -> None:
        self.attempts += 1
        self.at = now + about(self._settings.repair_ms, self._random)

    def hurry(self, now: int) -> None:
        """Who was asked does not have it: no need to wait for more of its answer."""
        if self.at is not None:
            self.at = now

    def forget(self) -> None:
        self._first, self.at, self.attempts = None, None, 0


class Idle:
    """When somebody last looked at the log itself, as far as is known here, and when this group does."""

    def __init__(self, settings: GossipSettings, random: Random, now: int) -> None:
        self._settings = settings
        self._random = random
        self._period = settings.poll_ms
        self._looked = now
        self.at = now + about(self._period, random)

    def looked(self, at: int, *, found: bool) -> None:
        """Somebody knew at this time what the newest entry was; `found`: one that was not known here."""
        if found:
            self._period = self._settings.poll_ms
        elif at <= self._looked:
            return
        else:
            self._period = min(2 * self._period, self._settings.poll_ms_max)
        self._looked = max(self._looked, at)
        self.at = self._looked + about(self._period, self._random)

    def polling(self, now: int) -> None:
        """This group looks now; if there is nothing, it waits twice as long the next time."""
        self._period = min(2 * self._period, self._settings.poll_ms_max)
        self.at = now + about(self._period, self._random)

    def due(self, now: int) -> bool:
        return self.at <= now

    def back_off(self, now: int) -> None:
        self.at = now + about(self._period, self._random)

    def age(self, now: int) -> int:
        return max(0, now - self._looked)


class Pulse:
    """Heartbeats: soon after something happened, then less and less often."""

    def __init__(self, settings: GossipSettings, random: Random, now: int) -> None:
        self._settings = settings
        self._random = random
        self._period = settings.heartbeat_ms
        self._newest: Position | None = None
        self.at = now + about(self._period, random)

    def at_position(self, newest: Position, now: int) -> None:
        """This is the newest entry known: another one than before makes heartbeats frequent again."""
        if newest != self._newest:
            self._newest = newest
            if self._period > self._settings.heartbeat_ms:
                self._period = self._settings.heartbeat_ms
                self.at = min(self.at, now + about(self._period, self._random))

    def due(self, now: int) -> bool:
        return self.at <= now

    def beaten(self, now: int) -> None:
        """A heartbeat goes out."""
        self._period = min(2 * self._period, self._settings.heartbeat_ms_max)
        self.at = now + about(self._period, self._random)


class Watch:
    """When a sentinel looks at the log's end, to tell everybody that there is nothing new. Not randomised: there are few."""

    def __init__(self, settings: GossipSettings, now: int) -> None:
        self._settings = settings
        self._newest: Position | None = None
        self._asked: int | None = None
        self.at = now + settings.sentinel_quiet_ms

    def at_position(self, newest: Position, now: int) -> None:
        if newest != self._newest:
            self._newest = newest
            self.at = now + self._settings.sentinel_quiet_ms

    def due(self, now: int) -> bool:
        return self.at <= now

    def beaten(self, now: int) -> None:
        self.at = now + self._settings.sentinel_beat_ms

    def asks(self, now: int) -> bool:
        """Whether to ask the log now: not while the answer to the last look is still to come."""
        if self._asked is not None:
            return False
        self._asked = now
        return True

    def answered(self) -> int | None:
        """The log answered, or will not: since when that look was under way."""
        asked, self._asked = self._asked, None
        return asked
