"""One leadership: what begins when the leader's first entry is applied, and ends when it steps down.

Only from then on does the state hold all that earlier leaders committed: rows, sessions and log time are
exact. Every leadership is a new object, so nothing remembered from an earlier one can be used (D-2, D-11b,
D-12).

Pure. Source: rules D-2, D-5, D-11 and D-12 in docs/explanation/rules.md.
"""

from __future__ import annotations

from collections.abc import Container
from math import inf
from typing import Final

from zraft.config.features import FEATURE_LEVEL_MIN
from zraft.groups.digests import check_digests
from zraft.groups.frame import LogFrame
from zraft.groups.outbox import PeerOutbox
from zraft.groups.server_statistics import Proposals
from zraft.raft.core import Raft
from zraft.raft.role import Role
from zraft.server.coordination.anticipation import Anticipation
from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.expiry import SessionExpiry
from zraft.server.coordination.intake import BatchIntake
from zraft.server.coordination.membership_keeper import MembershipKeeper
from zraft.server.coordination.reaper import Reaper
from zraft.server.coordination.settings import CoordinationSettings
from zraft.server.coordination.topic_registry import RegistryKeeper
from zraft.transport.messages import TouchAck, TouchReport
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.znodes.txn import FEATURE, SETTINGS, Command, pack_batch, pack_entry

LEADER_COMMANDS_PER_ENTRY_MAX: Final = 4096
"""How many sessions expire or znodes are reaped by one entry, about 250 KB: after a site went dark all are due at once."""

LOOK_INTERVAL_MS: Final = 50
"""How often the leader looks at what no event brings: which sessions are silent, what may go, who the members are."""

NO_INSTANCE: Final = Instance(b"")
"""Stands for the origin's disk in a batch of the leader's own commands, which has no origin."""


class Leadership:
    """The batches of the origins and the leader's own commands on their way into the log, and the log's time.

    Attributes:
        intake: takes exactly the next batch of each origin (D-2).
        expiry: when each session was heard; fed by touch reports and by what is applied (D-11).
        members: who is let in, replaced and promoted; what all members can do; whose state differs (D-1, D-5,
            D-26).
        topics: where partitions of topics are, and what their groups are told (D-8, D-18).
        commands: the leader's own commands for the next entries.
        proposes_at: when a wait for more batches ends, in ms; `inf` if none waits.
    """

    def __init__(
        self,
        me: ServerId,
        settings: CoordinationSettings,
        machine: Machine,
        proposals: Proposals,
        clock: TurnClock,
        outbox: PeerOutbox,
        frame: LogFrame,
    ) -> None:
        """Begin with the rows, sessions and log time of the state; `frame` is what waits for this server's log."""
        self._me = me
        self._settings = settings
        self._machine = machine
        self._proposals = proposals
        self._clock = clock
        self._outbox = outbox
        self._frame = frame
        now_ms, run_ms = clock.now, clock.run
        self._began = run_ms
        self._look_at = now_ms
        self._log_time_base = machine.log_time
        self.intake = BatchIntake({origin: (row.boot, row.seq) for origin, row in machine.rows.items()})
        self.expiry = SessionExpiry(machine.settings.tick_time_ms)
        self.members = MembershipKeeper(me, settings.features, now_ms, settings.observers)
        self.topics = RegistryKeeper(me, machine.registry, now_ms)
        self._reaper = Reaper(settings.reap_interval_ms, run_ms)
        self._anticipation = Anticipation(settings.origin.asking_again_share_min)
        self._attended: Container[ServerId] = () if settings.puts_off_attended else machine.attended
        self._asked: frozenset[ServerId] | None = None
        """The servers whose clients wait for the newest entry; None once it is committed, and if nobody's do."""
        self._proposed = 0
        """The index of the newest entry."""
        self._proposed_at = 0
        """The time at which it was proposed, in ms."""
        self.proposes_at: float = inf
        self.commands: list[Command] = []
        if machine.position == 0:
            # Nothing was ever applied, so no earlier leader committed its settings. They are part of the first entry
            # with commands, whichever leader writes it.
            self.commands.append((SETTINGS, settings.tree.known_at(FEATURE_LEVEL_MIN)))

    @property
    def uptime_ms(self) -> int:
        """The time in ms that this leadership ran."""
        return self._clock.run - self._began

    def expire(self, session: int) -> bool:
        """Propose the end of a session that need not be silent, for tests of clients; return False if there is none.

        It is void if the session attaches or writes before it is applied, as that of a silent one is (D-11).
        """
        record = self._machine.sessions.get(session)
        if record is None:
            return False
        self.commands.append(self.expiry.give_up(session, record))
        return True

    def rests(self, raft: Raft) -> bool:
        """Return whether nothing is under way that `lead` has to look at soon: only sessions, which have their own time."""
        registry = self._machine.registry
        return not (
            self.intake.ready
            or self.commands
            or self.topics.heard
            or self.topics.outgoing
            or registry.topics
            or registry.groups
            or self._reaper.left
            or self.expiry.suspects
        ) and self.members.has_settled(raft.membership)

    def raise_features(self, level: int) -> None:
        """Put a higher feature level into the log, and the settings that are new with it, as this server is configured.

        Only a leader's batch may hold this command: an origin's would be taken unseen, and a level that a
        server does not know stops it.
        """
        self.commands.append((FEATURE, level))
        tree = self._settings.tree
        known = tree.known_at(self._machine.feature_level)
        newer = {name: value for name, value in tree.known_at(level).items() if name not in known}
        if newer:
            self.commands.append((SETTINGS, newer))

    def answer_report(
        self, raft: Raft, server: ServerId, instance: Instance, report: TouchReport, has_quorum: bool
    ) -> TouchAck | None:
        """Return the acknowledgement of a touch report; None if this leader could not keep that promise (D-11 a to d)."""
        if raft.role is not Role.LEADER or not has_quorum or not raft.membership.has(server, instance):
            return None
        refused = self.expiry.accept_report(server, instance, report, self._machine.sessions)
        return None if refused is None else TouchAck(raft.term, report.boot, report.number, refused)

    def wants_turn(self, raft: Raft) -> bool:
        """Return whether a batch that came just now gives a turn something to do.

        It has not while an entry is under way, whose turn the batch shares, or while others are waited for, if the end of
        that wait has its turn.
        """
        if self._waits(raft):
            return self.proposes_at == inf
        return raft.log.last_index - raft.commit_index < self._settings.entries_in_flight_max

    def _waits(self, raft: Raft) -> bool:
        """Return whether the next entry waits for servers whose clients were answered a moment ago."""
        anticipation, ready, now = self._anticipation, self.intake.ready, self._clock.now
        asked = self._asked
        if asked is not None and raft.commit_index >= self._proposed:
            self._asked = None
            if len(asked) > 1 or (ready and (len(ready) > 1 or ready[0][0] not in asked)):
                # One server alone has nobody to wait for.
                anticipation.answered(asked, now, now - self._proposed_at)
        return now < anticipation.until and anticipation.waits([server for server, _ in ready], now)

    def lead(self, raft: Raft, wall_ms: int) -> None:
        """Do the leader's share of the turn: expire sessions, and put what has gathered into one entry.

        Raises:
            DivergedError: this server's state is not the majority's (D-26).
        """
        machine, intake, commands, settings = self._machine, self.intake, self.commands, self._settings
        log_time = self._log_time_base + self._clock.run - self._began
        if self._clock.now >= self._look_at or self.topics.heard or self._reaper.left:
            self._look_at = self._clock.now + LOOK_INTERVAL_MS
            self._look(raft, log_time)
        self.proposes_at = inf
        if not (intake.ready or commands) or raft.handover is not None:
            return
        if self._waits(raft) and not commands:
            self.proposes_at = self._anticipation.until
            return
        waiting = self._frame.waiting_bytes
        stuck = (
            COORDINATION_GROUP in waiting
            and waiting[COORDINATION_GROUP] > settings.raft.uncommitted_bytes_max
        )
        window = 0 if stuck else settings.entries_in_flight_max
        origins: frozenset[ServerId] | None
        while (intake.ready or commands) and raft.log.last_index - raft.commit_index < window:
            blobs, count, origins = intake.take(settings.entry_bytes_max)
            if commands:
                origins = None  # such as the end of a session, whose connection may be anywhere
                own = commands[:LEADER_COMMANDS_PER_ENTRY_MAX]
                del commands[:LEADER_COMMANDS_PER_ENTRY_MAX]
                blob = pack_batch(ServerId(0), NO_INSTANCE, 0, 0, [(0, (), own)])
                # Settings come first, to hold for the first session already. An EXPIRE comes last, so that writes of its
                # session in the same entry keep the session alive.
                blobs.insert(0 if machine.position == 0 else len(blobs), blob)
                count += len(own)
            payload = pack_entry(log_time, wall_ms, blobs)
            self._proposals.add(len(payload), count)
            raft.attended = self._attended
            index = raft.propose(payload, count, origins)
            assert index is not None, "a leader with few uncommitted entries refused a bounded one"
            self._asked, self._proposed, self._proposed_at = origins, index, self._clock.now

    def _look(self, raft: Raft, log_time: int) -> None:
        """Gather the leader's own commands: sessions and znodes that are to go, members and topics that are to change.

        If it is time, also tell the members the digests that their majority computed.
        """
        machine, expiry, commands = self._machine, self.expiry, self.commands
        now_ms, run_ms = self._clock.now, self._clock.run
        expiry.tick_time_ms = machine.settings.tick_time_ms
        if expiry.wants_round(machine.sessions, raft.round + 1):
            raft.request_round()
        commands.extend(expiry.confirmed(machine.sessions, raft.quorum_round))
        commands.extend(self._reaper.step(machine, log_time, run_ms))
        wanted, verdict = self.members.step(raft, machine, machine.digests, now_ms)
        for command in wanted:
            if command[0] == FEATURE:
                self.raise_features(command[1])
            else:
                commands.append(command)
        commands.extend(self.topics.turn(raft, machine, now_ms))
        if verdict is not None:
            for server in raft.membership.members:
                if server != self._me:
                    self._outbox.send(server, verdict)
            check_digests(COORDINATION_GROUP, machine.digests, verdict.digests)
