"""Connections to the servers that have partitions: one each, made when it is first needed, without a session.

A server that is down is not waited for: requests to it fail with `LinkError` at once, so that another replica
can be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from zraft_client.calls import Request
from zraft_client.client import Client
from zraft_client.errors import ClientError, DeadlineError, FailedError, WireError
from zraft_client.topics.errors import LinkError
from zraft_client.values import ConnectionState
from zraft_client.waiters import converted
from zraft_core.address import Address
from zraft_core.ids import ServerId

T = TypeVar("T")

CONNECT_WAIT_S: Final = 2.0
"""The time that a request waits for a connection that is just being made."""
GRACE_S: Final = 0.3
"""A server that has accepted no connection for so long counts as down."""


class Link:
    """The connection to one server."""

    def __init__(
        self, server: ServerId, address: Address, client: Client, changed: Callable[[Link], None]
    ) -> None:
        self.server = server
        self.address = address
        self.client = client
        self._changed = changed
        self._up = asyncio.Event()
        self._since = asyncio.get_running_loop().time()
        self._down: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._remove = client.add_listener(self._on_state)
        client.start()

    @property
    def is_up(self) -> bool:
        """True while the connection is up."""
        return self._up.is_set()

    @property
    def is_late(self) -> bool:
        """True if the server seems to be down, and is not just being connected."""
        return not self._up.is_set() and asyncio.get_running_loop().time() - self._since > GRACE_S

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            self._up.set()
        else:
            if self._up.is_set():
                self._up.clear()
                self._since = asyncio.get_running_loop().time()
            if not self._down.done():
                self._down.set_result(None)
            self._down = asyncio.get_running_loop().create_future()
        self._changed(self)

    async def ask(self, request: Request[T], timeout_s: float) -> T:
        """Return the server's answer.

        Raises:
            LinkError: it is down, went down, or did not answer in time; the request may have been carried
                out.
            ClientError: it refused the request itself.
        """
        if not self._up.is_set():
            try:
                async with asyncio.timeout(min(timeout_s, CONNECT_WAIT_S)):
                    await self._up.wait()
            except TimeoutError:
                raise LinkError(f"server {self.server} at {self.address} takes no connection") from None
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        call = self.client.begin(request, timeout_s, answer)
        try:
            await asyncio.wait((answer, self._down), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not answer.done():
                self.client.abandon(call)
                answer.cancel()
            elif not answer.cancelled():
                answer.exception()  # it is raised below, unless the caller is being cancelled
        if answer.cancelled():
            raise LinkError(f"server {self.server} at {self.address}: the connection was lost")
        try:
            return converted(request, answer.result())
        except (DeadlineError, WireError) as error:
            raise LinkError(f"server {self.server} at {self.address}: {error}") from error
        except FailedError as error:
            if error.retriable:
                raise LinkError(f"server {self.server} at {self.address}: {error}") from error
            raise

    async def close(self) -> None:
        """Close the connection and wake those that wait for it."""
        self._remove()
        if not self._down.done():
            self._down.set_result(None)
        await self.client.close()


class Links:
    """Links by server. A server that moved to another address gets another one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._links: dict[ServerId, Link] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._listeners: list[Callable[[Link], None]] = []
        self._closed = False

    def listen(self, listener: Callable[[Link], None]) -> Callable[[], None]:
        """Call `listener` with every link that came up or went down; return what ends it."""
        self._listeners.append(listener)

        def remove() -> None:
            with suppress(ValueError):
                self._listeners.remove(listener)

        return remove

    def to(self, server: ServerId, address: Address | None) -> Link:
        """Return the link to a server.

        Raises:
            LinkError: nobody knows where the server is, or all links were closed.
        """
        link = self._links.get(server)
        if address is None or self._closed:
            raise LinkError(f"server {server}: its address is not known" if not self._closed else "closed")
        if link is not None and link.address != address:
            self._end(self._links.pop(server))
            link = None
        if link is None:
            link = self._links[server] = Link(server, address, self._client.sibling(address), self._on_change)
        return link

    def keep(self, servers: frozenset[ServerId]) -> None:
        """End the links to all others, which are no members any more."""
        for server in [server for server in self._links if server not in servers]:
            self._end(self._links.pop(server))

    def _on_change(self, link: Link) -> None:
        if self._links.get(link.server) is link:
            for listener in list(self._listeners):
                listener(link)

    def _end(self, link: Link) -> None:
        task = asyncio.get_running_loop().create_task(link.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all connections.

        Raises:
            Exception: the first error of a connection that did not close.
        """
        self._closed = True
        self._listeners.clear()
        links, self._links = list(self._links.values()), {}
        results = await asyncio.gather(
            *(link.close() for link in links), *self._closing, return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, ClientError):
                raise result
