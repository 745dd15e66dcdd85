"""Quick generation of a small cluster's data directories, by the product's consensus, log and state.

There is neither network nor clock. Audits are measured and tested on these directories. Every server is a
`Raft`, a `Wal` in a directory of its own and, if wanted, a `Machine` that applies and writes snapshots;
messages go from hand to hand, and time is counted. One seed always gives the same commands, elections and
truncations. Only fsync is left out: nobody relies on these directories.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from attrs import define, field, frozen

from zraft.config.features import FEATURE_LEVEL_MAX
from zraft.offline.replay import apply_entry
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership.value import Membership
from zraft.raft.messages import HardState, Member, Message
from zraft.raft.ready import LogWrite
from zraft.raft.role import Role
from zraft.raft.settings import RaftSettings
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import UnsyncedFileSystem
from zraft.storage.records import EntryRecord, HardStateRecord, Record, RosterRecord, TruncateRecord
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotHeader
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, SERVER_ID_MIN, GroupId, Instance, ServerId
from zraft_core.znodes import txn

START_MS: Final = 1_700_000_000_000
TICK: Final = 10
TURNS_MAX: Final = 2_000
ROUNDS_MAX: Final = 20
"""The most rounds of messages in one turn; heartbeats could go to and fro for ever."""
PASSWORD: Final = bytes(16)
IMAGE_ITEMS: Final = 10_000
IMAGE_BYTES: Final = 256 << 10
KEYS: Final = 1_000
SESSION_TIMEOUT_MS: Final = 30_000
LOG_MEMORY_BYTES: Final = 4 << 20


@frozen
class Scenario:
    """Description of the logs to make.

    Attributes:
        commands: of clients, in all.
        batch: commands of one entry.
        elections: changes of the leader, evenly spread; before each one the old leader writes entries
            that nobody else gets, which it truncates later.
        snapshots: of each server, evenly spread; the log is kept. Needs `applied`.
        applied: whether servers apply what they log; without it commands are not judged, and snapshots
            are not written.
        down: how many servers, the last ones, receive nothing after the clients have begun.
    """

    commands: int
    servers: int = 3
    batch: int = 100
    elections: int = 2
    snapshots: int = 2
    seed: int = 1
    segment_bytes: int = 64 << 20
    data_bytes: int = 16
    applied: bool = True
    down: int = 0

    def __attrs_post_init__(self) -> None:
        most = (self.servers - 1) // 2 - (self.elections > 0)
        if self.down and self.down > most:
            raise ValueError(
                f"{self.down} of {self.servers} servers are down: expected {max(most, 0)} at most, or nobody is left to "
                f"lead{' while elections go on' if self.elections else ''}"
            )


@define
class _Server:
    server: ServerId
    directory: DataDirectory
    wal: Wal
    raft: Raft
    machine: Machine | None
    store: SnapshotStore
    applied_index: int = 0
    next_position: int = 1
    seq: int = 0
    inbox: list[tuple[ServerId, Message]] = field(factory=list)


class Generator:
    """A cluster in `path`/server-N. Call `run` once, then `close`."""

    def __init__(self, path: str, scenario: Scenario) -> None:
        """Create the cluster."""
        self._scenario = scenario
        self._rng = Random(scenario.seed)
        self._fs = UnsyncedFileSystem()
        self._now_ms = START_MS
        self._session = 0
        self._once_seq = 0
        self.commands = 0
        os.makedirs(path, exist_ok=True)
        ids = [ServerId(SERVER_ID_MIN + at) for at in range(scenario.servers)]
        directories = {
            server: DataDirectory.open(
                self._fs, f"{path}/server-{server}", server=server, entropy=self._rng.randbytes
            )
            for server in ids
        }
        roster = tuple((server, one.instance) for server, one in directories.items())
        membership = Membership({server: Member(instance) for server, instance in roster})
        self._servers = {
            server: self._founded(server, one, membership, roster) for server, one in directories.items()
        }
        self._down: frozenset[ServerId] = frozenset()
        self._apart: frozenset[ServerId] = frozenset()

    def run(self, on_progress: Callable[[int], None] = lambda _: None) -> None:
        """Write all of it; `on_progress` gets the number of commands so far."""
        scenario = self._scenario
        self._settle()
        self._begin_clients()
        self._down = self._apart = frozenset(list(self._servers)[scenario.servers - scenario.down :])
        self._settle()
        entries = -(-scenario.commands // scenario.batch)
        elections = _spread(entries, scenario.elections)
        snapshots = _spread(entries, scenario.snapshots if scenario.applied else 0)
        for at in range(entries):
            if at in elections:
                self._change_leader()
            self.write(min(scenario.batch, scenario.commands - at * scenario.batch))
            if at in snapshots:
                for server in self._servers.values():
                    self._write_snapshot(server)
            on_progress(self.commands)
        for _ in range(20):
            self._turn()

    def write(self, commands: int) -> None:
        """Write one more entry, with so many commands of clients."""
        self._propose([self._client_command() for _ in range(commands)])
        self.commands += commands
        self._settle()

    def close(self) -> None:
        """Close the servers' files."""
        for server in self._servers.values():
            server.wal.close()
            server.store.close()
            server.directory.close()

    # -- the cluster

    def _founded(
        self,
        server: ServerId,
        directory: DataDirectory,
        membership: Membership,
        roster: tuple[tuple[ServerId, Instance], ...],
    ) -> _Server:
        settings = WalSettings(segment_bytes_max=self._scenario.segment_bytes, tail_bytes_max=0)
        wal, _ = Wal.open(self._fs, directory, settings=settings)
        wal.append([RosterRecord(COORDINATION_GROUP, roster)])
        raft = Raft(
            group=COORDINATION_GROUP,
            server=server,
            instance=directory.instance,
            settings=RaftSettings(),
            hard_state=HardState(),
            log=Log(archive=lambda lo, hi, size: wal.read_entries(COORDINATION_GROUP, lo, hi, size)),
            membership=membership,
            rng=Random(self._rng.random()),
        )
        machine = Machine() if self._scenario.applied else None
        store = SnapshotStore.open(self._fs, directory, COORDINATION_GROUP)
        return _Server(server, directory, wal, raft, machine, store)

    def _leader(self) -> _Server | None:
        for server in self._servers.values():
            if server.raft.role is Role.LEADER and server.server not in self._apart:
                return server
        return None

    def _turn(self) -> None:
        """Let some time pass everywhere, and deliver everything that waits."""
        self._now_ms += TICK
        for server in self._servers.values():
            server.raft.tick(TICK)
        for _ in range(ROUNDS_MAX):
            for server in self._servers.values():
                self._exchange(server)
            if not any(server.inbox for server in self._servers.values()):
                break

    def _exchange(self, server: _Server) -> None:
        """Let one server take its messages and do what its core asks for."""
        inbox, server.inbox = server.inbox, []
        for sender, message in inbox:
            server.raft.step(sender, self._servers[sender].directory.instance, message)
        ready = server.raft.ready()
        if ready.write is not None:
            server.wal.append(records_of(COORDINATION_GROUP, ready.write))
            server.raft.persisted(ready.write.number)
        for to, message in ready.messages:
            if not ({to, server.server} & self._apart):
                self._servers[to].inbox.append((server.server, message))
        self._apply(server)

    def _settle(self) -> None:
        """Run until there is a leader, and all connected servers have applied everything."""
        for _ in range(TURNS_MAX):
            leader = self._leader()
            together = [s for s in self._servers.values() if s.server not in self._apart]
            if leader is not None and all(
                s.applied_index == leader.raft.log.last_index == leader.raft.commit_index for s in together
            ):
                return
            self._turn()
        raise AssertionError("the cluster does not come to rest")

    def _change_leader(self) -> None:
        """Change the leader: cut it off with entries that only it has, elect another one, and reconnect all."""
        old = self._leader()
        assert old is not None
        self._apart = self._down | {old.server}
        self._propose([self._client_command() for _ in range(3)], old)
        self._turn()
        self._settle()
        self._apart = self._down
        self._settle()

    # -- the log

    def _propose(self, commands: list[txn.Command], leader: _Server | None = None) -> None:
        leader = self._leader() if leader is None else leader
        assert leader is not None
        session = self._session
        runs: list[txn.Run] = [(session, (), commands)]
        # A batch that was lost with its leader is never repeated, so its number is not used up.
        if leader.server not in self._apart:
            leader.seq += 1
        directory = leader.directory
        blob = txn.pack_batch(leader.server, directory.instance, directory.boot, leader.seq, runs)
        payload = txn.pack_entry(self._now_ms, self._now_ms, [blob])
        index = leader.raft.propose(payload, len(commands))
        assert index is not None, "a settled leader takes a proposal"

    def _begin_clients(self) -> None:
        """Prepare for clients: register every server, raise the feature level, make one session, and what is written to."""
        self._propose_alone([(txn.FEATURE, FEATURE_LEVEL_MAX)], leaders=True)
        for server in self._servers.values():
            self._propose_alone([(txn.REGISTER, self._rng.randbytes(8))], server)
        leader = self._leader()
        assert leader is not None
        self._propose_alone([(txn.CREATE_SESSION, SESSION_TIMEOUT_MS, PASSWORD)], leader)
        if leader.machine is not None:
            (self._session,) = leader.machine.sessions
        self._propose([(txn.CREATE, f"/key-{at}", b"", None, 0, 0) for at in range(KEYS)])
        self._settle()

    def _propose_alone(
        self, commands: list[txn.Command], origin: _Server | None = None, *, leaders: bool = False
    ) -> None:
        leader = self._leader()
        assert leader is not None
        if leaders:
            blob = txn.pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), commands)])
        else:
            assert origin is not None
            origin.seq += 1
            one = origin.directory
            blob = txn.pack_batch(origin.server, one.instance, one.boot, origin.seq, [(0, (), commands)])
        index = leader.raft.propose(txn.pack_entry(self._now_ms, self._now_ms, [blob]), len(commands))
        assert index is not None
        self._settle()

    def _client_command(self) -> txn.Command:
        """Return a client's command: mostly sets, some numbered ones, creates in sequence and small transactions."""
        rng = self._rng
        data = rng.randbytes(self._scenario.data_bytes)
        path = f"/key-{rng.randrange(KEYS)}"
        kind = rng.random()
        if kind < 0.8:
            return (txn.SET_DATA, path, data, -1)
        if kind < 0.95:
            self._once_seq += 1
            return (txn.ONCE, self._once_seq, max(0, self._once_seq - 100), (txn.SET_DATA, path, data, -1))
        if kind < 0.96:
            return (txn.CREATE2, f"{path}/n-", data, None, txn.FLAG_SEQUENTIAL, 0)
        return (txn.MULTI, ((txn.CHECK, path, -1), (txn.SET_DATA, path, data, -1)))

    # -- the state

    def _apply(self, server: _Server) -> None:
        raft = server.raft
        limit = raft.applicable_index
        while server.applied_index < limit:
            for entry in raft.log.slice(server.applied_index + 1, limit + 1, IMAGE_BYTES):
                if server.machine is not None:
                    apply_entry(server.machine, entry)
                server.applied_index, server.next_position = entry.index, entry.next_position
        if raft.log.bytes_in_memory > LOG_MEMORY_BYTES:
            raft.log.evict_to(server.applied_index)

    def _write_snapshot(self, server: _Server) -> None:
        assert server.machine is not None
        index = server.applied_index
        meta = SnapshotMeta(
            index,
            server.raft.log.term_at(index),
            server.next_position,
            server.raft.membership.encode(),
        )
        directory = server.directory
        header = SnapshotHeader(
            COORDINATION_GROUP, meta, b"", server.server, directory.instance, self._rng.randbytes(16),
            server.machine.feature_level, self._now_ms,
        )  # fmt: skip
        writer = ImageWriter(server.machine)
        server.store.begin(header)
        while piece := writer.step(IMAGE_ITEMS, IMAGE_BYTES):
            server.store.write(piece)
        server.store.finish(writer.items, writer.digest, writer.zxid)
        writer.close()


def records_of(group: GroupId, write: LogWrite) -> list[Record]:
    """Return what one write of a group's core puts into the log, in the order in which it counts."""
    records: list[Record] = []
    if write.hard_state is not None:
        records.append(HardStateRecord(group, write.hard_state))
    if write.truncate_from is not None:
        records.append(TruncateRecord(group, write.truncate_from))
    records.extend(EntryRecord(group, entry) for entry in write.entries)
    return records


def _spread(among: int, count: int) -> frozenset[int]:
    """Return `count` places of `among`, at equal distances, none at the very beginning."""
    return frozenset(among * (at + 1) // (count + 1) for at in range(count)) - {0}


def directories(path: str) -> Iterator[str]:
    """Return the data directories that a generator has made below `path`."""
    for name in sorted(os.listdir(path)):
        if name.startswith("server-"):
            yield f"{path}/{name}"
