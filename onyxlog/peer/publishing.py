"""Publication of a group's digest chain, so that audits and `onyxlog status` can compare groups."""

from __future__ import annotations

import asyncio
from typing import Final

import msgpack
import structlog
from attrs import frozen

from onyxlog.errors import EntryError
from onyxlog.ids import GroupId, Position
from onyxlog.peer.log.port import LogPort
from zraft_client.errors import FailedError, SessionExpiredError
from zraft_core.fleets import DIGESTS
from zraft_core.messagepack import shown, unpack

FORMAT: Final = 1

log = structlog.get_logger()


@frozen
class Published:
    """Publication of a group: the digest chain after the entry at `position`."""

    group: GroupId
    position: Position
    chain: bytes


def path_of(group: GroupId) -> str:
    """Return where a group publishes, below the tenancy's `state/`."""
    return f"{DIGESTS}/{group}"


def encode(published: Published) -> bytes:
    """Return a publication as bytes."""
    packed: bytes = msgpack.packb([FORMAT, published.group, published.position, published.chain])
    return packed


def decode(data: bytes, path: str) -> Published:
    """Decode what a group published.

    Raises:
        EntryError: the bytes are not what `encode` makes.
    """
    try:
        version, group, position, chain = unpack(data, lists=True)
    except (ValueError, TypeError) as error:
        raise EntryError(f"{path}: {error}, expected a list of format, group, position and chain") from error
    if version != FORMAT or not (
        isinstance(group, str) and isinstance(position, int) and isinstance(chain, bytes)
    ):
        raise EntryError(
            f"{path}: found format {shown(version)}, expected {FORMAT}: another release of onyxlog wrote it"
        )
    return Published(group, position, chain)


class DigestPublisher:
    """Publisher at every `every`-th position, the same for all groups, and after `quiet_s` without entries.

    One write is under way at a time. Of what is due meanwhile only the newest is written, after it.
    """

    def __init__(self, port: LogPort, group: GroupId, *, every: int, quiet_s: float) -> None:
        self._port = port
        self._group = group
        self._every = every
        self._quiet_s = quiet_s
        self._due: Published | None = None
        self._newest: Published | None = None
        self._written: Published | None = None
        self._wake = asyncio.Event()
        self.writes = 0

    @property
    def written(self) -> Published | None:
        """The publication that was written last, or that could not be written."""
        return self._written

    def applied(self, position: Position, chain: bytes) -> None:
        """Take the chain after each entry."""
        self._newest = Published(self._group, position, chain)
        if position % self._every == 0:
            self._due = self._newest
            self._wake.set()
        elif self._due is None:
            self._wake.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._due is None:
                await self._until_quiet()
            due = self._due if self._due is not None else self._newest
            self._due = None
            if due is not None and due != self._written:
                await self._write(due)
            if self._newest != self._written:
                self._wake.set()

    async def _write(self, due: Published) -> None:
        try:
            await self._port.put_state(path_of(self._group), encode(due))
            self.writes += 1
        except SessionExpiredError:
            raise
        except FailedError as error:
            # Nothing depends on it: audits miss one position. The log's own calls notice worse failures.
            log.warning("digest not published", group=self._group, position=due.position, error=str(error))
        self._written = due

    async def _until_quiet(self) -> None:
        """Wait until nothing has come for `quiet_s`, or a position is due."""
        while self._due is None:
            seen = self._newest
            try:
                async with asyncio.timeout(self._quiet_s):
                    await self._wake.wait()
            except TimeoutError:
                if self._newest is seen:
                    return
            self._wake.clear()
