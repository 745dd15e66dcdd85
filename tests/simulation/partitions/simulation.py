"""One seed's run of servers with partitions: faults, healing, idleness; multicast's promises, and what disks must keep.

On top of `tests.simulation.groups`, whose checks of every group hold here too, equal digests of partitions among them. Group
0 is one registry that everybody sees at once; what is said to it and by it travels and is lost like everything else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, cast

from attrs import frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.coordination import SimulatedCoordination
from tests.simulation.groups.process import GroupsProcess, TableRow
from tests.simulation.groups.simulation import FAULTS_UNTIL_MS, HostsSimulation
from tests.simulation.multicast import checks
from tests.simulation.partitions.histories import Recorded, history_of
from tests.simulation.partitions.process import PartitionsProcess
from tests.simulation.partitions.programs import Claiming, Merging, Producing
from tests.simulation.raft_checks import RaftChecks
from zraft.groups.description import GroupDescription
from zraft.raft.role import Role
from zraft.server.partitions.machine import AppliedEntry, PartitionMachine
from zraft.server.partitions.settings import PartitionsSettings
from zraft.storage.delivery.settings import DeliveryRetention
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.topics.service import TopicService
from zraft.transport.messages import PeerMessage
from zraft_core.claims.commands import (
    ClaimCommand,
    ClaimPartition,
    CommitRanges,
    Configure,
    Heartbeat,
    Release,
)
from zraft_core.claims.values import Mode
from zraft_core.ids import GroupId, ProducerId, ServerId
from zraft_core.topics.message import Delivery
from zraft_core.topics.producer import ProducerCore
from zraft_core.topics.registry_commands import (
    CloseProducer,
    CreateTopic,
    DeleteTopic,
    RegistryCommand,
)
from zraft_core.topics.registry_values import Result
from zraft_core.topics.stamps import MessageId

PUBLISH_EVERY_MS: Final = 60
MERGED_GROUPS: Final = 4
"""Groups that consumers read in one order; they are never deleted."""
PRODUCERS: Final = 3
MESSAGES_MAX: Final = 250
CHECKS: Final = (
    *(checks.check_groups, checks.check_replicas, checks.check_agreement, checks.check_order),
    *(checks.check_real_time, checks.check_producers, checks.check_after, checks.check_ordered),
    *(checks.check_merged, checks.check_bounds),
)
"""All but that of conditions: programs here store offsets as they like."""


@frozen
class PartitionsReport:
    """What one seed saw."""

    seed: int
    servers: int
    groups: int
    removed: int
    entries: int
    messages: int
    deliveries: int
    several: int
    leaders: int
    faults: int
    snapshots: int
    installed: int
    recoveries: int
    claims: int
    idle_datagrams: int
    idle_datagrams_max: int


class PartitionsSimulation(HostsSimulation[PartitionsReport], SimulatedCoordination):
    """One seed."""

    def __init__(
        self, seed: int, *, groups: int | None = None, faults_until_ms: int = FAULTS_UNTIL_MS
    ) -> None:
        rng = random.Random(f"zraft/partitions/{seed}")
        SimulatedCoordination.__init__(self)
        self.applied_entries: dict[GroupId, dict[int, AppliedEntry]] = {}
        self.producing: dict[ProducerId, Producing] = {}
        self.merging: list[Merging] = []
        self.claiming = Claiming()
        self._machines: dict[GroupId, dict[ServerId, PartitionMachine]] = {}
        self._sent = 0
        self._closing = False
        self._programs_rng = rng
        self._partition_settings = PartitionsSettings(
            tail_bytes_max=rng.choice((1, 2_000, 100_000)),
            tails_bytes_max=rng.choice((4_000, 1_000_000)),
            entry_bytes_max=rng.choice((500, 50_000)),
            entries_in_flight_max=rng.choice((1, 2, 8)),
            retain_interval_ms=400,
            claims_heartbeat_ms=300,
        )
        HostsSimulation.__init__(
            self, seed, groups=groups or rng.choice((6, 8, 10)), faults_until_ms=faults_until_ms
        )

    def _process(self, server: ServerId, name: str) -> GroupsProcess:
        process = PartitionsProcess(
            server,
            self.settings,
            self.schedule,
            self.profile,
            name,
            self.table,
            self.disks,
            self,
        )
        process.coordination, process.witness = self, self
        process.partition_settings = self._partition_settings
        return process

    def _servers(self) -> list[PartitionsProcess]:
        """Those that can be reached."""
        processes = cast(list[PartitionsProcess], list(self.processes.values()))
        return [process for process in processes if process.up and not process.stopped]

    # -- group 0

    def log(self, command: RegistryCommand) -> Result:
        result = super().log(command)
        for group in result.removed:
            self.table[group].removed = True
            self.counts["removed"] += 1
            self.spread(group)
        return result

    @property
    def leader(self) -> ServerId | None:
        """Of group 0: somebody who is there."""
        return min((process.server for process in self._servers()), default=None)

    def replicas(self, group: GroupId) -> Sequence[ServerId]:
        row = self.table.get(group)
        if row is None:
            return ()
        first = () if row.preferred is None else (row.preferred,)
        return tuple(dict.fromkeys((*first, *row.wanted)))

    def retention(self, group: GroupId) -> DeliveryRetention:
        return DeliveryRetention() if group in self._merged_groups() else DeliveryRetention(bytes_min=6_000)

    def _publish(self) -> None:
        leader = self.leader
        if leader is not None:
            process = cast(PartitionsProcess, self.processes[leader])
            for group, update in self.keeper.views():
                process.partitions.tell(group, update)
            if process.partitions.wants_turn:
                process.wake()
        self.schedule.after(PUBLISH_EVERY_MS, self._publish)

    # -- groups

    def _merged_groups(self) -> list[GroupId]:
        return sorted(self.table)[:MERGED_GROUPS]

    def create_group(self) -> None:
        rng = self.rng
        if len(self.disks) < 3:
            return
        members = sorted(rng.sample(sorted(self.disks), 3))
        founders = {server: self.disks[server] for server in members}
        preferred = rng.choice(members)
        name = f"topic{self.zxid}"
        topic = self.log(CreateTopic(name, 1)).created
        assert topic is not None
        group = self.found_group(topic, tuple(founders.items()), preferred)
        self.checks[group] = RaftChecks()
        self.table[group] = TableRow(GroupDescription(group, founders, preferred), preferred, founders)
        self.applied_entries[group] = {}
        self._machines[group] = {}
        self.counts["created"] += 1
        self.spread(group)

    def remove_group(self) -> None:
        merged = self._merged_groups()
        living = [
            topic.name
            for topic in self.registry.topics.values()
            if not any(group in merged for group in topic.partitions)
        ]
        if living:
            self.log(DeleteTopic(self.rng.choice(sorted(living))))

    # -- programs

    def _work(self) -> None:
        rng = self._programs_rng
        if not self.producing:
            self._join()
            self.schedule.after(PUBLISH_EVERY_MS, self._publish)
        if self.busy and self._sent < MESSAGES_MAX and rng.random() < 0.7:
            producing = rng.choice(list(self.producing.values()))
            known = sorted(producing.producer.table.groups)
            count = min(len(known), rng.choice((1, 1, 1, 2, 2, 3)))
            if count:
                self._sent += 1
                producing.send(rng.sample(known, count))
        table = self.registry.table()
        for producing in self.producing.values():
            producing.work(table)
        if not self._drained():
            for merging in self.merging:
                merging.work()
        if self.busy:
            self._claim()
        for process in self._servers():
            if process.partitions.wants_turn:
                process.wake()
        if self.busy or not self._drained():
            self.schedule.after(rng.randint(1, 12), self._work)

    def _join(self) -> None:
        rng = self._programs_rng
        for number in range(PRODUCERS):
            producer = ProducerCore(self.register(), self.registry.table(), window=64)
            self.producing[producer.producer] = Producing(
                producer, rng, self._service_of_leader, self._now, ordered=number > 0, causal=number > 1
            )
        groups = self._merged_groups()
        self.merging = [Merging(groups, rng, self._services, self._now) for _ in range(2)]

    def _now(self) -> int:
        return self.schedule.now_ms

    def _service_of_leader(self, group: GroupId) -> TopicService | None:
        led = self._services_of_leaders(group)
        return led[-1] if led else None

    def _services_of_leaders(self, group: GroupId) -> list[TopicService]:
        """Of all who believe to lead it, the one with the highest term last."""
        led = [
            (process.host.groups[group].raft.term, process.server, process)
            for process in self._servers()
            if process.host is not None
            and group in process.host.groups
            and process.host.groups[group].raft.role is Role.LEADER
        ]
        return [process.partitions.topics for _, _, process in sorted(led)]

    def _services(self, group: GroupId) -> list[tuple[ServerId, TopicService]]:
        return [
            (process.server, process.partitions.topics)
            for process in self._servers()
            if process.host is not None and group in process.host.groups
        ]

    def _claim(self) -> None:
        rng = self._programs_rng
        group = rng.choice(sorted(self.registry.groups))
        service = self._service_of_leader(group)
        if service is None or rng.random() < 0.6:
            return
        number = rng.randint(0, 8)
        name = f"g{number % 3}"
        commands: list[ClaimCommand] = [
            Configure(rng.choice((200, 400))),
            ClaimPartition(
                *(name, f"c{number}", "i", number, rng.choice((0, 0, 5)), Mode.AT_LEAST_ONCE),
                heartbeat_ms=rng.choice((0, 300)),
            ),
        ]
        if self.claiming.granted:
            held, epoch = rng.choice(self.claiming.granted[-5:])
            commands += [Heartbeat(held, epoch, rng.randint(1, 100), 0), Release(held, epoch, 0)]
            commands += [CommitRanges(held, epoch, 0, ((number, number + 1),))]
        match rng.randint(0, 3):
            case 0:
                self.claiming.seek(service, group, b"c%d" % (number % 2))
            case 1:
                for belief in self._services_of_leaders(group):
                    self.claiming.ask(belief, group, b"c%d" % (number % 2))
                service.claims_view(self.claiming, 0, group, name)
            case _:
                service.claim(self.claiming, 0, group, rng.choice(commands))

    # -- what is seen

    def applied(self, process: PartitionsProcess, machine: PartitionMachine, entry: AppliedEntry) -> None:
        """Every replica, also one that applies an entry again after a start, comes to the same (D-5, D-13)."""
        first = self.applied_entries[machine.group].setdefault(entry.index, entry)
        if (first.term, first.deliveries, first.answers) != (entry.term, entry.deliveries, entry.answers):
            raise BrokenPromiseError(
                "determinism", f"S{process.server} delivers {entry} in group {machine.group}, {first} before"
            )
        self._machines[machine.group][process.server] = machine

    def said(self, process: PartitionsProcess, to: ServerId, message: PeerMessage) -> None:
        self.network.send(process.sender, to, [message])

    def lacking(self, process: GroupsProcess, group: GroupId, follower: ServerId) -> None:
        info = process.image.newest(group)
        if info is None or (group, follower) in self._on_the_way:
            return
        shipment = cast(PartitionsProcess, process).shipment(group)
        if shipment is None:
            return
        self._on_the_way.add((group, follower))
        image = process.image.image(group)

        def arrive() -> None:
            receiver = cast(PartitionsProcess, self.processes[follower])
            install = lambda: HostsSimulation._arrive(self, process, follower, group, info, image)  # noqa: E731
            pair = (process.server, follower)
            if pair in self.network.cuts or pair[::-1] in self.network.cuts or self.table[group].removed:
                self._on_the_way.discard((group, follower))
            else:
                receiver.take_shipment(group, shipment, install, info.meta)
                self._on_the_way.discard((group, follower))

        self.schedule.after(self.rng.randint(2, 30), arrive)

    # -- the end

    def _drained(self) -> bool:
        if not self.merging or not all(producing.is_done for producing in self.producing.values()):
            return False
        merged = self._merged_groups()
        wanted = {delivery.message.mid for group in merged for delivery in self._deliveries(group)}
        return all(len(merging.out) == len(wanted) for merging in self.merging)

    def _deliveries(self, group: GroupId) -> list[Delivery]:
        entries = self.applied_entries[group]
        return [
            delivery
            for index in sorted(entries)
            if (applied := entries[index].applied) is not None
            for delivery in applied.delivered
        ]

    def _unhealthy(self) -> str | None:
        if not self._drained():
            undecided = [
                tuple(producing.messages[MessageId(pid, seq)].destinations)
                for pid, producing in self.producing.items()
                for seq in producing.producer.undecided()[:3]
            ]
            return f"undecided are {undecided}; merged {[len(one.out) for one in self.merging]}"
        if not self._closing:
            self._closing = True
            for pid in sorted(self.producing)[1:]:
                self.log(CloseProducer(pid))
        if self.registry.closed:
            return f"producers {sorted(self.registry.closed)} are closed and not forgotten"
        if self.registry.deleting:
            return f"groups {sorted(self.registry.deleting)} are deleted and not removed"
        if self.keeper.views():
            return f"groups {[group for group, _ in self.keeper.views()]} have not reported the newest view"
        for group in self.registry.groups:
            for machine in self._living(group):
                partition = machine.partition
                if partition is None or partition.settled or partition.pending:
                    return f"group {group} has messages left"
        return super()._unhealthy()

    def _living(self, group: GroupId) -> list[PartitionMachine]:
        return [
            process.partitions.hosted[group].machine
            for process in self._servers()
            if group in process.partitions.hosted and self.table[group].wanted.get(process.server)
        ]

    def assert_saw_enough(self) -> None:
        several = sum(len(m.destinations) > 1 for p in self.producing.values() for m in p.messages.values())
        rounds = sum(m.round is not None for p in self.producing.values() for m in p.messages.values())
        seen = {
            "messages": (self._sent, 80),
            "messages to several groups": (several, 20),
            "rounds": (rounds, 2),
            "answers to claims": (self.claiming.answers, 5),
            "reads of offsets": (self.claiming.reads, 3),
            "faults": (sum(self.faults.counts.values()), 3),
            "entries": (self.entries, 100),
        }
        for name, (found, least) in seen.items():
            if found < least:
                raise BrokenPromiseError("saw enough", f"only {found} {name}, at least {least} expected")
        self._check_history()
        self._check_disks()

    def _check_history(self) -> None:
        groups, gone = {}, set()
        for group, entries in self.applied_entries.items():
            if group in self.registry.groups:
                machines = self._living(group)
            else:
                gone.add(group)
                machines = list(self._machines[group].values())[:1]
            partitions = [machine.partition for machine in machines if machine.partition is not None]
            if partitions:
                groups[group] = Recorded.of(entries, partitions[0], partitions[-1])
        window = self.registry.group_settings.window
        history = history_of(groups, self.producing.values(), self.merging, window=window, gone=gone)
        for check in CHECKS:
            check(history)

    def _check_disks(self) -> None:
        """What consumers can read at any server is what was delivered."""
        for group in self.registry.groups:
            expected = [
                one
                for index in sorted(self.applied_entries[group])
                for one in self.applied_entries[group][index].deliveries
            ]
            for process in self._servers():
                if self.table[group].wanted.get(process.server) and group in process.performer.disk:
                    log = process.performer.disk.log(group)
                    first = log.base.offset
                    found = log.read(first, 1 << 30) if first < log.end.offset else []
                    if found != [one for one in expected if one.offset >= first]:
                        raise BrokenPromiseError(
                            "deliveries", f"S{process.server} has others of group {group} on its disk"
                        )

    def snapshot(self, process: GroupsProcess, info: SnapshotInfo, *, received: bool) -> None:
        super().snapshot(process, info, received=received)
        partitions = cast(PartitionsProcess, process).partitions
        group = info.header.group
        if group in partitions.hosted and partitions.cut_index(group) < info.meta.index and not received:
            raise BrokenPromiseError("snapshot", f"group {group}: its deliveries are not durable")

    def _report(self, sent: int, turns: int, looked_at: int) -> PartitionsReport:
        messages = [m for one in self.producing.values() for m in one.messages.values()]
        return PartitionsReport(
            seed=self.seed,
            servers=len(self.processes),
            groups=len(self.registry.groups),
            removed=self.counts["removed"],
            entries=self.entries,
            messages=len(messages),
            deliveries=sum(len(self._deliveries(group)) for group in self.table),
            several=sum(len(message.destinations) > 1 for message in messages),
            leaders=sum(len(checks.leaders) for checks in self.checks.values()),
            faults=sum(self.faults.counts.values()),
            snapshots=self.counts["snapshots"],
            installed=self.counts["installed"],
            recoveries=self.counts["recovered"],
            claims=self.claiming.answers,
            idle_datagrams=sent,
            idle_datagrams_max=self.idle_datagrams_max,
        )
