"""Owns one run: assembles servers, clients, network, adversary and checkers from a seed, and drives them.

Phase one: faults. Phase two: everything heals and must make progress: every server applies the same
entries, every living client completes a write and a sync, the sessions of dead clients expire.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from attrs import frozen

from zraft.ids import ServerId
from zraft.raft.messages import Entry, EntryKind
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.server.authentication import AuthSettings
from zraft.server.clients import ClientSettings
from zraft.server.driver_types import DriverSettings
from zraft.server.origin import OriginSettings
from zraft.storage.records import Record, RosterRecord
from zraft.testing.broken import BrokenPromiseError
from zraft.testing.client_checks import KINDS, ClientChecks
from zraft.testing.clients import SimulatedClient
from zraft.testing.faults import Adversary, writes_vote
from zraft.testing.jute import Reader
from zraft.testing.model import History
from zraft.testing.network import Network
from zraft.testing.process import Process
from zraft.testing.profile import (
    CONTAINER_NEVER_USED_MS,
    ELECTION_TIMEOUT_MS,
    HEAL_MS,
    HEARTBEAT_MS,
    REAP_INTERVAL_MS,
    RUN_MS,
    SESSION_TIMEOUTS_MS,
    TICK_TIME_MS,
    Mode,
    roll,
)
from zraft.testing.raft_checks import RaftChecks
from zraft.testing.rights import SUPER_CREDENTIALS, digest_of
from zraft.testing.schedule import Schedule
from zraft.testing.sockets import Socket
from zraft.transport import codec
from zraft.transport.messages import PeerMessage, Sender
from zraft.tree.settings import Settings

EXPIRY_SLACK_MS: Final = 400
"""How much later than its timeout and two ticks a silent session may end: a scan, a quorum round, a commit."""

FINALE_MS: Final = RUN_MS + HEAL_MS - 1_500
"""From here on clients only prove that they can still write."""

REAP_SLACK_MS: Final = 1_500
"""How much later than two rounds of the leader a znode may go that is due: an election, a commit."""

LOG_MEMORY_BYTES_MAX: Final = 64 * 1024
"""Small, so that followers which fell behind are served from disk."""

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
    entries: int
    sessions_expired: int
    fingerprint: int
    simulated_ms: int
    turns: int
    operations: tuple[tuple[str, int], ...]
    """How often what `zraft.testing.client_checks.KINDS` names was seen."""


class Simulation:
    """One seed's run. `run` raises `BrokenPromiseError`, or whatever error the product raised."""

    def __init__(self, seed: int, *, mode: Mode | None = None, trace: bool = False) -> None:
        self.seed = seed
        self.profile = profile = roll(seed, mode)
        self._trace = trace
        self.schedule = schedule = Schedule()
        name = f"zraft/{seed}"
        servers = [ServerId(number + 1) for number in range(profile.servers)]
        self.history = History()
        self.raft_checks = RaftChecks(servers)
        self._fingerprint = 0
        self._committed_by: dict[ServerId, int] = {}
        self._applied_by: dict[ServerId, int] = {}
        self._led: dict[ServerId, int] = {}
        self._digests = 0
        self._settings = settings = DriverSettings(
            raft=RaftSettings(
                election_timeout_ticks=ELECTION_TIMEOUT_MS,
                heartbeat_ticks=HEARTBEAT_MS,
                resend_ticks=HEARTBEAT_MS,
            ),
            origin=OriginSettings(resend_ms=80, batches_in_flight_max=profile.batches_in_flight),
            entries_in_flight_max=profile.entries_in_flight,
            log_memory_bytes_max=LOG_MEMORY_BYTES_MAX,
            reap_interval_ms=REAP_INTERVAL_MS,
            clients=ClientSettings(
                auth=AuthSettings(super_digest=digest_of(SUPER_CREDENTIALS)),
                read_only_mode_enabled=profile.read_only_mode,
            ),
            tree=Settings(
                tick_time_ms=TICK_TIME_MS,
                session_timeout_ms_min=SESSION_TIMEOUTS_MS[0],
                session_timeout_ms_max=SESSION_TIMEOUTS_MS[-1],
                quota_enforced=int(profile.quota_enforced),
                container_never_used_ms_max=CONTAINER_NEVER_USED_MS,
            ),
        )
        self.network = Network(
            schedule, profile, random.Random(f"{name}/network"), encode_datagram, self._deliver
        )
        self.processes = [
            Process(server, servers, settings, schedule, profile, name, decode_datagram, self)
            for server in servers
        ]
        self._by_server = {process.server: process for process in self.processes}
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
            begin_ms=1_500,
            end_ms=RUN_MS,
        )

    def _live_ms(self) -> int:
        return self.adversary.live_ms()

    def _leader_changes(self) -> int:
        return max(0, len(self.raft_checks.leaders) - 1)

    def say(self, *words: object) -> None:
        if self._trace:
            print(f"{self.schedule.now_ms:6}", *words)

    # -- the run
    def run(self) -> Report:
        """Both phases and the final checks."""
        schedule = self.schedule
        boots = random.Random(f"zraft/{self.seed}/boots")
        for process in self.processes:
            schedule.at(boots.randint(0, 200), process.boot)
        schedule.run_until(RUN_MS)
        self.say("heal")
        self.adversary.heal()
        tree = self._settings.tree
        schedule.run_until(
            RUN_MS + HEAL_MS - tree.session_timeout_ms_max - 2 * tree.tick_time_ms - EXPIRY_SLACK_MS
        )
        silent_since = self.history.position
        schedule.run_until(FINALE_MS)
        for client in self.clients:
            client.finale = True
        schedule.run_until(RUN_MS + HEAL_MS)
        self._final(silent_since)
        self.raft_checks.assert_saw_enough()
        self.client_checks.assert_saw_enough()
        return self.report()

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
            fault_kinds=tuple(sorted(counts.items())),
            entries=len(self.raft_checks.committed) - 1,
            sessions_expired=checks.expired,
            fingerprint=self._fingerprint,
            simulated_ms=self.schedule.now_ms,
            turns=sum(process.turns for process in self.processes),
            operations=tuple((kind, checks.kinds[kind]) for kind in KINDS),
        )

    def _final(self, silent_since: int) -> None:
        """After healing nothing is stuck, nothing differs, nothing of the dead is left.

        `silent_since` is a position: sessions without a command after it have had the time to expire.
        """
        fail = self.raft_checks.fail
        serving = [p for p in self.processes if p.server not in self.adversary.wiped]
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
            if machine.digest() != machine.full_digest():
                fail("digest", f"S{process.server}: the kept digest is not that of its state")
            if machine.settings != self._settings.tree:
                fail(
                    "settings",
                    f"S{process.server} works with {machine.settings}, given were {self._settings.tree}",
                )
        for server in self.adversary.wiped:
            driver = self._by_server[server].driver
            if driver is None or driver.problem is None:
                fail("wiped voter", f"S{server} lost its disk and does not say so (D-1)")
        living = {client.session for client in self.clients if not client.dead}
        for client in self.clients:
            if not client.dead and not client.finale_done:
                fail("progress", f"C{client.number} could not complete a write and a sync after healing")
        # A session may have been made, or used, a moment ago by a client that gave its connection up.
        left = sorted(
            number
            for number, session in self.history.sessions.items()
            if number not in living and max(session.attach_position, session.write_position) <= silent_since
        )
        if left:
            fail("progress", f"sessions {[f'{s:x}' for s in left]} of nobody never expire")
        overdue = self.history.overdue(2 * REAP_INTERVAL_MS + REAP_SLACK_MS)
        if overdue:
            fail("progress", f"{overdue} should have gone by themselves long ago")
        for path, node in self.history.nodes.items():
            if node.owner and node.owner not in self.history.sessions:
                fail("ended", f"ephemeral {path} outlives session {node.owner:x}")

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
        server, identity = process.server, driver.identity
        shadow = self.raft_checks.shadows.get(server)
        stored = process.stored
        self.say(
            f"S{server} boots, boot {identity.boot}, term {stored.hard_state.term}, log {stored.log.last_index}"
        )
        if shadow is None or shadow.instance != identity.instance:
            self.raft_checks.formatted(server, identity.instance)
        log = stored.log
        terms = [log.term_at(index) for index in range(1, log.last_index + 1)]
        self.raft_checks.recovered(server, stored.hard_state, terms, in_flight)
        self._committed_by[server] = self._applied_by[server] = 0
        self._led.pop(server, None)

    def turned(self, process: Process) -> None:
        driver = process.driver
        assert driver is not None
        raft = driver.raft
        if not process.image.joined and driver.cluster is not None:
            process.image.join(driver.cluster)
        if raft is None:
            return
        server = process.server
        if raft.role is Role.LEADER and self._led.get(server) != raft.term:
            self._led[server] = raft.term
            self.say(
                f"S{server} leads in term {raft.term}, log {raft.log.last_index}, commit {raft.commit_index}"
            )
            # The no-op of this leadership is already in its log; what matters is what it was elected with.
            terms = [raft.log.term_at(index) for index in range(1, raft.log.last_index + 1)]
            self.raft_checks.leads(server, raft.term, terms)
        commit = min(raft.commit_index, raft.log.last_index)
        before = self._committed_by[server]
        if commit > before:
            self._committed_by[server] = commit
            while before < commit:
                entries = raft.log.slice(before + 1, commit + 1, 1 << 30)
                before = entries[-1].index
                leads_term = raft.term if raft.role is Role.LEADER and before == commit else None
                for entry in self.raft_checks.commits(server, entries, leads_term):
                    self._extend(entry)
        applied = driver.applied_index
        if applied > self._applied_by[server]:
            self._applied_by[server] = applied
            self._digests += 1
            digest = driver.machine.digest()
            if self._digests % FULL_DIGEST_EVERY == 0 and digest != driver.machine.full_digest():
                self.raft_checks.fail("digest", f"S{server}: the kept digest is not that of its state")
            self.raft_checks.state(server, applied, digest)

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

    def sending(self, sender: Sender, to: ServerId, messages: Sequence[PeerMessage]) -> None:
        self.raft_checks.sent(sender, to, messages)
        self.network.send(sender, to, messages)

    def writing(self, process: Process, records: Sequence[Record]) -> None:
        if not any(isinstance(record, RosterRecord) for record in records):
            self.raft_checks.writing(process.server, records)
        if writes_vote(records):
            self.adversary.snipe(process)

    def durable(self, process: Process, records: Sequence[Record]) -> None:
        self.raft_checks.durable(process.server, records)

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


def encode_datagram(messages: Sequence[PeerMessage]) -> bytes:
    return codec.encode_sequence([codec.encode(message) for message in messages])


def decode_datagram(data: bytes) -> Sequence[PeerMessage]:
    messages, errors = codec.decode_sequence(data)
    if errors:
        raise BrokenPromiseError("codec", f"a message of ours does not decode: {errors[0]}")
    return messages
