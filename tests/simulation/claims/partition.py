"""A partition's group in the simulation: a log that leaders append to, three replicas that apply it, and faults.

Consensus itself is not simulated (`tests.simulation.simulation` does that): what it gives is. Entries commit in order after
a while; a leader change keeps some prefix of what was not committed and loses the rest with all answers; a stopped
leader's answers, ticks and sockets wait until it goes on or is replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from attrs import define, frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.claims.checks import Checks
from tests.simulation.claims.profile import HEARTBEAT_MS
from tests.simulation.schedule import Schedule
from zraft_core.claims import snapshot
from zraft_core.claims.answers import ClaimAnswer, ClaimsView
from zraft_core.claims.commands import ClaimCommand
from zraft_core.claims.expiry import ClaimExpiry
from zraft_core.claims.state import Claims

SERVERS: Final = 3
TICK_MS: Final = 200
AWAKE_STEP_MS: Final = 250
"""As a driver: a turn that comes late ages nobody by more."""

Reply = Callable[[ClaimAnswer], None]


@define
class Server:
    """A machine with a clock of its own, which may stand still as a whole (SIGSTOP)."""

    number: int
    offset_ms: int
    rate: float
    stopped_until: int = 0

    def clock(self, now_ms: int) -> int:
        return int(self.offset_ms + self.rate * now_ms)

    def is_stopped(self, now_ms: int) -> bool:
        return now_ms < self.stopped_until


@frozen
class Entry:
    """One entry of the log. `command` None: a message came, or a leader began.

    `awake_ms` is for how long the leader that appended it, in `leadership`, had been awake as such.
    """

    position: int
    log_time_ms: int
    command: ClaimCommand | None
    end: int
    reply: Reply | None
    leadership: int
    awake_ms: int


class Replica:
    """One server's state, as far as it has applied the log."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.claims = Claims(HEARTBEAT_MS)
        self.applied = 0

    def log_time(self, entry: Entry, now_ms: int) -> int:
        """What the entry says; nobody's own clock."""
        return entry.log_time_ms

    def apply(self, entry: Entry, now_ms: int) -> ClaimAnswer | None:
        assert entry.position == self.applied + 1
        self.applied = entry.position
        if entry.command is None:
            return None
        return self.claims.apply(entry.command, entry.position, self.log_time(entry, now_ms), entry.end)


class SimulatedPartition:
    """One partition's group. `end` is the offset after the last committed message."""

    def __init__(
        self, number: int, servers: list[Server], schedule: Schedule, rng: random.Random, checks: Checks
    ) -> None:
        self.number = number
        self.end = 0
        self.leader: Replica | None = None
        self.leader_changes = 0
        self._servers = servers
        self._schedule = schedule
        self._rng = rng
        self._checks = checks
        self._replicas = [Replica(server) for server in servers]
        self._log: list[Entry] = []
        self._committed = 0
        self._term = 0
        self._expiry = ClaimExpiry()
        self._awake_ms = 0
        self._elected_log_ms = 0
        self._elected_clock_ms = 0
        self._looked_ms = 0
        self._round = 0
        self._appended_end = 0
        self.elect()

    # Leaders ----------------------------------------------------------------------------------------------------

    def depose(self) -> None:
        """The leader is gone: what it had not committed is kept up to some entry, its answers are lost."""
        if self.leader is None:
            return
        self.leader = None
        self._term += 1
        self.leader_changes += 1
        kept = self._rng.randint(self._committed, len(self._log))
        self._log = self._log[:kept]
        self._schedule.after(self._rng.randint(100, 800), self.elect)

    def elect(self) -> None:
        now = self._schedule.now_ms
        awake = [one for one in self._replicas if not one.server.is_stopped(now)]
        if self.leader is not None:
            return
        if not awake:
            self._schedule.after(300, self.elect)
            return
        self.leader = self._rng.choice(awake)
        self._term += 1
        self._catch_up(self.leader)
        last = self._log[-1].log_time_ms if self._log else 0
        self._elected_log_ms = self.first_log_time(last)
        self._elected_clock_ms = self.leader.server.clock(now)
        self._expiry = ClaimExpiry()
        self._awake_ms, self._looked_ms = 0, now
        # Its own first entry, with which it commits what is left of its predecessors'.
        self._append(None, None)
        for entry in self._log[self._committed :]:
            self._apply(self.leader, entry)
        self._committed = len(self._log)
        self._schedule.after(TICK_MS, self._tick, self._term)

    def first_log_time(self, last_ms: int) -> int:
        """Where a new leader's log time begins (D-12): where the log ends, whatever its clock shows."""
        return last_ms

    def _log_time(self) -> int:
        assert self.leader is not None
        return self._elected_log_ms + self.leader.server.clock(self._schedule.now_ms) - self._elected_clock_ms

    def _tick(self, term: int) -> None:
        if term != self._term or self.leader is None:
            return
        now = self._schedule.now_ms
        if self.leader.server.is_stopped(now):
            self._schedule.at(self.leader.server.stopped_until, self._tick, term)
            return
        # Only time in which it ran, however long it was stopped.
        step = min(now - self._looked_ms, AWAKE_STEP_MS)
        self._looked_ms = now
        self._awake_ms += step
        self._expiry.advance(step)
        if self._expiry.wants_round(self.leader.claims, self._round + 1):
            self._round += 1
            self._schedule.after(self._rng.randint(2, 40), self._on_round, term, self._round)
        self._schedule.after(TICK_MS, self._tick, term)

    def _on_round(self, term: int, number: int) -> None:
        if term != self._term or self.leader is None:
            return
        for command in self._expiry.proposals(self.leader.claims, number):
            self._append(command, None)

    # The log ----------------------------------------------------------------------------------------------------

    def submit(self, command: ClaimCommand, reply: Reply) -> None:
        """A command arrived at the leader; without one it is lost."""
        leader = self.leader
        if leader is None:
            return
        if leader.server.is_stopped(self._schedule.now_ms):
            self._schedule.at(leader.server.stopped_until, self._resubmit, self._term, command, reply)
            return
        self._append(command, reply)

    def _resubmit(self, term: int, command: ClaimCommand, reply: Reply) -> None:
        # What lay in the sockets of a leader that was replaced is lost.
        if term == self._term:
            self.submit(command, reply)

    def add_message(self) -> None:
        if self.leader is not None and not self.leader.server.is_stopped(self._schedule.now_ms):
            self._appended_end = max(self._appended_end, self.end) + 1
            self._append(None, None, self._appended_end)

    def _append(self, command: ClaimCommand | None, reply: Reply | None, end: int | None = None) -> None:
        before = self._log[-1].end if self._log else 0
        entry = Entry(
            len(self._log) + 1,
            self._log_time(),
            command,
            before if end is None else before + 1,
            reply,
            self._term,
            self._awake_ms + min(self._schedule.now_ms - self._looked_ms, AWAKE_STEP_MS),
        )
        self._log.append(entry)
        self._schedule.after(self._rng.randint(1, 20), self._commit, self._term, entry.position)

    def _commit(self, term: int, position: int) -> None:
        if term != self._term or self.leader is None:
            return
        if self.leader.server.is_stopped(self._schedule.now_ms):
            self._schedule.at(self.leader.server.stopped_until, self._commit, term, position)
            return
        while self._committed < position:
            entry = self._log[self._committed]
            self._committed += 1
            answer = self._apply(self.leader, entry)
            if answer is not None and entry.reply is not None:
                entry.reply(answer)
        if self._rng.random() < 0.02:
            self._follow(self._rng.choice(self._replicas))

    def _apply(self, leader: Replica, entry: Entry) -> ClaimAnswer | None:
        answer = leader.apply(entry, self._schedule.now_ms)
        self.end = entry.end
        if answer is not None and entry.command is not None:
            self._checks.on_applied(
                self.number,
                entry.position,
                entry.log_time_ms,
                entry.command,
                answer,
                entry.leadership,
                entry.awake_ms,
            )
        return answer

    # Replicas ---------------------------------------------------------------------------------------------------

    def _catch_up(self, replica: Replica) -> None:
        for entry in self._log[replica.applied : self._committed]:
            replica.apply(entry, self._schedule.now_ms)

    def _follow(self, replica: Replica) -> None:
        """A follower catches up, by the log or by a snapshot, and is compared with the leader."""
        leader = self.leader
        if leader is None or replica is leader or leader.applied != self._committed:
            return
        if self._rng.random() < 0.3:
            replica.claims = snapshot.decode_snapshot(snapshot.encode_snapshot(leader.claims))
            replica.applied = leader.applied
            self._checks.seen["snapshots"] += 1
        self._catch_up(replica)
        self.compare(replica)

    def compare(self, replica: Replica) -> None:
        leader = self.leader
        assert leader is not None
        self._checks.seen["digests compared"] += 1
        if replica.claims.digest() != leader.claims.digest():
            raise BrokenPromiseError(
                "equal replicas", f"partition {self.number}: digests differ at position {self._committed}"
            )

    def compare_all(self) -> None:
        """At the end: all replicas at the leader's position."""
        if self.leader is None or self.leader.applied != self._committed:
            return
        for replica in self._replicas:
            if replica is not self.leader:
                self._catch_up(replica)
                self.compare(replica)

    def view(self, group: str) -> ClaimsView | None:
        """What some replica shows that is awake, up to date or not."""
        now = self._schedule.now_ms
        awake = [one for one in self._replicas if not one.server.is_stopped(now)]
        if not awake:
            return None
        replica = (
            self.leader if self.leader in awake and self._rng.random() < 0.7 else self._rng.choice(awake)
        )
        assert replica is not None
        if replica is not self.leader and self._rng.random() < 0.8:
            self._catch_up(replica)
        return replica.claims.view(group, self._log_time() if replica is self.leader else 0)
