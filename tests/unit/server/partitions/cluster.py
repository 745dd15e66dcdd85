"""Servers with partitions in memory: the shipped hosts, partitions and delivery segments; a step is a millisecond.

Group 0 is one registry that everybody sees at once; its leader is the first server. What crosses from server to server goes
through the codec, and arrives at the next step, unless it is lost.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.simulation.coordination import SimulatedCoordination
from tests.simulation.disk import SimulatedDisk
from tests.simulation.partitions.process import OF_PARTITIONS, WALL_MS
from tests.unit.groups.hosts import DISKS, S1
from zraft.groups.description import GroupDescription
from zraft.groups.host import GroupHost
from zraft.groups.replica import StoredGroup
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots.delivery_tasks import DeliveryPerformer, OpenDeliveries, Task
from zraft.raft.log import Log
from zraft.raft.messages import Entry, HardState
from zraft.raft.role import Role
from zraft.server.partitions.delivery_reading import ReadTask, perform
from zraft.server.partitions.hosted_partition import HostedPartition
from zraft.server.partitions.machine import AppliedEntry
from zraft.server.partitions.partitions import Partitions
from zraft.server.partitions.settings import PartitionsSettings
from zraft.storage.delivery.disk import DeliveryDisk
from zraft.storage.delivery.settings import DeliveryRetention, DeliverySettings
from zraft.storage.directory import DataDirectory
from zraft.storage.records import EntryRecord
from zraft.topics.service import TopicService
from zraft.transport import codec
from zraft.transport.messages import (
    PeerMessage,
    Sender,
)
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import Reply, Report
from zraft_core.topics.registry_commands import CreateTopic

PUBLISH_EVERY_MS = 20


class Coordinator(SimulatedCoordination):
    """Group 0, led by `leader`."""

    def __init__(self) -> None:
        super().__init__()
        self.leader: ServerId | None = S1
        self.retained: dict[GroupId, DeliveryRetention] = {}
        self.heard: list[Report | Reply] = []

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        ids = list(DISKS)
        at = group % len(ids)
        return [*ids[at:], *ids[:at]]

    def retention(self, group: GroupId) -> DeliveryRetention:
        return self.retained.get(group, DeliveryRetention())

    def hear(self, message: Report | Reply) -> None:
        self.heard.append(message)
        super().hear(message)


class Server:
    """One of them, with its disk of deliveries."""

    def __init__(self, server: ServerId, coordinator: Coordinator, settings: PartitionsSettings) -> None:
        self.server = server
        self.host = GroupHost(
            server=server,
            instance=DISKS[server],
            boot=1,
            settings=GroupSettings(),
            rng=random.Random(server),
        )
        self.reads: list[ReadTask] = []
        self.partitions = Partitions(coordinator, self.reads.append, settings)
        fs = SimulatedDisk()
        rng = random.Random(f"disk {server}")
        directory = DataDirectory.open(fs, "/data", server=server, entropy=rng.randbytes)
        self.performer = DeliveryPerformer(
            fs, DeliveryDisk(fs, directory, DeliverySettings(segment_bytes_max=4096, frame_bytes_max=1024))
        )
        self.inbox: list[tuple[Sender, list[PeerMessage]]] = []
        self.tasks: list[Task] = []
        self.writing = False
        self.disk_stopped = False
        self.written: dict[GroupId, dict[int, Entry]] = {}

    def create(self, group: GroupId, preferred: ServerId) -> None:
        machine = self.partitions.open(group)
        written = self.written[group] = {}

        def read(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
            return [written[index] for index in range(lo, hi)]

        stored = StoredGroup(HardState(), Log(archive=read))
        self.host.create(GroupDescription(group, DISKS, preferred), machine, stored)
        self.tasks.append(OpenDeliveries(group))

    def hosted(self, group: GroupId) -> HostedPartition:
        return self.partitions.hosted[group]

    def turn(
        self, now_ms: int, on_applied: Callable[[ServerId, GroupId, AppliedEntry], None]
    ) -> Iterator[tuple[ServerId, list[PeerMessage]]]:
        host, partitions = self.host, self.partitions
        if self.writing:
            self.writing = False
            host.persisted(host.frame.durable())
        inbox, self.inbox = self.inbox, []
        for sender, messages in inbox:
            for message in messages:
                if isinstance(message, OF_PARTITIONS):
                    partitions.receive(sender.server, message)
                else:
                    host.receive(sender, [message])  # type: ignore[list-item]
        if not self.disk_stopped:
            tasks, self.tasks = self.tasks, []
            for task in tasks:
                partitions.performed(task, self.performer.perform(task))
        reads, self.reads[:] = list(self.reads), []
        for read in reads:
            partitions.read_done(read, perform(read))
        partitions.before(host, 1, now_ms, WALL_MS + now_ms)
        effects = host.turn(1)
        for group in effects.applied:
            for entry in partitions.hosted[group].machine._fresh:
                on_applied(self.server, group, entry)
        partitions.after(host, effects, now_ms, WALL_MS + now_ms)
        records = host.frame.take()
        self.writing = records is not None
        for record in records or ():
            if isinstance(record, EntryRecord):
                self.written[record.group][record.entry.index] = record.entry
        self.tasks += partitions.take_tasks()
        for to, said in effects.sends.items():
            yield to, list(said)
        for to, one in partitions.take_outgoing():
            yield to, [one]


class Cluster:
    """Three servers and the partitions of some topics, led in turn by each of them.

    Attributes:
        loss: share of the messages between partitions that are lost; of those of the cores half as much.
        stopped: servers that do nothing.
        cut: ordered pairs of servers that lose everything.
        applied: by group, what each entry came to; it is checked to be the same on every server.
    """

    def __init__(
        self,
        *partitions: int,
        settings: PartitionsSettings | None = None,
        seed: int = 0,
    ) -> None:
        self.rng = random.Random(f"partitions {seed}")
        self.coordinator = Coordinator()
        self.now_ms = 0
        self.loss = 0.0
        self.stopped: set[ServerId] = set()
        self.cut: set[tuple[ServerId, ServerId]] = set()
        self.applied: dict[GroupId, dict[int, AppliedEntry]] = {}
        self.sent: dict[str, int] = {}
        self.servers = {
            server: Server(server, self.coordinator, settings or PartitionsSettings()) for server in DISKS
        }
        self.groups: list[GroupId] = []
        for at, count in enumerate(partitions):
            self.coordinator.log(CreateTopic(f"topic{at}", count))
            topic = self.coordinator.registry.names[f"topic{at}"]
            for _ in range(count):
                self.create_group(topic)

    def create_group(self, topic: int) -> GroupId:
        group = self.coordinator.found_group(topic, tuple(DISKS.items()))
        preferred = self.coordinator.replicas(group)[0]
        for server in self.servers.values():
            server.create(group, preferred)
        self.groups.append(group)
        self.applied[group] = {}
        return group

    # -- time

    def step(self) -> None:
        self.now_ms += 1
        if self.now_ms % PUBLISH_EVERY_MS == 0 and self.coordinator.leader not in self.stopped:
            assert self.coordinator.leader is not None
            leader = self.servers[self.coordinator.leader].partitions
            for group, update in self.coordinator.keeper.views():
                leader.tell(group, update)
            for group, request in self.coordinator.keeper.changes():
                leader.tell(group, request)
        sends: list[tuple[Sender, ServerId, list[PeerMessage]]] = []
        for server, one in self.servers.items():
            if server not in self.stopped:
                me = Sender(server, DISKS[server], 1)
                sends += [(me, to, said) for to, said in one.turn(self.now_ms, self._on_applied)]
        for sender, to, said in sends:
            self._send(sender, to, said)

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.step()

    def run_until(self, done: Callable[[], bool], ms: int = 5_000) -> None:
        for _ in range(ms):
            if done():
                return
            self.step()
        raise AssertionError(f"not so after {ms} ms: {self.describe()}")

    def _send(self, sender: Sender, to: ServerId, said: list[PeerMessage]) -> None:
        for message in said:
            name = type(message).__name__
            self.sent[name] = self.sent.get(name, 0) + 1
            own = to == sender.server
            loss = self.loss if isinstance(message, OF_PARTITIONS) else self.loss / 2
            if not own and (
                (sender.server, to) in self.cut or to in self.stopped or self.rng.random() < loss
            ):
                continue
            arrived = codec.decode(codec.encode(message))
            assert arrived == message
            self.servers[to].inbox.append((sender, [arrived]))
            if not own and self.rng.random() < self.loss / 3:
                self.servers[to].inbox.append((sender, [arrived]))

    def _on_applied(self, server: ServerId, group: GroupId, entry: AppliedEntry) -> None:
        """Every replica comes to the same, whoever led when (D-5)."""
        first = self.applied[group].setdefault(entry.index, entry)
        assert first.deliveries == entry.deliveries, (server, group, entry.index)
        assert first.answers == entry.answers, (server, group, entry.index)

    # -- what there is

    def leader(self, group: GroupId) -> ServerId | None:
        """Who leads it and may be asked."""
        leaders = [
            (one.host.groups[group].raft.term, server)
            for server, one in self.servers.items()
            if server not in self.stopped
            and one.host.groups[group].raft.role is Role.LEADER
            and one.hosted(group).leadership is not None
        ]
        return max(leaders)[1] if leaders else None

    def now(self) -> int:
        """Milliseconds since the beginning."""
        return self.now_ms

    def service_of(self, group: GroupId) -> TopicService | None:
        """Of whoever leads the group."""
        leader = self.leader(group)
        return None if leader is None else self.servers[leader].partitions.topics

    def services(self, group: GroupId) -> list[tuple[ServerId, TopicService]]:
        """Of all servers that answer."""
        return [
            (server, one.partitions.topics)
            for server, one in self.servers.items()
            if server not in self.stopped
        ]

    def leading(self, group: GroupId) -> Partitions:
        leader = self.leader(group)
        assert leader is not None
        return self.servers[leader].partitions

    def rest(self) -> None:
        """Until all are born and led by whom they should be."""
        self.run_until(
            lambda: all(self.leader(group) == self.coordinator.replicas(group)[0] for group in self.groups)
        )

    def isolate(self, server: ServerId) -> None:
        self.cut |= {
            pair for other in DISKS if other != server for pair in ((server, other), (other, server))
        }

    def heal(self) -> None:
        self.loss = 0.0
        self.cut.clear()
        self.stopped.clear()

    def payloads(self, group: GroupId, server: ServerId | None = None) -> list[bytes]:
        """What was delivered there, in order; on `server` what its disk has."""
        if server is None:
            entries: Mapping[int, AppliedEntry] = self.applied[group]
            return [
                one.message.payload
                for index in sorted(entries)
                if (applied := entries[index].applied) is not None
                for one in applied.delivered
            ]
        log = self.servers[server].hosted(group).log
        assert log is not None
        return [one.payload for one in log.read(log.base.offset, 1 << 30)]

    def describe(self) -> str:
        lines = []
        for group in self.groups:
            leader = self.leader(group)
            state = {s: one.host.groups[group].applied_index for s, one in self.servers.items()}
            pending: object = None
            if leader is not None:
                partition = self.servers[leader].hosted(group).machine.partition
                assert partition is not None
                pending = [tuple(mid) for mid in partition.pending.entries]
            lines.append(f"group {group}: led by {leader}, applied {state}, pending {pending}")
        return "; ".join(lines)
