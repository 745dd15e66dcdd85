"""Where the peers are now. A host name may get another address while we run (containers restart)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final

import structlog

from zraft.address import Address
from zraft.ids import ServerId
from zraft.transport.udp import Address as SocketAddress
from zraft.transport.udp import AddressError, resolve

RETRY_S: Final = 1.0
REFRESH_S: Final = 15.0

log = structlog.get_logger()


class PeerAddresses:
    """Numeric addresses by server, resolved at start and looked up again regularly."""

    def __init__(self, peers: Mapping[ServerId, Address], family: socket.AddressFamily) -> None:
        self._peers = peers
        self._family = family
        self.known: dict[ServerId, SocketAddress] = {}
        self._told: set[ServerId] = set()

    def set_peers(self, peers: Mapping[ServerId, Address]) -> None:
        """The members changed: new ones are looked up soon, those that went are forgotten."""
        self._peers = peers
        for server in [server for server in self.known if server not in peers]:
            del self.known[server]

    async def refresh(self) -> None:
        """Look all peers up once; what cannot be found keeps its last address."""
        for server, address in tuple(self._peers.items()):
            try:
                self.known[server] = await resolve(address.host, address.port, self._family)
                self._told.discard(server)
            except AddressError as error:
                if server not in self._told:
                    self._told.add(server)
                    log.warning("peer has no address", server=server, address=str(address), error=str(error))

    async def keep_fresh(self) -> None:
        """Runs until cancelled."""
        while True:
            await asyncio.sleep(RETRY_S if len(self.known) < len(self._peers) else REFRESH_S)
            await self.refresh()
