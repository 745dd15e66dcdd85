"""Three whole servers with partitions of topics, whose power fails at any moment: what was delivered is there, once.

A producer multicasts to random partitions and sends everything again until it is decided, while servers lose their power
between or within any two steps of their disks and the network loses, repeats and cuts. After healing, what the producer was
told must be what every replica's deliveries say, on the disk and in one order. Then only topics write, several times what
the log may hold, then only the coordination group: every server's log must stay short. One integer decides all of it.

A cluster is founded in calm there. `found` founds one among the same faults, and nothing else. In both nobody may vote
before the disks of all founders name the same of them (D-1).
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import define, evolve

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.hosting_process import HostingDisk, HostingProcess
from tests.simulation.multicast import checks
from tests.simulation.network import Network
from tests.simulation.partitions.histories import Recorded, history_of
from tests.simulation.partitions.programs import Producing
from tests.simulation.process import Process
from tests.simulation.profile import roll
from tests.simulation.schedule import Schedule
from tests.simulation.server_faults import OF_SERVERS, ServerFaults
from tests.simulation.sockets import Socket
from tests.simulation.topic_clients import Remembering
from zraft.config.sections import SnapshotConfig
from zraft.groups.digests import DivergedError
from zraft.groups.roster import Roster
from zraft.groups.settings import GroupSettings
from zraft.raft.messages import PreVote, PreVoteReply, RequestVote, RequestVoteReply
from zraft.server.engine.settings import DriverSettings
from zraft.storage.records import EntryRecord, Record, RosterRecord
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.topics.service import TopicService
from zraft.transport.messages import PeerMessage, Sender
from zraft.tree.machine import Machine
from zraft.tree.settings import Settings
from zraft_core.errors import StorageError
from zraft_core.ids import COORDINATION_GROUP, GroupId, ProducerId, ServerId
from zraft_core.topics.codec import decode_message, encode_registry
from zraft_core.topics.message import Delivery
from zraft_core.topics.producer import Ending, ProducerCore
from zraft_core.topics.registry_commands import CreateTopic, RegisterProducer, RegistryCommand
from zraft_core.topics.stamps import Stamp
from zraft_core.znodes.txn import CREATE, CREATE_SESSION, SET_DATA, TOPICS

STEP_MS: Final = 5
SERVERS: Final = (ServerId(1), ServerId(2), ServerId(3))
PARTITIONS: Final = 3
FRUITLESS_FETCHES_MAX: Final = 30
"""A replica that says so often that there is nothing more has nothing more."""
SESSION_MS: Final = 1_000_000_000
HEAL_MS_MAX: Final = 120_000
NEVER_MS: Final = 1 << 60
STARTED_WITHIN_MS: Final = 1_000
"""When a cluster is founded among faults."""
FOUNDING_MS: Final = 2_500
"""Time among faults in which servers start and lose their power; some clusters are founded in it, and others after it."""
FILLER_BYTES: Final = 2_000
LONG_TIMES: Final = 4
"""How many times what a log may hold is written, to see that it is cut."""
SILENT_ENTRIES_MAX: Final = 20
"""What a cut log and a producer's numbers need."""
SETTLE_MS: Final = 3_000
"""The log's beginning is reconsidered once a second."""
GROUPS: Final = GroupSettings(
    snapshot_bytes=3_000,
    keep_log_bytes_max=2_000,
    wal_bytes_max=24_000,
    log_bytes_max=4_000,
    digest_interval=8,
)
SEGMENTS_AROUND: Final = 2
"""A segment goes when nobody needs anything of it: so much stays of the one that holds the oldest need, and of the last."""
LOG_BYTES_MAX: Final = GROUPS.wal_bytes_max + SEGMENTS_AROUND * HostingDisk.SETTINGS.segment_bytes_max
"""What a server's log may hold; images are small here."""
SETTINGS: Final = DriverSettings(
    groups=GROUPS,
    snapshots=SnapshotConfig(log_bytes_min=8_000, retain_bytes=1_000),
    tree=Settings(session_timeout_ms_min=SESSION_MS, session_timeout_ms_max=SESSION_MS),
)

WINDOW: Final = 64
CHECKS: Final = (
    *(checks.check_groups, checks.check_agreement, checks.check_order, checks.check_real_time),
    *(checks.check_producers, checks.check_after),
)
"""All that can be judged by what consumers read."""


@define
class HostingStatistics:
    """What a run contained; a test asserts that it was enough."""

    decided: int = 0
    deliveries: int = 0
    crashes: int = 0
    snapshots: int = 0
    installed: int = 0
    refused: int = 0
    compared: int = 0
    fingerprint: str = ""
    """It stands for every byte that servers heard from each other, and when."""


class HostingFaults(ServerFaults[HostingProcess]):
    """Strikes servers and their disks until everything heals."""

    KINDS = (*OF_SERVERS, *("disk",) * 6)

    def _strike_with(self, kind: str, process: HostingProcess) -> None:
        process.fail_soon()


class HostingSimulation:
    """One run. Without `batches` no message is one, as for servers of a release that does not know them."""

    def __init__(self, seed: int, *, messages: int = 120, batches: bool = True) -> None:
        name = f"hosting/{seed}"
        self._rng = random.Random(name)
        self._messages = messages
        self._batches = batches
        self.profile = evolve(roll(seed), gentle=False)
        self.schedule = Schedule()
        self.network = Network(
            self.schedule,
            self.profile,
            random.Random(f"{name}/network"),
            self._deliver,
            lambda server: self.processes[server].sender,
        )
        self.processes = {server: self._process(server, name) for server in SERVERS}
        rng = random.Random(f"{name}/faults")
        processes = list(self.processes.values())
        self.faults = HostingFaults(self.schedule, self.network, processes, rng, end_ms=NEVER_MS)
        self._rosters: dict[ServerId, Roster] = {}
        """Who founds the cluster, as the disk of each server says; it never loses that (D-1)."""
        self._written_bytes = dict.fromkeys(SERVERS, 0)
        """Payload of all entries that each server's log ever took."""
        self.statistics = HostingStatistics()
        self._heard = hashlib.blake2b(digest_size=8)

    def _process(self, server: ServerId, name: str) -> HostingProcess:
        process = HostingProcess(
            *(server, lambda process: SERVERS, SETTINGS, self.schedule, self.profile, name, self),
            in_service=True,
        )
        process.on_death = lambda: self.faults.start_again(process)
        return process

    @property
    def fingerprint(self) -> str:
        """Of every byte that servers heard from each other so far, and of its time."""
        return self._heard.hexdigest()

    @property
    def now_ms(self) -> int:
        return self.schedule.now_ms

    @property
    def moment(self) -> str:
        return f"{self.now_ms} ms"

    def run(self) -> HostingStatistics:
        """Found, produce among faults, heal, compare.

        Raises:
            BrokenPromiseError: says what should have been.
        """
        self.faults.heal()
        producing = Producing(
            self._prepare(), self._rng, self._service_of, lambda: self.now_ms, batches=self._batches
        )
        self._produce(producing)
        self.faults.heal()
        self._until(lambda: self._finish(producing), "every message is decided")
        self._compare(producing)
        self.statistics.decided = len(producing.ended)
        self._write_long(producing)
        return self._count()

    def _write_long(self, producing: Producing) -> None:
        """Write much to some groups while the others are silent."""
        self._write_topics_alone(producing)
        self._write_znodes_alone()

    def _count(self) -> HostingStatistics:
        seen = sum((process.seen() for process in self.processes.values()), Counter[str]())
        statistics = self.statistics
        statistics.crashes, statistics.snapshots = seen["crashes"], seen["snapshots"]
        statistics.installed, statistics.refused = seen["installed"], seen["refused"]
        statistics.fingerprint = self.fingerprint
        return statistics

    def found(self) -> bool:
        """Found a cluster among faults, and see that it has a leader; was it founded before they ended?

        Raises:
            BrokenPromiseError: says what should have been.
        """
        self.faults.begin(0)
        for process in self.processes.values():
            self.schedule.after(self._rng.randint(0, STARTED_WITHIN_MS), process.boot)
        self._run_until(FOUNDING_MS)
        was_founded = self._leader() is not None
        self.faults.heal()
        self._until(self._serves, "a cluster is founded and led")
        return was_founded

    # -- time and network

    def _step(self) -> None:
        self._run_until(self.now_ms + STEP_MS)

    def _run_until(self, end_ms: int) -> None:
        try:
            self.schedule.run_until(end_ms)
        except (StorageError, DivergedError) as error:
            raise BrokenPromiseError("a sound disk", str(error)) from error

    def _deliver(self, to: ServerId, sender: Sender, data: bytes) -> None:
        self._heard.update(b"%d %d %d " % (self.now_ms, sender.server, to))
        self._heard.update(data)
        self.processes[to].datagram(sender, data)

    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        self._check_votes(sender, messages)
        self.network.send(sender, to, messages)

    def _check_votes(self, sender: Sender, messages: Sequence[PeerMessage]) -> None:
        """Before the disks of all founders name the same founders, a lost disk could found another cluster (D-1)."""
        for message in messages:
            match message:
                case PreVote(group=group) | RequestVote(group=group):
                    votes = group == COORDINATION_GROUP
                case (
                    PreVoteReply(group=group, granted=granted)
                    | RequestVoteReply(group=group, granted=granted)
                ):
                    votes = granted and group == COORDINATION_GROUP
                case _:
                    votes = False
            rosters = {self._rosters.get(server) for server in SERVERS} if votes else set()
            if votes and (len(rosters) > 1 or None in rosters):
                raise BrokenPromiseError(
                    "D-1", f"server {sender.server} said {message} while the founders' disks say {rosters}"
                )

    # -- what processes report

    def booted(self, process: Process, in_flight: Sequence[Record] | None) -> None:
        if process.stored.roster is not None:
            self._rosters[process.server] = process.stored.roster

    def turned(self, process: Process) -> None:
        cluster = None if process.driver is None else process.driver.cluster
        if cluster is not None and not process.image.joined:
            process.image.join(cluster)

    def durable(self, process: Process, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, EntryRecord):
                self._written_bytes[process.server] += len(record.entry.payload)
            elif isinstance(record, RosterRecord) and record.group == COORDINATION_GROUP:
                self._rosters[process.server] = record.roster

    def ended(self, process: Process, why: StorageError) -> None:
        raise why

    # What else a process tells is nothing to these checks.

    def writing(self, process: Process, records: Sequence[Record]) -> None: ...
    def snapshot(self, process: Process, info: SnapshotInfo, *, received: bool) -> None: ...
    def compacting(self, process: Process, index: int) -> None: ...
    def accepted(self, process: Process, socket: Socket) -> None: ...
    def output(self, process: Process, socket: Socket, data: bytes) -> None: ...

    def _until(self, holds: Callable[[], object], what: str) -> None:
        give_up_at = self.now_ms + HEAL_MS_MAX
        while not holds():
            if self.now_ms >= give_up_at:
                raise BrokenPromiseError("progress", f"it is not so after {HEAL_MS_MAX} ms of calm: {what}")
            self._step()

    # -- what is asked

    def _leader(self) -> HostingProcess | None:
        """Of the coordination group: of all who believe to be it, the newest."""
        led = [
            (process.driver.raft.term, server, process)
            for server, process in self.processes.items()
            if process.driver is not None
            and process.driver.raft is not None
            and process.driver.leadership is not None
        ]
        return max(led)[-1] if led else None

    def _leads(self, group: GroupId) -> HostingProcess | None:
        """The same of any other group."""
        term, server = max((process.term_led(group), server) for server, process in self.processes.items())
        return self.processes[server] if term else None

    def _service_of(self, group: GroupId) -> TopicService | None:
        process = self._leads(group)
        if process is None:
            return None
        process.wake()
        return process.topics

    def _leading(self) -> HostingProcess:
        self._until(self._leader, "somebody leads group 0")
        leader = self._leader()
        assert leader is not None
        return leader

    def _command(self, command: RegistryCommand, session: int = 0) -> Any:
        results: list[Any] = []
        self._leading().log((TOPICS, encode_registry(command)), session, results.append)
        self._until(lambda: results, "group 0 answers")
        return results[0]

    def _prepare(self) -> ProducerCore:
        """A topic, and a producer that lives as long as its session, which is for ever."""
        self._until(self._serves, "the cluster has topics")
        self._leading().log((CREATE_SESSION, SESSION_MS, bytes(16)), 0)
        self._until(lambda: self._machine().sessions, "a session")
        self._command(CreateTopic("orders", PARTITIONS))
        self._until(lambda: len(self._groups()) == PARTITIONS, "all partitions")
        (session,) = self._machine().sessions
        created = self._command(RegisterProducer(session), session).created
        self._until(lambda: all(self._leads(group) for group in self._groups()), "all are led")
        return ProducerCore(ProducerId(created), self._machine().registry.table(), window=WINDOW)

    def _machine(self) -> Machine:
        """The coordination group's state at its leader."""
        driver = self._leading().driver
        assert driver is not None
        return driver.machine

    def _serves(self) -> bool:
        leader = self._leader()
        return leader is not None and leader.driver is not None and leader.driver.topics is not None

    def _groups(self) -> tuple[GroupId, ...]:
        registry = self._machine().registry
        return tuple(group for topic in registry.topics.values() for group in topic.partitions)

    # -- producing among faults

    def _produce(self, producing: Producing) -> None:
        rng, groups = self._rng, self._groups()
        self.faults.begin(self.now_ms)
        while len(producing.messages) < self._messages:
            if rng.random() < 0.3:
                payload = rng.randbytes(rng.choice((10, 100, 600)))
                producing.send(rng.sample(groups, rng.choice((1, 1, 2, 3))), payload)
            self._finish(producing)
            self._step()

    def _finish(self, producing: Producing) -> bool:
        """Say again what is undecided; is nothing?"""
        producing.work(producing.producer.table)
        return producing.is_done

    # -- how long the log is

    def _write_topics_alone(self, producing: Producing) -> None:
        """The coordination group is silent."""
        before = self._applied_index()
        rng, groups = self._rng, self._groups()

        def write() -> None:
            # One at a time: an entry is not cut in two, and may be as large as a segment.
            producing.send(rng.sample(groups, 2), rng.randbytes(FILLER_BYTES))
            self._finish(producing)

        self._write_much("topics", write)
        self._until(lambda: self._finish(producing), "every message of the silence is decided")
        said = self._applied_index() - before
        if said > SILENT_ENTRIES_MAX:
            raise BrokenPromiseError("silence", f"the coordination group wrote {said} entries meanwhile")

    def _write_znodes_alone(self) -> None:
        """All topics are silent."""
        done: list[object] = []
        self._leading().log((CREATE, "/filler", b"", None, 0, None), 0, done.append)
        asked = 1

        def write() -> None:
            nonlocal asked
            if len(done) == asked:
                asked += 1
                payload = self._rng.randbytes(FILLER_BYTES)
                self._leading().log((SET_DATA, "/filler", payload, -1), 0, done.append)

        self._write_much("znodes", write)

    def _write_much(self, who: str, write: Callable[[], None]) -> None:
        """Write several times what a server's log may hold; then look at the logs."""
        before = dict(self._written_bytes)

        def write_on() -> bool:
            write()
            written = min(now - before[server] for server, now in self._written_bytes.items())
            return written >= LONG_TIMES * LOG_BYTES_MAX

        self._until(write_on, f"{who} to write much")
        self._run_until(self.now_ms + SETTLE_MS)
        for server, process in self.processes.items():
            length = process.image.log_length
            if length > LOG_BYTES_MAX:
                raise BrokenPromiseError(
                    "D-13",
                    f"server {server}: only {who} wrote, and the log has {length} bytes, of which at most "
                    f"{LOG_BYTES_MAX} are needed",
                )

    def _applied_index(self) -> int:
        driver = self._leading().driver
        assert driver is not None
        return driver.applied_index

    # -- what must be so

    def _compare(self, producing: Producing) -> None:
        """On every replica, what the producer was told: once, whole, in one order."""
        for one in producing.ended.values():
            if one.ending not in (Ending.DELIVERED, Ending.DECIDED):
                raise BrokenPromiseError("delivery", f"{one.mid} ended as {one.ending}")
        groups = {}
        for group in self._groups():
            count = sum(group in message.destinations for message in producing.messages.values())
            logs = [self._read_all(process, group, count) for process in self.processes.values()]
            for number, log in zip(self.processes, logs, strict=True):
                if log != logs[0]:
                    raise BrokenPromiseError("equal replicas", f"group {group} differs on server {number}")
            partition = self.processes[SERVERS[0]].partitions.hosted[group].machine.partition
            assert partition is not None
            groups[group] = Recorded(partition, partition, logs[0], [], [], [])
            self.statistics.deliveries += len(logs[0])
        history = history_of(groups, [producing], [], window=WINDOW)
        for check in CHECKS:
            check(history)
        self.statistics.compared = sum(process.compared for process in self.processes.values())

    def _read_all(self, process: HostingProcess, group: GroupId, count: int) -> list[Delivery]:
        found: list[Delivery] = []
        offset = fruitless = 0
        # A replica that lost deliveries never comes to as many: what it has is judged then.
        while len(found) < count and fruitless < FRUITLESS_FETCHES_MAX:
            fruitless += 1
            client = self._fetch(process, group, offset)
            for fetched in client.fetched:
                offset = fetched.next
                for at, stamp, packed in fetched.deliveries:
                    found.append(Delivery(at, Stamp(*stamp), decode_message(packed), 0))
                    fruitless = 0
        return found

    def _fetch(self, process: HostingProcess, group: GroupId, offset: int) -> Remembering:
        """Answered, or of a process that died before it could."""
        client = Remembering()
        self._until(lambda: process.hosts(group), "a replica")
        boots = process.boots
        process.topics.fetch(client, 1, group, offset, 4_000, 1_000)
        process.wake()
        self._until(
            lambda: client.fetched or client.refused or process.boots > boots or not process.up,
            f"server {process.server} answers a fetch",
        )
        return client


class HostingRun:
    """What one seed does: a cluster is founded among faults, and another one works among them."""

    def __init__(self, seed: int) -> None:
        self._phases = [HostingSimulation(seed), HostingSimulation(seed)]

    @property
    def moment(self) -> str:
        return self._phases[0].moment

    def run(self) -> HostingStatistics:
        """Do both.

        Raises:
            BrokenPromiseError: says what should have been.
        """
        self._phases[0].found()
        del self._phases[0]
        return self._phases[0].run()
