"""The topics' groups of this server: they share one log, one frame and one outbox with the coordination group.

This module stands between the driver, which owns the turn, `GroupHost`, which decides for each group, and the
partitions, which are what groups replicate. It follows what the coordination group's state says of groups:
which replicas there are, who should lead and vote, and when a group's files are removed. Pure. Source:
docs/explanation/groups.md; D-7, D-13, D-18.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Final, get_args

from attrs import frozen

from zraft.groups.description import GroupDescription
from zraft.groups.digests import GroupComparison
from zraft.groups.effects import GroupMessage
from zraft.groups.frame import Durable, LogFrame
from zraft.groups.host import GroupHost
from zraft.groups.identity import Identity
from zraft.groups.outbox import PeerOutbox
from zraft.groups.partitions_port import PartitionsPort
from zraft.groups.recovery import StoredGroups
from zraft.groups.retention import LogRetention
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots import delivery_tasks
from zraft.groups.snapshots.receiving import ReceivedSnapshot
from zraft.groups.snapshots.snapshots import ABOUT_SNAPSHOTS, FETCHES, Snapshots
from zraft.groups.snapshots.tasks import RemoveSnapshots, Result, Task
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Message as RaftMessage
from zraft.raft.role import Role
from zraft.storage.delivery.values import Mark
from zraft.topics.service import TopicService
from zraft.transport.messages import (
    Bundle,
    Edge,
    GroupDigests,
    GroupLeader,
    GroupVerdict,
    PeerMessage,
    Sender,
    SharedHeartbeat,
    SharedHeartbeatReply,
)
from zraft.tree.machine import Machine
from zraft_core.errors import ProtocolError, StorageError
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.codec import encode_registry
from zraft_core.topics.registry_commands import Placed
from zraft_core.topics.registry_values import GroupRecord
from zraft_core.znodes.txn import TOPICS, Command

REPORT_AGAIN_MS: Final = 2_000
"""A leader reports that its group is placed again, if the coordination group does not show it after this time."""


_OF_PARTITIONS: Final = (Bundle, Edge, GroupLeader)
_OF_CORES: Final = frozenset((*get_args(RaftMessage), SharedHeartbeat, SharedHeartbeatReply))


@frozen
class GroupsShare:
    """Share of the groups' turn in the driver's effects.

    Attributes:
        tasks: for the disk of snapshots, in order.
        deliveries: for the disk of deliveries, in order; those that it refuses come back by
            `HostedGroups.refused`.
        compactions: (group, index): the log no longer needs the group's entries up to there.
        coordination_due: whether the coordination group is to be snapshotted to shorten the log of all
            groups.
        due_in: ms until the next turn is due; None if none is.
        spoke: whether other servers are told in this turn that leaders here live.
    """

    tasks: Sequence[Task]
    deliveries: Sequence[delivery_tasks.Task]
    compactions: Sequence[tuple[GroupId, int]]
    coordination_due: bool
    due_in: int | None
    spoke: bool


@frozen
class Hosting:
    """Collaborators that a driver needs to host groups.

    Attributes:
        partitions: what groups replicate.
        stored: what the disk held of groups at the start.
        mark_of: reads from (group, image, index) where the group's deliveries ended when the image was taken.
        topics: the partitions as connections see them.
    """

    partitions: PartitionsPort
    stored: StoredGroups
    mark_of: Callable[[GroupId, bytes, int], Mark]
    topics: TopicService | None = None


class HostedGroups:
    """The groups of one server above number 0. Its driver owns it.

    Args:
        machine: the coordination group's state.
        submit: puts a command into the coordination group's log.
        cluster: returns the id of the cluster, which snapshots name.
        snapshots: the snapshots of all groups of this server, with the deliveries that travel with them.
        log_end: index at which the coordination group's log ended when this process started.
        retention, frame: what each group of this server holds back of the log, and what waits to be written
            to it.

    Attributes:
        host: decides for each group.
        partitions: what the groups replicate.
        bundles_sent_total, bundles_received_total, edges_sent_total: messages of partitions to and from other
            servers.
        snapshots_failed_total: images that could not be written.
        installed_total: images that were taken over from other servers.
        stirred: whether a group is here, or something was given to this object since its last turn or is left of that.
            What clients ask of partitions does not count, because they ask for turns themselves.
    """

    def __init__(
        self,
        *,
        identity: Identity,
        settings: GroupSettings,
        rng: random.Random,
        hosting: Hosting,
        machine: Machine,
        submit: Callable[[Command], None],
        cluster: Callable[[], bytes],
        outbox: PeerOutbox,
        snapshots: Snapshots,
        log_end: int,
        retention: LogRetention,
        frame: LogFrame,
    ) -> None:
        """Host no groups yet: the first turns create them, when the coordination group has applied what its log held."""
        self.host = GroupHost(
            server=identity.server,
            instance=identity.instance,
            boot=identity.boot,
            settings=settings,
            rng=rng,
            retention=retention,
            frame=frame,
        )
        self.partitions = hosting.partitions
        self.topics = hosting.topics
        self.snapshots = snapshots
        self.digests = GroupComparison(self.host)
        self._touched: set[GroupId] = set()
        self._identity = identity
        self._now_ms = 0
        self._stored = hosting.stored
        self._mark_of = hosting.mark_of
        self._machine = machine
        self._submit = submit
        self._cluster = cluster
        self._outbox = outbox
        self._log_end: int | None = log_end
        self._revision: int | None = None
        self._seen: dict[GroupId, GroupRecord] = {}
        self._members: Membership | None = None
        """The configuration of the coordination group that counts here; another may stand at the same index of its log."""
        self._round = 0
        """The coordination group's newest round of heartbeats, if this server leads it."""
        self._placed: dict[GroupId, int] = {}
        self._frame = frame
        self._removing: set[GroupId] = set()
        self._deliveries: list[delivery_tasks.Task] = []
        self._refused: list[delivery_tasks.Task] = []
        self._compactions: list[tuple[GroupId, int]] = []
        self._restored: dict[GroupId, int] = {}
        """Index of the snapshot that took the place of a group's state, until a durable frame of the log says so."""
        self._tasks: list[Task] = []
        self.stirred = True
        self.snapshots_failed_total = self.installed_total = 0
        self.bundles_sent_total = self.bundles_received_total = self.edges_sent_total = 0

    # -- what happened

    def receive(
        self,
        sender: Sender,
        messages: Sequence[PeerMessage],
        coordination: Raft | None,
        *,
        ahead: int = 0,
    ) -> None:
        """Take messages about groups, of one authenticated peer, in the order in which they came.

        Another cluster may have the same key, so messages count only from disks that the coordination group
        knows (D-1).

        Args:
            coordination: the core of the coordination group; None if there is none yet.
            ahead: how many ms after the last turn they came.

        Raises:
            DivergedError: the state of a group here is not the majority's (D-26).
        """
        if coordination is None or not coordination.knows(sender.server, sender.instance):
            return
        self.stirred = True
        of_cores: list[GroupMessage] = []
        for message in messages:
            if message.__class__ in _OF_CORES:
                of_cores.append(message)  # type: ignore[arg-type]  # by its class
            elif isinstance(message, ABOUT_SNAPSHOTS):
                self.snapshots.on_message(sender.server, message, self._now_ms)
            elif isinstance(message, GroupDigests):
                self._say(self.digests.on_digests(sender.server, sender.instance, message))
            elif isinstance(message, GroupVerdict):
                self.digests.on_verdict(sender.server, message)
            elif isinstance(message, _OF_PARTITIONS):
                self.bundles_received_total += isinstance(message, Bundle)
                self.partitions.receive(sender.server, message)
        if of_cores:
            self.host.receive(sender, of_cores, ahead)

    def said_here(self, message: PeerMessage) -> None:
        """Take what a partition of this server says to another one of it."""
        self.partitions.receive(self._identity.server, message)

    def persisted(self, durable: Durable) -> None:
        """Take note that a frame is durable, which may hold records of these groups."""
        if any(durable.numbers) or durable.forgotten:
            self.stirred = True
            self.host.persisted(durable)

    def performed(self, task: Task, result: Result, now_ms: int) -> None:
        """Take the result of a task that the disk of snapshots has done."""
        self.stirred = True
        if isinstance(task, RemoveSnapshots):
            self._removing.discard(task.group)
            return
        written = self.snapshots.performed(task, result, now_ms)
        if written is not None:
            durable = written.info is not None
            self.snapshots_failed_total += not durable
            self.host.snapshotted(written.group, written.meta, durable=durable)

    def adopt(self, received: ReceivedSnapshot, now_ms: int) -> None:
        """Take over the state that another server's snapshot holds. The rest of the turn does what follows from it (D-4).

        An image that cannot be read, or that needs more deliveries than came with it, is refused, and the
        transfer counts as failed.
        """
        self.stirred = True
        info, image, snapshots = received.info, received.state, self.snapshots
        assert isinstance(image, bytes), f"a state of group {info.group} that is none of a partition"
        try:
            needed = self._mark_of(info.group, image, info.meta.index).offset
            if needed > received.delivered_end:
                raise ProtocolError(
                    f"it needs deliveries up to offset {needed}, the leader's list ends at {received.delivered_end}"
                )
            taken = self.host.install(info.group, info.meta, image)
        except ProtocolError as error:
            snapshots.receiver.refuse(info.group, str(error), now_ms)
            return
        if not taken:
            # The log has brought this server as far meanwhile.
            snapshots.receiver.drop(info.group)
            return
        self.installed_total += 1
        self._restored[info.group] = info.meta.index
        snapshots.restored(info)

    def delivered(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        """Take the result of a task that the disk of deliveries has done.

        Raises:
            StorageError: deliveries on which this server's state relies are damaged or missing, so it must
                not go on.
        """
        self.stirred = True
        if isinstance(task, delivery_tasks.RemoveDeliveries):
            # Snapshots go after the deliveries, because this task removes the directory that holds both.
            self._tasks.append(RemoveSnapshots(task.group))
            return
        if isinstance(task, delivery_tasks.OpenDeliveries):
            if isinstance(result, StorageError):
                raise result
            if isinstance(result, delivery_tasks.Opened) and task.group in self.host.groups:
                self.snapshots.logs[task.group] = result.log
        if isinstance(task, FETCHES):
            self.snapshots.delivered(task, result, self._now_ms)
            if not isinstance(task, delivery_tasks.CompleteFetch):
                return
        self.partitions.performed(task, result)

    def refused(self, tasks: Sequence[delivery_tasks.Task]) -> None:
        """Keep tasks for which the disk of deliveries has no room, and apply nothing until it takes them, in this order.

        An empty list says that there is room again.
        """
        self.stirred = True
        self._refused = list(tasks)
        self.host.hold(bool(tasks))

    @property
    def wants_turn(self) -> bool:
        """True if what arrived since the last turn gives a turn something to do now."""
        return (self.stirred and self.host.stirred) or self.partitions.wants_turn

    def take_touched(self) -> set[GroupId]:
        """Return the groups of which something may have changed since the last call; some of them may be gone."""
        touched, self._touched = self._touched, set()
        return touched

    def touch_again(self, group: GroupId) -> None:
        """Let the next `take_touched` return this group once more."""
        self._touched.add(group)

    def core_of(self, group: GroupId) -> Raft | None:
        """Return the core of a group that is hosted here; None if it is not."""
        replica = self.host.groups.get(group)
        return None if replica is None else replica.raft

    @property
    def removing(self) -> bool:
        """True if files of groups that are gone are still to be removed. Until then no part of the log may be cut off.

        A start that found the files, and no record of the group's end, would consider the group alive.
        """
        return bool(self._removing)

    # -- one turn

    def turn(
        self,
        step: int,
        now_ms: int,
        wall_ms: int,
        *,
        coordination: Raft,
        applied: int,
    ) -> GroupsShare | None:
        """Do the groups' share of the driver's turn, after the coordination group's; None if nothing is to be carried out.

        There is nothing where no groups are and nothing was said of any, as on servers without topics.

        Args:
            step: ms in which this process ran since the last turn.
            now_ms, wall_ms: the process's own clock and the wall clock, in ms.
            coordination: the core of the coordination group.
            applied: index up to which the coordination group is applied.

        Raises:
            DivergedError: this server leads a group and is in its minority (D-26).
            StorageError: what the disk holds of a group contradicts itself.
            ProtocolError: what the disk holds of a group cannot be read.
        """
        self._now_ms = now_ms
        if (
            self._log_end is not None
            or self._revision != self._machine.registry.revision
            or self._members is not coordination.membership
        ):
            self._follow_table(coordination, applied)
        if not (self.stirred or self.host.groups or self.partitions.wants_turn):
            return None
        self.partitions.before(self.host, step, now_ms, wall_ms)
        round_before, self._round = self._round, coordination.round
        effects = self.host.turn(step, joining=self._round > round_before)
        self._touched.update(effects.touched)
        self.partitions.after(self.host, effects, now_ms, wall_ms)
        for to in effects.sends:
            self._outbox.send_all(to, effects.sends[to])
        for to, said in self.partitions.take_outgoing():
            self._outbox.send(to, said)
            if to != self._identity.server:
                self.bundles_sent_total += isinstance(said, Bundle)
                self.edges_sent_total += isinstance(said, Edge)
        if effects.forgotten:
            self._remove_files(effects.forgotten)
        if effects.placed or self._placed:
            self._report_placed(effects.placed, now_ms)
        for image in effects.snapshots:
            self.snapshots.write(image, self._cluster(), wall_ms)
        if effects.needs_snapshot:
            self.snapshots.offer(effects.needs_snapshot, now_ms)
            self._say(self.snapshots.work.take_outgoing())
        # A group is opened before anything is appended to it.
        deliveries = [*self._refused, *self._deliveries, *self.partitions.take_tasks()]
        tasks = self._tasks
        self._refused, self._deliveries, self._tasks = [], [], []
        due_in = _soonest(effects.wake_in, self.partitions.wake_in)
        compactions = [*self._compactions, *effects.compactions]
        if self._restored:
            compactions += self._take_restored()
        if effects.applied:
            self._say(self.digests.turn(effects.applied))
        compactions = self._take_compactions(compactions) if compactions else []
        if effects.snapshots or self.host.stirred or self.partitions.wants_turn:
            due_in = 0
        self.stirred = bool(self.host.groups) or self._has_work
        return GroupsShare(tasks, deliveries, compactions, effects.coordination_due, due_in, effects.spoke)

    def _say(self, messages: Iterable[tuple[ServerId, PeerMessage]]) -> None:
        for to, message in messages:
            self._outbox.send(to, message)

    @property
    def _has_work(self) -> bool:
        return bool(
            self.host.stirred
            or self._frame.holds_groups
            or self.partitions.wants_turn
            or self._removing
            or self._tasks
            or self._deliveries
            or self._refused
            or self._compactions
            or self._restored
        )

    # -- the coordination group's table

    def _follow_table(self, coordination: Raft, applied: int) -> None:
        """Bring the replicas here into line with what the coordination group's state says now."""
        if self._log_end is not None:
            # An older state may name groups that the log has removed already and this disk has forgotten: a replica made
            # from nothing would vote in them. Entries that were applied once are never cut off, so it is enough to wait
            # for the log's end.
            self._log_end = min(self._log_end, coordination.log.last_index)
            if applied < self._log_end:
                return
            self._log_end = None
        if coordination.membership is not self._members:
            self._members = coordination.membership
            for server, member in self._members.members.items():
                if server != self._identity.server:
                    self.host.vouch(server, member.instance)
        registry = self._machine.registry
        if registry.revision == self._revision:
            return
        self._revision = registry.revision
        self.stirred = True
        rows = registry.living  # what is given up is gone here at once, and takes no part in its own end
        for group, row in rows.items():
            if self._seen.get(group) is not row:
                self._seen[group] = row
                self._follow(row)
        for group in [group for group in self._seen if group not in rows]:
            del self._seen[group]
        for group in sorted({*self.host.groups, *self._stored.present}):
            # Ids are zxids: a group up to the newest one that is not in the table is gone.
            if group not in rows and group <= self._machine.last_zxid:
                self._remove(group)

    def _follow(self, row: GroupRecord) -> None:
        host, group = self.host, row.group
        holds = (self._identity.server, self._identity.instance) in row.holders
        if group not in host.groups:
            if not holds and not self._stored.holds(group):
                return
            self._create(row)
        host.prefer(group, row.preferred)
        host.want_members(group, dict(row.wanted))
        if row.placed:
            self._placed.pop(group, None)
        if not holds:
            host.retire(group)

    def _create(self, row: GroupRecord) -> None:
        group = row.group
        info = self._stored.newest(group)
        if info is not None:
            self.snapshots.found(info)
        stored = self._stored.take(group)
        expected = None
        if stored.snapshot is not None:
            meta, image = stored.snapshot
            expected = self._mark_of(group, image, meta.index)
        self._deliveries.append(delivery_tasks.OpenDeliveries(group, expected, row.first_offset))
        description = GroupDescription(group, dict(row.founders), row.preferred)
        self.host.create(description, self.partitions.open(group), stored)

    def _remove(self, group: GroupId) -> None:
        """Remove a group that is gone for good (D-18): the log is to forget it, then its files go."""
        known = group in self.host.groups
        self.host.remove(group)
        self.snapshots.forget(group)
        self._restored.pop(group, None)
        self.digests.forget(group)
        self._stored.drop(group)
        self._placed.pop(group, None)
        if known:
            self.partitions.closed(group)

    def _remove_files(self, forgotten: Iterable[GroupId]) -> None:
        for group in forgotten:
            self._removing.add(group)
            self._deliveries.append(delivery_tasks.RemoveDeliveries(group))

    def _report_placed(self, placed: Iterable[GroupId], now_ms: int) -> None:
        """Report groups whose voters are the wanted disks to the coordination group, again and again until it shows them."""
        for group in placed:
            self._placed[group] = now_ms
        for group, due in tuple(self._placed.items()):
            row, replica = self._seen.get(group), self.host.groups.get(group)
            if (
                row is None
                or replica is None
                or row.placed
                or not replica.placed
                or replica.raft.role is not Role.LEADER
            ):
                del self._placed[group]
            elif now_ms >= due:
                self._placed[group] = now_ms + REPORT_AGAIN_MS
                self._submit((TOPICS, encode_registry(Placed(group, row.wanted))))

    def _take_restored(self) -> list[tuple[GroupId, int]]:
        """Return where to cut logs whose state was replaced by a snapshot from elsewhere, now that the log says so durably.

        What those logs were before fills the disk until then.
        """
        durable = [
            (group, index)
            for group, index in self._restored.items()
            if self.host.groups[group].raft.durable_index >= index
        ]
        for group, _ in durable:
            del self._restored[group]
        return durable

    def _take_compactions(self, compactions: list[tuple[GroupId, int]]) -> list[tuple[GroupId, int]]:
        if self.removing:
            self._compactions = compactions
            return []
        self._compactions = []
        return [
            (group, min(index, self.partitions.cut_index(group)))
            for group, index in compactions
            if group in self.host.groups
        ]


def _soonest(one: int | None, other: int | None) -> int | None:
    return one if other is None or (one is not None and one <= other) else other
