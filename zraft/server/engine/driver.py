"""One server's decisions in the right order: persist, send, apply, answer. No asyncio, socket, disk or clock.

The shell (`zraft.server.process.node`, or the simulator) feeds messages, client bytes and finished writes, and calls
`turn` once per turn of its loop; the returned `Effects` say what to send, what to make durable and what to
write to clients. One turn is one batch: everything that arrived since the last turn goes through the log, the
network and the state machine together, which is what makes Python fast enough (docs/ARCHITECTURE.md).

Times are milliseconds of a clock that counts sleep (`now`); time in which this process did not run ages nobody
(`clock`). Rules cited as D-n are in docs/RULES.md.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil
from typing import Final

from zraft.config.features import LEVEL_OF_TOPICS
from zraft.groups.divergence import check_verdict
from zraft.groups.frame import LogFrame
from zraft.groups.hosted_groups import GroupsShare, HostedGroups, Hosting
from zraft.groups.identity import Identity
from zraft.groups.outbox import Outbox
from zraft.groups.recovery import Stored
from zraft.groups.retention import Retention
from zraft.groups.roster import Roster
from zraft.groups.server_statistics import Latencies, Proposals
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.sending import WAKE_MS, SnapshotSender
from zraft.groups.snapshots.snapshots import Snapshots
from zraft.groups.snapshots.tasks import Read, Result, Task
from zraft.groups.snapshots.transfer import Received
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    Member,
    MemberRole,
)
from zraft.raft.messages import Message as RaftMessage
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.server.clients.errands import Errand
from zraft.server.clients.native.view import ClusterView
from zraft.server.clients.table import Clients
from zraft.server.clients.zookeeper.connection import Connection
from zraft.server.coordination.belonging import Belonging
from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.disk_pace import DiskPace, best_successor
from zraft.server.coordination.joining import introduction
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.origin import OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.server.engine.applier import Applier
from zraft.server.engine.contact import Contact
from zraft.server.engine.effects import Effects
from zraft.server.engine.linearizable_reads import LinearizableReads
from zraft.server.engine.settings import DriverSettings
from zraft.storage.records import Record
from zraft.topics.service import TopicService
from zraft.transport.messages import (
    Bundle,
    DeliveryList,
    DeliveryListRequest,
    DeliveryPiece,
    DeliveryRequest,
    Edge,
    GroupDigests,
    GroupLeader,
    GroupVerdict,
    Hello,
    Join,
    MemberReport,
    NotMember,
    OriginBatch,
    PeerMessage,
    Sender,
    SharedHeartbeat,
    SharedHeartbeatReply,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
    TouchAck,
    TouchReport,
    Verdict,
    Welcome,
    is_of_groups,
)
from zraft.tree.machine import Machine
from zraft.tree.remains import Remains
from zraft_core.errors import Code, ProtocolError
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.znodes.txn import REGISTER, Command

IDLE_TURN_MS: Final = 200
"""Longest time between two turns: what has an exact moment asks for it, and all else may be late by this."""

LOOK_INTERVAL_MS: Final = 50
"""What no event brings is looked at this often, in the turns that something else brings."""

SEEK_TURN_MS: Final = 20
"""The same of a server that has no cluster yet, and says hello to others until it has."""

MISTAKES_KEPT_MAX: Final = 16
"""Messages that no correct peer sends, remembered between two turns for the log; all are counted."""

ERRAND_BYTES: Final = 512
"""What an operator's command counts for in its batch."""

REMAINS_PER_TURN: Final = 3_000
"""Parts of a replaced state freed per turn: about a millisecond."""

EARLY_BATCHES_MAX: Final = 16
"""Batches kept between an election and the leader's first applied entry: one or two per origin."""

DEAF_AFTER_MS: Final = 100
"""A server that leaves finds a moment at which most clients wait for no answer within some round trips."""

FREQUENT: Final = frozenset({AppendEntries, AppendEntriesReply, Heartbeat, HeartbeatReply})
"""By far the most of all messages."""

SERVER_MESSAGES: Final = frozenset({Hello, OriginBatch, TouchAck, TouchReport})


class Driver:
    """One server. Not thread-safe: everything is called from the loop's thread."""

    def __init__(
        self,
        *,
        settings: DriverSettings,
        identity: Identity,
        peers: Sequence[ServerId],
        stored: Stored,
        rng: random.Random,
        entropy: Callable[[int], bytes],
        four_letter_word: Callable[[str, bytes], bytes],
        now_ms: int,
        addresses: Mapping[ServerId, str] | None = None,
        hosting: Hosting | None = None,
    ) -> None:
        """`hosting`: with what this server hosts groups of topics; None: it does not."""
        self.settings = settings
        self.identity = identity
        self.machine = stored.machine if stored.machine is not None else Machine()
        self.raft: Raft | None = None
        self.latencies = Latencies()
        self._stored = stored
        self._rng = rng
        self.clock = TurnClock(now_ms, asleep_after_ms=settings.raft.election_timeout_ticks)
        self._outbox = Outbox(identity.server)
        self._frame = LogFrame()
        self.pace = DiskPace(settings.slow_fsync_ms, settings.raft.election_timeout_ticks)
        self._stirred = False
        self._look_at = now_ms
        self._tick_at: float = 0
        self._seen_commit = 0
        self._writes_answered = 0

        self.touches = TouchReporter(identity.boot, settings.tree.tick_time_ms // 2)
        self.origin = OriginStream(identity.server, identity.instance, identity.boot, settings.origin)
        self.clients = Clients(
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            settings=settings.clients,
            entropy=entropy,
            four_letter_word=four_letter_word,
        )
        retention = Retention(settings.groups)
        self._sender = SnapshotSender(settings.snapshots.send_bytes_per_s)
        self.snapshots = Snapshots(
            settings.snapshots,
            identity,
            self.machine,
            entropy,
            stored.snapshot,
            retention,
            stored.held_after,
            self._sender,
        )
        self.clients.view = self._view = ClusterView(self)
        self.applier = Applier(
            server=identity.server,
            instance=identity.instance,
            boot=identity.boot,
            boot_id=identity.boot_id,
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            clients=self.clients,
            on_answered=self._on_answered,
            on_applied=self.snapshots.keeper.applied,
            on_members=self._on_members,
        )
        # The first batch of a boot registers it (D-1); the window keeps everything else behind it in order.
        self.origin.add(None, 0, (), [(REGISTER, identity.boot_id)], len(identity.boot_id))

        self.proposals = Proposals()
        self.leader_changes = 0
        self.peer_mistakes = 0
        """Messages that an authenticated peer should never have sent; each was dropped."""
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        """The last of them, for the log: (sender, what was wrong)."""
        self._leader: ServerId | None = None
        self._led_term = 0
        self.leadership: Leadership | None = None
        self._early_batches: deque[tuple[ServerId, Instance, OriginBatch]] = deque(maxlen=EARLY_BATCHES_MAX)

        self.contact = Contact(
            self.clock, self.touches, self.clients, self.machine, settings.raft.election_timeout_ticks
        )
        self._reads = LinearizableReads(self.clients, identity.boot, settings.origin.resend_ms)

        self._addresses = addresses or {}
        self._remains: list[Remains] = []
        """Of states that were replaced: taken apart in steps, for a million objects die slowly."""
        self.groups: HostedGroups | None = None
        if hosting is not None:
            self.groups = HostedGroups(
                identity=identity,
                settings=settings.groups,
                rng=rng,
                entropy=entropy,
                hosting=hosting,
                machine=self.machine,
                submit=lambda command: self.submit(command, lambda _: None),
                outbox=self._outbox,
                sender=self._sender,
                log_end=stored.log.last_index,
                retention=retention,
                frame=self._frame,
            )
        self._founding = stored.log.last_index == 0
        self._stopping = False
        self._leaves_since = 0
        self.belonging = Belonging(identity, peers, settings, stored, self._addresses, self._outbox)
        self.bootstrap = self.belonging.bootstrap
        if stored.roster is not None:
            self._start_raft(self._founders(stored.roster))
        elif stored.log.last_index > 0:
            # It was let in by a Welcome; its log may end before the entry that did so, and its vote may be needed.
            self._start_raft(Membership({identity.server: Member(identity.instance, MemberRole.LEARNER)}))

    # -- what happened

    def pass_time(self, now_ms: int) -> None:
        """Messages arrived at `now_ms`, which `receive` is about to take: they are heard at this moment.

        Nothing is judged by it before the next turn, so that whoever was heard in time is not found silent.
        """
        if now_ms != self.clock.now:
            step = self.clock.advance(now_ms)
            if self.raft is not None and self.bootstrap.founded:
                self.raft.pass_time(step)

    def receive(self, sender: Sender, messages: Sequence[PeerMessage]) -> None:
        """Messages of one authenticated peer, in the order they came; see `wants_turn`.

        Raises:
            CopiedDirectoryError: a later boot of this very directory is registered (D-1).
        """
        later = self._later_boot(sender)
        if later is not None:
            # This is a late datagram, or comes from a copy, which has forgotten votes and entries. Neither counts,
            # and a copy is told so by the boot that does (D-1).
            term = 0 if self.raft is None else self.raft.term
            self._outbox.send(sender.server, TouchAck(term, later, 0, ()))
            return
        of_groups: list[PeerMessage] = []
        for message in messages:
            if message.__class__ in FREQUENT and not message.group:  # type: ignore[union-attr]  # each of these has one
                self._on_consensus(self.raft, sender.server, sender.instance, message)  # type: ignore[arg-type]
            elif is_of_groups(message):
                of_groups.append(message)
            else:
                self._on_message(sender.server, sender.instance, sender, message)
        if of_groups and self.groups is not None:
            self.groups.receive(sender, of_groups, self.raft, ahead=self.clock.passed)

    def _later_boot(self, sender: Sender) -> int | None:
        """The boot that is registered for the sender's directory, if it is later than the sender's own."""
        row = self.machine.rows.get((sender.server, sender.instance))
        return row.boot if row is not None and sender.boot < row.boot else None

    def persisted(self) -> None:
        """The frame of the last `Effects.write` is durable."""
        raft = self.raft
        self.pace.ended(self.clock.run, overtaken=raft is not None and raft.commit_index > raft.durable_index)
        durable = self._frame.durable()
        if self.groups is not None:
            self.groups.persisted(durable)
        if durable.roster:
            self.bootstrap.roster_durable()
            assert self.bootstrap.roster is not None
            self._start_raft(self._founders(self.bootstrap.roster))
        number = durable.numbers.get(COORDINATION_GROUP)
        if number is not None:
            assert raft is not None
            raft.persisted(number)

    def disk_full(self, is_full: bool) -> None:
        """The frame of the last `Effects.write` waits for space on the disk, or no longer."""
        self.pace.full(is_full)

    def hand_over(self) -> bool:
        """This server is about to stop: let another one lead first. False if it does not lead, or nobody else could."""
        raft = self.raft
        if raft is None or raft.role is not Role.LEADER:
            return False
        target = best_successor(raft)
        self._stirred = True
        return target is not None and raft.transfer_leadership(target)

    def leave(self) -> None:
        """This server is about to stop: its clients are let go, each when what was read of it is answered."""
        self._stopping = True
        self._stirred = True

    @property
    def left(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self._stopping and self.clients.let_go()

    def connect(self, address: str, ids: tuple[tuple[str, str], ...]) -> Connection | None:
        """A client connected; None if there are too many connections."""
        return self.clients.connect(address, ids)

    @property
    def wants_turn(self) -> bool:
        """Whether what arrived since the last turn gives one something to do before the next regular one.

        The second of two acknowledgements, or the leader's own fsync when no follower has answered yet, changes
        nothing that anybody waits for; a turn for each would be a third of all turns under light load.
        """
        raft = self.raft
        return (
            self._stirred
            or raft is None
            or raft.commit_index != self._seen_commit
            or raft.leader != self._leader
            or self._frame.due
            or self.applier.applied_index < raft.applicable_index
            or raft.has_ready
            or (self.groups is not None and self.groups.wants_turn)
        )

    # -- state that the shell and the four-letter words show

    @property
    def role(self) -> Role | None:
        """This server's role, None before it belongs to a cluster."""
        return None if self.raft is None else self.raft.role

    @property
    def serving(self) -> bool:
        """Whether clients get answers: contact with a leader that has a quorum, later than the last wake-up (D-14)."""
        return self.raft is not None and not self.contact.stale and self.belonging.removed is None

    @property
    def removed(self) -> str | None:
        """Why this server no longer belongs to the cluster, in words for its operator."""
        return self.belonging.removed

    @property
    def problem(self) -> str | None:
        """Why this server stays out of its cluster, in words for its operator."""
        return self.belonging.problem(led=self._leader is not None)

    @property
    def waiting(self) -> str | None:
        """What an empty server waits for, in words for its operator; None once it belongs to a cluster, or was told no."""
        return self.belonging.waiting(led=self._leader is not None)

    @property
    def cluster(self) -> bytes | None:
        """The cluster id, once the roster is agreed and the cluster founded."""
        return self.bootstrap.cluster

    @property
    def leader(self) -> ServerId | None:
        return self._leader

    @property
    def leads(self) -> bool:
        """Whether this server leads, and may take what is asked of a leader."""
        return self.leadership is not None

    @property
    def waiting_clients(self) -> int:
        """How many connections have a request that is not answered yet."""
        return sum(1 for one in self.clients.connections if one.queue)

    def silent_ms(self, session: int) -> int | None:
        """Since anything of a session was received: here, or anywhere if this server leads; None if it does not know."""
        heard = self.touches.heard(session)
        here = None if heard is None else self.clock.now - heard
        told = None if self.leadership is None else self.leadership.expiry.silent_ms(session)
        return min((one for one in (here, told) if one is not None), default=None)

    @property
    def settings_differ(self) -> dict[str, tuple[object, object]]:
        """Settings that this configuration names and that are not in force: name -> (configured, replicated) (D-5)."""
        if not self.applier.applied_index:
            return {}
        level = self.machine.feature_level
        ours, theirs = self.settings.tree.known_at(level), self.machine.settings.known_at(level)
        named = self.settings.configured & ours.keys()
        return {name: (ours[name], theirs[name]) for name in sorted(named) if ours[name] != theirs[name]}

    @property
    def topics(self) -> TopicService | None:
        """What connections ask of partitions; None if this server hosts none, or the cluster has no topics yet."""
        if self.groups is None or self.machine.feature_level < LEVEL_OF_TOPICS:
            return None
        return self.groups.topics

    @property
    def leader_uptime_ms(self) -> int:
        """Time that this leadership ran; 0 while not leading."""
        return 0 if self.leadership is None else self.leadership.uptime_ms(self.clock.run)

    @property
    def applied_index(self) -> int:
        return self.applier.applied_index

    # -- one turn

    def turn(self, now_ms: int, wall_ms: int) -> Effects:
        """Everything that follows from what arrived since the last turn."""
        rest = self.clock.advance(now_ms)
        step = self.clock.take_passed()
        clients, raft = self.clients, self.raft
        if self.latencies.waiting:
            self.latencies.answered(now_ms)
        sent_before = clients.sent_total - clients.events_total
        clients.turn.now = now_ms
        founded = self.bootstrap.founded
        if not founded:
            self.belonging.seek(now_ms)
        elif self._founding and raft is not None:
            self._begin_cluster(raft)
        quiet = looks = False
        if raft is not None:
            if founded and step:
                raft.pass_time(rest)
                if raft.now >= self._tick_at:
                    raft.tick(0)
            self._follow_role(raft, step)
            looks = now_ms >= self._look_at or self._stopping
            if looks:
                self._look_at = now_ms + LOOK_INTERVAL_MS
                self._look(raft, now_ms)
            clients.begin_turn()
            self.origin.cut(now_ms, min(clients.arrived, now_ms))
            if self._leader is not None:
                self._ask_leader(raft, self._leader, now_ms)
            if self._outbox.local:
                self._deliver_local()
            if self.leadership is not None:
                self._lead(self.leadership, raft, wall_ms)
            self._advance(raft)
            if looks:
                self._let_go(raft)
            self._seen_commit = raft.commit_index
            quiet = self.snapshots.is_quiet(now_ms, raft, idle=self.origin.idle)
            if (self._remains or not quiet) and not self.applier.halfway:
                self._keep_snapshots(raft, wall_ms)
        share = None
        if self.groups is not None and raft is not None:
            # Before clients are written to: what partitions answer leaves in this turn.
            share = self._groups_turn(self.groups, raft, step, wall_ms)
        self._stirred = False
        stale = self.contact.stale
        serving = raft is not None and not stale and self.belonging.removed is None
        if serving and not clients.availability.serving and self.settings.clients.read_only_mode_enabled:
            clients.end_read_only()
        clients.availability.serving = serving
        if stale and self.contact.lost:
            clients.close_all("this server has had no contact with a majority: its clients ask another one")
        outputs = clients.flush(now_ms)
        self._count_reads(sent_before, wall_ms, looks=looks)
        clients.arrived = now_ms
        frame = self._next_frame()
        effects = Effects(self._outbox.take(), frame, outputs, self._wake_at())
        if not quiet:
            self._take_snapshot_effects(effects)
        if share is not None:
            effects.tasks = [*effects.tasks, *share.tasks]
            effects.deliveries = share.deliveries
            effects.group_compactions = share.compactions
            if share.due_in is not None:
                effects.wake_at = min(effects.wake_at, now_ms + share.due_in)
        if self._sender.waiting:
            self._read_for_followers(effects)
        self.clock.asked_at = effects.wake_at
        return effects

    def _look(self, raft: Raft, now_ms: int) -> None:
        """What no event brings: whether the disk keeps pace, and whether this server still belongs to its cluster."""
        self.pace.step(raft, self.clock.run)
        # Who may not campaign goes on naming a leader that no longer speaks to it.
        if (
            raft.leader is None or (not raft.is_voter and self.contact.stale)
        ) and self.belonging.asks_outside(now_ms):
            self.belonging.ask_whether_member(raft, now_ms)

    def _groups_turn(self, groups: HostedGroups, raft: Raft, step: int, wall_ms: int) -> GroupsShare | None:
        if self.leadership is not None:
            for group, message in self.leadership.topics.take_outgoing():
                groups.partitions.tell(group, message)
        share = groups.turn(
            step,
            self.clock.now,
            wall_ms,
            coordination=raft,
            applied=self.applier.applied_index,
            cluster=self.cluster or b"",
        )
        if share is not None and share.coordination_due:
            self.snapshots.keeper.shorten_log()
        if self.clients.topics is None and self.machine.feature_level >= LEVEL_OF_TOPICS:
            self.clients.topics = self.topics
        while groups.host.mistakes:
            self.peer_mistakes += 1
            self.mistakes.append(groups.host.mistakes.popleft())
        return share

    def _next_frame(self) -> list[Record] | None:
        """What all groups of this server have to write now, as one frame (D-13); None while one is being written."""
        frame = self._frame.take(self.bootstrap.to_make_durable())
        if frame is not None:
            self.pace.began(self.clock.run)
        return frame

    def _begin_cluster(self, raft: Raft) -> None:
        """Nobody leads a cluster that was founded this moment: one server need not wait to find that out."""
        self._founding = False
        first = self.identity.server == min(raft.membership.voters)
        if first and raft.leader is None and raft.log.last_index == 0:
            raft.hasten_election()

    def _ask_leader(self, raft: Raft, leader: ServerId, now_ms: int) -> None:
        """What the leader is to know, write down or confirm; it may be this server itself."""
        for batch in self.origin.due(now_ms):
            self._outbox.send(leader, batch)
        if now_ms >= self.touches.may_leave_at:
            # The log may not hold the settings yet; of a cluster that is only just founded it does not.
            tick_ms = min(self.machine.settings.tick_time_ms, self.settings.tree.tick_time_ms)
            self.touches.interval_ms = tick_ms // 2
            for report in self.touches.make_reports(now_ms):
                self._outbox.send(leader, report)
            if leader != self.identity.server:
                digests = tuple(self.machine.digests)
                self._outbox.send(leader, MemberReport(self.settings.features, digests))
        context = self._reads.ask(now_ms)
        if context is not None:
            raft.read_index(context)

    # -- messages

    def _on_message(
        self, server: ServerId, instance: Instance, sender: Sender | None, message: PeerMessage
    ) -> None:
        raft = self.raft
        if message.__class__ in SERVER_MESSAGES:
            self._stirred = True
        match message:
            case OriginBatch():
                if self.leadership is not None:
                    self.leadership.intake.offer(server, instance, message)
                elif raft is not None and raft.role is Role.LEADER:
                    # Its origin has heard of this leader before our first entry is applied; it would ask again
                    # only after a while, and clients have waited for an election already.
                    self._early_batches.append((server, instance, message))
            case TouchReport():
                if raft is not None and self.leadership is not None:
                    report_ack = self.leadership.answer_report(
                        raft, server, instance, message, self.contact.has_quorum
                    )
                    if report_ack is not None:
                        self._outbox.send(server, report_ack)
            case TouchAck():
                if message.boot > self.identity.boot and server == self._leader:
                    # Only the leader is believed: it could write the same into the log.
                    raise self.applier.copied(message.boot)
                if raft is not None and message.term >= raft.term:
                    self.touches.on_ack(message, self.clock.run)
            case Hello():
                assert sender is not None
                self.belonging.on_hello(
                    sender, message, raft, self.leadership, serving=self.serving, now_ms=self.clock.now
                )
            case Join() | Welcome() | NotMember() | MemberReport() | Verdict():
                self._on_membership(server, instance, message)
            case SnapshotOffer() | SnapshotRequest() | SnapshotChunk():
                # Who was away while members changed may not know its leader's disk, and needs its snapshot all the more.
                if raft is not None and raft.knows(server, instance):
                    self.snapshots.on_message(server, message, raft, self.clock.now)
            case (
                Bundle()
                | Edge()
                | GroupLeader()
                | SharedHeartbeat()
                | SharedHeartbeatReply()
                | DeliveryListRequest()
                | DeliveryList()
                | DeliveryRequest()
                | DeliveryPiece()
                | GroupDigests()
                | GroupVerdict()
            ):
                # What others say of groups does not come this way.
                assert sender is None, f"{message!r} of another server"
                if self.groups is not None:
                    self.groups.said_here(message)
            case _:
                self._on_consensus(raft, server, instance, message)

    def _on_consensus(
        self, raft: Raft | None, server: ServerId, instance: Instance, message: RaftMessage
    ) -> None:
        if raft is None:
            return
        is_member = raft.membership.has(server, instance)
        if not is_member:
            self.belonging.on_stranger(raft, self.leadership, server, instance, self.clock.now)
        if not self.bootstrap.founded and not self.bootstrap.admits(message, from_member=is_member):
            return
        try:
            raft.step(server, instance, message)
        except ProtocolError as error:
            # One peer's mistake costs that one message: whoever sends it must not be able to end this server.
            self.peer_mistakes += 1
            self.mistakes.append((server, str(error)))

    # -- members

    def _on_membership(self, server: ServerId, instance: Instance, message: PeerMessage) -> None:
        """Who belongs to the cluster, what each can do, and whose state differs."""
        raft, leadership, cluster = self.raft, self.leadership, self.cluster
        match message:
            case Join():
                if raft is not None and leadership is not None and cluster is not None:
                    answer = leadership.members.on_join(
                        server, instance, message, raft, cluster, self.machine.members, self.clock.now
                    )
                    if answer is not None:
                        self._outbox.send(server, answer)
                elif raft is not None and message.cluster == cluster and raft.membership_committed:
                    # The leader may be somebody it does not know.
                    others = introduction(
                        message.cluster, raft.members_changed_index, raft.membership, server
                    )
                    if others is not None:
                        self._outbox.send(server, others)
            case Welcome():
                if raft is None:
                    membership = self.belonging.joining.on_welcome(message)
                    if membership is not None:
                        self.bootstrap.welcomed(message.cluster)
                        self._start_raft(membership)
                        assert self.raft is not None
                        self.raft.vouch(server, instance)
            case NotMember():
                removed_at = self.belonging.on_not_member(server, message, raft)
                if removed_at is not None:
                    self._removed(removed_at)
            case MemberReport():
                if leadership is not None and raft is not None and raft.membership.has(server, instance):
                    leadership.members.on_report(server, instance, message)
            case Verdict():
                if raft is not None and server == self._leader:
                    check_verdict(dict(self.machine.digests), message.digests)

    def submit(self, command: Command, done: Callable[[object], None]) -> None:
        """Put an operator's command into the log; `done` gets its result when it is applied here."""
        self.origin.add(Errand(done), 0, (), [command], ERRAND_BYTES)
        self._stirred = True

    def address_of(self, server: ServerId | None) -> str | None:
        """Where a server is, as far as this one was told."""
        return self._addresses.get(server) if server is not None else None

    def _let_go(self, raft: Raft) -> None:
        """A server that stops, or is to be removed, lets its clients go while it can still answer them."""
        now, clients = self.clock.now, self.clients
        if self._stopping or self.belonging.leaves(raft, self.machine, now):
            if not clients.availability.leaving:
                clients.availability.leaving = True
                self._leaves_since = now
            clients.availability.deaf = now - self._leaves_since >= DEAF_AFTER_MS
            clients.let_go()
        elif clients.availability.leaving:
            if clients.availability.deaf:
                # Nobody looked at what these clients sent last, so nothing that they send next may be answered.
                clients.dismiss_all()
            clients.availability.leaving = clients.availability.deaf = False

    def _removed(self, index: int) -> None:
        if self.belonging.remove(index):
            self.clients.availability.removed = True
            self.clients.dismiss_all()
            self._give_up_errands(self.origin.owners())

    def _give_up_errands(self, owners: Iterable[object]) -> None:
        """What became of these commands, this server will not learn."""
        for owner in owners:
            if isinstance(owner, Errand):
                owner.complete(Code.OPERATION_TIMEOUT, self.machine.last_zxid)

    def _on_members(self, membership: Membership) -> None:
        """A MEMBERSHIP entry was applied."""
        if self.leadership is not None:
            rows = {origin: (row.boot, row.seq) for origin, row in self.machine.rows.items()}
            self.leadership.intake.set_origins(rows)
        self._note_membership(membership, self.applier.applied_index + 1)

    def _note_membership(self, membership: Membership, index: int) -> None:
        """The configuration of entry `index` is in the state."""
        if self.belonging.note_membership(membership, index):
            self._removed(index)
        else:
            self.clients.availability.removed = self.belonging.removed is not None

    def _founders(self, roster: Roster) -> Membership:
        return Membership(
            {
                server: Member(instance, MemberRole.VOTER, self._addresses.get(server, ""))
                for server, instance in roster
            }
        )

    # -- snapshots

    def performed(self, task: Task, result: Result) -> None:
        """The snapshot disk has done one of `Effects.tasks`."""
        self._stirred = True
        if task.group != COORDINATION_GROUP:
            if self.groups is not None:
                self.groups.performed(task, result, self.clock.now)
            return
        self.snapshots.performed(task, result, self.raft.term if self.raft is not None else 0, self.clock.now)

    def read_snapshot(self, read: Read, done: Callable[[Result], None]) -> None:
        """An operator wants a piece of a snapshot file: `done` gets it, or why not, when the disk has it."""
        self._stirred = True
        self.snapshots.read_for_operator(read, done)

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """The disk of deliveries has done one of `Effects.deliveries`."""
        self._stirred = True
        if self.groups is not None:
            self.groups.delivered(task, result)

    def _keep_snapshots(self, raft: Raft, wall_ms: int) -> None:
        received = self.snapshots.turn(
            self.clock.now, wall_ms, raft, self._where_applied, self.cluster, idle=self.origin.idle
        )
        for to, message in self.snapshots.take_outgoing():
            self._outbox.send(to, message)
        if self._remains and not self._remains[0].step(REMAINS_PER_TURN):
            del self._remains[0]
        if received is None:
            return
        meta = received.info.header.meta
        if meta.index <= self.applier.applied_index or not raft.restore(meta):
            # The log has brought us as far meanwhile.
            self.snapshots.discard()
            return
        self._adopt(received)

    def _adopt(self, received: Received) -> None:
        """Become what the snapshot says (D-4): no client here can know what happened in between."""
        meta = received.info.header.meta
        self.clients.close_all()
        self._remains.append(self.machine.adopt(received.state))
        self.applier.restored(meta)
        self._note_membership(Membership.decode(meta.membership), meta.index)
        self.snapshots.restored(received.info)
        row = self.machine.rows.get((self.identity.server, self.identity.instance))
        if row is not None:
            if row.boot > self.identity.boot:
                raise self.applier.copied(row.boot)
            self._give_up_errands(self.origin.on_restore(row.boot, row.seq))

    def _take_snapshot_effects(self, effects: Effects) -> None:
        snapshots = self.snapshots
        effects.tasks = snapshots.take_tasks()
        if self.groups is None or not self.groups.removing:
            effects.compact_to = snapshots.take_compaction()
        in_ms = snapshots.wake_in_ms
        if in_ms is not None:
            effects.wake_at = min(effects.wake_at, self.clock.now + max(1, in_ms))

    def _read_for_followers(self, effects: Effects) -> None:
        """What followers of any group asked for, as far as the budget for all of them goes."""
        pieces, segments = self._sender.reads(self.clock.now)
        effects.tasks = [*effects.tasks, *pieces]
        effects.deliveries = [*effects.deliveries, *segments]
        if self._sender.waiting:
            effects.wake_at = min(effects.wake_at, self.clock.now + WAKE_MS)

    def _where_applied(self) -> SnapshotMeta:
        """Where the log stands at the state machine's index."""
        applier = self.applier
        assert self.raft is not None
        index = applier.applied_index
        return SnapshotMeta(index, self.raft.log.term_at(index), applier.next_position, applier.membership)

    # -- group and leadership

    def _start_raft(self, membership: Membership) -> None:
        """This server takes part in the coordination group; `membership` holds while its log names none."""
        identity = self.identity
        stored = self._stored
        self.raft = raft = Raft(
            group=COORDINATION_GROUP,
            server=identity.server,
            instance=identity.instance,
            settings=self.settings.raft,
            hard_state=stored.hard_state,
            log=stored.log,
            membership=membership,
            rng=self._rng,
        )
        if stored.snapshot is not None:
            meta = stored.snapshot.header.meta
            replaced = raft.restore(meta)
            assert not replaced, "the log does not reach the newest snapshot"
            self.applier.restored(meta)
            self._note_membership(Membership.decode(meta.membership), meta.index)

    def _lead(self, leadership: Leadership, raft: Raft, wall_ms: int) -> None:
        may_propose = (
            self._frame.waiting_bytes(COORDINATION_GROUP) <= self.settings.raft.uncommitted_bytes_max
        )
        verdict = leadership.lead(raft, self.clock.now, self.clock.run, wall_ms, may_propose=may_propose)
        if verdict is not None:
            for server in raft.membership.members:
                if server != self.identity.server:
                    self._outbox.send(server, verdict)
            check_verdict(dict(self.machine.digests), verdict.digests)

    def _follow_role(self, raft: Raft, step: int) -> None:
        """Notice a change of leader; begin or end our own leadership's bookkeeping."""
        if raft.leader != self._leader:
            self._leader = raft.leader
            if self._leader is not None:
                self.leader_changes += 1
                self.origin.on_leader_change()
                self.touches.report_now()
            self._reads.ask_again()
        if raft.role is not Role.LEADER:
            if self.leadership is not None:
                self._end_leadership()
            if self._early_batches:
                self._early_batches.clear()
            return
        if raft.term != self._led_term:
            self._led_term = raft.term
            self._end_leadership()
            self.contact.new_term()
        if self.leadership is not None:
            self.leadership.expiry.advance(step)
        elif self._leads():
            self.leadership = Leadership(
                self.identity.server,
                self.settings,
                self.machine,
                self.proposals,
                run_ms=self.clock.run,
                now_ms=self.clock.now,
            )
            self.applier.expiry = self.leadership.expiry
            while self._early_batches:
                self.leadership.intake.offer(*self._early_batches.popleft())

    def _end_leadership(self) -> None:
        self.leadership = None
        self.applier.expiry = None

    def _leads(self) -> bool:
        """This server leads, and its first entry is applied."""
        raft = self.raft
        return raft is not None and raft.role is Role.LEADER and raft.noop_index <= self.applier.applied_index

    # -- log, network, state machine

    def _advance(self, raft: Raft) -> None:
        """Take what the core wants done, and apply what is committed and durable here (D-7)."""
        ready = raft.ready()
        send = self._outbox.send
        for to, message in ready.messages:
            send(to, message)
        if ready.write is not None:
            self._frame.add(COORDINATION_GROUP, ready.write)
        if ready.read_states:
            self._reads.answered(ready.read_states)
        if raft.role is Role.LEADER:
            self.contact.note_rounds(raft.round, raft.quorum_round)
        applicable = raft.applicable_index
        if self.applier.applied_index < applicable:
            self.applier.apply_committed(raft.log, applicable)
            if raft.log.bytes_in_memory > self.settings.log_memory_bytes_max:
                raft.log.evict_to(self.applier.applied_index)
        self._reads.finish(self.applier.applied_index)

    def _deliver_local(self) -> None:
        """What this server says to itself as origin and leader takes the same road, without the network."""
        while self._outbox.local:
            for message in self._outbox.take_local():
                self._on_message(self.identity.server, self.identity.instance, None, message)

    def _wake_at(self) -> int:
        """When the next turn is due: at once if this one left something undone."""
        now = self.clock.now
        raft = self.raft
        if raft is not None and (
            self.applier.applied_index < raft.applicable_index
            or (raft.role is Role.LEADER and self.leadership is None and self._leads())
        ):
            return now
        if self._outbox.local:
            return now
        due = now + (IDLE_TURN_MS if self.bootstrap.founded else SEEK_TURN_MS)
        if raft is not None:
            in_ms = raft.alarm_in
            self._tick_at = raft.now + in_ms
            if in_ms < IDLE_TURN_MS:
                due = now + ceil(in_ms)
        if self._leader is not None and self.touches.due_at < due:
            # Without a leader there is nobody to report to, however long it is overdue.
            due = self.touches.due_at
        clients_in_ms = self.clients.due_in_ms
        if clients_in_ms is not None and now + clients_in_ms < due:
            if not clients_in_ms:
                return now
            due = now + clients_in_ms
        return due if due > now else now + 1

    def _on_answered(self, arrived_at: float, count: int) -> None:
        self._writes_answered += count
        self.latencies.add_writes(arrived_at, count)

    def _count_reads(self, sent_before: int, wall_ms: int, *, looks: bool) -> None:
        """What this turn answered beside writes: all that was sent but these and events."""
        clients = self.clients
        reads = clients.sent_total - clients.events_total - sent_before - self._writes_answered
        if reads > 0:
            self.latencies.add_reads(clients.arrived, reads)
        if reads > 0 or self._writes_answered or looks:
            last_index = 0 if self.raft is None else self.raft.log.last_index
            self._view.rates.turn(wall_ms, max(0, reads), self._writes_answered, last_index)
            self._writes_answered = 0
