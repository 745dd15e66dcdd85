"""Contact with a quorum: when a leader had it, when this server stops answering, and when it gives its clients up.

A follower has contact at the sending of a touch report that its leader acknowledged (`zraft.server.coordination.touches`); a
leader has it at the sending of a round that a quorum answered. Both are moments of our own clock (D-14).

Pure. Source: rule D-14 in docs/RULES.md.
"""

from __future__ import annotations

from typing import Protocol

from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.touches import NEVER, TouchReporter
from zraft.tree.machine import Machine


class Sessions(Protocol):
    """The sessions whose clients are connected here."""

    @property
    def timeout_ms_min(self) -> int | None:
        """The smallest of their timeouts; None if there are none."""


class Contact:
    """When this server last knew that a leader with a quorum existed, and what follows for its clients."""

    def __init__(
        self,
        clock: TurnClock,
        touches: TouchReporter,
        sessions: Sessions,
        machine: Machine,
        election_timeout_ms: int,
    ) -> None:
        self._clock = clock
        self._touches = touches
        self._sessions = sessions
        self._machine = machine
        self._election_timeout_ms = election_timeout_ms
        self._round_sent: dict[int, int] = {}
        self._last_round = 0
        self._quorum_at = NEVER

    def new_term(self) -> None:
        """A new leadership of ours: the core numbers its rounds anew."""
        self._round_sent.clear()
        self._last_round = 0
        self._quorum_at = NEVER

    def note_rounds(self, last_sent: int, answered: int) -> None:
        """The leader's core has sent rounds up to `last_sent`; a quorum answered those up to `answered`."""
        now = self._clock.now
        while self._last_round < last_sent:
            self._last_round += 1
            self._round_sent[self._last_round] = now
        sent = self._round_sent.get(answered)
        if sent is not None:
            self._quorum_at = max(self._quorum_at, sent)
            self._touches.on_contact(sent, self._clock.run)
            for number in [n for n in self._round_sent if n <= answered]:
                del self._round_sent[number]

    @property
    def has_quorum(self) -> bool:
        """A quorum answered a round that this leader sent within the last election timeout."""
        return self._clock.now - self._quorum_at <= self._election_timeout_ms

    @property
    def stale(self) -> bool:
        """No contact since the last wake-up, or for a third of the smallest timeout, sleep included."""
        contact = self._touches.contact
        clock = self._clock
        if contact < clock.woke:
            return True
        timeout = self._sessions.timeout_ms_min or self._machine.settings.session_timeout_ms_min
        return clock.now - contact > timeout // 3

    @property
    def lost(self) -> bool:
        """No contact for a third of the smallest timeout, in time that we ran: clients try another server.

        Never without being `stale`, for this clock is the slower one.
        """
        timeout = self._sessions.timeout_ms_min
        return timeout is not None and self._clock.run - self._touches.contact_run > timeout // 3
