"""The origin side of session liveness: what was heard, what the leader acknowledged, and when to fall silent.

A *touch* is a packet of a session. Touches travel to the leader in numbered reports until acknowledged. A
server answers a session only while its last *acknowledged* touch is younger than a third of the session's
timeout (D-14): then no leader can expire a session whose client was recently answered.

Pure: `now` counts time that the machine slept, `run` only time in which this process ran. Source: rules D-11
and D-14 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from zraft.transport.messages import TouchAck, TouchReport

REPORTS_IN_FLIGHT_MAX: Final = 64
"""How many unacknowledged reports are remembered; acknowledgements of older ones are simply not recognised."""

REPORT_SESSIONS_MAX: Final = 2000
"""How many sessions one report holds (about 24 KB); further ones go in more reports of the same moment."""

EARLY_SHARE: Final = 8
"""A report leaves up to this fraction (1/n) of the interval early if a turn comes then.

A heartbeat brings one, so no alarm rings for the report alone.
"""

HURRY_GAP_MS: Final = 25
"""The least time between two reports that leave early: output is held for them, or a new leader is awaited."""

NEVER: Final = -(1 << 60)
"""A moment before all others."""


class TouchReporter:
    """The touches of this server's sessions, and its contact with a leader that has a quorum.

    Attributes:
        interval_ms: time between two regular reports: half the replicated tick time, which the owner keeps up
            to date.
        due_at: when the next report should leave.
        may_leave_at: from when on it leaves with a turn that something else brings.
        contact: when the last acknowledged report was sent, on the clock that counts sleep; NEVER before the
            first.
        contact_run: the same moment on the clock of time in which this process ran. It begins at 0, so a
            start counts as a contact.
    """

    def __init__(self, boot: int, interval_ms: int) -> None:
        self._boot = boot
        self.interval_ms = interval_ms
        self._touched: dict[int, int] = {}
        self._acked: dict[int, int] = {}
        self._reports: OrderedDict[int, tuple[int, dict[int, int]]] = OrderedDict()
        self._number = 0
        self.due_at = NEVER
        self.may_leave_at = NEVER
        self._last_report_at = NEVER
        self._retry_ms = 0
        """The time until the next report while a new leader has acknowledged none; 0 once it has."""
        self.contact = NEVER
        self.contact_run = 0

    def touch(self, session: int, now: int) -> None:
        """Take note that a packet of this session arrived."""
        self._touched[session] = now

    def attached(self, session: int, at: int) -> None:
        """Take note that a connection of this session is here; the packet that asked for it was cut into a batch at `at`."""
        if session not in self._acked or at > self._acked[session]:
            self._acked[session] = at

    def acknowledged(self, session: int, at: int) -> None:
        """Take note that a logged write of this session, received at `at`, was applied, which is a touch as well.

        Nothing is remembered of a session that is no longer here: its last writes may be applied after it
        left.
        """
        acked = self._acked
        if session in acked and at > acked[session]:
            acked[session] = at

    def heard(self, session: int) -> int | None:
        """Return when the last packet of this session arrived here; None if it has no connection here."""
        return self._touched.get(session, self._acked.get(session))

    def age(self, session: int, now: int) -> int:
        """Return the ms since the last acknowledged touch."""
        if session not in self._acked:
            return now - NEVER
        return now - self._acked[session]

    def forget(self, session: int) -> None:
        """Forget a session that has no connection here any more."""
        if session in self._touched:
            del self._touched[session]
        if session in self._acked:
            del self._acked[session]

    def hurry(self) -> None:
        """Let a report leave at once, because output is held until the next acknowledgement."""
        self.due_at = min(self.due_at, self._last_report_at + HURRY_GAP_MS)
        self.may_leave_at = min(self.may_leave_at, self.due_at)

    def report_now(self) -> None:
        """Let a report leave at once, because a new leader is known, which has none of the old ones.

        Until it acknowledges one, others follow, each after twice the time: it takes none before its first entry is
        applied, and a server that has just started answers no client before (D-14).
        """
        self.due_at = self.may_leave_at = NEVER
        self._retry_ms = HURRY_GAP_MS

    def make_reports(self, now: int) -> list[TouchReport]:
        """Return the reports to send now, with every session that was touched since its last acknowledgement.

        There is always at least one, which may hold no session.
        """
        self._last_report_at = now
        self._wait(self._retry_ms or self.interval_ms)
        self._retry_ms = min(2 * self._retry_ms, self.interval_ms)
        acked = self._acked
        fresh = [(s, t) for s, t in self._touched.items() if t > acked.get(s, NEVER)]
        reports = []
        for start in range(0, max(1, len(fresh)), REPORT_SESSIONS_MAX):
            part = fresh[start : start + REPORT_SESSIONS_MAX]
            self._number += 1
            self._reports[self._number] = (now, dict(part))
            reports.append(TouchReport(self._boot, self._number, tuple((s, now - t) for s, t in part)))
        while len(self._reports) > REPORTS_IN_FLIGHT_MAX:
            self._reports.popitem(last=False)
        return reports

    def _wait(self, ms: int) -> None:
        self.due_at = self._last_report_at + ms
        self.may_leave_at = self.due_at - ms // EARLY_SHARE

    def on_ack(self, ack: TouchAck, run: int) -> None:
        """Take note that the leader took a report. Contact is at its *sending*: hearing a leader is not enough (D-14)."""
        if ack.boot != self._boot:
            return
        known = self._reports.pop(ack.number, None)
        if known is None:
            return
        sent, touches = known
        if self._retry_ms:
            self._retry_ms = 0
            self._wait(self.interval_ms)
        self.on_contact(sent, run)
        refused = frozenset(ack.refused)
        for session, at in touches.items():
            if session not in refused:
                self.acknowledged(session, at)

    def on_contact(self, at: int, run: int) -> None:
        """Take note of proof that a leader with a quorum existed at `at` or later."""
        if at > self.contact:
            self.contact = at
            self.contact_run = run
