"""Servers of one group in memory: disks that lose what was not synced, a network that delivers when told to.

Nothing here knows what is correct; `checkers` does. All randomness comes from the seed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from attrs import define, field, frozen

from tests.simulation.core_disk import CoreDisk
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Member,
    MemberRole,
    Message,
    PreVoteReply,
    RequestVoteReply,
)
from zraft.raft.ready import Ready
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId

M = TypeVar("M")
GROUP = COORDINATION_GROUP
SETTINGS = RaftSettings(election_timeout_ticks=100, heartbeat_ticks=20, resend_ticks=20)


def instance_of(server: int) -> Instance:
    return Instance(bytes([server]) * 16)


def membership_of(servers: Iterable[int], learners: Iterable[int] = ()) -> Membership:
    members = {ServerId(server): Member(instance_of(server)) for server in servers}
    members |= {ServerId(server): Member(instance_of(server), MemberRole.LEARNER) for server in learners}
    return Membership(members)


def entries_of(terms: Iterable[int], first_index: int = 1) -> tuple[Entry, ...]:
    """One command per entry, whose payload names index and term."""
    return tuple(
        Entry(index, term, EntryKind.COMMANDS, index, 1, b"%d/%d" % (index, term))
        for index, term in enumerate(terms, first_index)
    )


def make_raft(
    server: int = 1,
    *,
    terms: Iterable[int] = (),
    term: int | None = None,
    voted_for: int | None = None,
    membership: Membership | None = None,
    settings: RaftSettings = SETTINGS,
    cls: type[Raft] = Raft,
    log: Log | None = None,
    seed: int = 0,
) -> Raft:
    """One server with a log of these terms, for tests that play its peers by hand."""
    log = Log(entries=entries_of(terms)) if log is None else log
    vote = None if voted_for is None else ServerId(voted_for)
    return cls(
        group=GROUP,
        server=ServerId(server),
        instance=instance_of(server),
        settings=settings,
        hard_state=HardState(log.last_term if term is None else term, vote),
        log=log,
        membership=membership_of((1, 2, 3)) if membership is None else membership,
        rng=random.Random(seed),
    )


def drain(raft: Raft, *, persist: bool = True) -> list[tuple[int, Message]]:
    """Everything it sends until it has nothing more to say, its writes durable at once (or not at all)."""
    messages: list[tuple[int, Message]] = []
    while True:
        ready = raft.ready()
        messages += ready.messages
        if ready.write is not None and persist:
            raft.persisted(ready.write.number)
        elif not ready.messages:
            return messages


def hear(raft: Raft, sender: int, message: Message) -> list[tuple[int, Message]]:
    """Step one message and drain."""
    raft.step(ServerId(sender), instance_of(sender), message)
    return drain(raft)


@frozen
class Packet:
    """A message, or a whole snapshot; it reaches whoever runs under that number then."""

    sender: ServerId
    instance: Instance
    to: ServerId
    message: Message | SnapshotMeta


@define
class Disk(CoreDisk):
    """One formatted directory; its log begins with the membership that its server was welcomed into."""

    instance: Instance = field(kw_only=True)
    welcome: Membership = field(kw_only=True)


class Network:
    """Servers 1 to n. Time, delivery and syncs happen only when a test asks for them.

    Attributes:
        observe: called after every turn of a server.
        votes: by term and disk, for whom it voted, once that is durable.
        applied: by server, up to where its state is; for whoever observes.
    """

    observe: Callable[[int, Raft, Ready], None] = staticmethod(lambda server, raft, ready: None)

    def __init__(
        self,
        servers: int = 3,
        *,
        seed: int = 0,
        rng: random.Random | None = None,
        settings: RaftSettings = SETTINGS,
        cls: type[Raft] = Raft,
        learners: Iterable[int] = (),
        logs: dict[int, Iterable[int]] | None = None,
        terms: dict[int, int] | None = None,
    ) -> None:
        """`rng`: of the whole run, instead of the one that `seed` makes."""
        self.rng = rng or random.Random(seed)
        self.settings = settings
        self.cls = cls
        self.membership = membership_of(range(1, servers + 1), learners)
        self.packets: list[Packet] = []
        self.cut: set[tuple[int, int]] = set()
        self.disks: dict[int, Disk] = {
            server: Disk(instance=member.instance, welcome=self.membership)
            for server, member in self.membership.members.items()
        }
        for server, log in (logs or {}).items():
            disk = self.disks[ServerId(server)]
            disk.entries = list(entries_of(log))
            last = disk.entries[-1].term if disk.entries else 0
            disk.hard_state = HardState((terms or {}).get(server, last))
        self.rafts: dict[int, Raft] = {}
        self.votes: dict[tuple[int, Instance], ServerId] = {}
        self.applied: dict[int, int] = {}
        self.read_states: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for server in self.disks:
            self.start(server)

    # -- servers

    def start(self, server: int) -> Raft:
        disk = self.disks[ServerId(server)]
        raft = self.cls(
            group=GROUP,
            server=ServerId(server),
            instance=disk.instance,
            settings=self.settings,
            hard_state=disk.hard_state,
            log=disk.recover(),
            membership=disk.welcome,
            rng=random.Random(self.rng.random()),
        )
        self.rafts[server] = raft
        self.applied[server] = 0
        return raft

    def crash(self, server: int, *, synced: int = 0) -> None:
        """The process dies; of its pending writes the first `synced` had become durable."""
        disk = self.disks[ServerId(server)]
        for _ in range(synced):
            self.sync_first(disk)
        disk.lose_pending()
        del self.rafts[server]

    def restart(self, server: int) -> Raft:
        self.crash(server)
        return self.start(server)

    def ready(self, server: int) -> Ready:
        """One turn's output: writes to the disk's queue, messages to the network."""
        raft, disk = self.rafts[server], self.disks[ServerId(server)]
        ready = raft.ready()
        if ready.write is not None:
            disk.pending.append(ready.write)
        self.packets += [
            Packet(ServerId(server), disk.instance, to, message) for to, message in ready.messages
        ]
        self.read_states[server] += ready.read_states
        self.observe(server, raft, ready)
        return ready

    def sync_first(self, disk: Disk) -> None:
        """The oldest pending write becomes durable."""
        disk.sync_first()
        if disk.hard_state.voted_for is not None:
            self.votes[disk.hard_state.term, disk.instance] = disk.hard_state.voted_for

    def sync(self, server: int) -> None:
        """All pending writes become durable."""
        disk = self.disks[ServerId(server)]
        while disk.pending:
            self.sync_first(disk)
        self.rafts[server].persisted(disk.synced)
        self.ready(server)

    # -- network

    def deliver(self, packet: Packet) -> None:
        if packet.to in self.rafts and (packet.sender, packet.to) not in self.cut:
            assert not isinstance(packet.message, SnapshotMeta)
            self.rafts[packet.to].step(packet.sender, packet.instance, packet.message)
            self.ready(packet.to)

    def take(self, kind: type[Message], *, sender: int | None = None, to: int | None = None) -> list[Packet]:
        """Remove the packets of that kind from the network."""
        taken = [
            packet
            for packet in self.packets
            if isinstance(packet.message, kind)
            and sender in (None, packet.sender)
            and to in (None, packet.to)
        ]
        self.packets = [packet for packet in self.packets if packet not in taken]
        return taken

    def isolate(self, server: int) -> None:
        for other in self.disks:
            self.cut |= {(server, other), (other, server)}

    def heal(self) -> None:
        self.cut.clear()

    def settle(self, turns: int = 1000) -> None:
        """Sync and deliver, in order, until nothing is left to do; no time passes."""
        for _ in range(turns):
            for server in list(self.rafts):
                self.ready(server)
                if self.disks[ServerId(server)].pending:
                    self.sync(server)
            if not self.packets and not any(disk.pending for disk in self.disks.values()):
                return
            packets, self.packets = self.packets, []
            for packet in packets:
                self.deliver(packet)
        raise AssertionError(f"never settles; under way: {self.packets[:5]}")

    def run(self, ticks: int, step: int = 5) -> None:
        """Time passes for everybody, with perfect delivery."""
        for _ in range(0, ticks, step):
            for raft in self.rafts.values():
                raft.tick(step)
            self.settle()

    # -- shorthands

    def elect(self, server: int) -> Raft:
        """Only this server's time passes until it leads."""
        raft = self.rafts[server]
        for _ in range(100):
            for other in self.rafts.values():
                if other is not raft:
                    other.leader = None  # they have waited long enough
            raft.tick(self.settings.election_timeout_ticks)
            self.settle()
            if raft.role is Role.LEADER:
                return raft
        raise AssertionError(f"server {server} is not elected: {raft.statistics()}")

    @property
    def leader(self) -> Raft | None:
        leading = [raft for raft in self.rafts.values() if raft.role is Role.LEADER]
        return max(leading, key=lambda raft: raft.term, default=None)


def lead(raft: Raft, voters: Iterable[int] = (2,)) -> list[tuple[int, Message]]:
    """Make it leader by the votes of `voters`, played by hand; returns what it says as a new leader."""
    raft.tick(2 * raft.settings.election_timeout_ticks)
    drain(raft)
    for voter in voters:
        hear(raft, voter, PreVoteReply(GROUP, raft.term + 1, True))
    messages: list[tuple[int, Message]] = []
    for voter in voters:
        messages += hear(raft, voter, RequestVoteReply(GROUP, raft.term, True))
    assert raft.role is Role.LEADER
    return messages


def of_kind(messages: Iterable[tuple[int, Message]], kind: type[M], to: int | None = None) -> list[M]:
    """The messages of one kind, to everybody or to one server."""
    return [message for target, message in messages if isinstance(message, kind) and to in (None, target)]
