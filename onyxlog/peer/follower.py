"""Follower of the log for a program that is no peer.

It submits, waits and looks, and carries out what its own entries ask for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from attrs import frozen

from onyxlog.errors import OnyxlogError, OvertakenError
from onyxlog.ids import JobId, Position
from onyxlog.peer.log.port import LogPort, Origin
from onyxlog.replica.commands import Command, Entry, KillJob, Record
from onyxlog.replica.effects import StoreOrigin
from onyxlog.replica.kind import Viewer
from onyxlog.replica.playing import effects, play
from onyxlog.replica.replica import Replica

YIELD_ENTRIES: Final = 50
"""The number of entries that are played before others on the loop have a turn."""
OVERTAKEN_PAUSE_S: Final = 0.2
REASONS_MAX: Final = 1_000


@frozen
class Played:
    """The replica after an entry. `entry` is None after entries were truncated that had not been read."""

    entry: Entry | None
    replica: Replica
    chain: bytes


class Follower:
    """Follower of the log. `start` it once; then `replica` follows until `close`."""

    def __init__(self, port: LogPort, client: str, now_ms: Callable[[], int]) -> None:
        self._port = port
        self._client = client
        self._viewer = Viewer(client=client)
        self._now_ms = now_ms
        self._task: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._origins: dict[Position, Origin] = {}
        self.replica = Replica()
        self.chain = b""
        self.listeners: list[Callable[[Played], None]] = []
        """Called after each entry, and after continuing from an origin."""
        self.reasons: dict[JobId, str] = {}
        """Why jobs were killed: the last `REASONS_MAX` of them."""

    async def start(self) -> None:
        """Begin at the newest origin.

        Raises:
            NoNodeError: no peer has begun this log.
        """
        origin = await self._port.origin()
        self.replica, self.chain = origin.replica, origin.chain
        self._task = asyncio.get_running_loop().create_task(self._follow(), name="onyxlog follower")

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def caught_up(self) -> Replica:
        """Return the replica with everything that was in the log when this was called."""
        end = (await self._port.bounds()).end
        await self.reached(end - 1)
        return self.replica

    async def reached(self, position: Position) -> None:
        """Wait until the entry at `position` was played, or is behind an origin from which this continued."""
        await self.until(lambda: self.replica.version >= position)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition on the replica holds; it is checked after each entry.

        Raises:
            OnyxlogError: what ended the following of the log.
            ClientError: likewise.
        """
        assert self._task is not None, "the follower was not started"
        while not condition():
            await asyncio.wait((self._changed, self._task), return_when=asyncio.FIRST_COMPLETED)
            if self._task.done() and not condition():
                self._task.result()
                raise OnyxlogError("the log's tail ended, expected no end")

    async def say(self, command: Command) -> Position:
        """Append a command and play up to it."""
        position = await self._port.append(Record(command, self._client, None, self._now_ms()))
        await self.reached(position)
        return position

    def take_origin(self, position: Position) -> Origin | None:
        """Return, once, what this client's own gc entry at `position` asked it to store."""
        return self._origins.pop(position, None)

    async def _follow(self) -> None:
        while True:
            try:
                async for batch in self._port.tail(self.replica.version + 1):
                    for number, entry in enumerate(batch):
                        self._play(entry)
                        if number % YIELD_ENTRIES == 0:
                            await asyncio.sleep(0)
                return
            except OvertakenError:
                origin = await self._port.origin()
                if origin.position > self.replica.version:
                    self.replica, self.chain = origin.replica, origin.chain
                    self._tell(None)
                else:
                    await asyncio.sleep(OVERTAKEN_PAUSE_S)

    def _play(self, entry: Entry) -> None:
        if entry.position <= self.replica.version:
            return
        step = play(self.replica, entry, self.chain)
        self.replica, self.chain = step.replica, step.chain
        for effect in effects(step, self._viewer):
            if isinstance(effect, StoreOrigin):
                self._origins[entry.position] = Origin(entry.position, step.replica, step.chain)
        if isinstance(entry.command, KillJob) and entry.command.reason:
            self.reasons[entry.command.job] = entry.command.reason
            while len(self.reasons) > REASONS_MAX:
                del self.reasons[next(iter(self.reasons))]
        self._tell(entry)

    def _tell(self, entry: Entry | None) -> None:
        for told in self.listeners:
            told(Played(entry, self.replica, self.chain))
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)
