"""Policies: when a `DistributedDict` asks the servers before it answers a read, and when it uses its own copy."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from zraft_core.errors import ConfigError


class RefreshPolicy(ABC):
    """Decision when a dictionary is fetched.

    Use one object per dictionary, since most have state. A policy of your own defines `can_update`.
    """

    @abstractmethod
    def can_update(self) -> bool:
        """Return whether to fetch the dictionary; called before every read."""

    def refreshed(self) -> None:  # noqa: B027 - most policies do not care
        """Note a fetch; called after every one, also one that was forced."""


class RefreshPolicyAlways(RefreshPolicy):
    """Every read asks, key by key, and is linearizable: it sees all that was acknowledged to anybody before it."""

    def can_update(self) -> bool:
        """Return True: every read fetches the dictionary."""
        return True


class RefreshPolicyLock(RefreshPolicy):
    """Policy that fetches at each read while `status` is true; set it at any time."""

    def __init__(self, status: bool = True) -> None:
        self.status = status

    def can_update(self) -> bool:
        """Return `status`."""
        return self.status


class RefreshPolicyCount(RefreshPolicy):
    """Every `maximum`-th read fetches the dictionary; `maximum` may be changed at any time."""

    def __init__(self, maximum: int = 10) -> None:
        if maximum < 1:
            raise ConfigError(f"RefreshPolicyCount: maximum: found {maximum}, expected 1 or more reads")
        self.maximum = maximum
        self.counter = 0

    def can_update(self) -> bool:
        """Return whether so many reads have come since the last fetch."""
        self.counter += 1
        return self.counter >= self.maximum

    def refreshed(self) -> None:
        """Count the reads from 0 again."""
        self.counter = 0


class RefreshPolicyTime(RefreshPolicy):
    """A read fetches the dictionary if the last fetch is at least `delta` ago; `delta` may be changed at any time."""

    def __init__(
        self, delta: timedelta = timedelta(minutes=1), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Fetch at most every `delta`; `clock` returns seconds that only grow.

        Raises:
            ConfigError: `delta` is no timedelta of 0 or more.
        """
        if not isinstance(delta, timedelta) or delta < timedelta():
            raise ConfigError(f"RefreshPolicyTime: delta: found {delta!r}, expected a timedelta of 0 or more")
        self.delta = delta
        self._clock = clock
        self._last = -float("inf")

    def can_update(self) -> bool:
        """Return whether so much time has passed since the last fetch."""
        return self._clock() - self._last >= self.delta.total_seconds()

    def refreshed(self) -> None:
        """Note the time of the fetch."""
        self._last = self._clock()


class RefreshPolicyWatch(RefreshPolicy):
    """The server pushes changes: reads ask no server and are one push behind at most while the client is connected.

    `max_stale`: for how long reads are answered after the connection was lost; then they raise StaleError.
    None: for ever.
    """

    def __init__(self, max_stale: timedelta | None = None) -> None:
        if max_stale is not None and max_stale < timedelta():
            raise ConfigError(f"RefreshPolicyWatch: max_stale: found {max_stale!r}, expected 0 or more")
        self.max_stale = max_stale

    def can_update(self) -> bool:
        """Return False: the server pushes every change to the copy."""
        return False


ALWAYS: Final = RefreshPolicyAlways()
"""It has no state, so one object serves all."""
