"""The coordination group on one server: its replica, whether this server belongs to it, who leads, and what a leader does.

Group 0 is founded and joined, its members come and go as operators want, and its leader acts for clients.
These things are special about it; all else it has in common with every group (`zraft.groups`). A turn of the
server calls `advance`, then `ask_leader` with what clients want, `Leadership.lead` if this server leads, and
`settle`.

Pure. Source: rules D-1, D-2, D-7, D-11 and D-14 in docs/explanation/rules.md.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from zraft.groups.digests import check_digests
from zraft.groups.frame import LogFrame
from zraft.groups.identity import Identity
from zraft.groups.machine import EntryTaker
from zraft.groups.outbox import PeerOutbox
from zraft.groups.recovery import Stored
from zraft.groups.replica import Replica
from zraft.groups.roster import Roster
from zraft.groups.server_statistics import Proposals
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    Member,
    MemberRole,
)
from zraft.raft.messages import Message as RaftMessage
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.coordination.belonging import Belonging
from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.contact import Contact, Sessions
from zraft.server.coordination.expiry import SCAN_INTERVAL_MS
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.linearizable_reads import LinearizableReads, Syncs
from zraft.server.coordination.origin import OriginStream
from zraft.server.coordination.settings import CoordinationSettings
from zraft.server.coordination.touches import TouchReporter
from zraft.transport.messages import (
    Hello,
    Join,
    MemberReport,
    NotMember,
    OriginBatch,
    PeerMessage,
    Sender,
    TouchAck,
    TouchReport,
    Verdict,
    Welcome,
)
from zraft.tree.machine import Machine
from zraft_core.errors import ProtocolError
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

IDLE_TURN_MS: Final = 400
"""The longest time between two turns. What has an exact moment asks for a turn at it; all else may be late by this."""

RESTING_TURN_MS: Final = 1_200
"""The same of a server for which nothing is under way, and which has no session to watch; its report comes sooner."""

WATCHING_TURN_MS: Final = SCAN_INTERVAL_MS + 50
"""The same of a leader for which nothing is under way but sessions, which are to be looked at: every other heartbeat."""

SEEK_TURN_MS: Final = 20
"""The longest time between two turns of a server that has no cluster yet, and greets others until it has."""

BEHIND_ENTRIES: Final = 32
"""More entries than this wait to be applied only after a start or an absence: clients' writes leave one or two."""
APPLY_BYTES_PER_TURN: Final = 128 * 1024
"""How many bytes of entries are applied in one turn, so that a server that catches up still answers heartbeats and pings."""

EARLY_BATCHES_MAX: Final = 16
"""How many batches are kept between an election and the leader's first applied entry: one or two per origin."""

_WANT_A_TURN: Final = frozenset({Hello, TouchAck})


class CoordinationGroup:
    """One server's part in the coordination group. Its driver owns it.

    Args:
        settings: the bounds and times of the group.
        machine, origin, touches, sessions, syncs: the replicated state, and what this server's clients want.
        clock: the time of the turn; its owner lets it pass.
        outbox, frame: where messages and writes go.
        on_mistake: gets (sender, problem) of a message that no correct peer sends.
        on_removal: is called when this server no longer belongs to the cluster.

    Attributes:
        replica, raft: the replica here and its core; None before this server belongs to a cluster.
        belonging, bootstrap: whether it does, and how it came to.
        leader: the leader that the last turn saw; None if it saw none.
        leadership: what exists while this server leads, from its first applied entry on; else None.
        contact: when this server was last in touch with a quorum.
        stirred: whether a message came that gives the next turn something to do; the owner of the turn resets
            it.
        leader_changes: how often another leader was found.
    """

    def __init__(
        self,
        *,
        settings: CoordinationSettings,
        identity: Identity,
        peers: Sequence[ServerId],
        addresses: Mapping[ServerId, str],
        stored: Stored,
        rng: random.Random,
        machine: Machine,
        origin: OriginStream,
        touches: TouchReporter,
        sessions: Sessions,
        syncs: Syncs,
        clock: TurnClock,
        outbox: PeerOutbox,
        frame: LogFrame,
        proposals: Proposals,
        on_mistake: Callable[[ServerId, str], None],
        on_removal: Callable[[], None],
    ) -> None:
        self.identity = identity
        self.machine = machine
        self.replica: Replica | None = None
        self.raft: Raft | None = None
        self.leader: ServerId | None = None
        self.leadership: Leadership | None = None
        self.stirred = False
        self.leader_changes = 0
        self._settings = settings
        self._stored = stored
        self._addresses = addresses
        self._rng = rng
        self._origin = origin
        self._touches = touches
        self._clock = clock
        self._outbox = outbox
        self._frame = frame
        self._proposals = proposals
        self._on_mistake = on_mistake
        self._on_removal = on_removal
        timeout_ms = settings.raft.election_timeout_ticks
        self.contact = Contact(clock, touches, sessions, machine, timeout_ms)
        self._syncs = syncs
        self._reads = LinearizableReads(syncs, identity.boot, settings.origin.resend_ms)
        self.belonging = Belonging(identity, peers, settings, stored, addresses, outbox)
        self.bootstrap = self.belonging.bootstrap
        self._founding = stored.log.last_index == 0
        self._led_term = 0
        self._early_batches: deque[tuple[ServerId, Instance, OriginBatch]] = deque(maxlen=EARLY_BATCHES_MAX)
        self._entries: EntryTaker | None = None
        self._tick_at: float = 0
        self._tick_by: float = 0
        """The first turn from this tick on ticks the core, although its next round may be due later each time: rounds that
        join what groups say begin early, and what else a tick does must not wait for one that does not."""
        self._seen_commit = 0

    # -- how it begins

    def open(self, entries: EntryTaker) -> None:
        """Take part with what the disk holds, if it holds anything. Entries are applied to `entries`.

        Raises:
            StorageError: hard state and log contradict each other.
            ProtocolError: a membership cannot be read.
        """
        self._entries = entries
        if self._stored.roster is not None:
            self._start(self._founders(self._stored.roster))
        elif self._stored.log.last_index > 0:
            # A Welcome let this server in. Its log may end before the entry that did so, and its vote may be needed.
            me = Member(self.identity.instance, MemberRole.LEARNER)
            self._start(Membership({self.identity.server: me}))

    def roster_durable(self) -> None:
        """Take note that the roster of a new cluster is on this disk, and vote for it from now on (D-1)."""
        self.bootstrap.roster_durable()
        assert self.bootstrap.roster is not None
        self._start(self._founders(self.bootstrap.roster))
        self.stirred = True

    def _founders(self, roster: Roster) -> Membership:
        return Membership(
            {
                server: Member(instance, MemberRole.VOTER, self._addresses.get(server, ""))
                for server, instance in roster
            }
        )

    def _start(self, membership: Membership) -> None:
        """Take part from now on; `membership` holds while the log names none."""
        identity, stored = self.identity, self._stored
        assert self._entries is not None, "not open"
        self.raft = raft = Raft(
            group=COORDINATION_GROUP,
            server=identity.server,
            instance=identity.instance,
            settings=self._settings.raft,
            hard_state=stored.hard_state,
            log=stored.log,
            membership=membership,
            rng=self._rng,
        )
        self.replica = Replica(COORDINATION_GROUP, raft, self._entries)
        if stored.snapshot is not None:
            meta = stored.snapshot.header.meta
            replaced = raft.restore(meta)
            assert not replaced, "the log does not reach the newest snapshot"
            self.stands_at(meta)

    # -- what others see

    @property
    def cluster(self) -> bytes | None:
        """The cluster id, once the roster is agreed and the cluster founded."""
        return self.bootstrap.cluster

    @property
    def leads(self) -> bool:
        """True if this server leads, and may take what is asked of a leader."""
        return self.leadership is not None

    @property
    def serving(self) -> bool:
        """True if clients get answers: contact with a leader that has a quorum, later than the last wake-up (D-14)."""
        return self.raft is not None and not self.contact.stale and self.belonging.removed is None

    @property
    def removed(self) -> str | None:
        """The reason why this server no longer belongs to the cluster, in words for its operator; None while it does."""
        return self.belonging.removed

    @property
    def problem(self) -> str | None:
        """The reason why this server stays out of its cluster, in words for its operator; None if it does not."""
        return self.belonging.problem(led=self.leader is not None)

    @property
    def waiting(self) -> str | None:
        """The event that an empty server waits for, in words; None once it belongs to a cluster, or was refused."""
        return self.belonging.waiting(led=self.leader is not None)

    @property
    def leader_uptime_ms(self) -> int:
        """The time in ms that this leadership ran; 0 while not leading."""
        return 0 if self.leadership is None else self.leadership.uptime_ms

    @property
    def settings_differ(self) -> dict[str, tuple[object, object]]:
        """The settings that this configuration names and that are not in force: name -> (configured, replicated) (D-5)."""
        if self.replica is None or not self.replica.applied_index:
            return {}
        level = self.machine.feature_level
        ours, theirs = self._settings.tree.known_at(level), self.machine.settings.known_at(level)
        named = self._settings.configured & ours.keys()
        return {name: (ours[name], theirs[name]) for name in sorted(named) if ours[name] != theirs[name]}

    def address_of(self, server: ServerId | None) -> str | None:
        """Return the address of a server, as far as this one was told; None if it was not."""
        return self._addresses.get(server) if server is not None else None

    def silent_ms(self, session: int) -> int | None:
        """Return the ms since a session was last heard: here, or anywhere if this server leads. None if it does not know."""
        heard = self._touches.heard(session)
        here = None if heard is None else self._clock.now - heard
        told = None if self.leadership is None else self.leadership.expiry.silent_ms(session)
        return min((one for one in (here, told) if one is not None), default=None)

    # -- a share of the turn

    @property
    def wants_turn(self) -> bool:
        """True if what arrived since the last turn gives a turn something to do before the next regular one.

        Nobody waits for what the second of two acknowledgements changes, or the leader's own fsync when no
        follower has answered yet. A turn for each of these would be a third of all turns under light load.
        """
        raft, replica = self.raft, self.replica
        return (
            self.stirred
            or raft is None
            or replica is None
            or raft.commit_index != self._seen_commit
            or raft.leader != self.leader
            or (raft.commit_index > replica.applied_index and replica.has_more_to_apply)
            or raft.has_ready
        )

    def advance(self, rest: int, step: int) -> None:
        """Let time pass: `step` ms since the last turn, of which the core was not told the last `rest` ms yet."""
        raft, now = self.raft, self._clock.now
        founded = self.bootstrap.founded
        if not founded:
            self.belonging.seek(now)
        elif self._founding and raft is not None:
            self._begin_cluster(raft)
        if raft is None:
            return
        if founded and step:
            raft.pass_time(rest)
            if raft.now >= self._tick_at or raft.now >= self._tick_by:
                raft.tick(0)
                self._tick_by = raft.now + raft.settings.heartbeat_ticks
        if raft.leader != self.leader:
            self._follow(raft.leader)
        leadership = self.leadership
        if raft.role is not Role.LEADER:
            if leadership is not None or self._early_batches:
                self.leadership = None
                self._early_batches.clear()
        elif leadership is not None and raft.term == self._led_term:
            if step:
                leadership.expiry.advance(step)
        else:
            self._begin_leadership(raft)

    def ask_leader(self) -> None:
        """Send what the leader is to know, log or confirm: batches, touch reports, reads. It may be this server itself."""
        leader, now = self.leader, self._clock.now
        if leader is None:
            return
        if now >= self._origin.due_at:
            me = self.identity
            for batch in self._origin.due(now):
                if leader == me.server:
                    self._take_batch(me.server, me.instance, batch, own=True)
                else:
                    self._outbox.send(leader, batch)
        touches = self._touches
        if now >= touches.may_leave_at:
            # The log may not hold the settings yet, as in a cluster that was founded a moment ago.
            tick_ms = min(self.machine.settings.tick_time_ms, self._settings.tree.tick_time_ms)
            touches.interval_ms = tick_ms // 2
            for report in touches.make_reports(now):
                self._outbox.send(leader, report)
            if leader != self.identity.server:
                digests = tuple(self.machine.digests)
                self._outbox.send(leader, MemberReport(self._settings.features, digests))
        if self._reads.waiting or self._syncs.syncs:
            context = self._reads.ask(now)
            if context is not None:
                assert self.raft is not None
                self.raft.read_index(context)

    def settle(self) -> None:
        """Take what the core wants done, and apply what is committed and durable here (D-7)."""
        replica, raft = self.replica, self.raft
        assert replica is not None
        assert raft is not None
        ready = raft.ready()
        if ready.messages:
            self._outbox.send_each(ready.messages)
        if ready.write is not None:
            self._frame.add(COORDINATION_GROUP, ready.write)
        if ready.read_states:
            replica.reads += ready.read_states
        if raft.role is Role.LEADER:
            self._note_rounds(raft)
        if raft.commit_index > replica.applied_index and replica.apply(APPLY_BYTES_PER_TURN):
            self.machine.behind = raft.commit_index - replica.applied_index > BEHIND_ENTRIES
            log = raft.log
            if log.bytes_in_memory > self._settings.log_memory_bytes_max:
                log.evict_to(replica.applied_index)
        if replica.reads:
            self._reads.answer(replica.take_reads())
        self._seen_commit = raft.commit_index

    def acknowledge(self) -> bool:
        """Let leave what waited for a write that is durable now, if this server follows and has nothing to apply.

        Returns:
            Whether that is all that follows from the write; if not, nothing was done, and the next turn does it.
        """
        raft, replica = self.raft, self.replica
        if (
            raft is None
            or replica is None
            or self.stirred
            or raft.role is not Role.FOLLOWER
            or raft.leader != self.leader
            or raft.commit_index != self._seen_commit
            or (raft.commit_index > replica.applied_index and replica.has_more_to_apply)
        ):
            return False
        ready = raft.ready()
        self._outbox.send_each(ready.messages)
        if ready.write is not None:
            self._frame.add(COORDINATION_GROUP, ready.write)
        if ready.read_states:
            replica.reads += ready.read_states
            self.stirred = True
        return True

    @property
    def may_settle(self) -> bool:
        """True if `settle` is all that follows from what members said: nothing is due, and everybody is who they were."""
        raft, replica, now = self.raft, self.replica, self._clock.now
        if (
            raft is None
            or replica is None
            or self.stirred
            or self.leader is None
            or raft.leader != self.leader
            or raft.now >= self._tick_at
            or raft.now >= self._tick_by
            or raft.members_changed_index > replica.applied_index
            or now >= self._origin.due_at
            or now >= self._touches.may_leave_at
            or not self.bootstrap.founded
        ):
            return False
        leadership = self.leadership
        if raft.role is Role.FOLLOWER:
            return leadership is None and not (self._reads.waiting or self._syncs.syncs)
        return (
            leadership is not None
            and raft.term == self._led_term
            and raft.commit_index != self._seen_commit
            and not (leadership.intake.ready or leadership.commands or raft.handover is not None)
        )

    def beat(self) -> Sequence[tuple[ServerId, RaftMessage]] | None:
        """Return the heartbeats that are due, if nothing else is; None, and nothing was done, if a turn has to follow.

        So it is on a leader for whom nothing is under way. A follower that has heard its leader says nothing.
        """
        raft, replica = self.raft, self.replica
        if (
            self.stirred
            or raft is None
            or replica is None
            or raft.leader != self.leader
            or raft.commit_index != replica.applied_index
        ):
            return None
        if raft.role is Role.FOLLOWER:
            return () if raft.alarm_in > 0 else None
        messages = raft.beat()
        if messages is not None:
            self._note_rounds(raft)
        return messages

    def _note_rounds(self, raft: Raft) -> None:
        rounds, contact = raft.rounds, self.contact
        if rounds.newest != contact.newest_round or rounds.confirmed != contact.answered_round:
            contact.note_rounds(rounds.newest, rounds.confirmed)

    def look(self) -> None:
        """Look at what no event brings: whether this server still belongs to its cluster."""
        raft, now = self.raft, self._clock.now
        # A server that may not campaign goes on naming a leader that no longer speaks to it.
        if (
            raft is not None
            and (raft.leader is None or (not raft.is_voter and self.contact.stale))
            and self.belonging.asks_outside(now)
        ):
            self.belonging.ask_whether_member(raft, now)

    @property
    def rests(self) -> bool:
        """True if nothing is under way here that a turn has to look at, except what has an exact time."""
        raft, leadership = self.raft, self.leadership
        return (
            raft is not None
            and raft.leader is not None
            and self.bootstrap.founded
            and self.belonging.removed is None
            and not (self._reads.waiting or self._syncs.syncs)
            and not self.contact.stale
            and (raft.role is Role.FOLLOWER or (leadership is not None and leadership.rests(raft)))
        )

    def due_at(self, *, rests: bool) -> int:
        """Return the ms at which the next turn is due if nothing happens: now, if this one left something undone.

        The core's alarm is left out: `look_at_alarm` returns it.

        Args:
            rests: nothing is under way, here and elsewhere on this server.
        """
        now, raft, replica = self._clock.now, self.raft, self.replica
        due = now + (IDLE_TURN_MS if self.bootstrap.founded else SEEK_TURN_MS)
        if raft is not None and replica is not None:
            if (raft.commit_index > replica.applied_index and replica.has_more_to_apply) or (
                raft.role is Role.LEADER
                and self.leadership is None
                and raft.noop_index <= replica.applied_index
            ):
                return now
            if rests:
                if not self.machine.sessions:
                    due = now + RESTING_TURN_MS
                elif self.leadership is not None:
                    due = now + WATCHING_TURN_MS
        if self.leader is not None and self._touches.due_at < due:
            # Without a leader there is no server to report to, however long a report is overdue.
            due = self._touches.due_at
        leadership = self.leadership
        if leadership is not None and leadership.proposes_at < due:
            due = int(leadership.proposes_at)
        return due if due > now else now + 1

    def look_at_alarm(self) -> int:
        """Return the ms at which the core's next heartbeat or election is due, if that is soon; else a later time."""
        now, raft = self._clock.now, self.raft
        if raft is None:
            return now + RESTING_TURN_MS
        in_ms = raft.alarm_in
        self._tick_at = raft.now + in_ms
        if in_ms >= RESTING_TURN_MS:
            return now + RESTING_TURN_MS
        return now - int(-in_ms // 1) if in_ms > 0 else now + 1  # rounded up

    def _begin_cluster(self, raft: Raft) -> None:
        """Let one server campaign at once in a cluster that was founded this moment, because none can lead it yet."""
        self._founding = False
        # Those that wait to hear it would not vote yet (D-1).
        for peer, hello in self.bootstrap.hellos(self._clock.now):
            self._outbox.send(peer, hello)
        first = self.identity.server == min(raft.membership.voters)
        if first and raft.leader is None and raft.log.last_index == 0:
            raft.hasten_election()

    # -- who leads

    def _follow(self, leader: ServerId | None) -> None:
        """Follow another leader, or none."""
        self.leader = leader
        if leader is not None:
            self.leader_changes += 1
            self._origin.on_leader_change()
            self._touches.report_now()
        self._reads.ask_again()

    def _begin_leadership(self, raft: Raft) -> None:
        """Begin the leadership of this server, with the first entry of its term that is applied."""
        if raft.term != self._led_term:
            self._led_term = raft.term
            self.leadership = None
            self.contact.new_term()
        assert self.replica is not None
        if raft.noop_index <= self.replica.applied_index:
            self.leadership = Leadership(
                self.identity.server,
                self._settings,
                self.machine,
                self._proposals,
                self._clock,
                self._outbox,
                self._frame,
            )
            while self._early_batches:
                self.leadership.intake.offer(*self._early_batches.popleft())

    # -- what others say

    def on_message(
        self, server: ServerId, instance: Instance, message: PeerMessage, sender: Sender | None
    ) -> None:
        """Take a message about this group; `sender` is None if this server sent it to itself.

        Raises:
            CopiedDirectoryError: a later boot of this very directory is registered (D-1).
            DivergedError: this server's state is not the majority's (D-26).
        """
        raft, leadership = self.raft, self.leadership
        if message.__class__ in _WANT_A_TURN:
            self.stirred = True
        match message:
            case OriginBatch():
                self._take_batch(server, instance, message)
                if leadership is None or raft is None or leadership.wants_turn(raft):
                    self.stirred = True
            case TouchReport():
                if raft is not None and leadership is not None:
                    has_quorum = self.contact.has_quorum
                    report_ack = leadership.answer_report(raft, server, instance, message, has_quorum)
                    if report_ack is not None:
                        self._outbox.send(server, report_ack)
            case TouchAck():
                if message.boot > self.identity.boot and server == self.leader:
                    # Only the leader is believed: it could write the same into the log.
                    raise self.identity.copied(message.boot)
                if raft is not None and message.term >= raft.term:
                    self._touches.on_ack(message, self._clock.run)
            case Hello():
                assert sender is not None
                self.belonging.on_hello(
                    sender, message, raft, leadership, serving=self.serving, now_ms=self._clock.now
                )
            case Join() | Welcome() | NotMember() | MemberReport() | Verdict():
                self._on_membership(server, instance, message)
            case _:
                assert isinstance(message, RaftMessage), f"{message!r} is not about the coordination group"
                self.on_consensus(server, instance, message)

    def _take_batch(
        self, server: ServerId, instance: Instance, batch: OriginBatch, *, own: bool = False
    ) -> None:
        """Take a batch of an origin, which may be this server itself, if this server leads."""
        if self.leadership is not None:
            self.leadership.intake.offer(server, instance, batch, own=own)
        elif self.raft is not None and self.raft.role is Role.LEADER:
            # Its origin has heard of this leader before the leader's first entry is applied. It would send the batch again
            # only after a while, and clients have waited for an election already.
            self._early_batches.append((server, instance, batch))

    def _on_membership(
        self,
        server: ServerId,
        instance: Instance,
        message: Join | Welcome | NotMember | MemberReport | Verdict,
    ) -> None:
        """Take a message about the members: who belongs to the cluster, what each can do, and whose state differs."""
        raft, leadership = self.raft, self.leadership
        match message:
            case Join():
                if raft is not None:
                    self.belonging.on_join(
                        server, instance, message, raft, leadership, self.machine, self._clock.now
                    )
            case Welcome():
                if raft is None:
                    membership = self.belonging.joining.on_welcome(message)
                    if membership is not None:
                        self.bootstrap.welcomed(message.cluster)
                        self._start(membership)
                        assert self.raft is not None
                        self.raft.vouch(server, instance)
            case NotMember():
                removed_at = self.belonging.on_not_member(server, message, raft)
                if removed_at is not None:
                    self._remove(removed_at)
            case MemberReport():
                if leadership is not None and raft is not None and raft.membership.has(server, instance):
                    leadership.members.on_report(server, instance, message)
            case Verdict():
                if raft is not None and server == self.leader:
                    check_digests(COORDINATION_GROUP, self.machine.digests, message.digests)

    def on_consensus(self, server: ServerId, instance: Instance, message: RaftMessage) -> None:
        """Take a message of the core's protocol. This is the hot path: nearly all messages are of these.

        A message that no correct peer sends is told to `on_mistake`.
        """
        raft = self.raft
        if raft is None:
            return
        is_member = raft.membership.has(server, instance)
        if not is_member:
            self.belonging.on_stranger(raft, self.leadership, server, instance, self._clock.now)
        if not self.bootstrap.founded and not self.bootstrap.admits(message, from_member=is_member):
            return
        try:
            raft.step(server, instance, message, is_member=is_member)
        except ProtocolError as error:
            # Only that message is lost: a peer must not be able to end this server.
            self._on_mistake(server, str(error))

    # -- who belongs

    def on_members(self, membership: Membership, index: int) -> None:
        """Take note that the MEMBERSHIP entry at `index` was applied."""
        if self.leadership is not None:
            rows = {origin: (row.boot, row.seq) for origin, row in self.machine.rows.items()}
            self.leadership.intake.set_origins(rows)
        self._note_membership(membership, index)

    def stands_at(self, meta: SnapshotMeta) -> None:
        """Take note that the state, and so the configuration, is that of a snapshot.

        Raises:
            ProtocolError: the membership in it cannot be read.
        """
        assert self.replica is not None
        self.replica.stands_at(meta)
        self._note_membership(Membership.decode(meta.membership), meta.index)

    def _note_membership(self, membership: Membership, index: int) -> None:
        """Take note that the state holds the configuration of entry `index`."""
        if self.belonging.note_membership(membership, index):
            self._remove(index)

    def _remove(self, index: int) -> None:
        """Take note that entry `index` removed this server."""
        if self.belonging.remove(index):
            self._on_removal()
