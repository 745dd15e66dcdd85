"""Planted bugs of origin streams and of sessions: order, repetition, expiry, silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.planted_registry import Patch, plant, replaced
from tests.simulation.profile import Mode
from zraft.server.clients.output import Output
from zraft.server.clients.sessions import AttachedSessions
from zraft.server.clients.table import Clients
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.coordination import intake as intake_module
from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.contact import Contact
from zraft.server.coordination.expiry import SessionExpiry
from zraft.server.coordination.group import CoordinationGroup
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.transport.messages import Sender, TouchReport
from zraft.tree.machine import Machine
from zraft.tree.origins import Origins
from zraft_core.errors import Code

# -- origin streams


@plant("D-2", "the next number of an origin is kept from an earlier leadership", Mode.ELECTIONS)
def stale_next() -> Sequence[Patch]:
    original = CoordinationGroup.advance

    def advance(self: CoordinationGroup, rest: int, step: int) -> None:
        before = self.leadership
        if before is not None:
            self.__dict__["planted_taken"] = dict(before.intake._taken)
        original(self, rest, step)
        if self.leadership is not None and self.leadership is not before:
            self.leadership.intake._taken.update(self.__dict__.get("planted_taken", {}))

    return [(CoordinationGroup, "advance", advance)]


@plant("D-3", "a late batch of an old boot is accepted", Mode.BOOTS)
def old_boot() -> Sequence[Patch]:
    original_accept, original_next = Origins.accept, intake_module.is_next

    def accept(self: Origins, origin: Any, boot: int, seq: int) -> bool:
        row = self.rows.get(origin)
        return (row is not None and boot < row.boot) or original_accept(self, origin, boot, seq)

    def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
        return batch_boot < boot or original_next(boot, seq, batch_boot, batch_seq)

    def later_boot(self: Driver, sender: Sender) -> int | None:
        return None

    return [
        (Origins, "accept", accept),
        (intake_module, "is_next", is_next),
        (Driver, "_later_boot", later_boot),
    ]


@plant("D-2", "a gap in an origin's numbers is appended and applied", Mode.READS)
def gap() -> Sequence[Patch]:
    original_accept, original_next = Origins.accept, intake_module.is_next

    def accept(self: Origins, origin: Any, boot: int, seq: int) -> bool:
        row = self.rows.get(origin)
        if row is not None and boot == row.boot and seq > row.seq:
            row.seq = seq
            return True
        return original_accept(self, origin, boot, seq)

    def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
        return (batch_boot == boot and batch_seq > seq) or original_next(boot, seq, batch_boot, batch_seq)

    return [(Origins, "accept", accept), (intake_module, "is_next", is_next)]


@plant("D-3a", "the older connection of a session on this server is still read after a resume", Mode.EXPIRY)
def keep_old_connection() -> Sequence[Patch]:
    original = AttachedSessions.attach

    def attach(self: AttachedSessions, connection: ZooKeeperConnection, request: Any) -> None:
        held, self._by_session = self._by_session, {}
        attaching, self._attaching = self._attaching, {}
        original(self, connection, request)
        self._by_session = held
        self._attaching = {**attaching, **self._attaching}

    def moved(self: AttachedSessions, session: int, to: ZooKeeperConnection | None) -> None:
        return

    return [(AttachedSessions, "attach", attach), (AttachedSessions, "on_session_moved", moved)]


# -- expiry and silence


@plant("D-11", "time is lost between two alarms of a server to which nothing happens", Mode.ALL)
def time_lost_between_alarms() -> Sequence[Patch]:
    original = TurnClock.advance

    def advance(self: TurnClock, now_ms: int) -> int:
        self.asked_at = self.now
        return original(self, now_ms)

    return [(TurnClock, "advance", advance)]


@plant("D-11", "time in which the process did not run ages sessions", Mode.EXPIRY)
def expiry_on_waking() -> Sequence[Patch]:
    original, original_advance = Driver.turn, TurnClock.advance
    missed: dict[TurnClock, int] = {}

    def advance(self: TurnClock, now_ms: int) -> int:
        elapsed = now_ms - self.now
        step = original_advance(self, now_ms)
        missed[self] = missed.get(self, 0) + max(0, elapsed - step)
        return step

    def turn(self: Driver, now_ms: int, wall_ms: int) -> Effects:
        effects = original(self, now_ms, wall_ms)
        if self.applier.expiry is not None:
            self.applier.expiry.advance(missed.pop(self.clock, 0))
        return effects

    return [(Driver, "turn", turn), (TurnClock, "advance", advance)]


@plant("D-11", "the touch table is not read again after the quorum round", Mode.EXPIRY)
def table_not_read_again() -> Sequence[Patch]:
    original = SessionExpiry.confirmed

    def confirmed(self: SessionExpiry, sessions: Any, quorum_round: int) -> Any:
        with replaced((SessionExpiry, "_aged", lambda self, session, record: True)):
            return original(self, sessions, quorum_round)

    return [(SessionExpiry, "confirmed", confirmed)]


@plant("D-11", "EXPIRE is applied although the session attached or wrote since", Mode.EXPIRY)
def blind_expire() -> Sequence[Patch]:
    def expire(self: Machine, command: Any, zxid: int) -> Code:
        session = self.sessions.get(command[1])
        if session is None:
            return Code.UNKNOWN_SESSION
        self._end_session(session, zxid)
        return Code.OK

    return [(Machine, "_expire", expire)]


@plant("D-11a", "touches of a session whose EXPIRE is in the log are acknowledged", Mode.EXPIRY)
def touch_while_expiring() -> Sequence[Patch]:
    original = SessionExpiry.accept_report

    def accept(self: SessionExpiry, server: Any, instance: Any, report: TouchReport, sessions: Any) -> Any:
        proposed, self._proposed = self._proposed, set()
        try:
            return original(self, server, instance, report, sessions)
        finally:
            self._proposed = proposed

    return [(SessionExpiry, "accept_report", accept)]


@plant("D-14", "nothing is held: any open connection is answered", Mode.EXPIRY)
def nothing_held() -> Sequence[Patch]:
    def flush(self: Clients, now: int) -> list[Output]:
        dirty, self._dirty = self._dirty, []
        outputs: list[Output] = []
        for connection in dirty:
            connection.dirty = False
            outputs.append((connection, b"".join(connection.out), connection.closing))
            connection.out.clear()
            if connection.closing:
                self.release(connection)
        return outputs

    return [(Clients, "flush", flush), (Contact, "lost", property(lambda self: False))]
