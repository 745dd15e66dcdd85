"""Linearizable reads (sync): one read index for all of a turn, asked for again until it is answered and applied.

Pure. Source: Raft dissertation, section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zraft.server.coordination.touches import NEVER


class Waiter(Protocol):
    """A connection, or another caller, that waits for a sync."""

    def complete_sync(self) -> None:
        """Take note that all that was acknowledged anywhere when the sync was asked for is applied here."""


class Syncs(Protocol):
    """The syncs that this server's clients ask for."""

    @property
    def syncs(self) -> Sequence[Waiter]:
        """The waiters that have asked for a sync since the last `take_syncs`."""

    def take_syncs(self) -> Sequence[Waiter]:
        """Return the waiters that have asked for a sync since the last call."""


class LinearizableReads:
    """The syncs of this server's clients that wait for a read index, or for its entry to be applied.

    Attributes:
        waiting: those that were asked for, by context.
    """

    def __init__(self, syncs: Syncs, boot: int, resend_ms: int) -> None:
        self._syncs = syncs
        self._resend_ms = resend_ms
        # No number is used twice, not even in another boot: a late answer would be taken for that of a later read.
        self._context = boot << 32
        self.waiting: dict[int, list[Waiter]] = {}
        self._asked_at = 0

    def ask_again(self) -> None:
        """Ask again at the next turn, because the leader has changed and an answer of the old one may never come."""
        self._asked_at = NEVER

    def ask(self, now: int) -> int | None:
        """Return the context with which to ask for the leader's read index now; None if there is nothing to ask."""
        if not self.waiting and not self._syncs.syncs:
            return None
        waiting = list(self._syncs.take_syncs())
        overdue = self.waiting and now - self._asked_at >= self._resend_ms
        if not waiting and not overdue:
            return None
        if overdue:
            for connections in self.waiting.values():
                waiting.extend(connections)
            self.waiting.clear()
        self._context += 1
        self.waiting[self._context] = waiting
        self._asked_at = now
        return self._context

    def answer(self, contexts: Iterable[int]) -> None:
        """Complete the syncs that were asked for with these contexts: their read indices are applied."""
        for context in contexts:
            # Earlier syncs are completed as well: their own answers may be lost, and while there is a new question every
            # few milliseconds they would not be asked for again.
            for asked in [number for number in self.waiting if number <= context]:
                for connection in self.waiting.pop(asked):
                    connection.complete_sync()
