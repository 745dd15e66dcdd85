"""The driver: one server's decisions in the right order: persist, send, apply, answer. No asyncio, socket, disk or clock.

The shell (`zraft.server.process.node`, or the simulator) feeds messages, client bytes and finished writes,
and calls `turn` once per turn of its loop; the returned `Effects` say what to send, what to make durable and
what to write to clients. One turn is one batch: everything that arrived since the last turn goes through the
log, the network and the state machine together, which is what makes Python fast enough
(docs/explanation/architecture.md).

Times are milliseconds of a clock that counts sleep (`now`); time in which this process did not run makes no
session older (`clock`). Rules cited as D-n are in docs/explanation/rules.md.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from zraft.config.features import LEVEL_OF_TOPICS
from zraft.groups.frame import LogFrame
from zraft.groups.hosted_groups import GroupsShare, HostedGroups, Hosting
from zraft.groups.identity import Identity
from zraft.groups.outbox import PeerOutbox
from zraft.groups.recovery import Stored
from zraft.groups.replica import Replica
from zraft.groups.retention import LogRetention
from zraft.groups.server_statistics import Latencies, Proposals
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.receiving import ReceivedSnapshot
from zraft.groups.snapshots.sending import WAKE_MS
from zraft.groups.snapshots.snapshots import Snapshots
from zraft.groups.snapshots.tasks import ReadSnapshot, Result, Task
from zraft.raft.core import Raft
from zraft.raft.messages import AppendEntries, AppendEntriesReply, Heartbeat, HeartbeatReply
from zraft.raft.role import Role
from zraft.server.clients.errands import Errand
from zraft.server.clients.native.view import ClusterView
from zraft.server.clients.output import Output
from zraft.server.clients.table import Clients
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.coordination.clock import TurnClock
from zraft.server.coordination.disk_pace import DiskPace, best_successor
from zraft.server.coordination.group import CoordinationGroup
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.origin import OriginStream
from zraft.server.coordination.touches import TouchReporter
from zraft.server.engine.applier import Applier
from zraft.server.engine.effects import Beat, Effects
from zraft.server.engine.leaving import Leaving
from zraft.server.engine.settings import DriverSettings
from zraft.topics.service import TopicService
from zraft.transport.messages import (
    MemberReport,
    PeerMessage,
    Sender,
    SnapshotChunk,
    SnapshotOffer,
    SnapshotRequest,
    TouchAck,
    TouchReport,
    is_of_groups,
)
from zraft.tree.image.reader import ImageState
from zraft.tree.machine import Machine
from zraft.tree.remains import Remains
from zraft_core.errors import Code
from zraft_core.ids import COORDINATION_GROUP, GroupId, ServerId
from zraft_core.znodes.acl import OF_OPERATORS
from zraft_core.znodes.txn import REGISTER, Command

SETTLES = True
"""Whether `Driver.settle` may do without a turn. Tests compare what comes of both."""

LOOK_INTERVAL_MS: Final = 50
"""How often the driver looks at what no event brings, in turns that something else brings."""

CALM_MS: Final = 100
"""A server is calm after so long without a commit: between two rounds of a busy one, nothing is under way for a moment."""

MISTAKES_KEPT_MAX: Final = 16
"""How many messages that no correct peer sends are remembered between two turns for the log; all are counted."""

ERRAND_BYTES: Final = 512
"""How many bytes an operator's command counts for in its batch."""

REMAINS_PER_TURN: Final = 3_000
"""How many parts of a replaced state are freed per turn: about a millisecond."""

FREQUENT: Final = frozenset({AppendEntries, AppendEntriesReply, Heartbeat, HeartbeatReply})
"""The kinds of nearly all messages."""

_REPORTS: Final = frozenset({TouchReport, TouchAck, MemberReport})
"""The kinds of messages of servers for which nothing is under way."""

_OF_SNAPSHOTS: Final = frozenset({SnapshotOffer, SnapshotRequest, SnapshotChunk})


class Driver:
    """One server. Not thread-safe: everything is called from the loop's thread.

    Attributes:
        coordination: the coordination group here; `raft`, `leader`, `leadership` and `role` are its.
        groups: the topics' groups; None if this server hosts none.
        clock, pace: which time counts, and how long the disk takes.
        machine, applier, origin, touches, clients, snapshots: the state, and what stands around it.
        retention: what was written to the log, and what each group holds back of it.
        rests_until: when the next turn has to follow, in ms, although nothing is under way; 0 if something is.
        latencies, proposals, peer_mistakes: for statistics.
        mistakes: (sender, problem) of the newest messages that no correct peer sends, for the log.
    """

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
        work_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """Make a server from what its disk holds.

        Args:
            hosting: what this server needs to host groups of topics; None if it hosts none.
            work_s: returns the seconds that the thread has worked so far; by default nothing takes any time.

        Raises:
            StorageError: what the disk holds of the coordination group contradicts itself.
            ProtocolError: a membership on the disk cannot be read.
            ConfigError: the settings of groups contradict each other.
        """
        self.settings = settings
        self.identity = identity
        self.machine = stored.machine if stored.machine is not None else Machine()
        self.clock = TurnClock(now_ms, asleep_after_ms=settings.raft.election_timeout_ticks)
        self.pace = DiskPace(settings.slow_fsync_ms, settings.raft.election_timeout_ticks)
        self.latencies = Latencies()
        self.proposals = Proposals()
        self.peer_mistakes = 0
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        self._outbox = PeerOutbox(identity.server)
        self._frame = LogFrame()
        self._stirred = False
        self._commit_before = 0
        self._calm_at = 0
        """The time in ms from which a snapshot disturbs nobody, unless more is committed before."""
        self._beat_ms = settings.raft.idle_heartbeat_ticks
        self.rests_until = 0
        self._look_at = now_ms
        self._wall_ms = 0
        """The wall clock's time of the last turn."""
        self._writes_answered = 0
        self._remains: list[Remains] = []
        """What is left of replaced states. They are freed in steps, because freeing a million objects takes long."""

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
        self._leaving = Leaving(self.clients)
        self.coordination = CoordinationGroup(
            settings=settings,
            identity=identity,
            peers=peers,
            addresses=addresses or {},
            stored=stored,
            rng=rng,
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            sessions=self.clients.sessions,
            syncs=self.clients,
            clock=self.clock,
            outbox=self._outbox,
            frame=self._frame,
            proposals=self.proposals,
            on_mistake=self._note_mistake,
            on_removal=self._dismiss_clients,
        )
        self._view = ClusterView(self.coordination, lambda: self.waiting_clients)
        self.clients.view = self._view
        self.retention = LogRetention(settings.groups)
        self.snapshots = Snapshots(
            settings.snapshots,
            identity,
            self.machine,
            entropy,
            stored.snapshot,
            self.retention,
            stored.held_after,
            self._core_of,
            hosting.partitions.cut_index if hosting is not None else lambda _: 0,
        )
        self._sender = self.snapshots.sender
        self.applier = Applier(
            identity=identity,
            machine=self.machine,
            origin=self.origin,
            touches=self.touches,
            clients=self.clients,
            on_answered=self._on_answered,
            on_applied=self.snapshots.keeper.applied,
            on_members=self.coordination.on_members,
            work_s=work_s,
        )
        # The first batch of a boot registers it (D-1); the window keeps everything else behind it in order.
        self.origin.add(None, 0, (), [(REGISTER, identity.boot_id)], len(identity.boot_id))
        self.groups: HostedGroups | None = None
        if hosting is not None:
            self.groups = HostedGroups(
                identity=identity,
                settings=settings.groups,
                rng=rng,
                hosting=hosting,
                machine=self.machine,
                submit=lambda command: self.submit(command, lambda _: None),
                cluster=lambda: self.cluster or b"",
                outbox=self._outbox,
                snapshots=self.snapshots,
                log_end=stored.log.last_index,
                retention=self.retention,
                frame=self._frame,
            )
        self.coordination.open(self.applier)

    # -- what happened

    def pass_time(self, now_ms: int) -> None:
        """Let time pass up to `now_ms`, when messages arrived that `receive` is about to take.

        Nothing is judged by this time before the next turn, so that a server that was heard in time is not
        found silent.
        """
        if now_ms != self.clock.now:
            step = self.clock.advance(now_ms)
            coordination = self.coordination
            if coordination.raft is not None and coordination.bootstrap.founded:
                coordination.raft.pass_time(step)

    def receive(self, sender: Sender, messages: Sequence[PeerMessage]) -> None:
        """Take messages of one authenticated peer, in the order in which they came; see `wants_turn`.

        Raises:
            CopiedDirectoryError: a later boot of this very directory is registered (D-1).
            DivergedError: a state of this server is not the majority's (D-26).
        """
        coordination = self.coordination
        later = self._later_boot(sender)
        if later is not None:
            # This datagram is late, or comes from a copied directory, whose process has forgotten votes and entries.
            # Neither counts. A copy learns it from the number of the boot that does count (D-1).
            term = 0 if coordination.raft is None else coordination.raft.term
            self._outbox.send(sender.server, TouchAck(term, later, 0, ()))
            return
        of_groups: list[PeerMessage] = []
        for message in messages:
            if message.__class__ in FREQUENT and not message.group:  # type: ignore[union-attr]  # each of these has one
                coordination.on_consensus(sender.server, sender.instance, message)  # type: ignore[arg-type]
            elif is_of_groups(message):
                self.rests_until = 0
                of_groups.append(message)
            elif message.__class__ in _OF_SNAPSHOTS:
                # A server that was away while members changed may not know its leader's disk as a member's, and needs its
                # snapshot all the more.
                raft = coordination.raft
                if raft is not None and raft.knows(sender.server, sender.instance):
                    # Without a turn a transfer between two idle servers would go on only with every other heartbeat.
                    self._stirred = True
                    self.snapshots.on_message(sender.server, message, self.clock.now)
            else:
                if message.__class__ not in _REPORTS:
                    self.rests_until = 0
                coordination.on_message(sender.server, sender.instance, message, sender)
        if of_groups and self.groups is not None:
            self.groups.receive(sender, of_groups, coordination.raft, ahead=self.clock.passed)

    def note_lost(self, server: ServerId) -> None:
        """Take note that a connection between this process and that of `server` has ended: see `Raft.note_lost`."""
        raft = self.coordination.raft
        if raft is not None:
            raft.note_lost(server, raft.settings.idle_heartbeat_ticks)
        if self.groups is not None:
            self.groups.host.note_lost(server)
        self._stirred = True

    @property
    def leaders(self) -> Iterable[ServerId]:
        """The other servers that lead a group which this server follows, as far as their heartbeats are heard."""
        raft = self.coordination.raft
        found = (
            set() if raft is None or raft.role is not Role.FOLLOWER or raft.leader is None else {raft.leader}
        )
        if self.groups is not None:
            found.update(self.groups.host.leaders)
        return found

    def _later_boot(self, sender: Sender) -> int | None:
        """Return the boot that is registered for the sender's directory, if it is later than the sender's own."""
        rows, origin = self.machine.origins.rows, (sender.server, sender.instance)
        return rows[origin].boot if origin in rows and sender.boot < rows[origin].boot else None

    def _note_mistake(self, server: ServerId, mistake: str) -> None:
        self.peer_mistakes += 1
        self.mistakes.append((server, mistake))

    def persisted(self) -> None:
        """Take note that the frame of the last `Effects.write` is durable."""
        raft = self.coordination.raft
        self.pace.ended(self.clock.run, overtaken=raft is not None and raft.commit_index > raft.durable_index)
        durable = self._frame.durable()
        numbers = durable.numbers
        ours = COORDINATION_GROUP in numbers
        if self.groups is not None and (len(numbers) > ours or durable.forgotten):
            self.groups.persisted(durable)
        if durable.roster:
            self.coordination.roster_durable()
        if ours:
            assert raft is not None
            raft.persisted(numbers[COORDINATION_GROUP])

    def acknowledge(self) -> tuple[Sequence[tuple[ServerId, Sequence[PeerMessage]]], bool]:
        """Return what other servers are told of a frame that is durable, and whether a turn is wanted, as `wants_turn`.

        They are told now if nothing else follows from it. So it is on a follower in nearly every round. The next turn would
        say the same, after it had gone past everything.
        """
        raft = self.coordination.raft
        if (
            raft is None
            or raft.role is not Role.FOLLOWER
            or self._stirred
            or self._outbox.local
            or (self.groups is not None and self.groups.wants_turn)
            or not self.coordination.acknowledge()
        ):
            return (), self.wants_turn
        return self._outbox.take(), self._frame.due or self.coordination.stirred

    def answer(self) -> Sequence[tuple[ServerId, Sequence[PeerMessage]]] | None:
        """Return what other servers are told of what arrived, at once; None if a turn has to follow instead.

        A follower answers a heartbeat so, and a leader a report: a turn would say the same, after it had gone past
        everything. If a turn is due before the next heartbeat, it comes now, when this server is awake anyway.
        """
        if not self.wants_turn:
            if not self._outbox.waits:
                return ()
            # Where something is under way, more may be said to the same server in a moment.
            return self._outbox.take() if self.rests_until else None
        raft = self.coordination.raft
        if (
            self.clock.now + self._beat_ms > self.rests_until
            or self._frame.due
            or raft is None
            or not raft.only_answers
        ):
            return None
        return self.acknowledge()[0] or None

    def settle(self) -> Effects | None:
        """Do what follows from what other servers said, if that is only to write, to apply and to answer.

        So it is in nearly every round: a follower writes an entry, and the leader applies one that is committed. A turn
        would do the same, after it had gone past everything; it has to look at the rest some twenty times a second.

        Returns:
            As of `turn`. None, and nothing was done, if a turn has to follow.

        Raises:
            CopiedDirectoryError, DivergedError: see `turn`.
        """
        coordination, clients, groups, now_ms = self.coordination, self.clients, self.groups, self.clock.now
        if (
            now_ms >= self._look_at
            or not SETTLES
            or self._stirred
            or self.origin.collected
            or self._outbox.local
            or self._remains
            or self._leaving.stops
            or not coordination.may_settle
            or (groups is not None and groups.stirred and groups.wants_turn)
        ):
            return None
        sent_before = clients.sent_total - clients.events_total
        clients.turn.now = now_ms
        registry = self.machine.registry.revision
        coordination.settle()
        outputs = self._answer_clients(now_ms)
        if self._writes_answered:
            self._count_answers(sent_before, self._wall_ms)
        frame = self._frame.take() if self._frame.due else None
        if frame is not None:
            self.pace.began(self.clock.run)
        wake_at, alarm_at = coordination.due_at(rests=False), coordination.look_at_alarm()
        if alarm_at < wake_at:
            wake_at = alarm_at
        if self.clock.asked_at < wake_at:
            wake_at = self.clock.asked_at
        if now_ms < self.origin.anticipation.until:
            wake_at = self._until_cut(wake_at, now_ms)
        if clients.stirred or self.machine.registry.revision != registry:
            wake_at = now_ms
        self.clock.asked_at = wake_at
        return Effects(self._outbox.take(), frame, outputs, wake_at)

    def beat(self, now_ms: int) -> Beat | None:
        """Let time pass up to the alarm that rings now, and return the heartbeats that are due, if nothing else is.

        None: a turn has to follow, which finds everything as if nobody had asked. So it is, too, if one is due before the
        next heartbeat.
        """
        if now_ms + self._beat_ms > self.rests_until or self._stirred:
            return None
        self.pass_time(now_ms)
        messages = self.coordination.beat()
        return None if messages is None else (messages, self.put_off())

    def put_off(self) -> int:
        """Return until when nothing is due, after an `answer` or `beat`, as `Effects.wake_at` says it after a turn."""
        alarm_at, rests_until = self.coordination.look_at_alarm(), self.rests_until
        self.clock.asked_at = wake_at = alarm_at if alarm_at < rests_until else rests_until
        return wake_at

    def disk_full(self, is_full: bool) -> None:
        """Take note that the frame of the last `Effects.write` waits for space on the disk, or no longer."""
        self.pace.full(is_full)

    def performed(self, task: Task, result: Result) -> None:
        """Take the result of one of `Effects.tasks`, which the snapshot disk has done."""
        self._stirred = True
        if task.group != COORDINATION_GROUP:
            if self.groups is not None:
                self.groups.performed(task, result, self.clock.now)
            return
        self.snapshots.performed(task, result, self.clock.now)

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """Take the result of one of `Effects.deliveries`, which the disk of deliveries has done.

        Raises:
            StorageError: deliveries on which this server's state relies are damaged or missing, so it must
                not go on.
        """
        self._stirred = True
        if self.groups is not None:
            self.groups.delivered(task, result)

    def connect(self, address: str, ids: tuple[tuple[str, str], ...]) -> ZooKeeperConnection | None:
        """Take a client's connection; return None if there are too many."""
        return self.clients.connect(address, ids)

    # -- what operators want

    def submit(self, command: Command, done: Callable[[object], None]) -> None:
        """Put an operator's command into the log; `done` gets its result when it is applied here."""
        self.origin.add(Errand(done), 0, (), [command], ERRAND_BYTES)
        self._stirred = True

    def submit_as_super(self, command: Command, done: Callable[[object], None], size: int) -> None:
        """Put an operator's command of `size` bytes more than others into the log, with all rights on znodes."""
        self.origin.add(Errand(done), 0, OF_OPERATORS, [command], ERRAND_BYTES + size)
        self._stirred = True

    def expire(self, session: int) -> bool:
        """Propose the end of a session as `Leadership.expire` does; return False if it or the leadership does not exist."""
        self._stirred = True
        leadership = self.leadership
        return leadership is not None and leadership.expire(session)

    def read_snapshot(self, read: ReadSnapshot, done: Callable[[Result], None]) -> None:
        """Read a piece of a snapshot file for an operator; `done` gets it, or the reason why not."""
        self._stirred = True
        self.snapshots.read_for_operator(read, done)

    def hand_over(self) -> bool:
        """Hand the leadership over before this server stops; return False if it does not lead, or no other server could."""
        raft = self.coordination.raft
        if raft is None or raft.role is not Role.LEADER:
            return False
        target = best_successor(raft)
        self._stirred = True
        return target is not None and raft.transfer_leadership(target)

    def leave(self) -> None:
        """Let the clients go, because this server is about to stop: each one when what was read of it is answered."""
        self._leaving.stops = True
        self._stirred = True

    @property
    def left(self) -> bool:
        """True if `leave` was called and no client waits for an answer any more."""
        return self._leaving.done

    # -- what others see

    @property
    def wants_turn(self) -> bool:
        """True if what arrived since the last turn gives a turn something to do before the next regular one."""
        return (
            self._stirred
            or self._frame.due
            or self.coordination.wants_turn
            or (self.groups is not None and self.groups.wants_turn)
        )

    def on_clients(self) -> bool:
        """Take note of what clients have said since the last call; return whether a turn has something to do for them.

        It has not if all that they asked for waits for the batch under way, in whose turn the next one is asked for, or for
        more, and the end of that wait has its turn.
        """
        origin = self.origin
        if origin.collected:
            arrived = self.clients.arrived
            cuts_at = origin.cuts_at(arrived)
            if cuts_at <= arrived or cuts_at < self.clock.asked_at:
                return True
            origin.stamp(self.clock.now, self.clients.arrived)
        return self.clients.stirred or self.wants_turn

    @property
    def raft(self) -> Raft | None:
        """The core of the coordination group; None before this server belongs to a cluster."""
        return self.coordination.raft

    @property
    def role(self) -> Role | None:
        """The role of this server in the coordination group; None before it belongs to a cluster."""
        raft = self.coordination.raft
        return None if raft is None else raft.role

    @property
    def leader(self) -> ServerId | None:
        """The leader of the coordination group, as far as the last turn saw; None if it saw none."""
        return self.coordination.leader

    @property
    def leadership(self) -> Leadership | None:
        """The present leadership of the coordination group; None while this server does not lead it."""
        return self.coordination.leadership

    @property
    def applied_index(self) -> int:
        """The last entry whose effects are in the state machine."""
        replica = self.coordination.replica
        return 0 if replica is None else replica.applied_index

    @property
    def cluster(self) -> bytes | None:
        """The cluster id, once the roster is agreed and the cluster founded."""
        return self.coordination.cluster

    @property
    def serving(self) -> bool:
        """True if clients get answers (D-14)."""
        return self.coordination.serving

    @property
    def waiting_clients(self) -> int:
        """The number of connections that have a request which is not answered yet."""
        return sum(1 for one in self.clients.connections if one.queue)

    @property
    def topics(self) -> TopicService | None:
        """Service that connections ask about partitions; None if none is hosted here, or the cluster has no topics yet."""
        if self.groups is None or self.machine.feature_level < LEVEL_OF_TOPICS:
            return None
        return self.groups.topics

    # -- one turn

    def turn(self, now_ms: int, wall_ms: int) -> Effects:
        """Do everything that follows from what arrived since the last turn.

        The order matters. Time passes before anything is proposed: a leader that lost its quorum steps down
        first. What clients asked becomes a batch, a batch an entry, and what is committed is applied, in one
        turn if nothing has to be waited for. A state from elsewhere takes the place of this one before
        anything is written to clients (D-4).

        Raises:
            CopiedDirectoryError: another process registered this boot, or a later one, of this very directory
                (D-1).
            DivergedError: a state of this server is not the majority's (D-26).
        """
        coordination, clients, origin = self.coordination, self.clients, self.origin
        rest, step = self.clock.begin_turn(now_ms)
        if self.latencies.waiting:
            self.latencies.answered(now_ms)
        sent_before = clients.sent_total - clients.events_total
        clients.turn.now = now_ms
        self._wall_ms = wall_ms

        coordination.advance(rest, step)
        replica, share = coordination.replica, None
        quiet = looks = rests = False
        if replica is None:
            clients.begin_turn_alone()
        else:
            raft = replica.raft
            looks = now_ms >= self._look_at or self._leaving.stops
            if looks:
                self._look_at = now_ms + LOOK_INTERVAL_MS
                self.pace.step(raft, self.clock.run)
                coordination.look()
            clients.begin_turn()
            if origin.collected:
                origin.cut(now_ms, clients.arrived)
            coordination.ask_leader()
            if self._outbox.local:
                self._deliver_local()
            leadership = coordination.leadership
            self.applier.expiry = None if leadership is None else leadership.expiry
            if leadership is not None:
                leadership.lead(raft, wall_ms)
            coordination.settle()
            if looks:
                leaves = self._leaving.stops or coordination.belonging.leaves(raft, self.machine, now_ms)
                self._leaving.look(now_ms, leaves=leaves)
            idle = not (origin.collected or origin.unapplied)
            calm = idle and now_ms >= self._calm_at
            quiet = self.snapshots.is_quiet(now_ms, raft, idle=calm)
            if (self._remains or not quiet) and not self.applier.halfway:
                self._keep_snapshots(replica, wall_ms, calm=calm)
            if self.groups is not None:
                # This comes before clients are written to, so that what partitions answer leaves in this turn.
                share = self._groups_turn(self.groups, replica, step, wall_ms)
                if share is not None and share.spoke and raft.join_round():
                    # Others are woken anyway. So all heartbeats between two servers come to leave at the same moments.
                    coordination.settle()
            if raft.commit_index != self._commit_before:
                self._commit_before = raft.commit_index
                self._calm_at = now_ms + CALM_MS
            elif quiet and idle and share is None and not (self._remains or self._leaving.stops):
                rests = self._frame.is_free and coordination.rests
        self._stirred = coordination.stirred = False
        outputs = self._answer_clients(now_ms)
        if looks or self._writes_answered or clients.sent_total - clients.events_total != sent_before:
            self._count_answers(sent_before, wall_ms)
        clients.arrived = now_ms
        effects = self._effects(now_ms, outputs, share, quiet=quiet, rests=rests)
        self.clock.asked_at = effects.wake_at
        return effects

    def _deliver_local(self) -> None:
        """Take the messages that this server sends to itself as origin and leader, without the network."""
        me = self.identity
        while self._outbox.local:
            for message in self._outbox.take_local():
                if not is_of_groups(message):
                    self.coordination.on_message(me.server, me.instance, message, None)
                elif self.groups is not None:
                    self.groups.said_here(message)

    def _groups_turn(
        self, groups: HostedGroups, replica: Replica, step: int, wall_ms: int
    ) -> GroupsShare | None:
        leadership = self.coordination.leadership
        if leadership is not None and leadership.topics.outgoing:
            for group, message in leadership.topics.take_outgoing():
                groups.partitions.tell(group, message)
        share = groups.turn(
            step,
            self.clock.now,
            wall_ms,
            coordination=replica.raft,
            applied=replica.applied_index,
        )
        if share is not None and share.coordination_due:
            self.snapshots.keeper.shorten_log()
        if self.clients.topics is None and self.machine.feature_level >= LEVEL_OF_TOPICS:
            self.clients.topics = self.topics
        while groups.host.mistakes:
            self._note_mistake(*groups.host.mistakes.popleft())
        return share

    def _effects(
        self,
        now_ms: int,
        outputs: Sequence[Output],
        share: GroupsShare | None,
        *,
        quiet: bool,
        rests: bool,
    ) -> Effects:
        """Gather what the shell is to do.

        `quiet` says that there is nothing of snapshots, `rests` that nothing at all is under way.
        """
        # What all groups of this server have to write now is one frame (D-13); there is none while one is being written.
        bootstrap, replica = self.coordination.bootstrap, self.coordination.replica
        frame = None
        if self._frame.due or not bootstrap.founded:
            frame = self._frame.take(None if bootstrap.founded else bootstrap.to_make_durable())
        if frame is not None:
            self.pace.began(self.clock.run)
        wake_at = self.coordination.due_at(rests=rests)
        if self._outbox.local:
            wake_at = now_ms
        elif (self.origin.collected or now_ms < self.origin.anticipation.until) and replica is not None:
            # What clients asked for while a batch was under way makes the next one, whether or not anybody asks again.
            wake_at = self._until_cut(wake_at, now_ms)
        clients_in_ms = self.clients.due_in_ms
        if clients_in_ms is not None and now_ms + clients_in_ms < wake_at:
            wake_at = now_ms + clients_in_ms
        tasks: Sequence[Task] = ()
        deliveries: Sequence[delivery_tasks.Task] = ()
        compactions: Sequence[tuple[GroupId, int]] = ()
        compact_to = None
        if not quiet:
            tasks = self.snapshots.work.take_tasks()
            deliveries = self.snapshots.work.take_deliveries()
            if self.groups is None or not self.groups.removing:
                compact_to = self.snapshots.take_compaction()
            in_ms = self.snapshots.wake_in_ms
            if in_ms is not None:
                wake_at = min(wake_at, now_ms + max(1, in_ms))
        if share is not None:
            tasks, deliveries = [*tasks, *share.tasks], [*share.deliveries, *deliveries]
            compactions = share.compactions
            if share.due_in is not None:
                wake_at = min(wake_at, now_ms + share.due_in)
        if self._sender.waiting:
            # Followers of any group get what they asked for, as far as the budget for all of them goes.
            pieces, segments = self._sender.reads(now_ms)
            tasks, deliveries = [*tasks, *pieces], [*deliveries, *segments]
            if self._sender.waiting:
                wake_at = min(wake_at, now_ms + WAKE_MS)
        self.rests_until = wake_at if rests else 0
        alarm_at = self.coordination.look_at_alarm()
        if alarm_at < wake_at:
            wake_at = alarm_at
        return Effects(
            self._outbox.take(), frame, outputs, wake_at, tasks, compact_to, deliveries, compactions
        )

    def _until_cut(self, wake_at: int, now_ms: int) -> int:
        """Return when the next batch is to be cut, if that is before `wake_at`; else `wake_at`."""
        cuts_at = self.origin.cuts_at(now_ms)
        return int(cuts_at) if cuts_at < wake_at else wake_at

    # -- clients

    def _answer_clients(self, now_ms: int) -> list[Output]:
        """Return what clients are told in this turn, as far as this server has contact with a quorum (D-14)."""
        coordination, clients = self.coordination, self.clients
        stale, removed = coordination.contact.stale, coordination.belonging.removed is not None
        serving = coordination.raft is not None and not stale and not removed
        availability = clients.availability
        if serving and not availability.serving and self.settings.clients.read_only_mode_enabled:
            clients.end_read_only()
        availability.serving, availability.removed = serving, removed
        if stale and coordination.contact.lost:
            clients.close_all("this server has had no contact with a majority: its clients ask another one")
        return clients.flush(now_ms)

    def _dismiss_clients(self) -> None:
        """Close all connections, because this server no longer belongs to the cluster and serves no client any more."""
        self.clients.availability.removed = True
        self.clients.dismiss_all()
        self._give_up_errands(self.origin.owners())

    def _give_up_errands(self, owners: Iterable[object]) -> None:
        """Let operators' commands time out, because this server will not learn what became of them."""
        for owner in owners:
            if isinstance(owner, Errand):
                owner.complete(Code.OPERATION_TIMEOUT, self.machine.last_zxid)

    def _on_answered(self, arrived_at: float, count: int) -> None:
        self._writes_answered += count
        self.latencies.add_writes(arrived_at, count)

    def _count_answers(self, sent_before: int, wall_ms: int) -> None:
        """Count the reads of this turn: all that was sent to clients, except events and answers to writes."""
        clients, raft = self.clients, self.coordination.raft
        reads = clients.sent_total - clients.events_total - sent_before - self._writes_answered
        if reads > 0:
            self.latencies.add_reads(clients.arrived, reads)
        last_index = 0 if raft is None else raft.log.last_index
        self._view.rates.turn(wall_ms, reads if reads > 0 else 0, self._writes_answered, last_index)
        self._writes_answered = 0

    # -- snapshots

    def _core_of(self, group: GroupId) -> Raft | None:
        """Return the core of a group of this server; None if the group is not here."""
        if group == COORDINATION_GROUP:
            return self.coordination.raft
        return None if self.groups is None else self.groups.core_of(group)

    def _keep_snapshots(self, replica: Replica, wall_ms: int, *, calm: bool) -> None:
        raft = replica.raft
        snapshots = self.snapshots
        arrived = snapshots.turn(
            self.clock.now, wall_ms, raft, replica.where_applied, self.cluster, idle=calm
        )
        for to, message in snapshots.work.take_outgoing():
            self._outbox.send(to, message)
        if self._remains and not self._remains[0].step(REMAINS_PER_TURN):
            del self._remains[0]
        for received in arrived:
            meta = received.info.meta
            if received.info.group != COORDINATION_GROUP:
                assert self.groups is not None
                self.groups.adopt(received, self.clock.now)
            elif meta.index > replica.applied_index and raft.restore(meta):
                self._adopt(received)
            else:
                # The log has brought this server as far meanwhile.
                snapshots.receiver.drop(COORDINATION_GROUP)

    def _adopt(self, received: ReceivedSnapshot) -> None:
        """Become what the snapshot says (D-4). All clients are closed: none can know what happened in between."""
        state = received.state
        assert isinstance(state, ImageState), "a state that is none of the coordination group"
        self.clients.close_all()
        self._remains.append(self.machine.adopt(state))
        self.applier.restored()
        self.coordination.stands_at(received.info.meta)
        self.snapshots.restored(received.info)
        row = self.machine.rows.get((self.identity.server, self.identity.instance))
        if row is not None:
            if row.boot > self.identity.boot:
                raise self.identity.copied(row.boot)
            self._give_up_errands(self.origin.on_restore(row.boot, row.seq))
