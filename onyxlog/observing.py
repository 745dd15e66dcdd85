"""Observation of a fleet from outside, again and again: the log, and what groups publish."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from onyxlog.api import Client, connect
from onyxlog.errors import OnyxlogError
from onyxlog.ids import Position
from onyxlog.peer.follower import Played
from onyxlog.peer.log.port import OpenPort
from onyxlog.status import FleetStatus, picture
from zraft_client.errors import ClientError

R = TypeVar("R")

CHAINS_KEPT: Final = 100_000
"""The number of positions whose digests are kept, to compare them with what groups publish, and whose times are kept."""
CLOSE_S: Final = 5.0
"""The longest wait for the end of a session; it ends by itself otherwise."""


class Observer:
    """An observer of a fleet, through one client that was started before."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._chains: dict[Position, bytes] = {}
        self._times: dict[Position, int] = {}
        client.on_played(self._note)
        self._chains[client.replica.version] = client.chain

    def _note(self, played: Played) -> None:
        self._chains[played.replica.version] = played.chain
        while len(self._chains) > CHAINS_KEPT:
            del self._chains[next(iter(self._chains))]
        if played.entry is not None and played.entry.record.at_ms:
            self._times[played.entry.position] = played.entry.record.at_ms
            while len(self._times) > CHAINS_KEPT:
                del self._times[next(iter(self._times))]

    async def look(self) -> FleetStatus:
        """Return the fleet as of everything that the log had when this was called."""
        bounds = await self._client.port.bounds()
        replica = await self._client.caught_up()
        client = self._client
        silences, published, reports, audit = await asyncio.gather(
            client.port.silences(), client.digests(), client.reports(), client.last_audit()
        )
        return picture(
            replica,
            bounds,
            published,
            self._chains,
            silences,
            reports=reports,
            times=self._times,
            audit=audit,
        )


class LastingObserver:
    """Observer for a program that blocks: it stays connected between looks, in a thread of its own.

    It connects at the first look, and anew at the look after one that failed. Close it.
    """

    def __init__(self, open_port: OpenPort, timeout_s: float) -> None:
        self._open_port = open_port
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._observer: Observer | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="onyxlog observer", daemon=True)
        self._thread.start()

    def look(self) -> FleetStatus:
        """Return the fleet as of everything that the log had when this was called.

        Raises:
            OnyxlogError: there is no such log, or the look took longer than the timeout.
            ClientError: the service refused or failed.
        """
        return self._run(self._look())

    def close(self) -> None:
        """End the session and the thread."""
        try:
            self._run(self._drop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_S)
            if not self._thread.is_alive():
                self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, R]) -> R:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def _look(self) -> FleetStatus:
        try:
            async with asyncio.timeout(self._timeout_s):
                if self._observer is None:
                    self._client = await connect(self._open_port)
                    self._observer = Observer(self._client)
                return await self._observer.look()
        except TimeoutError as error:
            await self._drop()
            raise OnyxlogError(
                f"the service did not show the whole fleet within {self._timeout_s:g} s (--timeout)"
            ) from error
        except BaseException:
            await self._drop()
            raise

    async def _drop(self) -> None:
        client, self._client, self._observer = self._client, None, None
        if client is not None:
            with suppress(ClientError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await client.close()
