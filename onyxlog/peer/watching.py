"""Watch over other groups' pulses: the one that the ring assigns, the helper of a join, and suspects at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from onyxlog.ids import GroupId
from onyxlog.peer.log.port import LogPort

DETECTOR_PERIOD_S: Final = 1.0
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class _Watch:
    """One watch, which moves from pulse to pulse. A pulse that was only wanted while it moved is never asked for."""

    def __init__(self, port: LogPort, gone: Callable[[GroupId], None], spawn: Spawn) -> None:
        self._port = port
        self._gone = gone
        self._spawn = spawn
        self.wanted: GroupId | None = None
        self._watched: GroupId | None = None
        self._unwatch: Callable[[], None] | None = None
        self._moving = False

    def on(self, subject: GroupId | None) -> None:
        self.wanted = subject
        if not self._moving and subject != self._watched:
            self._moving = True
            self._spawn(self._move())

    async def _move(self) -> None:
        while self.wanted != self._watched:
            if self._unwatch is not None:
                self._unwatch()
                self._unwatch = None
            subject = self._watched = self.wanted
            if subject is not None:
                self._unwatch = await self._port.watch_pulse(subject, partial(self._gone, subject))
        self._moving = False


class Watching:
    """The watches of a group.

    `gone` may be called more than once for a group, and for one that need not be watched any more.
    """

    def __init__(
        self,
        port: LogPort,
        gone: Callable[[GroupId], None],
        spawn: Spawn,
        period_s: float = DETECTOR_PERIOD_S,
    ) -> None:
        self._port = port
        self._gone = gone
        self._spawn = spawn
        self._period_s = period_s
        self._neighbour = _Watch(port, gone, spawn)
        self._joiner = _Watch(port, gone, spawn)
        self._detector: asyncio.Task[None] | None = None
        self._detected: GroupId | None = None

    @property
    def watched(self) -> GroupId | None:
        """The group whose pulse is watched for the ring."""
        return self._neighbour.wanted

    @property
    def joiner(self) -> GroupId | None:
        """The group whose pulse is watched while it is helped to join."""
        return self._joiner.wanted

    @property
    def detected(self) -> GroupId | None:
        """The group whose pulse is looked at once a period, while it is to help with a join."""
        return self._detected

    def watch(self, subject: GroupId | None) -> None:
        """Watch this neighbour's pulse instead of another's; nobody's if None."""
        self._neighbour.on(subject)

    def watch_joiner(self, joiner: GroupId | None) -> None:
        """Watch also the pulse of the group that is helped to join; nobody's if None."""
        self._joiner.on(joiner)

    def look_once(self, subject: GroupId) -> None:
        """Look for the pulse of a suspect once, and report it if it is gone."""
        self._spawn(self._look(subject))

    async def _look(self, subject: GroupId) -> None:
        if not await self._port.is_alive(subject):
            self._gone(subject)

    def detect(self, subject: GroupId) -> None:
        """Look at this pulse now and once a period, until it is gone or `stop_detecting`."""
        if self._detected != subject:
            self.stop_detecting()
            self._detected = subject
            self._detector = self._spawn(self._detect(subject))

    async def _detect(self, subject: GroupId) -> None:
        while await self._port.is_alive(subject):  # noqa: ASYNC110  the pulse is in another process
            await asyncio.sleep(self._period_s)
        self._gone(subject)

    def stop_detecting(self) -> None:
        """Stop watching for silent sessions."""
        if self._detector is not None:
            self._detector.cancel()
        self._detector, self._detected = None, None
