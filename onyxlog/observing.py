"""Observation of a fleet from outside, again and again: the log, and what groups publish."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from onyxlog.api import Client
from onyxlog.ids import Position
from onyxlog.peer.follower import Played
from onyxlog.status import FleetStatus, picture

CHAINS_KEPT: Final = 100_000
"""The number of positions whose digests are kept, to compare them with what groups publish."""
PERIOD_S: Final = 0.5
PERIOD_QUIET_S: Final = 2.0


class Observer:
    """An observer of a fleet, through one client that was started before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._chains: dict[Position, bytes] = {}
        client.on_played(self._note)
        self._chains[client.replica.version] = client.chain

    def _note(self, played: Played) -> None:
        self._chains[played.replica.version] = played.chain
        while len(self._chains) > CHAINS_KEPT:
            del self._chains[next(iter(self._chains))]

    async def look(self) -> FleetStatus:
        """Return the fleet as of everything that the log had when this was called."""
        bounds = await self._client.port.bounds()
        replica = await self._client.caught_up()
        silences = await self._client.port.silences()
        return picture(replica, bounds, await self._client.digests(), self._chains, silences)

    async def follow(self) -> AsyncIterator[FleetStatus]:
        """Yield for ever: soon after each change, and now and then without one."""
        while True:
            yield await self.look()
            try:
                async with asyncio.timeout(PERIOD_QUIET_S):
                    await self._client.changed()
            except TimeoutError:
                continue
            await asyncio.sleep(PERIOD_S)
