"""Slices of TLS handshakes, so that a storm of them does not stop the loop for everybody else.

A handshake costs a signature, up to some milliseconds, so that a thousand clients that come back at once are seconds of
work. It is done in slices, first come first served, beside the turns that answer everybody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from zraft.server.process.newcomers import Newcomers

SLICE_S: Final = 0.004
"""Spent in one turn, plus the end of the step that crosses it."""


class Handshaking(Protocol):
    """A connection in its handshake."""

    def step_handshake(self) -> None:
        """Do what can be done with what has arrived. Calls `Handshakes.finish` when it is over, well or not."""

    def displace_handshake(self) -> None:
        """Close the connection, because its handshake takes too long while others wait."""


class Handshakes:
    """The handshakes under way on one server, at most `outstanding_max`."""

    def __init__(self, outstanding_max: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._outstanding: Newcomers[Handshaking] = Newcomers(outstanding_max)
        self._ready: deque[Handshaking] = deque()
        self._waiting: set[Handshaking] = set()
        """Those in `_ready`."""
        self.exceeded_total = 0

    def __len__(self) -> int:
        return len(self._outstanding)

    @property
    def ready(self) -> bool:
        """True if a handshake can continue."""
        return bool(self._ready)

    def begin(self, one: Handshaking, address: str) -> bool:
        """Begin a handshake of a client at `address`.

        Return False if too many are under way, and this one must not.
        """
        goes = self._outstanding.enter(one, address, self._clock(), spared=self._waiting)
        if goes is None:
            return True
        self.exceeded_total += 1
        if goes is one:
            return False
        goes.displace_handshake()
        return True

    def feed(self, one: Handshaking) -> None:
        """Note that bytes of a handshake arrived.

        It is stepped when its turn comes, once for all that came by then.
        """
        if one in self._outstanding and one not in self._waiting:
            self._waiting.add(one)
            self._ready.append(one)

    def finish(self, one: Handshaking) -> None:
        """Forget a handshake that is over, or whose connection is. It may be called again."""
        self._outstanding.leave(one)
        if one in self._waiting:
            self._waiting.discard(one)
            self._ready.remove(one)

    def run(self) -> None:
        """Do one slice: at least one step if any is ready."""
        until = self._clock() + SLICE_S
        while self._ready:
            one = self._ready.popleft()
            self._waiting.discard(one)
            one.step_handshake()
            if self._clock() >= until:
                return
