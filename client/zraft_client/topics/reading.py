"""Reading partitions from whichever replicas answer: one long poll per server, shared by all cursors that read there.

A cursor is a place in one partition. Its owner takes what was read and says when there is room; the reader
keeps fetching, changes to another replica when one fails, and tells its owner of failures that no replica can
mend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from zraft_client.errors import ClientError, ClosedError
from zraft_client.topics import requests
from zraft_client.topics.directory import Directory
from zraft_client.topics.errors import LinkError
from zraft_client.topics.requests import FETCH_BYTES_MAX, Part
from zraft_core.ids import GroupId, ServerId
from zraft_core.wire.native.topic_results import ReplicaRefusal

WAIT_MS: Final = 1_000
GRACE_S: Final = 5.0
"""A server that has not answered so long after the wait is given up."""
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Cursor(Protocol):
    """Interface of one partition's reading."""

    @property
    def group(self) -> GroupId:
        """The partition's group."""

    @property
    def offset(self) -> int:
        """The offset to read next."""
        ...

    @property
    def has_room(self) -> bool:
        """True if records may be read now."""
        ...

    def on_part(self, asked: int, part: Part) -> None:
        """Take what was read from offset `asked` on; ignore it if that is not what to read next any more."""

    def on_gone(self, asked: int, first: int) -> None:
        """Note that retention removed the offset; the partition begins at `first`."""

    def on_removed(self) -> None:
        """Note that the partition's group is gone: its topic was deleted, or another one has taken its place."""

    def on_failure(self) -> None:
        """Note that nothing is read any more: `Reader.failure` says why."""


class _Reading:
    """Place at which a cursor is read."""

    __slots__ = ("busy", "cursor", "failures", "not_before", "server", "turn")

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.server: ServerId | None = None
        self.busy = False
        self.turn = 0
        """Counts the moves of the cursor: a read that was begun before one is ignored."""
        self.failures = 0
        self.not_before = 0.0


class Reader:
    """Reader for some cursors, until it is closed."""

    def __init__(
        self, directory: Directory, *, bytes_max: int = FETCH_BYTES_MAX, wait_ms: int = WAIT_MS
    ) -> None:
        self._directory = directory
        self._bytes_max = min(bytes_max, FETCH_BYTES_MAX)
        self._wait_ms = wait_ms
        self._readings: dict[GroupId, _Reading] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._kicking = False
        self._closed = False
        self.failure: ClientError | None = None
        """The error that ended all reading, None while it continues."""

    def add(self, cursors: Iterable[Cursor]) -> None:
        """Read for these cursors, too."""
        for cursor in cursors:
            self._readings[cursor.group] = _Reading(cursor)
        self.kick()

    def server_of(self, group: GroupId) -> ServerId | None:
        """Return the replica that is read now."""
        return self._readings[group].server

    def moved(self, group: GroupId) -> None:
        """Note that the cursor reads elsewhere: do not wait for what is under way."""
        reading = self._readings.get(group)
        if reading is not None:
            reading.turn += 1
            reading.busy = False
            self.kick()

    def kick(self) -> None:
        """Note that there may be room again."""
        if not self._kicking and not self._closed:
            self._kicking = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        """Ask every server for what is not asked of it yet."""
        self._kicking = False
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        wanted: dict[ServerId, list[_Reading]] = {}
        for reading in self._readings.values():
            if reading.busy or not reading.cursor.has_room:
                continue
            if reading.not_before > now:
                loop.call_at(reading.not_before, self.kick)
                continue
            if reading.server is None:
                reading.server = self._directory.leader(reading.cursor.group)
            if reading.server is None:
                self._failed(reading)
                continue
            reading.busy = True
            wanted.setdefault(reading.server, []).append(reading)
        for server, readings in wanted.items():
            task = loop.create_task(self._fetch(server, readings))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return  # it, or the loop, is being closed
        if (error := task.exception()) is not None:
            self.failure = error if isinstance(error, ClientError) else ClientError(f"reading: {error!r}")
            for reading in self._readings.values():
                reading.cursor.on_failure()
            return
        self.kick()

    async def _fetch(self, server: ServerId, readings: Sequence[_Reading]) -> None:
        asked = {reading.cursor.group: (reading, reading.cursor.offset, reading.turn) for reading in readings}
        parts = [(group, offset, self._bytes_max) for group, (_, offset, _) in asked.items()]
        try:
            link = self._directory.link_to(server)
            fetched = await link.ask(requests.fetch(parts, self._wait_ms), self._wait_ms / 1000 + GRACE_S)
        except LinkError:
            for reading in readings:
                self._failed(reading)
            await self._look_again()
            return
        except ClosedError:
            self._closed = True
            return
        finally:
            for reading, _, turn in asked.values():
                if reading.turn == turn:
                    reading.busy = False
        for part in fetched.parts:
            reading, offset, turn = asked[part.group]
            if reading.turn == turn:
                reading.failures = 0
                reading.cursor.on_part(offset, part)
        for refused in fetched.refused:
            reading, offset, turn = asked[refused.group]
            if reading.turn == turn:
                self._refused(reading, offset, refused)
        if any(refused.kind == "no_group" for refused in fetched.refused):
            await self._look_again()

    def _refused(self, reading: _Reading, asked: int, refused: ReplicaRefusal) -> None:
        if refused.kind == "gone" and refused.first is not None:
            reading.cursor.on_gone(asked, refused.first)
        elif refused.kind in ("busy", "timeout"):
            self._wait(reading)
        else:
            if reading.server is not None and refused.kind in ("not_leader", "no_group"):
                self._directory.not_there(refused.group, reading.server, refused.leader)
            self._failed(reading)

    def _failed(self, reading: _Reading) -> None:
        """Change to another replica, after a pause if all of them were tried."""
        metadata = self._directory.metadata
        group = reading.cursor.group
        placement = None if metadata is None else metadata.placements.get(group)
        ring = list(placement.servers) if placement is not None else []
        if reading.server in ring and len(ring) > 1:
            reading.server = ring[(ring.index(reading.server) + 1) % len(ring)]
        else:
            reading.server = None
        self._wait(reading, every=max(1, len(ring)))

    def _wait(self, reading: _Reading, *, every: int = 1) -> None:
        reading.failures += 1
        rounds = reading.failures // every
        if rounds:
            pause = min(PAUSE_S * (1 << min(rounds - 1, 8)), PAUSE_S_MAX)
            reading.not_before = asyncio.get_running_loop().time() + pause

    async def _look_again(self) -> None:
        """Look again where partitions are, and whether they exist."""
        await self._directory.refresh_quietly()
        metadata = await self._directory.known()
        table = metadata.table
        for group, reading in list(self._readings.items()):
            gone = group not in metadata.placements and table.removed(group)
            if gone or group in metadata.replaced:
                del self._readings[group]
                reading.cursor.on_removed()
        await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Stop reading and wait for the requests that are under way."""
        self._closed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
