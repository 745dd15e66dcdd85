"""The leader's side of session liveness: when each session was heard, and which ones may be expired (D-11).

The clock here advances only while the leader runs, a bounded step per turn, after the sockets were drained: a
laptop that slept, or a process that was stopped, makes no session older. A silent session becomes a suspect;
only after a quorum round that began later, and a second look at the table, its end is proposed; the state
machine then ignores the proposal if the session attached or wrote in between.

Pure. Source: rule D-11 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from zraft.transport.messages import TouchReport
from zraft_core.ids import Instance, ServerId
from zraft_core.znodes.txn import EXPIRE, Command

SCAN_INTERVAL_MS: Final = 200
"""How often all sessions are looked at; an expiry is late by at most this."""


class SessionRecord(Protocol):
    """Properties of a session that expiry needs: its timeout in ms, and the positions of its last attach and write."""

    timeout_ms: int
    attach_position: int
    write_position: int


class SessionExpiry:
    """The table of touches of one leadership, which gives every session its full timeout anew.

    Attributes:
        tick_time_ms: added to every timeout; the replicated setting, which its owner keeps up to date.
    """

    def __init__(self, tick_time_ms: int) -> None:
        self.tick_time_ms = tick_time_ms
        self._clock = 0
        self._next_scan = 0
        self._touched: dict[int, int] = {}
        self._suspects: dict[int, int] = {}
        self._proposed: set[int] = set()
        self._last_report: dict[tuple[ServerId, Instance], tuple[int, int]] = {}

    def advance(self, elapsed_ms: int) -> None:
        """Let `elapsed_ms` pass, in which this leader ran; the caller bounds the step."""
        self._clock += elapsed_ms

    @property
    def suspects(self) -> bool:
        """True if sessions are silent, and a quorum round or a second look is to decide about them."""
        return bool(self._suspects)

    def touch(self, session: int) -> None:
        """Take note that a logged write or attach of this session was applied."""
        self._touched[session] = self._clock

    def ended(self, session: int) -> None:
        """Take note that the session's end was applied, or was ignored, which is a new beginning."""
        if session in self._touched:
            del self._touched[session]
        if session in self._suspects:
            del self._suspects[session]
        if session in self._proposed:
            self._proposed.remove(session)

    def accept_report(
        self, server: ServerId, instance: Instance, report: TouchReport, sessions: Mapping[int, SessionRecord]
    ) -> tuple[int, ...] | None:
        """Take a report of touches.

        A session whose end is already in the log is refused, because an origin relies on what is
        acknowledged.

        Returns:
            The refused sessions; None if the report is late or repeated and counts for nothing.
        """
        number = (report.boot, report.number)
        if self._last_report.get((server, instance), (0, 0)) >= number:
            return None
        self._last_report[server, instance] = number
        refused = []
        for session, age_ms in report.ages:
            if session in self._proposed or session not in sessions:
                refused.append(session)
                continue
            at = self._clock - age_ms
            if at > self._touched.get(session, -1):
                self._touched[session] = at
        return tuple(refused)

    def _aged(self, session: int, record: SessionRecord) -> bool:
        # The timeout is longer by one tick, because a touch may have been reported one interval late.
        return (
            self._clock - self._touched.setdefault(session, self._clock)
            >= record.timeout_ms + self.tick_time_ms
        )

    def left_ms(self, session: int, record: SessionRecord) -> int:
        """Return the ms until the session is suspected if nothing is heard of it; below 0 while that is being settled."""
        touched = self._touched.get(session, self._clock)
        return touched + record.timeout_ms + self.tick_time_ms - self._clock

    def silent_ms(self, session: int) -> int | None:
        """Return the ms since the session was last heard of, as this leader knows; None before it has looked at it."""
        touched = self._touched.get(session)
        return None if touched is None else self._clock - touched

    def wants_round(self, sessions: Mapping[int, SessionRecord], next_round: int) -> bool:
        """Look for new suspects, which wait for quorum round `next_round`; return whether there are some."""
        if self._clock < self._next_scan:
            return False
        self._next_scan = self._clock + SCAN_INTERVAL_MS
        found = False
        for session, record in sessions.items():
            if (
                session not in self._proposed
                and session not in self._suspects
                and self._aged(session, record)
            ):
                self._suspects[session] = next_round
                found = True
        return found

    def confirmed(self, sessions: Mapping[int, SessionRecord], quorum_round: int) -> Iterable[Command]:
        """Return EXPIRE commands for suspects whose quorum round is done and that are still silent at a second look."""
        if not self._suspects:
            return []
        commands: list[Command] = []
        for session, needed in list(self._suspects.items()):
            record = sessions.get(session)
            if record is None or not self._aged(session, record):
                del self._suspects[session]
            elif quorum_round >= needed:
                commands.append(self.give_up(session, record))
        return commands

    def give_up(self, session: int, record: SessionRecord) -> Command:
        """Return the EXPIRE command of a session, which is void if the session attaches or writes before it is applied."""
        self._suspects.pop(session, None)
        self._proposed.add(session)
        touched = self._touched.setdefault(session, self._clock)
        return (
            EXPIRE,
            session,
            record.attach_position,
            record.write_position,
            touched,
            record.timeout_ms,
            0,
        )
