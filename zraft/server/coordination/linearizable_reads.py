"""Linearizable reads (sync): one read index for all of a turn, asked again until it is answered and applied.

Pure. Source: Raft dissertation, section 6.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from zraft.server.coordination.touches import NEVER


class Waiter(Protocol):
    """Whoever waits for a sync."""

    def complete_sync(self) -> None:
        """All that was acknowledged anywhere when it asked is applied here."""


class Syncs(Protocol):
    """What this server's clients ask for."""

    @property
    def has_syncs(self) -> bool:
        """Whether somebody asked since the last `take_syncs`."""

    def take_syncs(self) -> Sequence[Waiter]:
        """Those who did."""


class LinearizableReads:
    """The syncs of this server's clients that wait for a read index, or for its entry to be applied."""

    def __init__(self, syncs: Syncs, boot: int, resend_ms: int) -> None:
        self._syncs = syncs
        self._resend_ms = resend_ms
        # No number is used twice, also not by an earlier boot: a late answer would pass for that of a later read.
        self._context = boot << 32
        self._waiting: dict[int, list[Waiter]] = {}
        self._asked_at = 0

    def ask_again(self) -> None:
        """The leader changed: an answer of the old one may never come."""
        self._asked_at = NEVER

    def ask(self, now: int) -> int | None:
        """The context to ask the leader's read index for now, None if there is nothing to ask."""
        if not self._waiting and not self._syncs.has_syncs:
            return None
        waiting = list(self._syncs.take_syncs())
        overdue = self._waiting and now - self._asked_at >= self._resend_ms
        if not waiting and not overdue:
            return None
        if overdue:
            for connections in self._waiting.values():
                waiting.extend(connections)
            self._waiting.clear()
        self._context += 1
        self._waiting[self._context] = waiting
        self._asked_at = now
        return self._context

    def answer(self, contexts: Iterable[int]) -> None:
        """What was asked with these may be answered: their read indices are applied."""
        for context in contexts:
            # What was asked earlier is answered too: its own answer may be lost, and with a new question every
            # few milliseconds nobody would ask again.
            for asked in [number for number in self._waiting if number <= context]:
                for connection in self._waiting.pop(asked):
                    connection.complete_sync()
