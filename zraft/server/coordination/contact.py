"""Contact with a quorum: when this server had it, when it stops answering, and when it gives its clients up.

*Contact* is a moment at which a leader with a quorum is known to have existed. A follower has contact when it
sends a touch report that its leader acknowledges (`zraft.server.coordination.touches`). A leader has contact
when it sends a round that a quorum answers. Both are moments of this server's own clock (D-14).

Pure. Source: rule D-14 in docs/explanation/rules.md.
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
        """The smallest of their timeouts in ms; None if there are none."""


class Contact:
    """The moment at which this server last knew that a leader with a quorum existed, and what follows for its clients.

    Attributes:
        newest_round, answered_round: the rounds that `note_rounds` was told last, 0 before the first of a leadership.
    """

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
        self.newest_round = self.answered_round = 0
        self._quorum_at = NEVER

    def new_term(self) -> None:
        """Forget the rounds of an earlier leadership, because the core of a new one numbers them anew."""
        self._round_sent.clear()
        self.newest_round = self.answered_round = 0
        self._quorum_at = NEVER

    def note_rounds(self, last_sent: int, answered: int) -> None:
        """Take note of the rounds that the leader's core has sent, and of those that a quorum has answered."""
        now = self._clock.now
        while self.newest_round < last_sent:
            self.newest_round += 1
            self._round_sent[self.newest_round] = now
        self.answered_round = answered
        sent = self._round_sent.get(answered)
        if sent is not None:
            if sent > self._quorum_at:
                self._quorum_at = sent
            self._touches.on_contact(sent, self._clock.run)
            for number in [n for n in self._round_sent if n <= answered]:
                del self._round_sent[number]

    @property
    def has_quorum(self) -> bool:
        """True if a quorum has answered a round that this leader sent within the last election timeout."""
        return self._clock.now - self._quorum_at <= self._election_timeout_ms

    @property
    def stale(self) -> bool:
        """True if clients must not be answered: no contact since the last wake-up, or for a third of the smallest timeout.

        Time in which the machine sleeps counts.
        """
        contact = self._touches.contact
        clock = self._clock
        if contact < clock.woke:
            return True
        timeout = self._sessions.timeout_ms_min or self._machine.settings.session_timeout_ms_min
        return clock.now - contact > timeout // 3

    @property
    def lost(self) -> bool:
        """True if clients should try another server: no contact for a third of the smallest timeout, while this one ran.

        It is never true without `stale`, because this clock is the slower one.
        """
        timeout = self._sessions.timeout_ms_min
        return timeout is not None and self._clock.run - self._touches.contact_run > timeout // 3
