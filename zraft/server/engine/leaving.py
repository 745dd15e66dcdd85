"""Farewell of a server that stops or is to be removed: it lets its clients go while it can still answer them. Pure."""

from __future__ import annotations

from typing import Final

from zraft.server.clients.table import Clients

DEAF_AFTER_MS: Final = 100
"""How long a server that leaves goes on reading requests: some round trips, in which most clients get all their answers."""


class Leaving:
    """The end of one server's service.

    Attributes:
        stops: whether this server is about to stop; if not, it leaves only if it is to be removed.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._since = 0
        self.stops = False

    @property
    def done(self) -> bool:
        """True if this server stops and no client waits for an answer any more."""
        return self.stops and self._clients.let_go()

    def look(self, now_ms: int, *, leaves: bool) -> None:
        """Let those clients go whose requests are answered, if this server leaves."""
        clients, availability = self._clients, self._clients.availability
        if leaves:
            if not availability.leaving:
                availability.leaving = True
                self._since = now_ms
            availability.deaf = now_ms - self._since >= DEAF_AFTER_MS
            clients.let_go()
        elif availability.leaving:
            if availability.deaf:
                # Nobody looked at what these clients sent last, so nothing that they send next may be answered.
                clients.dismiss_all()
            availability.leaving = availability.deaf = False
