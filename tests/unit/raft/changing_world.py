"""A group under a random adversary; its members, logs and disks change too, unless it is said that they do not.

One seed decides everything: time, delivery, loss, repetition, order, syncs, crashes, cuts, changes of the
membership, transfers, snapshots, compaction. What Raft promises is checked after every output, from outside;
state is a prefix of the one list of committed entries, so a snapshot is its index.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.unit.raft.checkers import Violation
from tests.unit.raft.network import SETTINGS, Disk, Network, Packet
from zraft.raft.core import Raft
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, Member, MemberRole
from zraft.raft.ready import Ready, Write
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
        self.applied: dict[int, int] = {}
        self.formatted = 0
        self.proposed = 0
        self.seen: Counter[str] = Counter()
        self.leaders: dict[int, Instance] = {}
        self.written: dict[tuple[int, int], tuple[Entry, int]] = {}
        self.committed: list[Entry] = []
        self.votes: dict[tuple[int, Instance], ServerId] = {}
        self.durable_checked = 0
        self.taken: list[SnapshotMeta] = []
        self.reads: dict[int, int] = {}
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
        self.applied[server] = 0
        if disk.snapshot is not None:
            raft.restore(disk.snapshot)
            self.applied[server] = disk.snapshot.index
        self.ready(server)
        return raft

    def ready(self, server: int) -> Ready:
        """The same, and committed entries to the state."""
        raft = self.rafts[server]
        self.election_safety(server, raft)
        self.durability(server)
        ready = super().ready(server)
        if ready.write is not None:
            self.log_matching(server, raft, ready.write)
        for context, index in ready.read_states:
            if index < self.reads[context]:
                raise Violation(f"stale read: S{server} at {index}, committed {self.reads[context]}")
            self.seen["reads"] += 1
        self.apply(server, raft)
        return ready

    def sync_first(self, disk: Disk) -> None:
        disk.sync_first()
        if disk.hard_state.voted_for is not None:
            self.votes[disk.hard_state.term, disk.instance] = disk.hard_state.voted_for

    def durability(self, server: int) -> None:
        """What a leader commits is on the disks of a majority, of both while joint (D-7, section 4.3)."""
        raft = self.rafts[server]
        index = raft.commit_index
        if raft.role is not Role.LEADER or index <= self.durable_checked:
            return
        before, self.durable_checked = self.durable_checked, index
        term = raft.log.term_at(index)
        counted_by = raft.membership
        for at, payload in raft.log.memberships:
            if before < at <= index and Membership.decode(payload).joint:
                # The final one was only appended when the joint one was committed, which that one did.
                counted_by = Membership.decode(payload)
        for voters in filter(None, (counted_by.voters, counted_by.outgoing)):
            holding = [
                voter
                for voter in voters
                if self.disks[voter].instance == counted_by.members[voter].instance
                and self.disks[voter].holds(index, term)
            ]
            if 2 * len(holding) <= len(voters):
                raise Violation(
                    f"durability: S{server} commits {index} of term {term}, of {voters} only {holding} hold it"
                )

    def elected(self, server: int, raft: Raft) -> None:
        """Who leads has the durable votes of a majority, of both while joint (D-7, section 4.3)."""
        for voters in filter(None, (raft.membership.voters, raft.membership.outgoing)):
            members = raft.membership.members
            granted = [
                voter for voter in voters if self.votes.get((raft.term, members[voter].instance)) == server
            ]
            if 2 * len(granted) <= len(voters):
                raise Violation(
                    f"votes: S{server} leads term {raft.term}, of {voters} only {granted} voted for it"
                )

    def apply(self, server: int, raft: Raft) -> None:
        if raft.commit_index > raft.log.last_index:
            raise Violation(f"S{server} commits {raft.commit_index} beyond its log")
        for index in range(self.applied[server] + 1, raft.applicable_index + 1):
            entry = raft.log.entry(index)
            if index <= len(self.committed):
                if self.committed[index - 1] != entry:
                    raise Violation(f"state machine safety: S{server} applies {entry}")
            else:
                assert index == len(self.committed) + 1
                self.committed.append(entry)
                if entry.kind is EntryKind.MEMBERSHIP:
                    self.seen["joint" if Membership.decode(entry.payload).joint else "simple"] += 1
            self.applied[server] = index

    # -- promises

    def election_safety(self, server: int, raft: Raft) -> None:
        if raft.role is not Role.LEADER:
            return
        me = self.disks[server].instance
        known = self.leaders.get(raft.term)
        if known == me:
            return
        if known is not None:
            raise Violation(f"election safety: two servers lead term {raft.term}")
        self.leaders[raft.term] = me
        if not raft.membership.has_voter(raft.server, me):
            self.seen["leaders without a vote"] += 1
        self.elected(server, raft)
        self.leader_completeness(server, raft)

    def leader_completeness(self, server: int, raft: Raft) -> None:
        log = raft.log
        if log.last_index < len(self.committed):
            raise Violation(f"leader completeness: S{server} ends at {log.last_index}")
        for entry in self.committed:
            if entry.index >= log.first_index - 1 and log.term_at(entry.index) != entry.term:
                raise Violation(f"leader completeness: S{server} lacks {entry}")

    def log_matching(self, server: int, raft: Raft, write: Write) -> None:
        before = -1
        for entry in write.entries:
            at = entry.index - 1
            if before < 0:
                if not raft.log.first_index - 1 <= at <= raft.log.last_index:
                    return
                before = raft.log.term_at(at)
            known = self.written.setdefault((entry.index, entry.term), (entry, before))
            if known != (entry, before):
                raise Violation(f"log matching: S{server} writes {entry} after {before}, known {known}")
            before = entry.term

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
            context = len(self.reads)
            self.reads[context] = len(self.committed)
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
        self.election_safety(packet.to, raft)
        self.durability(packet.to)
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
            self.durability(server)
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
