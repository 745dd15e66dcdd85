"""Random schedules: one seed decides time, delivery, loss, duplication, order, syncs, crashes, partitions."""

from __future__ import annotations

import random

from tests.unit.raft.checkers import Checkers
from tests.unit.raft.network import SETTINGS, Network, instance_of
from zraft.raft.core import Raft
from zraft_core.ids import ServerId

PACKETS_MAX = 100  # more are dropped, oldest first: a network has no unbounded memory


class Schedule:
    """A network, its checkers and an adversary."""

    def __init__(self, seed: int, servers: int, cls: type[Raft] = Raft) -> None:
        self.rng = random.Random(seed)
        self.network = Network(servers, seed=seed, cls=cls)
        self.checkers = Checkers(self.network)
        self.context = 0
        self.proposed = 0
        self.loss = self.rng.choice((0.0, 0.05, 0.3))
        self.shuffled = self.rng.random() < 0.7
        self.crashes = self.rng.choice((0.0, 0.01, 0.04))
        self.cuts = self.rng.choice((0.0, 0.01, 0.04))
        self.jumps = self.rng.choice((0.0, 0.005, 0.02))
        self.slow_disks = self.rng.choice((0.0, 0.5, 0.9))

    def act(self) -> None:
        network = self.network
        server = self.rng.choice(list(network.disks))
        if server in network.rafts:
            self.sync_some(server)
        self.deliver()
        roll = self.rng.random()
        if roll < 0.30:
            for each in list(network.rafts):
                network.rafts[each].tick(self.rng.choice((1, 5, 10)))
                network.ready(each)
        elif roll < 0.90:
            if server in network.rafts:
                self.ask(server)
        elif roll < 0.90 + self.crashes:
            self.crash_or_start(server)
        elif roll < 0.90 + self.crashes + self.cuts:
            self.cut_or_heal(server)
        elif roll > 1.0 - self.jumps and server in network.rafts:
            network.rafts[server].tick(self.rng.randint(1, 2 * SETTINGS.election_timeout_ticks))
            network.ready(server)

    def ask(self, server: int) -> None:
        raft = self.network.rafts[server]
        if self.rng.random() < 0.7:
            self.proposed += raft.propose(b"%d" % self.proposed, 1) is not None
        else:
            self.context += 1
            self.checkers.read_begins(server, self.context)
            raft.read_index(self.context)
        self.network.ready(server)

    def deliver(self) -> None:
        network = self.network
        del network.packets[:-PACKETS_MAX]
        for _ in range(self.rng.randint(0, 6)):
            if not network.packets:
                return
            place = self.rng.randrange(len(network.packets)) if self.shuffled else 0
            packet = network.packets[place]
            if self.rng.random() >= 0.1:  # else it stays, and may be delivered once more, much later
                del network.packets[place]
            if self.rng.random() >= self.loss and packet.to in network.rafts:
                if (packet.sender, packet.to) in network.cut:
                    continue
                network.rafts[packet.to].step(
                    ServerId(packet.sender), instance_of(packet.sender), packet.message
                )
                if self.rng.random() < 0.7:
                    network.ready(packet.to)

    def sync_some(self, server: int) -> None:
        if self.rng.random() < self.slow_disks:
            return
        disk = self.network.disks[ServerId(server)]
        self.network.rafts[server].persisted(disk.synced)
        for _ in range(self.rng.randint(0, len(disk.pending))):
            disk.sync_first()
        if self.rng.random() < 0.7:  # else it is durable before the server knows
            self.network.rafts[server].persisted(disk.synced)
        self.network.ready(server)

    def crash_or_start(self, server: int) -> None:
        network = self.network
        down = [each for each in network.disks if each not in network.rafts]
        if down and self.rng.random() < 0.7:
            network.start(down[0])
            network.ready(down[0])
        elif server in network.rafts:
            network.crash(server, synced=self.rng.randint(0, len(network.disks[ServerId(server)].pending)))

    def cut_or_heal(self, server: int) -> None:
        if self.network.cut and self.rng.random() < 0.6:
            self.network.heal()
        elif self.rng.random() < 0.5:
            self.network.isolate(server)
        else:
            other = self.rng.choice(list(self.network.disks))
            self.network.cut.add((server, other))  # one direction only

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.act()

    def heal(self) -> None:
        """Everything works again: a leader must emerge and everybody must agree on a new entry."""
        network = self.network
        network.heal()
        for server in network.disks:
            if server not in network.rafts:
                network.start(server)
            network.sync(server)
        network.run(10 * SETTINGS.election_timeout_ticks)
        leader = network.leader
        assert leader is not None, "no leader although everything works"
        index = leader.propose(b"last", 1)
        assert index is not None
        network.run(4 * SETTINGS.heartbeat_ticks)
        for server, raft in network.rafts.items():
            assert raft.commit_index == index, f"server {server} stays at {raft.commit_index} of {index}"
            assert raft.durable_index == index
