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
from collections.abc import Callable, Sequence
from typing import Any, Final

from attrs import define

from tests.simulation.broken import BrokenPromiseError
from tests.simulation.hosting_server import WAL_SETTINGS, HostingServer
from tests.simulation.topic_clients import Remembering
from zraft.config.sections import SnapshotConfig
from zraft.groups.settings import GroupSettings
from zraft.raft.messages import PreVote, PreVoteReply, RequestVote, RequestVoteReply
from zraft.raft.role import Role
from zraft.server.clients.errands import Errand
from zraft.server.engine.driver import ERRAND_BYTES, Driver
from zraft.server.engine.settings import DriverSettings
from zraft.transport import codec
from zraft.transport.messages import PeerMessage, Sender
from zraft.tree.settings import Settings
from zraft_core.ids import COORDINATION_GROUP, GroupId, ProducerId, ServerId
from zraft_core.topics.codec import decode_message, encode_registry
from zraft_core.topics.producer import Ended, Ending, ProducerCore
from zraft_core.topics.registry_commands import CreateTopic, RegisterProducer, RegistryCommand
from zraft_core.topics.stamps import MessageId
from zraft_core.wire.client import ZkClientCodec
from zraft_core.znodes.txn import CREATE, SET_DATA, TOPICS

STEP_MS: Final = 5
SERVERS: Final = (ServerId(1), ServerId(2), ServerId(3))
PARTITIONS: Final = 3
AGAIN_MS: Final = 400
"""How often the producer sends everything that is not decided again."""
FRUITLESS_FETCHES_MAX: Final = 30
"""A replica that says so often that there is nothing more has nothing more."""
SESSION_MS: Final = 1_000_000_000
HEAL_MS_MAX: Final = 120_000
FOUNDING_MS: Final = 3_000
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
LOG_BYTES_MAX: Final = GROUPS.wal_bytes_max + SEGMENTS_AROUND * WAL_SETTINGS.segment_bytes_max
"""What a server's log may hold; images are small here."""
SETTINGS: Final = DriverSettings(
    groups=GROUPS,
    snapshots=SnapshotConfig(log_bytes_min=8_000, retain_bytes=1_000),
    tree=Settings(session_timeout_ms_min=SESSION_MS, session_timeout_ms_max=SESSION_MS),
)

Delivered = list[tuple[tuple[int, int, int, int], MessageId, bytes]]


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
    """It stands for every byte that servers sent to each other, and when."""


class HostingSimulation:
    """One run."""

    def __init__(self, seed: int, *, messages: int = 120) -> None:
        self._rng = random.Random(f"hosting/{seed}")
        self._messages = messages
        self.now_ms = 0
        self.servers = {server: HostingServer(server, SERVERS, SETTINGS, f"{seed}") for server in SERVERS}
        self._flying: list[tuple[int, ServerId, Sender, list[PeerMessage]]] = []
        self._cut: set[tuple[ServerId, ServerId]] = set()
        self._calm = True
        self._clients: dict[tuple[ServerId, int], Remembering] = {}
        self.statistics = HostingStatistics()
        self._sent = hashlib.blake2b(digest_size=8)

    @property
    def fingerprint(self) -> str:
        """Of every byte that servers sent to each other so far, and of its time."""
        return self._sent.hexdigest()

    @property
    def moment(self) -> str:
        return f"{self.now_ms} ms"

    def run(self) -> HostingStatistics:
        """Found, produce among faults, heal, compare.

        Raises:
            BrokenPromiseError: says what should have been.
        """
        for server in self.servers.values():
            server.boot(self.now_ms)
        producer = self._prepare()
        ended = self._produce(producer)
        self._calm = True
        self._cut.clear()
        self._until(lambda: self._finish(producer, ended), "every message is decided")
        self._compare(ended)
        self.statistics.decided = len(ended)
        self._write_topics_alone(producer, ended)
        self._write_znodes_alone()
        for server in self.servers.values():
            server._count()
        every = self.servers.values()
        statistics = self.statistics
        statistics.crashes = sum(one.crashes_total for one in every)
        statistics.snapshots = sum(one.snapshots_total for one in every)
        statistics.installed = sum(one.installed_total for one in every)
        statistics.refused = sum(one.refused_total for one in every)
        statistics.fingerprint = self.fingerprint
        return statistics

    def found(self) -> bool:
        """Found a cluster among faults, and see that it has a leader; was it founded before they ended?

        Raises:
            BrokenPromiseError: says what should have been.
        """
        self._calm = False
        while self.now_ms < FOUNDING_MS:
            self._fault()
            self._step()
        was_founded = self._leader() is not None
        self._calm = True
        self._cut.clear()
        self._until(self._serves, "a cluster is founded and led")
        return was_founded

    # -- time and network

    def _step(self) -> None:
        self.now_ms += STEP_MS
        due = [one for one in self._flying if one[0] <= self.now_ms]
        self._flying = [one for one in self._flying if one[0] > self.now_ms]
        for _, to, sender, messages in due:
            if self.servers[to].up:
                self.servers[to].hear(sender, messages)
        for server in self.servers.values():
            if not server.up and (self._calm or self._rng.random() < 0.01):
                server.boot(self.now_ms)
            server.step(self.now_ms, self._send, calm=self._calm)

    def _send(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        self._check_votes(sender, messages)
        packets = [codec.encode(message) for message in messages]
        self._sent.update(b"%d %d %d " % (self.now_ms, sender.server, to))
        self._sent.update(b"".join(packets))
        # As they come out of the wire.
        arrived = [codec.decode(packet) for packet in packets]
        if self._calm:
            self._flying.append((self.now_ms + 1, to, sender, arrived))
            return
        rng = self._rng
        if (sender.server, to) in self._cut or rng.random() < 0.03:
            return
        for _ in range(2 if rng.random() < 0.02 else 1):
            self._flying.append((self.now_ms + rng.randint(1, 30), to, sender, arrived))

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
            rosters = {server.roster for server in self.servers.values()} if votes else set()
            if votes and (len(rosters) > 1 or None in rosters):
                raise BrokenPromiseError(
                    "D-1", f"server {sender.server} said {message} while the founders' disks say {rosters}"
                )

    def _until(self, holds: Callable[[], object], what: str) -> None:
        give_up_at = self.now_ms + HEAL_MS_MAX
        while not holds():
            if self.now_ms >= give_up_at:
                raise BrokenPromiseError("progress", f"it is not so after {HEAL_MS_MAX} ms of calm: {what}")
            self._step()

    # -- what is asked

    def _leader(self) -> HostingServer | None:
        for server in self.servers.values():
            if server.driver is not None and server.driver.leadership is not None:
                return server
        return None

    def _leads(self, group: GroupId) -> HostingServer | None:
        for server in self.servers.values():
            groups = None if server.driver is None else server.driver.groups
            replica = None if groups is None else groups.host.groups.get(group)
            if replica is not None and replica.raft.role is Role.LEADER:
                return server
        return None

    def _command(self, command: RegistryCommand, session: int = 0) -> Any:
        results: list[Any] = []
        self._until(self._leader, "somebody leads group 0")
        leader = self._leader()
        assert leader is not None
        assert leader.driver is not None
        leader.driver.origin.add(
            Errand(results.append), session, (), [(TOPICS, encode_registry(command))], ERRAND_BYTES
        )
        self._until(lambda: results, "group 0 answers")
        return results[0]

    def _prepare(self) -> ProducerCore:
        """A topic, and a producer that lives as long as its session, which is for ever."""
        self._until(self._serves, "the cluster has topics")
        leader = self._leader()
        assert leader is not None
        assert leader.driver is not None
        wire, opened = ZkClientCodec(), list[object]()
        connection = leader.driver.connect("10.0.0.1:1", ())
        assert connection is not None
        connection.handle = lambda data: opened.extend(wire.receive(data))
        connection.data_received(wire.connect(timeout_ms=SESSION_MS))
        self._until(lambda: opened, "a session")
        registry = leader.driver.machine.registry
        self._command(CreateTopic("orders", PARTITIONS))
        self._until(lambda: len(self._groups()) == PARTITIONS, "all partitions")
        (session,) = leader.driver.machine.sessions
        created = self._command(RegisterProducer(session), session).created
        self._until(lambda: all(self._leads(group) for group in self._groups()), "all are led")
        return ProducerCore(ProducerId(created), registry.table(), window=64)

    def _serves(self) -> bool:
        leader = self._leader()
        return leader is not None and leader.driver is not None and leader.driver.topics is not None

    def _groups(self) -> tuple[GroupId, ...]:
        leader = self._leader()
        if leader is None or leader.driver is None:
            return ()
        registry = leader.driver.machine.registry
        return tuple(group for topic in registry.topics.values() for group in topic.partitions)

    # -- producing among faults

    def _produce(self, producer: ProducerCore) -> dict[MessageId, Ended]:
        rng, groups = self._rng, self._groups()
        self._payloads: dict[MessageId, tuple[tuple[GroupId, ...], bytes]] = {}
        ended: dict[MessageId, Ended] = {}
        self._again_at = 0
        self._calm = False
        while len(self._payloads) < self._messages:
            if producer.has_room and rng.random() < 0.3:
                destinations = rng.sample(groups, rng.choice((1, 1, 2, 3)))
                payload = rng.randbytes(rng.choice((10, 100, 600)))
                message = producer.multicast(destinations, payload)
                self._payloads[message.mid] = (message.destinations, payload)
                self._request(producer, [message.mid.seq])
            self._fault()
            self._step()
            self._hear(producer, ended)
            if self.now_ms >= self._again_at:
                self._again_at = self.now_ms + AGAIN_MS
                self._request(producer, producer.undecided())
        return ended

    # -- how long the log is

    def _write_topics_alone(self, producer: ProducerCore, ended: dict[MessageId, Ended]) -> None:
        """The coordination group is silent."""
        before = self._applied_index()
        rng, groups = self._rng, self._groups()

        def write() -> None:
            # One at a time: an entry is not cut in two, and may be as large as a segment.
            if producer.has_room:
                payload = rng.randbytes(FILLER_BYTES)
                message = producer.multicast(rng.sample(groups, 2), payload)
                self._payloads[message.mid] = (message.destinations, payload)
                self._request(producer, [message.mid.seq])
            self._finish(producer, ended)

        self._write_long("topics", write)
        self._until(lambda: self._finish(producer, ended), "every message of the silence is decided")
        said = self._applied_index() - before
        if said > SILENT_ENTRIES_MAX:
            raise BrokenPromiseError("silence", f"the coordination group wrote {said} entries meanwhile")

    def _write_znodes_alone(self) -> None:
        """All topics are silent."""
        done: list[object] = []
        driver = self._leading()
        driver.submit((CREATE, "/filler", b"", None, 0, None), done.append)
        asked = 1

        def write() -> None:
            nonlocal asked
            if len(done) == asked:
                asked += 1
                payload = self._rng.randbytes(FILLER_BYTES)
                self._leading().submit((SET_DATA, "/filler", payload, -1), done.append)

        self._write_long("znodes", write)

    def _write_long(self, who: str, write: Callable[[], None]) -> None:
        """Write several times what a server's log may hold; then look at the logs."""
        every = self.servers.values()
        before = {server.server: server.written_bytes for server in every}

        def written() -> int:
            return min(server.written_bytes - before[server.server] for server in every)

        def write_on() -> bool:
            write()
            return written() >= LONG_TIMES * LOG_BYTES_MAX

        self._until(write_on, f"{who} to write much")
        settled_at = self.now_ms + SETTLE_MS
        self._until(lambda: self.now_ms >= settled_at, "some time to pass")
        for server in every:
            if server.log_length > LOG_BYTES_MAX:
                raise BrokenPromiseError(
                    "D-13",
                    f"server {server.server}: only {who} wrote, and the log has {server.log_length} bytes, of which at most "
                    f"{LOG_BYTES_MAX} are needed",
                )

    def _leading(self) -> Driver:
        self._until(self._leader, "somebody leads group 0")
        leader = self._leader()
        assert leader is not None
        assert leader.driver is not None
        return leader.driver

    def _applied_index(self) -> int:
        return self._leading().applied_index

    def _finish(self, producer: ProducerCore, ended: dict[MessageId, Ended]) -> bool:
        self._hear(producer, ended)
        if self.now_ms >= self._again_at:
            self._again_at = self.now_ms + AGAIN_MS
            self._request(producer, producer.undecided())
        return len(ended) == len(self._payloads)

    def _request(self, producer: ProducerCore, seqs: Sequence[int]) -> None:
        for seq in seqs:
            for group, request in producer.requests(seq):
                server = self._leads(group)
                if server is None or server.partitions is None:
                    continue
                client = self._clients.setdefault((server.server, server.boots), Remembering())
                server.partitions.topics.produce(client, 1, group, request)

    def _hear(self, producer: ProducerCore, ended: dict[MessageId, Ended]) -> None:
        for client in self._clients.values():
            replies, client.replies = client.replies, []
            for reply in replies:
                for one in producer.on_reply(reply):
                    ended[one.mid] = one

    def _fault(self) -> None:
        rng = self._rng
        roll = rng.random()
        server = rng.choice(list(self.servers.values()))
        if roll < 0.004 and server.up:
            server.crash(power=rng.random() < 0.75)
        elif roll < 0.010 and server.up:
            server.fail_soon()
        elif roll < 0.013:
            one, other = rng.sample(SERVERS, 2)
            self._cut.add((one, other))
        elif roll < 0.03:
            self._cut.clear()
        elif roll < 0.032:
            # The whole site.
            for one_of_all in self.servers.values():
                if one_of_all.up:
                    one_of_all.crash()

    # -- what must be so

    def _compare(self, ended: dict[MessageId, Ended]) -> None:
        """On every replica, what the producer was told: once, whole, in one order."""
        self._until(self._leader, "somebody knows which groups there are")
        wrong = [one for one in ended.values() if one.ending not in (Ending.DELIVERED, Ending.DECIDED)]
        if wrong:
            raise BrokenPromiseError("delivery", f"{wrong[0].mid} ended as {wrong[0].ending}")
        place: dict[MessageId, tuple[int, int, int, int]] = {}
        for group in self._groups():
            expected = {mid for mid, (groups, _) in self._payloads.items() if group in groups}
            logs = [self._read_all(server, group, len(expected)) for server in self.servers.values()]
            for number, log in zip(self.servers, logs, strict=True):
                if log != logs[0]:
                    raise BrokenPromiseError("equal replicas", f"group {group} differs on server {number}")
            self._judge(group, logs[0], expected, place)
            self.statistics.deliveries += len(logs[0])
        for server in self.servers.values():
            if server.driver is not None and server.driver.groups is not None:
                self.statistics.compared += server.driver.groups.digests.compared_total

    def _judge(
        self,
        group: GroupId,
        log: Delivered,
        expected: set[MessageId],
        place: dict[MessageId, tuple[int, int, int, int]],
    ) -> None:
        stamps = [stamp for stamp, _, _ in log]
        if stamps != sorted(set(stamps)):
            raise BrokenPromiseError("order", f"stamps of group {group} do not ascend")
        if sorted(mid for _, mid, _ in log) != sorted(expected):
            raise BrokenPromiseError(
                "exactly once", f"group {group} delivered other messages than it was sent"
            )
        for stamp, mid, payload in log:
            if payload != self._payloads[mid][1]:
                raise BrokenPromiseError("payloads", f"{mid} in group {group} has another one")
            if place.setdefault(mid, stamp) != stamp:
                raise BrokenPromiseError("one order", f"{mid} has another stamp in group {group}")

    def _read_all(self, server: HostingServer, group: GroupId, count: int) -> Delivered:
        found: Delivered = []
        offset = fruitless = 0
        # A replica that lost deliveries never comes to as many: what it has is judged then.
        while len(found) < count and fruitless < FRUITLESS_FETCHES_MAX:
            fruitless += 1
            client = self._fetch(server, group, offset)
            for fetched in client.fetched:
                offset = fetched.next
                for _, stamp, packed in fetched.deliveries:
                    message = decode_message(packed)
                    found.append(((*stamp,), message.mid, message.payload))
                    fruitless = 0
        return found

    def _fetch(self, server: HostingServer, group: GroupId, offset: int) -> Remembering:
        """Answered, or of a process that died before it could."""
        client = Remembering()
        self._until(lambda: server.partitions is not None and group in server.partitions.hosted, "a replica")
        assert server.partitions is not None
        boots = server.boots
        server.partitions.topics.fetch(client, 1, group, offset, 4_000, 1_000)
        self._until(
            lambda: client.fetched or client.refused or server.boots > boots or not server.up,
            f"server {server.server} answers a fetch",
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
