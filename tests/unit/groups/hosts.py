"""Hosts of groups without disk and clock: a step is a tick, every message arrives at the next one unless a test cuts it."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.simulation.groups.counter import AppendCounter
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.host import GroupHost
from zraft.groups.replica import HostedReplica, StoredGroup
from zraft.groups.settings import GroupSettings
from zraft.raft.log import Log
from zraft.raft.messages import HardState
from zraft.raft.role import Role
from zraft.storage.records import Record
from zraft.transport.messages import Sender
from zraft_core.ids import GroupId, Instance, ServerId

S1, S2, S3 = (ServerId(number) for number in (1, 2, 3))
DISKS = {server: Instance(bytes([server]) * 16) for server in (S1, S2, S3)}
SETTINGS = GroupSettings()


def empty() -> StoredGroup:
    return StoredGroup(HardState(), Log(archive=lambda lo, hi, bytes_max: ()))


class Hosts:
    """Three servers and their groups, led in turn by each of them."""

    def __init__(self, groups: int, settings: GroupSettings = SETTINGS) -> None:
        self.hosts = {
            server: GroupHost(
                server=server, instance=DISKS[server], boot=1, settings=settings, rng=random.Random(server)
            )
            for server in DISKS
        }
        self.boots = dict.fromkeys(DISKS, 1)
        self.cut: set[tuple[ServerId, ServerId]] = set()
        self.stopped: set[ServerId] = set()
        self.sent: list[tuple[ServerId, ServerId, list[GroupMessage]]] = []
        self.effects: dict[ServerId, list[GroupEffects]] = {server: [] for server in DISKS}
        self.frames: dict[ServerId, list[list[Record]]] = {server: [] for server in DISKS}
        self._boxes: dict[ServerId, list[tuple[Sender, list[GroupMessage]]]] = {
            server: [] for server in DISKS
        }
        self._writing = dict.fromkeys(DISKS, False)
        servers = list(DISKS)
        for number in range(1, groups + 1):
            description = GroupDescription(GroupId(number), DISKS, servers[number % 3])
            for host in self.hosts.values():
                host.create(description, AppendCounter(), empty())

    def step(self) -> None:
        boxes, self._boxes = self._boxes, {server: [] for server in DISKS}
        for server, host in self.hosts.items():
            if server in self.stopped:
                continue
            if self._writing[server]:
                self._writing[server] = False
                host.persisted(host.frame.durable())
            for sender, messages in boxes[server]:
                host.receive(sender, messages)
            effects = host.turn(1)
            self.effects[server].append(effects)
            records = host.frame.take()
            self._writing[server] = records is not None
            if records is not None:
                self.frames[server].append(records)
            for to, said in effects.sends.items():
                self.sent.append((server, to, said))
                if (server, to) not in self.cut:
                    self._boxes[to].append((Sender(server, DISKS[server], self.boots[server]), said))

    def run(self, ticks: int) -> None:
        for _ in range(ticks):
            self.step()

    def rest(self) -> None:
        """Until every group is led by whom it should be, and has nothing to do."""
        for _ in range(5_000):
            self.step()
            statistics = [host.statistics() for host in self.hosts.values()]
            if all(one.asleep == one.groups and not one.misplaced for one in statistics):
                return
        raise AssertionError([host.statistics() for host in self.hosts.values()])

    def replica(self, server: ServerId, group: int) -> HostedReplica:
        return self.hosts[server].groups[GroupId(group)]

    def leader(self, group: int) -> ServerId:
        """The one that leads in the highest term."""
        leaders = [
            (host.groups[GroupId(group)].raft.term, server)
            for server, host in self.hosts.items()
            if host.groups[GroupId(group)].raft.role is Role.LEADER
        ]
        return max(leaders)[1]

    def touched(self) -> int:
        return sum(host.statistics().touched_total for host in self.hosts.values())

    def isolate(self, server: ServerId) -> None:
        self.cut |= {
            pair for other in DISKS if other != server for pair in ((server, other), (other, server))
        }

    def kinds(self) -> Sequence[str]:
        """Of all messages sent since the test looked last."""
        kinds = [type(message).__name__ for _, _, messages in self.sent for message in messages]
        self.sent.clear()
        return kinds
