"""Transport of gossip's datagrams: a UDP socket for each group, or a test's replacement."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Final, Protocol

from zraft.transport.udp import MAPPED, AddressError, SocketAddress, UdpEndpoint
from zraft_core.address import Address
from zraft_core.errors import ConfigError

LOOK_UP_AGAIN_S: Final = 15.0
"""Seconds. A name may get another address while we run, as containers restart."""
TARGETS_MAX: Final = 65_536
"""The number of addresses that are remembered; beyond, all are forgotten. There is one for each group."""
_NEVER_SEEN: Final = (None, 0.0)

Received = Callable[[bytes, Address], None]


class Link(Protocol):
    """Carrier of datagrams to and from addresses.

    They may be lost, doubled, late, and come in any order.
    """

    @property
    def address(self) -> Address:
        """The address at which others reach this end."""
        ...

    def send(self, to: Address, datagram: bytes) -> None:
        """Send a datagram. This never waits."""
        ...

    def close(self) -> None:
        """Close the link; nothing is received any more."""


OpenLink = Callable[[Received], Awaitable[Link]]
"""Opens an end of its own. What arrives is handed to the function, on the event loop."""


class UdpLink:
    """A UDP socket; `open_udp` makes it.

    What is sent to a name before it was looked up is lost, as any datagram may be.
    """

    def __init__(self, received: Received) -> None:
        self._received = received
        self._loop = asyncio.get_running_loop()
        self._endpoint: UdpEndpoint | None = None
        self._told = Address("", 0)
        self._targets: dict[Address, tuple[SocketAddress | None, float]] = {}
        """The resolved address of each address, None if that is not known, and when to look it up again."""
        self._lookups: set[asyncio.Task[None]] = set()

    async def open(self, address: Address, advertise: Address | None) -> None:
        """Listen; `advertise` is as for `open_udp`."""
        self._endpoint = await UdpEndpoint.open(address.host, address.port, self._on_datagrams)
        told = advertise or address
        self._told = Address(told.host, told.port or self._endpoint.address[1])

    @property
    def address(self) -> Address:
        """The address that other groups are told."""
        return self._told

    def send(self, to: Address, datagram: bytes) -> None:
        """Send a datagram; its host is looked up now and then, and it is dropped while that is not known."""
        if self._endpoint is None:
            return
        target, again_at = self._targets.get(to, _NEVER_SEEN)
        if self._loop.time() >= again_at:
            target = self._find(self._endpoint, to, target)
        if target is not None:
            self._endpoint.send(target, datagram)

    def close(self) -> None:
        """Close the socket."""
        for lookup in self._lookups:
            lookup.cancel()
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def _on_datagrams(self, datagrams: list[tuple[bytes, SocketAddress]]) -> None:
        for datagram, source in datagrams:
            # An IPv4 address in the form of IPv6, at a socket for both, is reported as IPv4.
            self._received(datagram, Address(source[0].removeprefix(MAPPED), source[1]))

    def _find(self, endpoint: UdpEndpoint, to: Address, before: SocketAddress | None) -> SocketAddress | None:
        """Look a name up. Until then its datagrams go where it was `before`."""
        if len(self._targets) >= TARGETS_MAX:
            self._targets.clear()
        numeric = endpoint.numeric(to.host, to.port)
        if numeric is not None:
            self._targets[to] = numeric, inf
            return numeric
        self._targets[to] = before, self._loop.time() + LOOK_UP_AGAIN_S
        lookup = self._loop.create_task(self._look_up(endpoint, to))
        self._lookups.add(lookup)
        lookup.add_done_callback(self._lookups.discard)
        return before

    async def _look_up(self, endpoint: UdpEndpoint, to: Address) -> None:
        try:
            found = await endpoint.resolve(to.host, to.port)
        except AddressError:
            return  # the name may get an address later; the group asks for what it misses
        self._targets[to] = found, self._loop.time() + LOOK_UP_AGAIN_S


def open_udp(address: Address, advertise: Address | None = None) -> OpenLink:
    """Return what opens sockets at `address`; port 0 takes a free one for each.

    `advertise`: what others are told, port 0 for the socket's.
    """

    async def opened(received: Received) -> Link:
        link = UdpLink(received)
        try:
            await link.open(address, advertise)
        except AddressError as error:
            raise ConfigError(f"--address: {error}") from error
        return link

    return opened
