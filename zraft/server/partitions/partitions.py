"""All partitions of this server: one turn of them around the host's turn, and what they say to each other and to group 0.

The host of groups (`zraft.groups.host`) replicates; here is what follows from what it applied, and what leaders propose.
A turn looks at the partitions to which something happened or for which something is due, and at no other. Pure: disks and
sockets are the owner's. Source: docs/explanation/topics.md, "A turn of a group"; rules D-8, D-9, D-12, D-13, D-16.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from zraft.groups.effects import GroupEffects
from zraft.groups.host import GroupHost
from zraft.groups.replica import HostedReplica
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.statistics import FollowerState
from zraft.groups.timers import Timers
from zraft.raft.role import Role
from zraft.raft.settings import NEVER
from zraft.server.partitions.coordination_port import Coordination
from zraft.server.partitions.delivery_reading import ReadResult, ReadTask
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.leadership import Logged, PartitionLeadership
from zraft.server.partitions.machine import PartitionMachine
from zraft.server.partitions.routes import GroupRoutes
from zraft.server.partitions.settings import LEADERLESS_MS, PartitionsSettings
from zraft.server.partitions.statistics import Delivered, PartitionsStatistics, PartitionState
from zraft.server.partitions.topic_answers import TopicAnswers
from zraft.server.partitions.topic_requests import TopicRequests
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.topics.entries import BirthEntry, encode_entry
from zraft.topics.service import Consumers
from zraft.transport.messages import Bundle, Edge, GroupLeader, PeerMessage
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.codec import Packed, decode_bundle, decode_edge, encode_bundles, encode_edge
from zraft_core.topics.messages import GroupMessage, Need, Reply, Report, StartRequest

if TYPE_CHECKING:
    from zraft.server.partitions.troubles import Trouble

BIRTH_AGAIN_MS: Final = 100
"""The time that a leader which does not know what its group begins with waits before it looks again."""
STAND_ASIDE_AGAIN_MS: Final = 1_000
"""The time that a leader which cannot go on waits before it asks the next server to lead."""
CONTEXT_BITS: Final = 32
"""Numbers of reads: those of a start of this server begin above those of all earlier ones."""
KEEP_ALL: Final = DeliveryRetention()
MISTAKES_KEPT_MAX: Final = 16

_Said = Sequence[GroupMessage] | StartRequest


class Partitions:
    """The partitions of one server, and what connections ask of them (`topics`). Not thread-safe: one owner calls it.

    Args:
        coordination: group 0, as it is known here.
        read: hand a read to other threads; `read_done` tells its end.

    Raises:
        ConfigError: a setting is out of its bounds.

    Attributes:
        mistakes: messages of other servers that are not understood; the last ones, with their senders.
        notices: partitions that stopped here, and why; for who reads the log.
    """

    def __init__(
        self,
        coordination: Coordination,
        read: Callable[[ReadTask], None],
        settings: PartitionsSettings | None = None,
    ) -> None:
        self.settings = settings or PartitionsSettings()
        self.settings.validate()
        self.hosted: dict[GroupId, HostedPartition] = {}
        self.mistakes: deque[tuple[ServerId, str]] = deque(maxlen=MISTAKES_KEPT_MAX)
        self.notices: deque[str] = deque(maxlen=MISTAKES_KEPT_MAX)
        self._coordination = coordination
        self._host: GroupHost | None = None
        self._me: ServerId | None = None
        self._contexts: Iterator[int] = iter(())
        self._answers = TopicAnswers()
        self._logged = Logged()
        self._routes = GroupRoutes(coordination.replicas)
        self.topics = TopicRequests(
            self.settings,
            self._answers,
            self.hosted,
            leader_of=self._leader_of,
            keeps_up=self._keeps_up,
            destinations_max=lambda: coordination.destinations_max,
            features=lambda: coordination.features,
            need=lambda group, time: self.tell(group, Need(time)),
            stir=self._stir,
            read=read,
        )
        self._stirred: dict[GroupId, None] = {}
        self._inbox: list[tuple[GroupId, _Said]] = []
        self._outgoing: list[tuple[ServerId, PeerMessage]] = []
        self._tasks: list[delivery_tasks.Task] = []
        self._alarms = Timers()
        self._tails: OrderedDict[GroupId, None] = OrderedDict()
        self._tails_bytes = 0
        self._run_ms = self._now_ms = 0
        self._retain_at = 0
        self._closed_led = Delivered()
        """Of partitions that were led here and are gone: totals never fall."""
        self._counts = dict.fromkeys(
            ("mistakes", "strays", "passed", "bundles_sent", "bundles_received", "edges_sent", "delivered"), 0
        )

    # -- which partitions are here

    def open(self, group: GroupId) -> PartitionMachine:
        """Return an empty state machine for a group that has a replica on this server from now on."""
        assert group not in self.hosted, f"group {group} is open"
        hosted = self.hosted[group] = HostedPartition(group)
        return hosted.machine

    def closed(self, group: GroupId) -> None:
        """Forget a group whose replica is gone."""
        hosted = self.hosted.pop(group)
        if hosted.leadership is not None:
            hosted.end_leadership(None)
        self._closed_led += hosted.delivered_leading
        self.topics.closed(hosted)
        self._stirred.pop(group, None)
        self._alarms.clear(group)
        self._tails.pop(group, None)
        self._tails_bytes -= hosted.counted_bytes

    def cut_index(self, group: GroupId) -> int:
        """Return the index of the group's log up to which everything that it delivered is durable."""
        host, hosted = self._host, self.hosted.get(group)
        if host is None or hosted is None:
            return 0
        replica = host.groups.get(group)
        return hosted.cut_index(0 if replica is None else replica.applied_index)

    # -- what the disk did

    def take_tasks(self) -> Sequence[delivery_tasks.Task]:
        """Return the tasks for the disk of deliveries, in order for each group."""
        tasks, self._tasks = self._tasks, []
        return tasks

    def performed(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """Take the result of a task; of appends that were written together only the last is told."""
        hosted = self.hosted.get(task.group)
        if hosted is None:
            return
        if isinstance(result, StorageError):
            if isinstance(task, delivery_tasks.OpenDeliveries | delivery_tasks.AppendDeliveries):
                # The files on this disk contradict the state (D-26), or are damaged: nothing may be added to
                # either.
                hosted.failure = hosted.machine.error = str(result)
                self._stir(task.group)
                self.topics.wake(task.group)
            return
        match task:
            case delivery_tasks.OpenDeliveries():
                assert isinstance(result, delivery_tasks.Opened)
                hosted.opened(result.log)
            case delivery_tasks.AppendDeliveries(_, _, index):
                assert isinstance(result, int)
                hosted.wrote(index)
                hosted.durable(result)
                self._trim(hosted, self.settings.tail_bytes_max)
            case delivery_tasks.SyncDeliveries() | delivery_tasks.CompleteFetch():
                assert isinstance(result, int)
                hosted.durable(result)

    def synced(self, durable: Mapping[GroupId, int]) -> None:
        """Take, by group, the index of its log up to which everything delivered is durable."""
        for group, index in durable.items():
            hosted = self.hosted.get(group)
            if hosted is not None:
                hosted.durable(index)

    def read_done(self, task: ReadTask, result: ReadResult) -> None:
        """Take the result of a read that was handed out."""
        self.topics.read_done(task, result)

    # -- what others say

    def tell(self, group: GroupId, message: GroupMessage | StartRequest) -> None:
        """Send something to the leader of a group, wherever it is.

        It may be lost; whoever needs it says it again.
        """
        self._say(group, message if isinstance(message, StartRequest) else (message,))

    def receive(self, sender: ServerId, message: PeerMessage) -> None:
        """Take a message of partitions of another server or of this one; other messages are ignored.

        Raises:
            ProtocolError: the message is not what a server would send.
        """
        try:
            match message:
                case Bundle():
                    self._on_bundle(sender, message)
                case Edge(blob):
                    edge = decode_edge(blob)
                    if isinstance(edge, StartRequest):
                        raise ProtocolError("a START that is for no group")
                    self._coordination.hear(edge)
                case GroupLeader(group, _, server):
                    self._routes.heard(group, server, self._now_ms)
                case _:
                    pass
        except ProtocolError as error:
            # It costs that one message: whoever sends it must not be able to end this server.
            self._mistaken(sender, error)

    def _on_bundle(self, sender: ServerId, bundle: Bundle) -> None:
        hosted = self.hosted.get(bundle.to)
        if hosted is None:
            self._counts["strays"] += 1
            return
        if hosted.leadership is None:
            self._pass_on(sender, bundle)
            return
        self._counts["bundles_received"] += 1
        try:
            said, errors = decode_bundle(bundle.blob)
        except ProtocolError:
            request = decode_edge(bundle.blob)
            if not isinstance(request, StartRequest):
                raise
            self._inbox.append((bundle.to, request))
            return
        for error in errors:
            self._mistaken(sender, error)
        if not bundle.passed:
            for message in said.messages[:1]:
                speaker = getattr(message, "sender", None)
                if speaker is not None and speaker not in self.hosted:
                    self._routes.heard(speaker, sender, self._now_ms)
        self._inbox.append((bundle.to, said.messages))

    def _pass_on(self, sender: ServerId, bundle: Bundle) -> None:
        """Pass on a bundle for a group that this server does not lead; the sender did not know who does."""
        replica = self._replica(bundle.to)
        if replica is None or replica.retired or replica.raft.leader in (None, replica.raft.server):
            self._counts["strays"] += 1
            return
        leader, term = replica.raft.leader, replica.raft.term
        if not bundle.passed:
            self._counts["passed"] += 1
            self._outgoing.append((leader, Bundle(bundle.to, bundle.blob, passed=True)))
            self._outgoing.append((sender, GroupLeader(bundle.to, term, leader)))

    @property
    def mistakes_total(self) -> int:
        """All there ever were; `mistakes` has the last ones."""
        return self._counts["mistakes"]

    def _mistaken(self, sender: ServerId, error: ProtocolError) -> None:
        self._counts["mistakes"] += 1
        self.mistakes.append((sender, str(error)))

    # -- what is said to others

    def take_outgoing(self) -> Sequence[tuple[ServerId, PeerMessage]]:
        """Return the messages to other servers, and to group 0 on this one."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def _say(self, group: GroupId, said: _Said, known: Packed | None = None) -> None:
        hosted = self.hosted.get(group)
        if hosted is not None and hosted.leadership is not None:
            self._inbox.append((group, said))
            return
        server = self._leader_of(group)
        for _ in range(2):
            if server is not None and server != self._me:
                break
            server = self._routes.target(group, self._now_ms)
        if server is None or server == self._me:
            return
        blobs = (encode_edge(said),) if isinstance(said, StartRequest) else encode_bundles(group, said, known)
        for blob in blobs:
            self._counts["bundles_sent"] += 1
            self._outgoing.append((server, Bundle(group, blob)))

    def _say_to_coordinator(self, edge: Report | Reply) -> None:
        leader = self._coordination.leader
        if leader is not None:
            self._counts["edges_sent"] += 1
            self._outgoing.append((leader, Edge(encode_edge(edge))))

    def _leader_of(self, group: GroupId) -> ServerId | None:
        replica = self._replica(group)
        if replica is None or replica.retired:
            # A group that has left this server does not tell it of a new leader.
            return self._routes.target(group, self._now_ms)
        return replica.raft.leader

    def _keeps_up(self, group: GroupId) -> bool:
        """Return whether the replica here hears of a leader, or missed it for no longer than an election takes."""
        host = self._host
        if host is None or group not in host.groups:
            return False
        leaderless_ms = host.leaderless_ms(group)
        return leaderless_ms is None or leaderless_ms < LEADERLESS_MS

    def _replica(self, group: GroupId) -> HostedReplica | None:
        return None if self._host is None else self._host.groups.get(group)

    # -- a turn

    def _stir(self, group: GroupId) -> None:
        self._stirred[group] = None

    @property
    def wants_turn(self) -> bool:
        """True if something was given since the last turn that deserves one."""
        return bool(
            self._stirred or self._inbox or self._answers.waiting or self._outgoing or self.topics.woken
        )

    @property
    def wake_in(self) -> int | None:
        """Milliseconds from the last turn until the next one is due; None if nothing is."""
        due = self._alarms.next_at
        if 0 < self._retain_at < due:
            due = self._retain_at
        deadline = self.topics.due_in(self._now_ms)
        if due == NEVER:
            return deadline
        left = max(0, int(due) - self._run_ms)
        return left if deadline is None or left < deadline else deadline

    def before(self, host: GroupHost, step: int, now_ms: int, wall_ms: int) -> None:
        """Let leaders propose, before the host's turn.

        `step` is the time in ms for which this process ran since the last turn.
        """
        if self._host is not host:
            self._host, self._me = host, host.server
            self._contexts = count((host.boot << CONTEXT_BITS) + 1)
        self._run_ms += step
        self._now_ms = now_ms
        self.topics.begin(now_ms)
        inbox, self._inbox = self._inbox, []
        for group, said in inbox:
            hosted = self.hosted.get(group)
            if hosted is None or hosted.leadership is None:
                continue
            if isinstance(said, StartRequest):
                hosted.leadership.start(said)
            else:
                hosted.leadership.hear(said)
            self._stirred[group] = None
        for group in self._alarms.take_due(self._run_ms):
            self._stirred[group] = None
        stirred, self._stirred = self._stirred, {}
        for group in stirred:
            self._lead(host, group, wall_ms)
        self._retain(wall_ms)

    def after(self, host: GroupHost, effects: GroupEffects, now_ms: int, wall_ms: int) -> None:
        """Deal with what the host's turn applied, with changed roles, and with reads that may be answered."""
        self._now_ms = now_ms
        touched = dict.fromkeys(effects.touched)
        touched.update(dict.fromkeys(effects.applied))
        for group in touched:
            hosted = self.hosted.get(group)
            replica = host.groups.get(group)
            if hosted is not None and replica is not None:
                self._follow(hosted, replica)
        for group, number in effects.reads:
            hosted = self.hosted.get(group)
            if hosted is not None and hosted.leadership is not None:
                hosted.leadership.on_round(number, self._run_ms)
                touched[group] = None
        for group in touched:
            self._lead(host, group, wall_ms)
        self._forget_tails()
        self.topics.finish(now_ms)
        self._answers.deliver()

    def _follow(self, hosted: HostedPartition, replica: HostedReplica) -> None:
        """Look at what was applied to a partition, and at whether this server leads it."""
        raft, leadership, stopped = replica.raft, hosted.leadership, hosted.machine.stopped
        entries = hosted.take_applied(self._tasks)
        if stopped and not hosted.stop_noticed:
            hosted.stop_noticed = True
            self.notices.append(
                f"partition of group {hosted.group} stopped on this server: {hosted.machine.error}"
            )
        leads = raft.role is Role.LEADER and raft.noop_index <= replica.applied_index and not stopped
        if leadership is not None and not (leads and leadership.term == raft.term):
            hosted.end_leadership(raft.leader if raft.leader != raft.server else None, entries)
            leadership = None
            self._alarms.clear(hosted.group)
        delivered = sum(len(entry.deliveries) for entry in entries)
        if delivered:
            self._counts["delivered"] += delivered
            self._tails[hosted.group] = None
            self._tails.move_to_end(hosted.group)
        if hosted.tail.size != hosted.counted_bytes:
            self._trim(hosted, self.settings.tail_bytes_max)
        if leadership is not None:
            for entry in entries:
                leadership.on_applied(entry)
        elif leads and hosted.machine.partition is not None:
            hosted.begin_leadership(
                PartitionLeadership(
                    hosted.machine,
                    self.settings,
                    self._answers,
                    self._contexts,
                    self._logged,
                    term=raft.term,
                    run_ms=self._run_ms,
                )
            )
        if replica.retired != hosted.left:
            hosted.left = replica.retired
            self.topics.wake(hosted.group)
        if hosted.frontier_moved():
            self.topics.wake(hosted.group)

    def _lead(self, host: GroupHost, group: GroupId, wall_ms: int) -> None:
        hosted, replica = self.hosted.get(group), host.groups.get(group)
        if hosted is None or replica is None:
            return
        if hosted.failure:
            self._stand_aside(host, hosted, replica)
            return
        leadership = hosted.leadership
        if leadership is None:
            if hosted.machine.partition is None:
                self._give_birth(host, hosted, replica, wall_ms)
            return
        output = leadership.turn(host, self._run_ms, wall_ms)
        known: Packed = {}
        for to, messages in output.messages.items():
            self._say(to, messages, known)
        for edge in output.edges:
            self._say_to_coordinator(edge)
        due = leadership.due_in(self._run_ms)
        if due is None:
            self._alarms.clear(group)
        else:
            self._alarms.set(group, self._run_ms + max(1, due))

    def _stand_aside(self, host: GroupHost, hosted: HostedPartition, replica: HostedReplica) -> None:
        """Others have these deliveries unharmed: one of them is to lead. The vote and the log here still count."""
        if hosted.leadership is not None:
            self._follow(hosted, replica)
        if not replica.retired:
            host.retire(hosted.group)
        raft = replica.raft
        if raft.role is not Role.LEADER:
            return
        others = sorted(server for server in raft.membership.voters if server != raft.server)
        if others and not raft.transferring:
            host.transfer(hosted.group, others[(self._run_ms // STAND_ASIDE_AGAIN_MS) % len(others)])
        self._alarms.set(hosted.group, self._run_ms + STAND_ASIDE_AGAIN_MS)

    def _give_birth(
        self, host: GroupHost, hosted: HostedPartition, replica: HostedReplica, wall_ms: int
    ) -> None:
        """Propose the first entry of a partition's log that counts; a second one would change nothing."""
        raft = replica.raft
        if raft.role is not Role.LEADER or raft.noop_index > replica.applied_index:
            return
        if hosted.birth_term == raft.term:
            return
        beginning = self._coordination.beginning(hosted.group)
        if beginning is not None:
            entry = BirthEntry(
                wall_ms,
                0,
                beginning.view,
                beginning.settings,
                beginning.born,
                self.settings.claims_heartbeat_ms,
                beginning.first_offset,
                beginning.first_time,
            )
            if host.propose(hosted.group, encode_entry(entry), entry.count) is not None:
                hosted.birth_term = raft.term
                return
        self._alarms.set(hosted.group, self._run_ms + BIRTH_AGAIN_MS)

    # -- memory and disk

    def _trim(self, hosted: HostedPartition, size_max: int) -> None:
        """Let the deliveries of a partition in memory be so many bytes, but for those that are not on the disk."""
        tail = hosted.tail
        tail.shrink(size_max)
        self._tails_bytes += tail.size - hosted.counted_bytes
        hosted.counted_bytes = tail.size

    def _forget_tails(self) -> None:
        """Forget tails if all together are too many: those that delivered least recently go first."""
        excess = len(self._tails) if self._tails_bytes > self.settings.tails_bytes_max else 0
        for _ in range(excess):
            if self._tails_bytes <= self.settings.tails_bytes_max:
                break
            group, _ = self._tails.popitem(last=False)
            hosted = self.hosted[group]
            self._trim(hosted, 0)
            if hosted.tail.size:
                self._tails[group] = None

    def _retain(self, wall_ms: int) -> None:
        """Remove now and then what was kept long enough."""
        if self._run_ms < self._retain_at:
            return
        self._retain_at = self._run_ms + self.settings.retain_interval_ms
        for group, hosted in self.hosted.items():
            retention = self._coordination.retention(group)
            if hosted.log is not None and retention != KEEP_ALL:
                self._tasks.append(delivery_tasks.RetainDeliveries(group, retention, wall_ms))

    # -- what operators see

    def statistics(self) -> PartitionsStatistics:
        """Return the counts of this moment.

        It looks at every partition, so it is for scrapes of metrics and not for a turn.
        """
        pending = pending_bytes = settled = started = leading = unborn = stopped = failed = age_ms = (
            too_few
        ) = 0
        led = self._closed_led
        for hosted in self.hosted.values():
            unborn += hosted.machine.partition is None
            stopped += hosted.machine.stopped
            failed += bool(hosted.failure)
            led += hosted.delivered_leading
            if hosted.leadership is not None:
                leading += 1
                too_few += self._has_too_few(hosted.group, self._followers(hosted.group))
                found = hosted.leadership.statistics(self._run_ms)
                pending += found.pending
                pending_bytes += found.pending_bytes
                age_ms = max(age_ms, found.pending_age_ms)
                settled += found.settled
                started += found.started
        return PartitionsStatistics(
            partitions=len(self.hosted),
            leading=leading,
            unborn=unborn,
            stopped=stopped,
            failed=failed,
            under_replicated=too_few,
            pending=pending,
            pending_bytes=pending_bytes,
            pending_age_ms_max=age_ms,
            settled=settled,
            started=started,
            tails_bytes=self._tails_bytes,
            fetches_waiting=self.topics.waiting,
            reads_under_way=self.topics.reading,
            entries_total=self._logged.entries,
            commands_total=self._logged.commands,
            delivered_total=self._counts["delivered"],
            led_messages_total=led.messages,
            led_records_total=led.records,
            led_bytes_total=led.bytes,
            fetches_total=self.topics.fetches_total,
            deliveries_read_total=self.topics.deliveries_read_total,
            replies_total=self._answers.replies_total,
            refusals_total=self._answers.refusals_total,
            bundles_sent_total=self._counts["bundles_sent"],
            bundles_received_total=self._counts["bundles_received"],
            bundles_passed_total=self._counts["passed"],
            edges_sent_total=self._counts["edges_sent"],
            strays_total=self._counts["strays"],
            mistakes_total=self.mistakes_total,
        )

    def troubles(self) -> list[Trouble]:
        """Return what keeps partitions here from taking or delivering messages.

        It looks at every partition, so it is for operators and not for a turn.
        """
        from zraft.server.partitions.troubles import trouble_of

        host = self._host
        if host is None:
            return []
        found = (
            trouble_of(hosted, host, self._run_ms)
            for hosted in self.hosted.values()
            if hosted.group in host.groups
        )
        return [one for one in found if one is not None]

    def state_of(self, group: GroupId) -> PartitionState | None:
        """Return the state of a partition's replica here at this moment; None if there is none."""
        hosted, replica = self.hosted.get(group), self._replica(group)
        if hosted is None or replica is None or replica.retired:
            return None
        raft, leads = replica.raft, hosted.leadership is not None
        followers = self._followers(group) if leads else ()
        stored = None if hosted.log is None else hosted.log.statistics()
        return PartitionState(
            group=group,
            term=raft.term,
            leader=raft.leader,
            leads=leads,
            first=hosted.first,
            end=hosted.end,
            stored_bytes=0 if stored is None else stored.bytes,
            oldest_ms=None if stored is None else stored.oldest_ms,
            problem=hosted.machine.error or hosted.failure,
            delivered=hosted.delivered_leading,
            followers=followers,
            too_few=leads and self._has_too_few(group, followers),
        )

    def consumers_of(self, group: GroupId) -> Consumers | None:
        """Return who consumes a partition that is led here, as of this moment and without asking a quorum; else None."""
        hosted = self.hosted.get(group)
        return None if hosted is None or hosted.leadership is None else hosted.leadership.consumers()

    def _followers(self, group: GroupId) -> tuple[FollowerState, ...]:
        return () if self._host is None else self._host.followers(group)

    def _has_too_few(self, group: GroupId, followers: Sequence[FollowerState]) -> bool:
        """Return whether a replica that a partition led here should have is not in sync."""
        replica = self._replica(group)
        wanted = () if replica is None or replica.wanted is None else replica.wanted
        in_sync = {one.server for one in followers if one.in_sync}
        return any(server != self._me and server not in in_sync for server in wanted)

    @property
    def failures(self) -> dict[GroupId, str]:
        """The reasons for which partitions stopped, or their deliveries cannot be used."""
        return {
            group: hosted.machine.error or hosted.failure
            for group, hosted in self.hosted.items()
            if hosted.machine.error or hosted.failure
        }
