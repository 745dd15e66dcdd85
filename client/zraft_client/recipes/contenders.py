"""Contenders in a directory: ephemeral sequential znodes, served in the order of their creation.

`standing` is the decision; `Contender` makes the znode, waits its turn and makes sure that none is left
behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Iterable
from typing import Any, Final

from attrs import frozen

from zraft_client.client import Client
from zraft_client.errors import ClientError, LockLostError, NodeExistsError, NoNodeError, UnknownOutcomeError
from zraft_client.subscriptions import Subscription
from zraft_client.values import ConnectionState, Created
from zraft_core.errors import Code

DIGITS: Final = 10
CLEAN_PAUSE_S: Final = 0.1
"""Of a sequence number at the end of a name."""


@frozen
class Holds:
    """The own znode is the first in line."""


@frozen
class WaitsFor:
    """Wait for the one just before: to watch only that wakes one contender, not all."""

    name: str


@frozen
class Gone:
    """The own znode does not exist."""


def in_order(names: Iterable[str]) -> list[str]:
    """Return contenders as they came, without names that are none."""
    return sorted((n for n in names if n[-DIGITS:].isdigit() and len(n) > DIGITS), key=lambda n: n[-DIGITS:])


def standing(names: Iterable[str], own: str) -> Holds | WaitsFor | Gone:
    """Return what `own` has to do, seeing `names`."""
    line = in_order(names)
    if own not in line:
        return Gone()
    place = line.index(own)
    return Holds() if place == 0 else WaitsFor(line[place - 1])


async def make_directory(client: Client, path: str) -> None:
    """Make the directory and what is above it, persistent."""
    parts = path.strip("/").split("/")
    for depth in range(1, len(parts) + 1):
        with contextlib.suppress(NodeExistsError):
            await client.create("/" + "/".join(parts[:depth]))


class Contender:
    """One place in the line of `directory`, at a time. Others can read `data`."""

    def __init__(self, client: Client, directory: str, data: bytes) -> None:
        self.client = client
        self.directory = directory.rstrip("/")
        self.data = data
        # so that a znode whose creation was not answered is found again
        self._prefix = f"{uuid.uuid4().hex}-"
        self._created: Created | None = None
        self._cleaners: set[asyncio.Task[None]] = set()

    @property
    def token(self) -> int:
        """The fencing token: it grows with every contender that comes, so with every holder.

        Raises:
            LockLostError: nothing is held.
        """
        if self._created is None:
            raise LockLostError(f"{self.directory}: not held")
        return self._created.position

    async def enter(self) -> None:
        """Take a place at the end of the line."""
        assert self._created is None, f"{self.directory}: entered already"
        path = f"{self.directory}/{self._prefix}"
        making = asyncio.ensure_future(self._create(path))
        try:
            self._created = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._clean(making)
            raise
        except UnknownOutcomeError:
            self._clean(None)
            raise

    async def _create(self, path: str) -> Created:
        try:
            return await self.client.create(path, self.data, ephemeral=True, sequential=True)
        except NoNodeError:
            await make_directory(self.client, self.directory)
            return await self.client.create(path, self.data, ephemeral=True, sequential=True)

    async def wait_turn(self) -> None:
        """Wait until the place is the first.

        Raises:
            LockLostError: the znode went: its session expired, or somebody removed it.
        """
        while True:
            match standing((await self.client.children(self.directory)).names, self.name):
                case Holds():
                    return
                case Gone():
                    self._created = None
                    raise LockLostError(
                        f"{self.directory}: the place in the line is lost", Code.NO_NODE, retriable=True
                    )
                case WaitsFor(before):
                    await self._wait_gone(f"{self.directory}/{before}")

    async def _wait_gone(self, path: str) -> None:
        """Wait until something happens to the one before, or to the session."""
        events = self.client.subscribe_path(path)
        try:
            await events.started()
            if await self.client.exists(path) is not None:
                await self._next(events)
        finally:
            events.close()

    async def _next(self, events: Subscription[Any]) -> None:
        ended = asyncio.get_running_loop().create_future()

        def heard(state: ConnectionState) -> None:
            if state in (ConnectionState.EXPIRED, ConnectionState.CLOSED) and not ended.done():
                ended.set_result(None)

        forget = self.client.add_listener(heard)
        event = asyncio.ensure_future(events.__anext__())
        try:
            await asyncio.wait((event, ended), return_when=asyncio.FIRST_COMPLETED)
        finally:
            forget()
            event.cancel()
            with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration, ClientError):
                await event

    @property
    def name(self) -> str:
        """The name of this contender's znode in the directory. Valid only while it is entered."""
        assert self._created is not None, f"{self.directory}: not entered"
        return self._created.path.rpartition("/")[2]

    @property
    def path(self) -> str:
        """The path of the own znode.

        Raises:
            LockLostError: nothing is held.
        """
        if self._created is None:
            raise LockLostError(f"{self.directory}: not held")
        return self._created.path

    async def leave(self) -> None:
        """Give the place up. After an error other than LockLostError it is given up in the background.

        Raises:
            LockLostError: it was lost before.
        """
        created, self._created = self._created, None
        if created is None:
            return
        try:
            await self.client.remove(created.path)
        except NoNodeError:
            raise LockLostError(f"{created.path}: it was lost before it was released", Code.NO_NODE) from None
        except (ClientError, asyncio.CancelledError):
            self._clean(None)
            raise

    def forget(self) -> None:
        """Note that the session ended, and with it the place."""
        self._created = None

    def give_up(self) -> None:
        """Leave in the background: the waiter was cancelled, or does not know what happened."""
        self._created = None
        self._clean(None)

    def _clean(self, making: asyncio.Future[Created] | None) -> None:
        """Remove whatever was made, in the background, for as long as the session lasts."""
        cleaner = asyncio.ensure_future(self._remove_all(making))
        self._cleaners.add(cleaner)
        cleaner.add_done_callback(self._cleaners.discard)

    async def _remove_all(self, making: asyncio.Future[Created] | None) -> None:
        session = self.client.session
        if making is not None:
            with contextlib.suppress(ClientError):
                await making
        while self.client.session == session and self.client.state is not ConnectionState.CLOSED:
            try:
                for name in (await self.client.children(self.directory)).names:
                    if name.startswith(self._prefix):
                        with contextlib.suppress(NoNodeError):
                            await self.client.remove(f"{self.directory}/{name}")
                return
            except NoNodeError:
                return
            except ClientError:
                await asyncio.sleep(CLEAN_PAUSE_S)
