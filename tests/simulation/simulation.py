"""Owns one run: assembles servers, clients, network, adversary and checkers from a seed, and drives them.

Phase one: faults. Phase two: everything heals and must make progress: every server applies the same
entries, every living client completes a write and a sync, the sessions of dead clients expire.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from zlib import crc32

from attrs import asdict, frozen

from tests.simulation.client_checks import KINDS, ClientChecks
from tests.simulation.clients import SimulatedClient
from tests.simulation.configurations import LEARNER, LEAVING, OBSERVER, VOTER, Configuration
from tests.simulation.faults import Adversary, writes_vote
from tests.simulation.jute import Reader
from tests.simulation.model import History, Outcome
from tests.simulation.native_model import REMOVED_PER_ENTRY
from tests.simulation.natives import CLIENTS as NATIVE_CLIENTS
from tests.simulation.natives import KINDS as NATIVE_KINDS
from tests.simulation.natives import Natives
from tests.simulation.network import Network
from tests.simulation.operators import Operators, describe
from tests.simulation.planted_registry import replaced
from tests.simulation.process import Process
from tests.simulation.profile import (
    CALM_AFTER_MS,
    CONTAINER_NEVER_USED_MS,
    ELECTION_TIMEOUT_MS,
    FAULTS_FROM_MS,
    HEAL_MS,
    HEARTBEAT_MS,
    REAP_INTERVAL_MS,
    RUN_MS,
    SESSION_TIMEOUTS_MS,
    TICK_TIME_MS,
    TOPICS_DEAD_AFTER_MS,
    Mode,
    Profile,
    roll,
)
from tests.simulation.raft_checks import RaftChecks
from tests.simulation.rights import SUPER_CREDENTIALS, digest_of
from tests.simulation.schedule import Schedule
from tests.simulation.sockets import Socket
from tests.simulation.survival import Survival
from tests.simulation.topics import KINDS as TOPIC_KINDS
from tests.simulation.topics import TopicGroups
from zraft.config.sections import SnapshotConfig
from zraft.groups.snapshots import keeper as snapshot_keeper
from zraft.groups.snapshots import pull as snapshot_pull
from zraft.groups.snapshots import receiving as snapshot_receiving
from zraft.groups.snapshots import sending as snapshot_sending
from zraft.groups.snapshots import snapshots
from zraft.groups.snapshots import writing as snapshot_writing
from zraft.raft.messages import Entry, EntryKind
from zraft.raft.settings import RaftSettings
from zraft.server.clients.authentication.proofs import AuthSettings
from zraft.server.clients.settings import ClientSettings
from zraft.server.clients.zookeeper import ordinary_reads
from zraft.server.coordination import membership_keeper, reconciliation
from zraft.server.coordination.origin import OriginSettings
from zraft.server.engine.settings import DriverSettings
from zraft.storage.errors import DiskFullError
from zraft.storage.records import Record
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.transport.messages import PeerMessage, Sender
from zraft.tree import digest as digest_module
from zraft.tree import machine as machine_module
from zraft.tree import node as node_module
from zraft.tree import znodes as znodes_module
from zraft.tree.commands import ordinary, truncation
from zraft.tree.image import writer as image_writer_module
from zraft.tree.image import znodes_reader as znodes_reader_module
from zraft.tree.machine import Machine
from zraft.tree.settings import Settings
from zraft_core.errors import Code, StorageError
from zraft_core.ids import ServerId
from zraft_core.znodes import txn

EXPIRY_SLACK_MS: Final = 400
"""How much later than its timeout and two ticks a silent session may end: a scan, a quorum round, a commit."""

FINALE_MS: Final = 1_500
"""At the end of healing clients only prove that they can still write."""

REAP_SLACK_MS: Final = 1_500
"""How much later than two rounds of the leader a znode may go that is due: an election, a commit."""

LOG_MEMORY_BYTES_MAX: Final = 64 * 1024
"""Small, so that followers which fell behind are served from disk."""

SPARE_SERVERS: Final = 3
"""Servers that operators may add."""

SCALED: Final[tuple[tuple[Any, str, int], ...]] = (
    (snapshot_pull, "CHUNK_BYTES", 1_200),
    (snapshot_receiving, "LOAD_ITEMS", 25),
    (snapshot_sending, "CHUNK_BYTES", 1_200),
    (snapshot_sending, "OFFER_INTERVAL_MS", 60),
    (snapshot_sending, "GIVE_UP_MS", 800),
    (snapshot_pull, "ASK_AGAIN_MS", 100),
    (snapshot_receiving, "SILENT_MS", 800),
    (snapshot_writing, "SLICE_ITEMS", 12),
    (snapshot_writing, "SLICE_GAP_MS", 2),
    (snapshot_writing, "UNHURRIED_GAP_MS", 4),
    (snapshot_keeper, "MARK_BYTES", 512),
    (snapshot_writing, "RETRY_MS", 300),
    (snapshots, "COMPACT_INTERVAL_MS", 60),
    (reconciliation, "DEAD_AFTER_MS", 700),
    (reconciliation, "JOIN_VALID_MS", 600),
    (membership_keeper, "VERDICT_INTERVAL_MS", 200),
    (machine_module, "DIGEST_EVERY", 64),
    (digest_module, "PENDING_AT_POINT", 8),
    (truncation, "REMOVED_PER_ENTRY_MAX", REMOVED_PER_ENTRY),
)
"""Sizes and times of the product that are made for hours and gigabytes: in a run of seconds with some hundred znodes,
a snapshot is to have several pieces and a lost disk is to be replaced several times."""


HASHING: Final = (
    node_module,
    znodes_module,
    ordinary,
    ordinary_reads,
    image_writer_module,
    znodes_reader_module,
)
"""They spread znodes by `hash(path)`, which differs between processes, and images show the order: not here."""


def _stable_hash(path: str) -> int:
    return crc32(path.encode())


@contextmanager
def scaled() -> Iterator[None]:
    """Everything inside runs with `SCALED`, and one order of znodes in all processes."""
    with replaced(*SCALED):
        for module in HASHING:
            module.__dict__["hash"] = _stable_hash
        try:
            yield
        finally:
            for module in HASHING:
                del module.__dict__["hash"]


CAUGHT_UP_ENTRIES: Final = 40
"""A learner that is made a voter lacks no more of what is committed: about what is committed in half a second."""

QUIET_MS: Final = 1_500

FULL_DIGEST_EVERY: Final = 97
"""One in so many digest comparisons recomputes the digest from every item (the folded one must agree)."""


@frozen
class Report:
    """What one run saw. `fingerprint` covers every byte that servers and clients exchanged and when."""

    seed: int
    mode: str
    gentle: bool
    commands: int
    replies: int
    writes: int
    events: int
    leader_changes: int
    faults: int
    fault_kinds: tuple[tuple[str, int], ...]
    snapshots_taken: int
    snapshots_adopted: int
    configurations: int
    entries: int
    sessions_expired: int
    fingerprint: int
    simulated_ms: int
    turns: int
    settled: int
    """The number of times that servers wrote, applied or answered without a turn."""
    operations: tuple[tuple[str, int], ...]
    """How often what `tests.simulation.client_checks.KINDS` names was seen."""


class Simulation:
    """One seed's run. `run` raises `BrokenPromiseError`, or whatever error the product raised."""

    process_type: type[Process] = Process

    def __init__(
        self, seed: int, *, mode: Mode | None = None, profile: Profile | None = None, trace: bool = False
    ) -> None:
        """`profile`: instead of the one that the seed makes."""
        self.seed = seed
        if profile is None:
            profile = roll(seed, mode)
        self.profile = profile
        self._trace = trace
        self.schedule = schedule = Schedule()
        name = f"zraft/{seed}"
        self._founders = [ServerId(number + 1) for number in range(profile.servers)]
        servers = [ServerId(number + 1) for number in range(profile.servers + SPARE_SERVERS)]
        self.history = History()
        self.raft_checks = RaftChecks(self._extend)
        self._fingerprint = 0
        self._restored: dict[ServerId, int] = {}
        self._removed: set[ServerId] = set()
        self._ended: dict[str, int] = {}
        self._wishes: list[tuple[int, frozenset[ServerId]]] = []
        """Index of each command that changed who is to vote, and who that is."""
        self._applied_by: dict[ServerId, int] = {}
        self._digests = 0
        self._settings = settings = DriverSettings(
            raft=RaftSettings(
                election_timeout_ticks=ELECTION_TIMEOUT_MS,
                heartbeat_ticks=HEARTBEAT_MS,
                resend_ticks=HEARTBEAT_MS,
                commit_told_ticks=profile.put_off_ms,
                put_off_ticks=profile.put_off_ms,
                put_off_ticks_max=2 * profile.put_off_ms,
            ),
            origin=OriginSettings(
                resend_ms=80,
                batches_in_flight_max=profile.batches_in_flight,
                asking_again_share_min=profile.asking_again_share_min,
            ),
            entries_in_flight_max=profile.entries_in_flight,
            puts_off_attended=profile.put_off_ms > RaftSettings().put_off_ticks,
            log_memory_bytes_max=LOG_MEMORY_BYTES_MAX,
            reap_interval_ms=REAP_INTERVAL_MS,
            clients=ClientSettings(
                auth=AuthSettings(super_digest=digest_of(SUPER_CREDENTIALS)),
                read_only_mode_enabled=profile.read_only_mode,
            ),
            snapshots=SnapshotConfig(
                log_bytes_min=profile.snapshot_bytes,
                log_ratio_percent=20,
                commands_min=profile.snapshot_commands,
                keep=profile.snapshot_keep,
                retain_bytes=profile.retain_bytes,
                retain_bytes_max=max(profile.retain_bytes, profile.retain_bytes_max),
                send_bytes_per_s=400_000,
            ),
            tree=Settings(
                tick_time_ms=TICK_TIME_MS,
                session_timeout_ms_min=SESSION_TIMEOUTS_MS[0],
                session_timeout_ms_max=SESSION_TIMEOUTS_MS[-1],
                quota_enforced=int(profile.quota_enforced),
                container_never_used_ms_max=CONTAINER_NEVER_USED_MS,
                topics_dead_after_ms=TOPICS_DEAD_AFTER_MS,
            ),
        )
        self.network = Network(
            schedule,
            profile,
            random.Random(f"{name}/network"),
            self._deliver,
            lambda server: self._by_server[server].sender,
        )
        self.processes = [
            self.process_type(
                server,
                self._peers_of,
                settings,
                schedule,
                profile,
                name,
                self,
                in_service=server in self._founders,
            )
            for server in servers
        ]
        for process, features in zip(self.processes, profile.features[: profile.servers], strict=False):
            process.features = features
        self._by_server = {process.server: process for process in self.processes}
        self.survival = Survival(self.raft_checks, self.processes, self.history)
        self.client_checks = ClientChecks(
            self.history, lambda: schedule.now_ms, self._live_ms, gentle=profile.gentle
        )
        self.clients = [
            SimulatedClient(
                number,
                schedule,
                profile,
                random.Random(f"{name}/client/{number}"),
                self.processes,
                self.client_checks,
                reader=number == profile.clients,
            )
            for number in range(profile.clients + profile.read_only_mode)
        ]
        self.client_checks.clients = self.clients
        self.adversary = Adversary(
            schedule,
            profile,
            random.Random(f"{name}/adversary"),
            self.processes,
            self.clients,
            self.network,
            self._leader_changes,
            self.survival,
            begin_ms=FAULTS_FROM_MS,
            end_ms=RUN_MS,
        )
        self.operators = Operators(
            schedule,
            profile,
            random.Random(f"{name}/operators"),
            self._by_server,
            self.history,
            self.survival,
            begin_ms=FAULTS_FROM_MS + 300,
        )
        # In every second run, so that the others stay as they were.
        rng = random.Random(f"{name}/natives")
        clients = rng.choice((0, NATIVE_CLIENTS))
        topics_rng = random.Random(f"{name}/topics")
        with_topics = clients > 0 and topics_rng.random() < 0.6
        self.natives = Natives(
            schedule,
            rng,
            self.processes,
            self.history,
            clients=clients,
            begin_ms=1_000,
            with_topics=with_topics,
        )
        self.client_checks.natives = self.natives
        self.topics: TopicGroups | None = None
        if with_topics:
            replication = self._settings.tree.topics_replication
            self.topics = TopicGroups(
                schedule, topics_rng, self.processes, self.history, replication=replication
            )

    def _peers_of(self, process: Process) -> Sequence[ServerId]:
        return self.operators.peers_of(process, self._founders)

    def _live_ms(self) -> int:
        return self.adversary.live_ms()

    def _leader_changes(self) -> int:
        return max(0, len(self.raft_checks.leaders) - 1)

    @property
    def moment(self) -> str:
        return f"{self.schedule.now_ms} ms"

    def say(self, *words: object) -> None:
        if self._trace:
            print(f"{self.schedule.now_ms:6}", *words)

    # -- the run
    def run(self) -> Report:
        """Both phases and the final checks."""
        with scaled():
            return self._run()

    def _run(self) -> Report:
        self.boot_founders()
        self.schedule.run_until(RUN_MS)
        self.heal()
        self.raft_checks.assert_saw_enough()
        self.client_checks.assert_saw_enough()
        return self.report()

    def boot_founders(self) -> None:
        """The first servers start, at rolled moments."""
        boots = random.Random(f"zraft/{self.seed}/boots")
        for process in self.processes[: len(self._founders)]:
            self.schedule.at(boots.randint(0, 200), process.boot)

    def heal(self) -> None:
        """Phase two, from now on: nothing fails any more, and within `HEAL_MS` everything has made progress."""
        schedule = self.schedule
        end_ms = schedule.now_ms + HEAL_MS
        self.say("heal")
        self.operators.active = self.natives.active = False
        if self.topics is not None:
            self.topics.heal()
        self.adversary.heal()
        schedule.run_until(schedule.now_ms + CALM_AFTER_MS)
        for client in self.clients:
            client.calm = True
        tree = self._settings.tree
        quiet_ms = tree.session_timeout_ms_max + 2 * tree.tick_time_ms + EXPIRY_SLACK_MS
        schedule.run_until(end_ms - quiet_ms)
        # Where most of phase one was without a quorum, clients go on until the checks have seen enough.
        longest_ms = end_ms + HEAL_MS
        while self.client_checks.shortfall is not None and end_ms < longest_ms:
            end_ms += TICK_TIME_MS
            schedule.run_until(end_ms - quiet_ms)
        silent_since, silent_since_ms = self.history.position, schedule.now_ms
        schedule.run_until(end_ms - FINALE_MS)
        for client in self.clients:
            client.finale = True
        schedule.run_until(end_ms)
        self._final(silent_since, silent_since_ms)

    def report(self) -> Report:
        checks = self.client_checks
        counts = self.adversary.counts
        return Report(
            seed=self.seed,
            mode=self.profile.mode.value,
            gentle=self.profile.gentle,
            commands=checks.commands,
            replies=checks.replies,
            writes=checks.writes,
            events=checks.events,
            leader_changes=self._leader_changes(),
            faults=sum(counts.values()),
            fault_kinds=tuple(sorted({**counts, **describe(self.operators.counts), **self._ended}.items())),
            snapshots_taken=self.raft_checks.snapshots_taken,
            snapshots_adopted=self.raft_checks.snapshots,
            configurations=len(self.raft_checks.configurations),
            entries=len(self.raft_checks.committed) - 1,
            sessions_expired=checks.expired,
            fingerprint=self._fingerprint,
            simulated_ms=self.schedule.now_ms,
            turns=sum(process.turns for process in self.processes),
            settled=sum(process.settled for process in self.processes),
            operations=(
                *((kind, checks.kinds[kind]) for kind in KINDS),
                *((kind, self.natives.kinds[kind]) for kind in NATIVE_KINDS),
                *((kind, self.topics.kinds[kind] if self.topics else 0) for kind in TOPIC_KINDS),
            ),
        )

    def _final(self, silent_since: int, silent_since_ms: int) -> None:
        """After healing nothing is stuck, nothing differs, nothing of the dead is left.

        `silent_since` is a position, `silent_since_ms` its time: sessions without a command after the one, of which
        nothing was sent after the other, have had the time to expire.
        """
        fail = self.raft_checks.fail
        wanted = self.history.wanted or dict.fromkeys(self._founders, (True, ""))
        serving = [p for p in self.processes if p.server in wanted]
        for process in serving:
            if process.driver is None or process.driver.raft is None:
                driver = process.driver
                why = (
                    (driver.coordination.problem or driver.coordination.waiting)
                    if driver is not None
                    else "it does not run"
                )
                fail("progress", f"S{process.server} is wanted and takes no part long after healing: {why}")
        indexes = {p.server: p.driver.applied_index if p.driver else 0 for p in serving}
        top = max(indexes.values())
        for server, index in indexes.items():
            if index < top - 2:
                fail("progress", f"S{server} has applied {index} of {top} entries long after healing")
        for process in serving:
            assert process.driver is not None
            machine = process.driver.machine
            if process.driver.applied_index == self.history.index and (
                machine.last_zxid != self.history.zxid or machine.position != self.history.position
            ):
                fail(
                    "history",
                    f"S{process.server} is at zxid {machine.last_zxid:x}, position {machine.position}; "
                    f"the history at {self.history.zxid:x}, {self.history.position}",
                )
            self.natives.final(process)
            if self.topics is not None:
                self.topics.final(process, self._disks_of_voters())
            if machine.digest() != machine.full_digest():
                fail("digest", f"S{process.server}: the kept digest is not that of its state")
            settings = {**asdict(self._settings.tree), **self.history.settings}
            if asdict(machine.settings) != settings or machine.feature_level != self.history.feature_level:
                fail(
                    "settings",
                    f"S{process.server} works with {machine.settings} at level {machine.feature_level}, given were "
                    f"{settings} at level {self.history.feature_level}",
                )
        self._final_members()
        living = {client.session for client in self.clients if not client.dead}
        for client in self.clients:
            if not client.dead and not client.finale_done:
                fail("progress", f"C{client.number} could not complete a write and a sync after healing")
        # A session may have been made, or used, a moment ago by a client that gave its connection up.
        left = sorted(
            number
            for number, session in self.history.sessions.items()
            if number not in living
            and max(session.attach_position, session.write_position) <= silent_since
            and self.client_checks.used_ms.get(number, 0) <= silent_since_ms
        )
        if left:
            fail("progress", f"sessions {[f'{s:x}' for s in left]} of nobody never expire")
        overdue = self.history.overdue(2 * REAP_INTERVAL_MS + REAP_SLACK_MS)
        if overdue:
            fail("progress", f"{overdue} should have gone by themselves long ago")
        for path, node in self.history.nodes.items():
            if node.owner and node.owner not in self.history.sessions:
                fail("ended", f"ephemeral {path} outlives session {node.owner:x}")

    def _disks_of_voters(self) -> dict[int, bytes]:
        wanted = self.history.wanted or dict.fromkeys(self._founders, (True, ""))
        shadows = self.raft_checks.shadows
        return {server: shadows[server].instance for server, (votes, _) in wanted.items() if votes}

    def _final_members(self) -> None:
        """The group is what operators want, with the disks that exist; who is not wanted knows it."""
        fail, history = self.raft_checks.fail, self.history
        configuration = self.raft_checks.newest_configuration()
        assert configuration is not None
        if configuration.joint:
            fail("membership", f"the configuration is joint long after healing: {configuration}")
        if not history.wanted:
            return
        roles = {
            server: (self.raft_checks.shadows[server].instance, VOTER if votes else OBSERVER)
            for server, (votes, _) in history.wanted.items()
        }
        if dict(configuration.members) != roles:
            learners = [s for s, (_, role) in configuration.members.items() if role == LEARNER]
            fail(
                "membership",
                f"long after healing the members are {configuration}, wanted {roles}; {learners=}",
            )
        for process in self.processes:
            driver = process.driver
            if driver is None or process.server in history.wanted:
                continue
            if driver.coordination.problem is None and driver.coordination.waiting is None:
                fail("membership", f"S{process.server} runs, is no member, and does not say so")

    def _note(self, data: bytes) -> None:
        self._fingerprint = crc32(data, self._fingerprint ^ self.schedule.now_ms)

    # -- network
    def _deliver(self, to: ServerId, sender: Sender, data: bytes) -> None:
        self._note(data)
        self._by_server[to].datagram(sender, data)

    # -- observing processes
    def booted(self, process: Process, in_flight: Sequence[Record] | None) -> None:
        driver = process.driver
        assert driver is not None
        server, identity, raft_checks = process.server, driver.identity, self.raft_checks
        shadow = raft_checks.shadows.get(server)
        stored = process.stored
        log = stored.log
        snapshot = stored.snapshot.header.meta.index if stored.snapshot is not None else 0
        self.say(
            f"S{server} boots, boot {identity.boot}, term {stored.hard_state.term}, snapshot {snapshot}, "
            f"log {log.first_index} to {log.last_index}"
        )
        if shadow is None or shadow.instance != identity.instance:
            raft_checks.formatted(server, identity.instance)
            self._removed.discard(server)
        raft_checks.recovered(server, stored.hard_state, log, in_flight, stored.snapshot)
        raft_checks.begins(server, log)
        self._applied_by[server] = 0
        self._restored[server] = 0
        if stored.machine is not None:
            self._whole(server, stored.machine, snapshot)

    def _whole(self, server: ServerId, machine: Machine, index: int) -> None:
        """A state was rebuilt from a snapshot: it is what all others had there, in every item."""
        self.raft_checks.snapshots += 1
        digest = machine.digest()
        if digest != machine.full_digest():
            self.raft_checks.fail(
                "digest", f"S{server}: the digest of a snapshot's state is not that of its items"
            )
        self.raft_checks.state(server, index, digest, what="a state rebuilt from a snapshot with")

    def turned(self, process: Process) -> None:
        driver = process.driver
        assert driver is not None
        raft = driver.raft
        if driver.cluster is not None and not process.image.joined:
            try:
                process.image.join(driver.cluster)
            except DiskFullError:
                pass
            except StorageError as error:
                self.ended(process, error)
                return
        if raft is None:
            return
        server = process.server
        restored = driver.snapshots.restored_total
        if restored > self._restored[server]:
            self._restored[server] = restored
            self.say(f"S{server} takes a snapshot over, index {driver.applied_index}")
        leaders = len(self.raft_checks.leaders)
        newest = self.raft_checks.turned((server, driver.identity.instance), raft)
        if len(self.raft_checks.leaders) > leaders:
            self.say(
                f"S{server} leads in term {raft.term}, log {raft.log.last_index}, commit {raft.commit_index}"
            )
        self._demand_committed_configuration(process, newest)
        if driver.coordination.removed is not None and server not in self._removed:
            self._removed.add(server)
            self.say(f"S{server} was removed")
            disk = (server, driver.identity.instance)
            if all(configuration.has(disk) for _, configuration in self.raft_checks.configurations):
                self.raft_checks.fail("membership", f"S{server} says it was removed, and never was")
        applied = driver.applied_index
        if applied > self._applied_by[server] and not driver.applier.halfway:
            self._applied_by[server] = applied
            self._digests += 1
            digest = driver.machine.digest()
            full = self.raft_checks.COMPARES and self._digests % FULL_DIGEST_EVERY == 0
            if full and digest != driver.machine.full_digest():
                self.raft_checks.fail("digest", f"S{server}: the kept digest is not that of its state")
            self.raft_checks.state(server, applied, digest)
            members = [c for index, c in self.raft_checks.configurations if index <= applied]
            if members and set(driver.machine.rows) != members[-1].origins:
                self.raft_checks.fail(
                    "membership",
                    f"S{server} has origin rows of {set(driver.machine.rows)} at entry {applied}, members are "
                    f"{members[-1].origins}",
                )

    def _demand_committed_configuration(self, process: Process, newest: tuple[int, Configuration]) -> None:
        """Whoever knows how far is committed knows the configuration that was committed last by then."""
        driver = process.driver
        assert driver is not None
        assert driver.raft is not None
        commit = min(driver.raft.commit_index, driver.raft.log.last_index)
        for index, committed in reversed(self.raft_checks.configurations):
            if index <= commit:
                if newest[0] <= commit and newest[1] != committed:
                    self.raft_checks.fail(
                        "membership",
                        f"S{process.server} knows that {commit} entries are committed and uses {newest[1]} of entry "
                        f"{newest[0]}; since entry {index} it is {committed}",
                    )
                return

    def _extend(self, entry: Entry) -> None:
        if entry.kind is EntryKind.COMMANDS:
            outcomes = self.history.apply(entry.index, entry.term, entry.payload)
            if self._trace:
                for outcome in outcomes:
                    self.say(
                        f"applied {entry.index} zxid {outcome.zxid:x} session {outcome.session:x} "
                        f"{outcome.command[:3]} -> {outcome.code.name}"
                    )
            self.client_checks.applied(outcomes)
            self._commanded(outcomes)
        elif entry.kind is EntryKind.MEMBERSHIP:
            configuration = Configuration.read(entry.payload)
            self.say(f"members with entry {entry.index}: {configuration}")
            self._changed(entry, configuration)
            self.history.set_members(configuration.origins)

    def _commanded(self, outcomes: Sequence[Outcome]) -> None:
        """What was decided about the cluster itself."""
        for outcome in outcomes:
            if outcome.code is not Code.OK:
                continue
            if outcome.command[0] == txn.MEMBERS:
                self._wishes.append(
                    (outcome.index, frozenset(s for s, (v, _) in self.history.wanted.items() if v))
                )
                self.say(f"wanted with entry {outcome.index}: {self.history.wanted}")
            elif outcome.command[0] == txn.FEATURE:
                configuration = self.raft_checks.newest_configuration()
                assert configuration is not None
                for server in configuration.members:
                    process = self._by_server[server]
                    knows = (
                        process.driver.settings.features if process.driver is not None else process.features
                    )
                    if knows < outcome.command[1]:
                        self.raft_checks.fail(
                            "features", f"level {outcome.command[1]} is in force, S{server} knows {knows}"
                        )

    def _changed(self, entry: Entry, configuration: Configuration) -> None:
        """A configuration was committed: nobody votes who was behind, nobody who works goes before he is replaced."""
        configurations = self.raft_checks.configurations
        before = configurations[-2][1] if len(configurations) > 1 else None
        logs, committed = self.raft_checks.change_began[entry.index, entry.term]
        if before is None:
            return
        electorate = before.electorate
        for server, instance in configuration.voters:
            end = logs.get((server, instance), 0)
            if (server, instance) not in electorate and end < self._committed_before(entry):
                self.raft_checks.fail(
                    "membership",
                    f"S{server} votes from entry {entry.index} on; its log ended at {end} when "
                    f"{committed} entries were committed",
                )
        since = configurations[-2][0]
        wishes = [wish for index, wish in self._wishes if index > since] + [
            wish for index, wish in self._wishes if index <= since
        ][-1:]
        voters = {server for server, _ in configuration.voters}
        if not any(wish <= voters for wish in wishes):
            for server, instance in before.voters:
                kept = configuration.members.get(server)
                shadow = self.raft_checks.shadows[server]
                left = kept is None or kept[1] == LEAVING
                if left and shadow.instance == instance and self._works(server):
                    self.raft_checks.fail(
                        "membership",
                        f"S{server} works and is removed with entry {entry.index}; of those who are to vote instead "
                        f"({[sorted(wish) for wish in wishes]}) some do not yet: {sorted(voters)}",
                    )

    def _committed_before(self, entry: Entry) -> int:
        """What was committed long enough before a change was written for everybody who votes from then on to hold it."""
        _, committed = self.raft_checks.change_began[entry.index, entry.term]
        return committed - CAUGHT_UP_ENTRIES

    def _works(self, server: ServerId) -> bool:
        """Whether it was up and could be heard all the time that a leader may have listened."""
        since = self.schedule.now_ms - QUIET_MS
        process = self._by_server[server]
        return (
            process.up
            and process.booted_at_ms < since
            and process.stopped_until_ms < since
            and self.network.disturbed_at_ms.get(server, 0) < since
        )

    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        self.raft_checks.sent(sender, to, messages)
        self.network.send(sender, to, messages)

    def writing(self, process: Process, records: Sequence[Record]) -> None:
        self.raft_checks.writing(process.server, records)
        if writes_vote(records):
            self.adversary.snipe(process)

    def durable(self, process: Process, records: Sequence[Record]) -> None:
        self.raft_checks.durable(process.server, records)

    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None:
        self.say(f"S{process.server} {'received' if received else 'wrote'} snapshot {info.header.meta.index}")
        self.raft_checks.snapshot(process.server, info, received=received)
        self.adversary.snapshot(process)

    def compacting(self, process: Process, index: int) -> None:
        driver = process.driver
        assert driver is not None
        self.raft_checks.compacting(process.server, index, driver.snapshots.keeper.newest)

    def ended(self, process: Process, why: StorageError) -> None:
        self.say(f"S{process.server} ends: {why}")
        self._ended["ended by its disk"] = self._ended.get("ended by its disk", 0) + 1
        self.adversary.ended(process)

    def accepted(self, process: Process, socket: Socket) -> None:
        self.client_checks.accepted(socket, (process.server, process.sender.instance, process.sender.boot))

    def output(self, process: Process, socket: Socket, data: bytes) -> None:
        # Names of children come in the order of a set of strings, which PYTHONHASHSEED decides and nobody
        # may rely on; everything else of an answer is decided by the seed, so only their order is left out.
        self._note(bytes(sorted(data)))
        session = socket.session
        if not socket.greeted:
            timeout, session, _, _ = Reader(data[4:]).connect_response()
            if timeout <= 0:
                return
            socket.greeted = True
            socket.session = session
        self.client_checks.answered(session)
