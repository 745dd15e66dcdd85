"""Choice of who may stay connected to an operator's HTTP server.

It applies before aiohttp is loaded, too.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Final, Generic, TypeVar

CONNECTIONS_MAX: Final = 64
"""File descriptors belong to the clients."""
LOCAL_KEPT: Final = 8
"""The number of them that is for connections from this machine."""
HEAD_S: Final = 10.0
"""In seconds, from the connection to the end of the head of its first request."""

T = TypeVar("T")


class Places(Generic[T]):
    """Places for connections: for those that came first, and for those that ask for something."""

    def __init__(self, count: int = CONNECTIONS_MAX, local_kept: int = LOCAL_KEPT) -> None:
        self._count = count
        self._strangers_max = count - local_kept
        self._idle: dict[T, bool] = {}
        """The idle connections, the longest idle first, each with whether it is of this machine."""
        self._busy: dict[T, bool] = {}

    def __len__(self) -> int:
        return len(self._idle) + len(self._busy)

    def enter(self, one: T, *, local: bool) -> T | None:
        """Admit `one`, and return who must go for it: `one` itself if nobody can, None if there is room."""
        strangers = sum(not here for table in (self._idle, self._busy) for here in table.values())
        goes: T | None = None
        if not local and strangers >= self._strangers_max:
            goes = self._longest_idle(local=False)
        elif len(self) >= self._count:
            goes = self._longest_idle(local=False)
            if goes is None and local:
                goes = self._longest_idle(local=True)
        else:
            self._idle[one] = local
            return None
        if goes is None:
            return one
        del self._idle[goes]
        self._idle[one] = local
        return goes

    def _longest_idle(self, *, local: bool) -> T | None:
        return next((one for one, here in self._idle.items() if here is local), None)

    def begin(self, one: T) -> None:
        """Take note that a connection has asked for something."""
        if one in self._idle:
            self._busy[one] = self._idle.pop(one)

    def end(self, one: T) -> None:
        """Take note that a connection was answered."""
        if one in self._busy:
            self._idle[one] = self._busy.pop(one)

    def leave(self, one: T) -> None:
        """Forget a connection that is gone."""
        self._idle.pop(one, None)
        self._busy.pop(one, None)


def is_this_machine(peer: str, here: str) -> bool:
    """Return whether a connection comes from the machine that it reached, at the address `here`."""
    if peer == here:
        return True
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
