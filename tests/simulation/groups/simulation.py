"""One seed's run of servers that host many groups: faults, then healing, then idleness, with checkers throughout.

The shipped hosts, logs, snapshots and codec run on a simulated clock, network and disk. Beside the promises of Raft, for
every group, it is shown that a cluster in which nothing happens does nothing: the datagrams and the groups that are
looked at in idle seconds are bounded by what the design says, not by what they were once measured to be.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from attrs import evolve, frozen

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.groups.cover_checks import CoverChecks
from tests.simulation.groups.disk import Opened
from tests.simulation.groups.faults import GroupFaults
from tests.simulation.groups.process import GroupsProcess, TableRow
from tests.simulation.network import Network
from tests.simulation.profile import Profile, roll
from tests.simulation.raft_checks import RaftChecks
from tests.simulation.schedule import Schedule
from zraft.groups.description import GroupDescription
from zraft.groups.effects import GroupEffects, GroupMessage
from zraft.groups.settings import GroupSettings
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.storage.records import ForgetRecord, Record, RosterRecord
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.topics.placement import preferred_leaders
from zraft.transport.messages import Sender, SharedHeartbeat, SharedHeartbeatReply
from zraft_core.ids import GroupId, Instance, ServerId

R = TypeVar("R")

HEARTBEAT_MS: Final = 40
ELECTION_TIMEOUT_MS: Final = 160
FAULTS_FROM_MS: Final = 1_200
FAULTS_UNTIL_MS: Final = 6_000
HEALED_WITHIN_MS: Final = 9_000
IDLE_MS: Final = 2_000
GREETS_EVERY_MS: Final = 150
GREETS_AFTER_HEALING_MS: Final = 700

SERVERS: Final = (3, 3, 4, 5)
GROUPS: Final = (50, 50, 60, 60, 80, 80, 120, 300)


@frozen
class GroupsReport:
    """What one seed saw. `idle_datagrams` of `idle_datagrams_max` in `IDLE_MS`, by all servers together."""

    seed: int
    servers: int
    groups: int
    created: int
    removed: int
    entries: int
    leaders: int
    faults: int
    moves: int
    exchanges: int
    snapshots: int
    installed: int
    recoveries: int
    reads: int
    covered: int
    idle_datagrams: int
    idle_datagrams_max: int
    idle_turns: int
    kinds: tuple[tuple[str, int], ...]


class HostsSimulation(ABC, Generic[R]):
    """One seed's servers, and the groups that they host; what they replicate and what is reported is for a kind to say."""

    def __init__(
        self,
        seed: int,
        *,
        groups: int | None = None,
        servers: int | None = None,
        faults_until_ms: int = FAULTS_UNTIL_MS,
    ) -> None:
        self.seed = seed
        name = f"zraft/groups/{seed}"
        self.rng = rng = random.Random(name)
        self.profile: Profile = evolve(roll(seed), gentle=False)
        self.settings = GroupSettings(
            raft=RaftSettings(
                election_timeout_ticks=ELECTION_TIMEOUT_MS,
                heartbeat_ticks=HEARTBEAT_MS,
                resend_ticks=HEARTBEAT_MS,
            ),
            items_max=rng.choice((4, 16, 64)),
            snapshot_bytes=rng.choice((400, 1_500, 6_000)),
            keep_log_bytes_max=rng.choice((1, 1_000, 20_000)),
            wal_bytes_max=rng.choice((12_000, 30_000)),
            log_bytes_max=rng.choice((1_000, 4_000)),
            asleep_log_bytes_max=rng.choice((0, 500)),
            transfer_pause_ticks=rng.choice((5, 20)),
        )
        self.schedule = Schedule()
        self.network = Network(
            self.schedule,
            self.profile,
            random.Random(f"{name}/network"),
            self._deliver,
            self._run_of,
        )
        self.table: dict[GroupId, TableRow] = {}
        self.disks: dict[ServerId, Instance] = {}
        self.checks: dict[GroupId, RaftChecks] = {}
        self.covers = CoverChecks(self.checks)
        self.counts: Counter[str] = Counter()
        ids = [ServerId(number + 1) for number in range(servers or rng.choice(SERVERS))]
        self.processes = {server: self._process(server, name) for server in ids}
        self._group_count = groups or rng.choice(GROUPS)
        self._next_group = 1
        self._commands = 0
        self._reads: dict[int, tuple[GroupId, int, int]] = {}
        self._read_number = 0
        self._on_the_way: set[tuple[GroupId, ServerId]] = set()
        self.busy = True
        self._faults_until_ms = faults_until_ms
        self.faults = GroupFaults(self, random.Random(f"{name}/faults"), end_ms=faults_until_ms)

    def _process(self, server: ServerId, name: str) -> GroupsProcess:
        return GroupsProcess(
            server,
            self.settings,
            self.schedule,
            self.profile,
            name,
            self.table,
            self.disks,
            self,
        )

    @property
    def moment(self) -> str:
        return f"{self.schedule.now_ms} ms"

    # -- the run
    def run(self) -> R:
        """Faults, healing, idleness; every promise is checked as it goes."""
        schedule = self.schedule
        for process in self.processes.values():
            process.boot()
        for _ in range(self._group_count):
            self.create_group()
        schedule.at(200, self._work)
        self.faults.begin(FAULTS_FROM_MS)
        schedule.run_until(self._faults_until_ms)
        self.faults.heal()
        self._await_health()
        sent, turns, looked_at = self._idle()
        self.assert_saw_enough()
        return self._report(sent, turns, looked_at)

    @abstractmethod
    def _report(self, sent: int, turns: int, looked_at: int) -> R:
        """What was seen; in idle seconds so many datagrams, turns, and groups that were looked at."""

    def _await_health(self) -> None:
        end_ms = self.schedule.now_ms + HEALED_WITHIN_MS
        busy_until = self.schedule.now_ms + 1_000
        problem = "nothing was looked at"
        while self.schedule.now_ms < end_ms:
            self.schedule.run_until(self.schedule.now_ms + 100)
            if self.schedule.now_ms < busy_until:
                continue
            self.busy = False
            found = self._unhealthy()
            if found is None:
                return
            problem = found
        raise BrokenPromiseError("liveness", f"{HEALED_WITHIN_MS} ms after healing: {problem}")

    def _unhealthy(self) -> str | None:
        """What is still missing: one leader, where it should be, everybody wanted and equal, and nothing to do."""
        if self._reads:
            return f"reads {sorted(self._reads)[:5]} are unanswered"
        for group, row in self.table.items():
            present = {server: p.host.groups.get(group) for server, p in self.processes.items() if p.host}
            if row.removed:
                if any(present.values()):
                    return f"group {group} is removed, and is on {[s for s, r in present.items() if r]}"
                continue
            leaders = [s for s, r in present.items() if r is not None and r.raft.role is Role.LEADER]
            if len(leaders) != 1:
                return f"group {group} has the leaders {leaders}"
            leader = present[leaders[0]]
            assert leader is not None
            if row.preferred is not None and leaders[0] != row.preferred:
                return f"group {group} is led by S{leaders[0]}, preferred is S{row.preferred}"
            voters = {s: leader.raft.membership.members[s].instance for s in leader.raft.membership.voters}
            if voters != row.wanted or leader.raft.membership.joint:
                return f"group {group} has the voters {sorted(voters)}, wanted are {sorted(row.wanted)}"
            for server in voters:
                replica = present.get(server)
                if replica is None or replica.applied_index != leader.raft.log.last_index:
                    return f"S{server} has not applied all of group {group}"
                if not replica.asleep:
                    return f"group {group} is awake on S{server}"
        return None

    def _idle(self) -> tuple[int, int, int]:
        """Nothing happens for a while: what was sent, turned and looked at meanwhile."""
        # What the faults have delayed most is still on its way.
        self.schedule.run_until(self.schedule.now_ms + self.profile.late_ms_max + IDLE_MS)
        sent, turns = self.network.sent, sum(p.turns for p in self.processes.values())
        before = self._looked_at()
        self.schedule.run_until(self.schedule.now_ms + IDLE_MS)
        sent = self.network.sent - sent
        turns = sum(p.turns for p in self.processes.values()) - turns
        looked_at = self._looked_at() - before
        if sent > self.idle_datagrams_max:
            raise BrokenPromiseError(
                "idle", f"{sent} datagrams in {IDLE_MS} ms, at most {self.idle_datagrams_max}"
            )
        if turns > self.idle_turns_max:
            raise BrokenPromiseError("idle", f"{turns} turns in {IDLE_MS} ms, at most {self.idle_turns_max}")
        if looked_at:
            raise BrokenPromiseError(
                "idle", f"{looked_at} groups were looked at although nothing happened to them"
            )
        return sent, turns, looked_at

    @property
    def idle_datagrams_max(self) -> int:
        """One shared heartbeat and its answer, per ordered pair of servers and interval: however many groups there are."""
        servers = len(self.processes)
        return 2 * servers * (servers - 1) * (IDLE_MS // HEARTBEAT_MS + 1)

    @property
    def idle_turns_max(self) -> int:
        """One for each datagram that comes, and one for each heartbeat that is due."""
        servers = len(self.processes)
        return 3 * servers * (servers - 1) * (IDLE_MS // HEARTBEAT_MS + 1)

    def _looked_at(self) -> int:
        return sum(p.host.statistics().touched_total for p in self.processes.values() if p.host)

    # -- the table of groups
    def create_group(self) -> None:
        """The coordination group logs a creation: servers learn of it one by one."""
        rng = self.rng
        if len(self.disks) < 3:
            return
        group = GroupId(self._next_group)
        self._next_group += rng.randint(1, 3)
        members = sorted(rng.sample(sorted(self.disks), 3))
        founders = {server: self.disks[server] for server in members}
        self.checks[group] = RaftChecks()
        preferred = rng.choice(members)
        self.table[group] = TableRow(GroupDescription(group, founders, preferred), preferred, founders)
        self.counts["created"] += 1
        self.spread(group)

    def remove_group(self) -> None:
        """The coordination group logs that a group is gone."""
        living = [group for group, row in self.table.items() if not row.removed]
        if len(living) > 10:
            group = self.rng.choice(living)
            self.table[group].removed = True
            self.counts["removed"] += 1
            self.spread(group)

    def move_replica(self) -> None:
        """One member of a group is to be another server."""
        rng = self.rng
        group = rng.choice(sorted(self.table))
        row = self.table[group]
        others = [server for server in sorted(self.disks) if server not in row.wanted]
        if row.removed or not others:
            return
        gone, new = rng.choice(sorted(row.wanted)), rng.choice(others)
        row.wanted = {server: disk for server, disk in row.wanted.items() if server != gone}
        row.wanted = {**row.wanted, new: self.disks[new]}
        row.placed = False
        if row.preferred == gone:
            row.preferred = new
        self.counts["moved"] += 1
        self.spread(group)

    def replace_disk(self, server: ServerId) -> None:
        """The server runs with a new disk: every group that it belongs to is to take that one."""
        for group, row in self.table.items():
            if server in row.wanted:
                row.wanted = {**row.wanted, server: self.disks[server]}
                row.placed = False
                self.spread(group)

    def balance(self) -> None:
        """Preferred leaders are spread anew."""
        living = {group: row for group, row in self.table.items() if not row.removed}
        preferred = preferred_leaders(
            {group: row.wanted for group, row in living.items()},
            {group: row.preferred for group, row in living.items()},
        )
        for group, server in preferred.items():
            if living[group].preferred != server:
                living[group].preferred = server
                self.counts["balanced"] += 1
                self.spread(group)

    def spread(self, group: GroupId) -> None:
        """Every server applies the coordination group's entry at a moment of its own."""
        for process in self.processes.values():
            self.schedule.after(self.rng.randint(0, 60), process.learn, group)

    # -- work
    def _work(self) -> None:
        """Clients append to some groups, and read from some."""
        if not self.busy:
            return
        rng = self.rng
        living = [group for group, row in self.table.items() if not row.removed]
        for group in rng.sample(living, min(len(living), rng.choice((1, 3, 8)))):
            for process in self.processes.values():
                if process.host is not None and group in process.host.groups and not process.stopped:
                    self._commands += 1
                    payload = self._commands.to_bytes(8) * rng.choice((1, 1, 4))
                    if process.host.propose(group, payload, 1) is not None:
                        self.counts["proposed"] += 1
                        process.wake()
            if rng.random() < 0.3:
                self._ask(group)
        self.schedule.after(rng.randint(1, 12), self._work)

    def _ask(self, group: GroupId) -> None:
        """A linearizable read at some server; it must see everything that is committed anywhere by now."""
        readers = [p for p in self.processes.values() if p.host and group in p.host.groups and not p.stopped]
        if not readers:
            return
        process = self.rng.choice(readers)
        self._read_number += 1
        committed = len(self.checks[group].committed) - 1
        self._reads[self._read_number] = (group, committed, process.server * 1_000 + process.boots)
        self._ask_again(process, process.boots, group, self._read_number)

    def _ask_again(self, process: GroupsProcess, boot: int, group: GroupId, context: int) -> None:
        host = process.host
        if host is None or process.boots != boot or self.table[group].removed or group not in host.groups:
            self._reads.pop(context, None)
        elif context in self._reads:
            if self.table[group].wanted.get(process.server) != host.instance:
                del self._reads[context]  # it does not belong to the group any more, whether it knows or not
                return
            if not process.stopped:
                host.read_index(group, context)
                process.wake()
            self.schedule.after(100, self._ask_again, process, boot, group, context)

    # -- what processes report
    def booted(self, process: GroupsProcess, opened: Opened, in_flight: Sequence[Record] | None) -> None:
        server = process.server
        if self.disks.get(server) != opened.instance:
            self.disks[server] = opened.instance
        self._greet(process, process.boots)
        for group, checks in self.checks.items():
            shadow = checks.shadows.get(server)
            if shadow is not None and shadow.instance == opened.instance:
                self._recovered(process, opened, group, in_flight)

    def _greet(self, process: GroupsProcess, boot: int) -> None:
        """What the coordination group says all the time: it makes the disks of the servers known to each other."""
        if (
            process.up
            and process.boots == boot
            and self.schedule.now_ms < self._faults_until_ms + GREETS_AFTER_HEALING_MS
        ):
            for server in self.processes:
                if server != process.server and not process.stopped:
                    self.network.send(process.sender, server, ())
            self.schedule.after(GREETS_EVERY_MS, self._greet, process, boot)

    def _recovered(
        self, process: GroupsProcess, opened: Opened, group: GroupId, in_flight: Sequence[Record] | None
    ) -> None:
        mine = None if in_flight is None else [record for record in in_flight if record.group == group]
        stored = process.image.stored(opened, group)
        if group not in opened.recovered.groups and self.table[group].removed:
            return
        if mine and any(isinstance(record, ForgetRecord) for record in mine):
            return
        self.counts["recovered"] += 1
        self.checks[group].recovered(
            process.server, stored.hard_state, stored.log, mine, opened.snapshots.get(group)
        )

    def created(self, process: GroupsProcess, group: GroupId) -> None:
        host = process.host
        assert host is not None
        checks, server = self.checks[group], process.server
        shadow = checks.shadows.get(server)
        if shadow is None or shadow.instance != host.instance:
            checks.formatted(server, host.instance)
            founders = self.table[group].description.founders
            if founders.get(server) == host.instance:
                roster = RosterRecord(group, tuple(founders.items()))
                checks.writing(server, [roster])
                checks.durable(server, [roster])
        checks.begins(server, host.groups[group].raft.log)

    def turned(self, process: GroupsProcess, effects: GroupEffects) -> None:
        host = process.host
        assert host is not None
        for group in effects.touched:
            if group in host.groups:
                self._check_group(process, group)
        self.covers.turned(process, effects)
        for group in effects.placed:
            row = self.table[group]
            if row.wanted == host.groups[group].wanted and not row.placed:
                row.placed = True
                self.spread(group)
        for group, context in effects.reads:
            asked = self._reads.get(context)
            if asked is not None and asked[2] == process.server * 1_000 + process.boots:
                del self._reads[context]
                self.counts["reads"] += 1
                if host.groups[group].applied_index < asked[1]:
                    raise BrokenPromiseError(
                        "read",
                        f"S{process.server} answers a read of group {group} at {host.groups[group].applied_index}; "
                        f"{asked[1]} was committed when it was asked (6.4)",
                    )

    def _check_group(self, process: GroupsProcess, group: GroupId) -> None:
        host = process.host
        assert host is not None
        replica, checks, server = host.groups[group], self.checks[group], process.server
        checks.turned((server, host.instance), replica.raft)
        if replica.applied_index:
            checks.state(server, replica.applied_index, replica.machine.digest())

    def sending(self, process: GroupsProcess, to: ServerId, messages: Sequence[GroupMessage]) -> None:
        self.covers.sent(process, to, messages)
        for message in messages:
            if not isinstance(message, SharedHeartbeat | SharedHeartbeatReply):
                self.checks[message.group].sent(process.sender, to, [message])
        self.network.send(process.sender, to, messages)

    def writing(self, process: GroupsProcess, records: Sequence[Record]) -> None:
        self.counts["frames"] += 1
        for group, mine in _by_group(records):
            if not self._is_forgotten(mine):
                self.checks[group].writing(process.server, mine)
        self.faults.writing(process)

    def durable(self, process: GroupsProcess, records: Sequence[Record]) -> None:
        for group, mine in _by_group(records):
            if not self._is_forgotten(mine):
                self.checks[group].durable(process.server, mine)

    @staticmethod
    def _is_forgotten(records: Sequence[Record]) -> bool:
        return any(isinstance(record, ForgetRecord) for record in records)

    def snapshot(self, process: GroupsProcess, info: SnapshotInfo, *, received: bool) -> None:
        self.checks[info.header.group].snapshot(process.server, info, received=received)
        self.counts["installed" if received else "snapshots"] += 1

    def compacting(self, process: GroupsProcess, group: GroupId, index: int) -> None:
        self.checks[group].compacting(process.server, index, process.image.newest(group))

    def lacking(self, process: GroupsProcess, group: GroupId, follower: ServerId) -> None:
        """A stream brings the leader's newest snapshot, if it arrives."""
        info = process.image.newest(group)
        if info is None or (group, follower) in self._on_the_way:
            return
        self._on_the_way.add((group, follower))
        image = process.image.image(group)
        delay = self.rng.randint(2, 30)
        self.schedule.after(delay, self._arrive, process, follower, group, info, image)

    def _arrive(
        self, process: GroupsProcess, follower: ServerId, group: GroupId, info: SnapshotInfo, image: bytes
    ) -> None:
        self._on_the_way.discard((group, follower))
        pair = (process.server, follower)
        if (
            pair not in self.network.cuts
            and pair[::-1] not in self.network.cuts
            and not self.table[group].removed
        ):
            self.processes[follower].install(group, info.meta, image, info.digest)

    # -- the network
    def _deliver(self, to: ServerId, sender: Sender, data: bytes) -> None:
        self.processes[to].datagram(sender, data)

    def _run_of(self, server: ServerId) -> Sender:
        return self.processes[server].sender

    # -- the end
    @property
    def entries(self) -> int:
        """Committed, in all groups."""
        return sum(len(checks.committed) - 1 for checks in self.checks.values())

    def assert_saw_enough(self) -> None:
        """A checker that was never fed would always pass."""
        seen = {
            "entries per group": (self.entries // len(self.checks), 3),
            "leaders per group": (sum(len(c.leaders) for c in self.checks.values()) // len(self.checks), 1),
            "covered groups": (self.covers.covered, 500),
            "counted groups": (self.covers.counted, 500),
            "offers": (self.covers.items, 50),
            "reads": (self.counts["reads"], 5),
            "faults": (sum(self.faults.counts.values()), 3),
        }
        for name, (found, least) in seen.items():
            if found < least:
                raise BrokenPromiseError("saw enough", f"only {found} {name}, at least {least} expected")


def _by_group(records: Sequence[Record]) -> list[tuple[GroupId, list[Record]]]:
    groups: dict[GroupId, list[Record]] = {}
    for record in records:
        groups.setdefault(record.group, []).append(record)
    return list(groups.items())


class GroupsSimulation(HostsSimulation[GroupsReport]):
    """Every group counts."""

    def _report(self, sent: int, turns: int, looked_at: int) -> GroupsReport:
        hosts = [process.host for process in self.processes.values() if process.host]
        return GroupsReport(
            seed=self.seed,
            servers=len(self.processes),
            groups=sum(not row.removed for row in self.table.values()),
            created=self.counts["created"],
            removed=self.counts["removed"],
            entries=self.entries,
            leaders=sum(len(checks.leaders) for checks in self.checks.values()),
            faults=sum(self.faults.counts.values()),
            moves=sum(host.statistics().moves_total for host in hosts),
            exchanges=self.counts["moved"],
            snapshots=self.counts["snapshots"],
            installed=self.counts["installed"],
            recoveries=self.counts["recovered"],
            reads=self.counts["reads"],
            covered=self.covers.covered,
            idle_datagrams=sent,
            idle_datagrams_max=self.idle_datagrams_max,
            idle_turns=turns,
            kinds=tuple(sorted({**self.counts, **self.faults.counts, "looked at idle": looked_at}.items())),
        )
