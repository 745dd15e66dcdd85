"""Whole drivers that host groups of a counter, in memory: a network of lists, disks that are done a step later."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from tests.simulation.groups.counter import AppendCounter
from tests.unit.groups.hosts import DISKS, empty
from zraft.config.features import LEVEL_OF_TOPICS
from zraft.groups.effects import GroupEffects
from zraft.groups.host import GroupHost
from zraft.groups.hosted_groups import Hosting
from zraft.groups.identity import Identity
from zraft.groups.recovery import Stored
from zraft.groups.replica import StoredGroup
from zraft.groups.settings import GroupSettings
from zraft.groups.snapshots import delivery_tasks
from zraft.raft.log import Log
from zraft.raft.messages import Entry, HardState
from zraft.raft.role import Role
from zraft.server.engine.driver import Driver
from zraft.server.engine.effects import Effects
from zraft.server.engine.settings import DriverSettings
from zraft.storage.delivery.values import beginning
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.topics.registry import Registry
from zraft.transport import codec
from zraft.transport.messages import PeerMessage, Sender
from zraft_core.ids import GroupId, ServerId
from zraft_core.topics.messages import StartRequest, ViewUpdate
from zraft_core.topics.registry_values import GroupRecord

STEP_MS = 5


def record(group: int, **changes: Any) -> GroupRecord:
    """A row of the table: founded by all three, which are wanted."""
    disks = tuple(DISKS.items())
    return evolve(GroupRecord(GroupId(group), 1, disks, None, disks, True, ()), **changes)


class Table:
    """What all servers' coordination groups say of groups; a test changes it."""

    def __init__(self, servers: Mapping[ServerId, Server]) -> None:
        self._servers = servers

    def put(self, row: GroupRecord) -> None:
        for registry in self._registries():
            registry.groups[row.group] = row

    def change(self, group: int, **changes: Any) -> None:
        for registry in self._registries():
            registry.groups[GroupId(group)] = evolve(registry.groups[GroupId(group)], **changes)

    def remove(self, group: int) -> None:
        for registry in self._registries():
            del registry.groups[GroupId(group)]

    def _registries(self) -> Iterator[Registry]:
        for server in self._servers.values():
            registry = server.driver.machine.registry
            registry.revision += 1
            yield registry


class Counters:
    """Partitions that count. Nothing is delivered, unless a test says up to where deliveries are durable."""

    wants_turn = False
    wake_in: int | None = None

    def __init__(self) -> None:
        self.machines: dict[GroupId, AppendCounter] = {}
        self.closed_groups: list[GroupId] = []
        self.proposals: list[tuple[GroupId, bytes]] = []
        self.received: list[tuple[ServerId, PeerMessage]] = []
        self.told: list[tuple[GroupId, ViewUpdate | StartRequest]] = []
        self.outgoing: list[tuple[ServerId, PeerMessage]] = []
        self.tasks: list[delivery_tasks.Task] = []
        self.done: list[tuple[delivery_tasks.Task, delivery_tasks.Result]] = []
        self.cuts: dict[GroupId, int] = {}
        self.applied: list[GroupId] = []

    def open(self, group: GroupId) -> AppendCounter:
        machine = self.machines[group] = AppendCounter()
        return machine

    def closed(self, group: GroupId) -> None:
        self.closed_groups.append(group)
        del self.machines[group]

    def before(self, host: GroupHost, step: int, now_ms: int, wall_ms: int) -> None:
        self.proposals = [
            (group, payload) for group, payload in self.proposals if host.propose(group, payload, 1) is None
        ]

    def after(self, host: GroupHost, effects: GroupEffects, now_ms: int, wall_ms: int) -> None:
        self.applied += effects.applied

    def tell(self, group: GroupId, message: ViewUpdate | StartRequest) -> None:
        self.told.append((group, message))

    def receive(self, sender: ServerId, message: PeerMessage) -> None:
        self.received.append((sender, message))

    def take_outgoing(self) -> Sequence[tuple[ServerId, PeerMessage]]:
        taken, self.outgoing = self.outgoing, []
        return taken

    def take_tasks(self) -> Sequence[delivery_tasks.Task]:
        taken, self.tasks = self.tasks, []
        return taken

    def performed(self, task: delivery_tasks.Task, result: delivery_tasks.Result) -> None:
        self.done.append((task, result))

    def synced(self, durable: Mapping[GroupId, int]) -> None:
        self.cuts.update(durable)

    def cut_index(self, group: GroupId) -> int:
        return self.cuts.get(group, 1 << 60)


class Nothing:
    """A disk that held no groups when the process started."""

    present: frozenset[GroupId] = frozenset()

    def holds(self, group: GroupId) -> bool:
        return False

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        return None

    def take(self, group: GroupId) -> StoredGroup:
        return empty()

    def drop(self, group: GroupId) -> None:
        pass


class Server:
    """One driver and what it did."""

    def __init__(self, server: ServerId, settings: GroupSettings, entries: Sequence[Entry]) -> None:
        self.partitions = Counters()
        self.sender = Sender(server, DISKS[server], 1)
        self.driver = Driver(
            # Below the level of topics, so that nobody but the test places groups.
            settings=DriverSettings(groups=settings, features=LEVEL_OF_TOPICS - 1),
            identity=Identity(server, DISKS[server], 1, b"boot id!", None),
            peers=tuple(DISKS),
            stored=Stored(
                HardState(len(entries)),
                tuple(DISKS.items()),
                Log(entries=list(entries)),
            ),
            rng=random.Random(server),
            entropy=random.Random(server).randbytes,
            four_letter_word=lambda word, argument: b"",
            now_ms=0,
            hosting=Hosting(self.partitions, Nothing(), lambda group, image, index: beginning(group)),
        )
        self.frames: list[list[Record]] = []
        self.effects: list[Effects] = []
        self.writing = False
        self.disk_stuck = False

    @property
    def host(self) -> GroupHost:
        assert self.driver.groups is not None
        return self.driver.groups.host

    def leads(self, group: int) -> bool:
        replica = self.host.groups.get(GroupId(group))
        return replica is not None and replica.raft.role is Role.LEADER


class World:
    """Three servers on one clock. `entries`: what their coordination groups' logs held when they started."""

    def __init__(self, settings: GroupSettings | None = None, entries: Sequence[Entry] = ()) -> None:
        self.now = 0
        self.down: set[ServerId] = set()
        self.servers = {server: Server(server, settings or GroupSettings(), entries) for server in DISKS}
        self.table = Table(self.servers)
        self._boxes: dict[ServerId, list[tuple[Sender, list[PeerMessage]]]] = {server: [] for server in DISKS}

    def step(self) -> None:
        self.now += STEP_MS
        boxes, self._boxes = self._boxes, {server: [] for server in DISKS}
        for number, server in self.servers.items():
            if number in self.down:
                continue
            if server.writing and not server.disk_stuck:
                server.writing = False
                server.driver.persisted()
            for sender, messages in boxes[number]:
                server.driver.receive(sender, messages)
            effects = server.driver.turn(self.now, 1_000_000 + self.now)
            assert not server.driver.mistakes, server.driver.mistakes
            server.effects.append(effects)
            for to, sent in effects.sends:
                if to in self._boxes and to not in self.down:
                    # As they come out of the wire.
                    self._boxes[to].append((server.sender, [codec.decode(codec.encode(one)) for one in sent]))
            if effects.write is not None:
                assert not server.writing, "a second frame while one is under way"
                server.writing = True
                server.frames.append(effects.write)

    def run(self, ms: int) -> None:
        for _ in range(0, ms, STEP_MS):
            self.step()

    def add_groups(self, count: int) -> None:
        for number in range(1, count + 1):
            self.table.put(record(number, preferred=list(DISKS)[number % 3]))

    def leader(self, group: int) -> Server:
        return next(
            server
            for number, server in self.servers.items()
            if number not in self.down and server.leads(group)
        )

    def counts(self, group: int) -> list[int]:
        return [
            server.partitions.machines[GroupId(group)].commands
            for number, server in self.servers.items()
            if number not in self.down
        ]

    def write(self, group: int, *payloads: bytes) -> None:
        """Let whoever leads the group propose."""
        self.leader(group).partitions.proposals += [(GroupId(group), payload) for payload in payloads]
