"""A group under a random adversary; its members, logs and disks change too, unless it is said that they do not.

One seed decides everything: time, delivery, loss, repetition, order, syncs, crashes, cuts, changes of the
membership, transfers, snapshots, compaction. What Raft promises is checked after every output, from outside;
state is a prefix of the one list of committed entries, so a snapshot is its index.
"""

from __future__ import annotations

import random

from tests.unit.raft.checkers import Checkers, Violation
from tests.unit.raft.network import SETTINGS, Disk, Network, Packet
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import EntryKind, Member, MemberRole
from zraft.raft.ready import Ready
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.errors import ConfigError, ProtocolError
from zraft_core.ids import Instance, ServerId

SERVERS_MAX = 7
PACKETS_MAX = 120


class World(Network):
    """The group and its adversary."""

    def __init__(self, seed: int, cls: type[Raft] = Raft, voters: int = 3, *, changing: bool = True) -> None:
        """`changing`: members are added and removed, leaders hand over, snapshots are taken and logs cut."""
        rng = random.Random(seed)
        self.checkers = Checkers(self)
        self.seen = self.checkers.seen
        self.committed = self.checkers.committed
        self.formatted = 0
        self.proposed = 0
        self.taken: list[SnapshotMeta] = []
        self.loss = rng.choice((0.0, 0.05, 0.2))
        self.shuffled = rng.random() < 0.7
        self.crashes = rng.choice((0.0, 0.01, 0.03))
        self.cuts = rng.choice((0.0, 0.01, 0.03))
        self.jumps = rng.choice((0.0, 0.005, 0.01))
        self.slow_disks = rng.choice((0.0, 0.4, 0.8))
        self.changing = changing
        self.changes = rng.choice((0.02, 0.06))
        self.snapshots = rng.choice((0.02, 0.06))
        super().__init__(voters, rng=rng, cls=cls)

    def fresh_instance(self) -> Instance:
        self.formatted += 1
        return Instance(self.formatted.to_bytes(16))

    # -- servers

    def start(self, server: int) -> Raft:
        disk, raft = self.disks[server], super().start(server)
        if disk.snapshot is not None:
            raft.restore(disk.snapshot)
            self.applied[server] = disk.snapshot.index
        self.ready(server)
        return raft

    def ready(self, server: int) -> Ready:
        self.checkers.look(server, self.rafts[server])
        return super().ready(server)

    # -- snapshots

    def take_snapshot(self, server: int) -> None:
        raft, disk, index = self.rafts[server], self.disks[server], self.applied[server]
        if index < raft.log.first_index or index > raft.applicable_index:
            return
        disk.snapshot = self.meta_at(raft, index)
        if self.rng.random() < 0.8:
            keep = self.rng.choice((0, 0, 1, 3, 10))
            upto = index - keep
            if upto >= raft.log.first_index:
                base = self.meta_at(raft, upto)
                while disk.pending and (disk.base is None or disk.base.index <= upto):
                    self.sync_first(disk)  # what a segment holds is written before it is given up
                raft.compact(upto)
                disk.compact(base)
                self.seen["compactions"] += 1
                if raft.role is Role.LEADER:
                    self.seen["compactions while leading"] += 1
        self.ready(server)

    def meta_at(self, raft: Raft, index: int) -> SnapshotMeta:
        log = raft.log
        position = log.entry(index).next_position
        membership = log.membership_at(index)
        first = self.membership.encode()
        return SnapshotMeta(index, log.term_at(index), position, first if membership is None else membership)

    def send_snapshots(self, server: int) -> None:
        raft, disk = self.rafts[server], self.disks[server]
        if raft.role is Role.LEADER and disk.snapshot is not None:
            self.taken.append(disk.snapshot)
            for to in raft.followers_needing_snapshot:
                self.packets.append(Packet(raft.server, disk.instance, to, disk.snapshot))

    def send_late_snapshot(self, server: int) -> None:
        """One of any age arrives, as if it had been on its way since (flaw 13)."""
        if self.taken and server in self.rafts:
            self.install(server, self.rng.choice(self.taken))
            self.ready(server)

    def install(self, server: int, meta: SnapshotMeta) -> None:
        raft, disk = self.rafts[server], self.disks[server]
        entry = self.committed[meta.index - 1]
        assert (entry.term, entry.next_position) == (meta.term, meta.next_position)
        if disk.snapshot is None or disk.snapshot.index < meta.index:
            disk.snapshot = meta
        if raft.restore(meta):
            if meta.index <= self.applied[server]:
                raise Violation(f"S{server} goes back from {self.applied[server]} to {meta.index}")
            self.applied[server] = meta.index
            self.seen["restores"] += 1
            if disk.pending:
                self.seen["restores while writing"] += 1
            if raft.membership.members.get(raft.server, Member(Instance(b""))).role is MemberRole.LEARNER:
                self.seen["restores of learners"] += 1

    # -- the adversary

    def act(self) -> None:
        rng = self.rng
        server = rng.choice(list(self.disks))
        if server in self.rafts:
            self.sync_some(server)
        self.deliver_some()
        roll = rng.random()
        if roll < 0.30:
            for each in list(self.rafts):
                self.rafts[each].tick(rng.choice((1, 5, 10)))
                self.ready(each)
        elif roll < (0.70 if self.changing else 0.90):
            if server in self.rafts:
                self.ask(server)
        elif roll < 0.70 + self.snapshots:
            if server in self.rafts:
                self.take_snapshot(server)
        elif roll < 0.80:
            for each in list(self.rafts):
                self.send_snapshots(each)
            if rng.random() < 0.1:
                self.send_late_snapshot(server)
        elif roll < 0.80 + self.changes:
            self.change()
        elif roll < 0.90 + self.crashes:
            if roll >= 0.90:
                self.crash_or_start(server)
        elif roll < 0.93 + self.cuts:
            if roll >= 0.93:
                self.cut_or_heal(server)
        elif roll > 1.0 - self.jumps and server in self.rafts:
            self.rafts[server].tick(rng.randint(1, 2 * SETTINGS.election_timeout_ticks))
            self.ready(server)

    def ask(self, server: int) -> None:
        raft = self.rafts[server]
        if self.rng.random() < 0.8:
            self.proposed += raft.propose(b"%d" % self.proposed, self.rng.choice((0, 1, 3))) is not None
        else:
            context = len(self.checkers.reads)
            self.checkers.reads[context] = len(self.committed)
            raft.read_index(context)
        self.ready(server)

    def deliver_some(self) -> None:
        del self.packets[:-PACKETS_MAX]
        for _ in range(self.rng.randint(0, 8)):
            if not self.packets:
                return
            place = self.rng.randrange(len(self.packets)) if self.shuffled else 0
            packet = self.packets[place]
            if self.rng.random() >= 0.1:
                del self.packets[place]
            if self.rng.random() >= self.loss and (packet.sender, packet.to) not in self.cut:
                self.deliver(packet)

    def deliver(self, packet: Packet) -> None:
        raft = self.rafts.get(packet.to)
        if raft is None or packet.sender == packet.to:
            return
        if isinstance(packet.message, SnapshotMeta):
            self.install(packet.to, packet.message)
        else:
            raft.vouch(packet.sender, packet.instance)
            try:
                raft.step(packet.sender, packet.instance, packet.message)
            except ProtocolError as error:
                raise Violation(f"S{packet.to} is contradicted: {error}") from error
        self.checkers.look(packet.to, raft)
        if self.rng.random() < 0.7:
            self.ready(packet.to)

    def sync_some(self, server: int) -> None:
        if self.rng.random() < self.slow_disks:
            return
        disk = self.disks[server]
        for _ in range(self.rng.randint(0, len(disk.pending))):
            self.sync_first(disk)
        if self.rng.random() < 0.7:
            self.rafts[server].persisted(disk.synced)
            self.checkers.look(server, self.rafts[server])
        self.ready(server)

    def crash_or_start(self, server: int) -> None:
        down = [each for each in self.disks if each not in self.rafts]
        if down and self.rng.random() < 0.7:
            self.start(down[0])
        elif server in self.rafts:
            self.crash(server, synced=self.rng.randint(0, len(self.disks[server].pending)))

    def cut_or_heal(self, server: int) -> None:
        if self.cut and self.rng.random() < 0.6:
            self.cut.clear()
            return
        other = self.rng.choice(list(self.disks))
        self.cut.add((server, other))
        if self.rng.random() < 0.5:
            self.cut |= {pair for each in self.disks for pair in ((server, each), (each, server))}

    # -- changes of the membership

    def change(self) -> None:
        leading = [server for server, raft in self.rafts.items() if raft.role is Role.LEADER]
        if not leading:
            return
        server = self.rng.choice(leading)
        raft = self.rafts[server]
        if self.rng.random() < 0.2:
            target = self.rng.choice(list(self.disks))
            self.seen["transfers"] += raft.transfer_leadership(ServerId(target))
            self.ready(server)
            return
        members = dict(raft.membership.members)
        joining: ServerId | None = None
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            joining = self.alter(raft, members, joining)
        try:
            index = raft.change_membership(members)
        except ConfigError:
            self.seen["changes refused"] += 1
            return
        if index is not None and joining is not None and joining in raft.membership.members:
            if joining in self.rafts:
                del self.rafts[joining]
            self.disks[joining] = Disk(instance=members[joining].instance, welcome=raft.membership)
            self.start(joining)
        self.seen["changes"] += index is not None
        self.ready(server)

    def alter(self, raft: Raft, members: dict[ServerId, Member], joining: ServerId | None) -> ServerId | None:
        rng = self.rng
        absent = [ServerId(each) for each in range(1, SERVERS_MAX + 1) if each not in members]
        roll = rng.random()
        if roll < 0.4 and absent and joining is None and raft.membership_committed:
            server = rng.choice(absent)
            if self.is_forgotten(server):
                members[server] = Member(
                    self.fresh_instance(), rng.choice((MemberRole.LEARNER, MemberRole.OBSERVER))
                )
                return server
        elif roll < 0.75:
            server = rng.choice(list(members))
            if members[server].role in (MemberRole.LEARNER, MemberRole.OBSERVER) and server != joining:
                members[server] = Member(members[server].instance, MemberRole.VOTER)
        elif roll < 0.85:
            server = rng.choice(list(members))
            members[server] = Member(members[server].instance, MemberRole.OBSERVER)
        elif len(members) > 2:
            server = rng.choice(list(members))
            if server != joining:
                del members[server]
        return joining

    def is_forgotten(self, server: int) -> bool:
        """Its old disk may be wiped: it is in no configuration that could still be decided by."""
        newest = [
            Membership.decode(entry.payload) for entry in self.committed if entry.kind is EntryKind.MEMBERSHIP
        ]
        if server not in self.disks:
            return True
        return bool(newest) and not newest[-1].joint and server not in newest[-1].members

    # -- the end

    def live(self, steps: int) -> None:
        """So many things happen."""
        for _ in range(steps):
            self.act()

    def calm(self, ticks: int) -> None:
        for _ in range(0, ticks, 5):
            for server, raft in self.rafts.items():
                raft.tick(5)
                self.send_snapshots(server)
            self.settle()

    def heal(self) -> None:
        """Everything works again: the change under way ends, and all members agree on a new entry."""
        self.cut.clear()
        for server in self.disks:
            if server not in self.rafts:
                self.start(server)
            self.sync(server)
        self.calm(15 * SETTINGS.election_timeout_ticks)
        leader = self.leader
        assert leader is not None, "no leader although everything works"
        assert not leader.membership.joint, "a change is under way for ever"
        assert leader.membership_committed
        assert leader.membership.has_voter(leader.server, leader.instance), "who does not vote leads"
        index = leader.propose(b"last", 1)
        assert index is not None, "nothing can be proposed"
        self.calm(4 * SETTINGS.election_timeout_ticks)
        for server in leader.membership.members:
            if self.disks[server].instance != leader.membership.members[server].instance:
                continue
            raft = self.rafts[server]
            assert raft.commit_index >= index, f"S{server} stays at {raft.commit_index} of {index}"
            assert raft.durable_index >= index
            assert raft.membership == leader.membership
        term = leader.term
        self.calm(10 * SETTINGS.election_timeout_ticks)
        assert leader.role is Role.LEADER, "somebody disturbs a working group"
        assert leader.term == term
