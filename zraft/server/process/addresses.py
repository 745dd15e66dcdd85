"""Addresses of the other servers. A host name may get another address while we run (containers restart)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog

from zraft.transport.udp import AddressError, SocketAddress
from zraft_core.address import Address
from zraft_core.ids import ServerId

RETRY_S: Final = 1.0
REFRESH_S: Final = 15.0
TRY_OTHER_EVERY: Final = 3
STRANGER_INTERVAL_S: Final = 10.0

log = structlog.get_logger()


class PeerAddresses:
    """Numeric addresses by server, resolved at start and looked up again regularly.

    A server may have two: where this server's own configuration says it is, and where the replicated membership
    does. They differ when a machine was replaced and nobody edited the files of the others, or when somebody edited
    the files alone. So the peer itself decides: the one of them that its authenticated datagrams come from counts,
    and while none came both are tried, the configured one more often. A peer that is heard from any other source is
    behind a relay: then the configured address is the way to it.
    """

    def __init__(
        self,
        peers: Mapping[ServerId, Sequence[Address]],
        resolve: Callable[[str, int], Awaitable[SocketAddress]],
    ) -> None:
        """Begin with these peers.

        `resolve` looks a host and a port up; it raises `AddressError` if there is no address.
        """
        self._peers = dict(peers)
        self._resolve = resolve
        self.known: dict[ServerId, SocketAddress] = {}
        self._resolved: dict[tuple[ServerId, Address], SocketAddress] = {}
        self.sources: dict[ServerId, SocketAddress] = {}
        """Where servers were heard from, of the addresses that are known of them: `heard` says nothing new of these."""
        self._relayed: set[ServerId] = set()
        self._told: set[tuple[ServerId, Address]] = set()
        self._round = 0
        self._changed = asyncio.Event()

    def set_peers(self, peers: Mapping[ServerId, Sequence[Address]]) -> None:
        """Take changed members: new addresses are looked up soon, those that went are forgotten."""
        self._peers = dict(peers)
        for server, address in [key for key in self._resolved if key[1] not in peers.get(key[0], ())]:
            del self._resolved[server, address]
        for server in [server for server in self.known if server not in peers]:
            del self.known[server]
        self._choose()
        self._changed.set()

    def heard(self, server: ServerId, source: SocketAddress) -> None:
        """Note that an authenticated datagram of `server` came from there."""
        if self.sources.get(server) == source or server in self._relayed:
            return
        candidates = self._candidates(server)
        if source in candidates:
            self.sources[server] = self.known[server] = source
        elif server not in self.sources and candidates:
            self._relayed.add(server)
            self.known[server] = candidates[0]

    def answer_to(self, server: ServerId, source: SocketAddress) -> SocketAddress | None:
        """Return where to answer a handshake from this source: so a server that moved is found."""
        return source if source in self._candidates(server) else self.known.get(server)

    def _candidates(self, server: ServerId) -> list[SocketAddress]:
        found = (self._resolved.get((server, address)) for address in self._peers.get(server, ()))
        return list(dict.fromkeys(one for one in found if one is not None))

    def _choose(self) -> None:
        for server in self._peers:
            candidates = self._candidates(server)
            if self.sources.get(server) not in candidates:
                self.sources.pop(server, None)
                if candidates:
                    other = (
                        server not in self._relayed and self._round % TRY_OTHER_EVERY == TRY_OTHER_EVERY - 1
                    )
                    self.known[server] = candidates[-1 if other else 0]

    @property
    def _searching(self) -> bool:
        """True if somebody has no address, or two and was not heard from either."""
        return any(
            server not in self.known
            or (len(addresses) > 1 and server not in self.sources and server not in self._relayed)
            for server, addresses in self._peers.items()
        )

    async def refresh(self) -> None:
        """Look all peers up once; what cannot be found keeps its last address."""
        for server, addresses in tuple(self._peers.items()):
            for address in addresses:
                key = (server, address)
                try:
                    found = await self._resolve(address.host, address.port)
                except AddressError as error:
                    if key not in self._told:
                        self._told.add(key)
                        log.warning(
                            "peer has no address", server=server, address=str(address), error=str(error)
                        )
                else:
                    self._told.discard(key)
                    if address in self._peers.get(server, ()):
                        self._resolved[key] = found
        self._round += 1
        self._choose()

    async def keep_fresh(self) -> None:
        """Look addresses up again and again until cancelled."""
        while True:
            # `wait_for` would swallow a cancellation that comes with the event, before Python 3.12.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._searching else REFRESH_S):
                    await self._changed.wait()
            self._changed.clear()
            await self.refresh()


class Strangers:
    """Notes in the log about handshakes for a server from an address that is not the server's.

    It is a second process of its number, or a network that changes addresses. The answer goes to
    where the server is, so that it disturbs nothing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told_at: dict[ServerId, float] = {}

    def note(self, server: ServerId, source: SocketAddress, address: SocketAddress) -> None:
        """Log that a handshake of `server`, which is at `address`, came from `source`."""
        now = self._clock()
        if now - self._told_at.get(server, -STRANGER_INTERVAL_S) < STRANGER_INTERVAL_S:
            return
        self._told_at[server] = now
        log.warning(
            f"somebody claims to be server {server} from another address than its own, and is not answered there; if two "
            f"processes share the number, stop one; if the server moved, say so by `zraft member move`",
            source=str(Address(*source[:2])),
            address=str(Address(*address[:2])),
        )
