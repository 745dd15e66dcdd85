"""A connection whose client must say who it is before it is served (auth.required_schemes).

A class of its own, so that servers that do not ask for it do not check it either.
Source: ZooKeeper's `AuthenticationHelper` (enforce.auth.enabled, sessionRequireClientSASLAuth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zraft.server.clients.authentication.proofs import meets
from zraft.server.clients.zookeeper.connection import HEADER, ZooKeeperConnection
from zraft.server.clients.zookeeper.services import ZooKeeperServices
from zraft_core.errors import Code
from zraft_core.wire.opcodes import Opcode
from zraft_core.znodes.acl import Ids

BEFORE: Final = frozenset({int(o) for o in (Opcode.AUTH, Opcode.SASL, Opcode.PING, Opcode.CLOSE_SESSION)})
"""Answered to anybody."""


class GuardedConnection(ZooKeeperConnection):
    """Connection that serves nothing but `BEFORE` until the client has an id of a required scheme."""

    __slots__ = ("_is_let_in",)

    def __init__(self, clients: ZooKeeperServices, address: str, ids: Ids) -> None:
        super().__init__(clients, address, ids)
        self._is_let_in = False

    def _take(self, frames: list[bytes]) -> None:
        if self._is_let_in:
            super()._take(frames)
        else:
            self._guard(frames, super()._take)

    def _take_read_only(self, frames: list[bytes]) -> None:
        if self._is_let_in:
            super()._take_read_only(frames)
        else:
            self._guard(frames, super()._take_read_only)

    def _guard(self, frames: list[bytes], take: Callable[[list[bytes]], None]) -> None:
        """Let `take` handle what anybody may ask, and all the rest from the moment the client is let in."""
        required = self.clients.settings.auth.required_schemes
        for place, frame in enumerate(frames):
            if meets(self.ids_of_writes, required):
                self._is_let_in = True
                take(frames[place:])
                return
            if len(frame) >= 8:
                xid, opcode = HEADER(frame)
                if opcode not in BEFORE:
                    self._turn_away(
                        xid,
                        Code.SESSION_CLOSED_REQUIRE_SASL_AUTH,
                        f"a request before authentication by {' or '.join(sorted(required))} (auth.required_schemes)",
                    )
                    return
            take([frame])
            if self.ending or self.closing:
                return
