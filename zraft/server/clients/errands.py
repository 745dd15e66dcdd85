"""Commands that this server puts into the log for an operator, and who waits for what became of them.

They travel as a run of no session in this server's own batches, like the attaches of clients, so that any server
can take them, whoever leads, and none is carried out twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from zraft.server.clients.connection import Phase


class SyncWaiter(Protocol):
    """Interface of those that wait until all that was committed when they asked is applied here."""

    def complete_sync(self) -> None:
        """Take note that it is applied."""


class Errand:
    """Errand that stands where a batch expects the connection that waits for its results."""

    __slots__ = ("_done", "phase")

    is_interleaved: Final = True
    """Its results are told one by one."""

    def __init__(self, done: Callable[[object], None]) -> None:
        self._done = done
        self.phase = Phase.ATTACHED

    def complete(self, result: object, zxid: int) -> None:
        """Take the result of the command, or that its fate will not be known here; only the first word counts."""
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self._done(result)
