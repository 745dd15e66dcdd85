"""Planted bugs of what clients are told: events, reads, rights, lifetimes, quotas, watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation.planted_registry import Patch, plant, replaced
from tests.simulation.profile import Mode
from zraft.raft.core import Raft
from zraft.raft.messages import (
    ReadIndexReply,
)
from zraft.raft.role import Role
from zraft.server.clients import table as clients_module
from zraft.server.clients.connection import Phase
from zraft.server.clients.output import Output
from zraft.server.clients.table import Clients
from zraft.server.clients.zookeeper import answers as answers_module
from zraft.server.clients.zookeeper import connection as connection_module
from zraft.server.clients.zookeeper.connection import ZooKeeperConnection
from zraft.server.clients.zookeeper.queries import RestoredWatches
from zraft.server.clients.zookeeper.waiting import Proved
from zraft.server.coordination.group import APPLY_BYTES_PER_TURN, CoordinationGroup
from zraft.server.coordination.leadership import Leadership
from zraft.server.coordination.linearizable_reads import LinearizableReads
from zraft.server.coordination.origin import NumberedBatch, OriginStream
from zraft.transport.messages import OriginBatch
from zraft.tree import machine as machine_module
from zraft.tree import quota_usage as quota_usage_module
from zraft.tree import reads as tree_reads
from zraft.tree import znodes as znodes_module
from zraft.tree.machine import Machine
from zraft.tree.sessions.session import Session
from zraft.tree.watches import WatchTable
from zraft.tree.znodes import Tree
from zraft_core.errors import Code
from zraft_core.ids import COORDINATION_GROUP, ServerId
from zraft_core.wire.events import encode_watch_event
from zraft_core.znodes.acl import READ, permits
from zraft_core.znodes.txn import pack_batch, unpack_batch

# -- what clients see


@plant("D-15", "the events of a turn leave after its replies")
def event_after_reply() -> Sequence[Patch]:
    late: dict[ZooKeeperConnection, list[bytes]] = {}
    original = Clients.flush

    def publish(self: Clients, events: Any, zxid: int) -> bool:
        for event_type, path, acl in events:
            for connection in self.watches.trigger(event_type, path):
                assert isinstance(connection, ZooKeeperConnection), "ZooKeeper's clients, in the simulation"
                if connection.phase is Phase.ATTACHED and permits(acl, READ, connection.ids):
                    late.setdefault(connection, []).append(encode_watch_event(zxid, event_type, path))
        return False

    def flush(self: Clients, now: int) -> list[Output]:
        for connection in list(late):
            if connection.clients is self:
                connection.out += late.pop(connection)
                if not connection.dirty:
                    self.mark_dirty(connection)
        return original(self, now)

    return [(Clients, "publish", publish), (Clients, "flush", flush)]


@plant("design 4", "a read does not wait for the session's own writes before it")
def read_ahead() -> Sequence[Patch]:
    original_take, original_answer = ZooKeeperConnection._take, answers_module.answer
    early: dict[tuple[int, int], list[bytes]] = {}
    reads = (answers_module.GET_DATA, answers_module.EXISTS)

    def take(self: ZooKeeperConnection, frames: list[bytes]) -> None:
        for frame in frames:
            xid, opcode = connection_module.HEADER(frame)
            if opcode in reads and frame[-1] == 0:
                out, self.out = self.out, []
                original_answer(self, opcode, xid, frame)
                early[id(self), xid], self.out = self.out, out
        original_take(self, frames)

    def answer(self: ZooKeeperConnection, opcode: int, xid: int, frame: bytes, *, now: bool = False) -> int:
        ready = early.pop((id(self), xid), None)
        if ready is None:
            return original_answer(self, opcode, xid, frame, now=now)
        self.out += ready
        return 0

    return [(ZooKeeperConnection, "_take", take), (connection_module, "answer", answer)]


@plant("6.4", "sync is answered from local state, without asking the leader", Mode.READS)
def local_sync() -> Sequence[Patch]:
    def ask(self: LinearizableReads, now: int) -> int | None:
        for connection in self._syncs.take_syncs():
            connection.complete_sync()
        return None

    return [(LinearizableReads, "ask", ask)]


@plant("6.4", "a sync that came after the question to the leader is answered by it", Mode.READS)
def later_syncs_known() -> Sequence[Patch]:
    original = ZooKeeperConnection.complete_sync

    def complete_sync(self: ZooKeeperConnection) -> None:
        self._came_later = 0
        original(self)

    return [(ZooKeeperConnection, "complete_sync", complete_sync)]


@plant("6.4", "a leader answers ReadIndex without a quorum round", Mode.READS)
def read_index_without_quorum() -> Sequence[Patch]:
    def add_read(self: Raft, asker: ServerId, context: int) -> None:
        if asker == self.server:
            self._read_states.append((context, self.commit_index))
        else:
            self._send_with_hard_state(
                asker, ReadIndexReply(self.group, self.term, context, self.commit_index)
            )

    return [(Raft, "_add_read", add_read)]


@plant("D-2", "what an origin has not applied is cut anew when it is sent again", Mode.ELECTIONS)
def batches_recut() -> Sequence[Patch]:
    original = OriginStream.on_leader_change

    def on_leader_change(self: OriginStream) -> None:
        original(self)
        batches = list(self.unapplied.values())
        if len(batches) < 2:
            return
        seq = batches[0].message.seq
        runs = [run for batch in batches for run in unpack_batch(batch.message.blob)[4]]
        blob = pack_batch(self._server, self._instance, self._boot, seq, runs)
        count = sum(batch.message.count for batch in batches)
        message = OriginBatch(COORDINATION_GROUP, self._boot, seq, count, blob)
        owners = [owner for batch in batches for owner in batch.owners]
        merged = NumberedBatch(message, owners, self._unapplied_bytes, batches[0].cut_at, batches[0].arrivals)
        self.unapplied = {seq: merged}
        self._last_seq = seq

    return [(OriginStream, "on_leader_change", on_leader_change)]


# -- rights, lifetimes, quotas and watches


@plant("D-5", "a run's ACLs are checked with the ids of the run before it")
def ids_of_another_run() -> Sequence[Patch]:
    original = Machine.begin_run
    last: dict[int, Any] = {}

    def begin_run(self: Machine, session: int, ids: Any) -> Code:
        code = original(self, session, ids)
        before = last.get(id(self), ids) if self.position else ids
        last[id(self)] = ids
        if session:
            self._tree.ids = before
        return code

    return [(Machine, "begin_run", begin_run)]


@plant("trap 20", "reads behind an auth are answered to who the client was before it")
def reads_with_old_ids() -> Sequence[Patch]:
    def proved(self: ZooKeeperConnection, ids: Any, reply: bytes) -> None:
        self.ids_of_writes = ids
        if self.queue:
            self.queue.append(Proved(self.ids, reply))
            self._queued_bytes += connection_module.REQUEST_OVERHEAD_BYTES
        else:
            self.emit(reply)

    return [(ZooKeeperConnection, "_proved", proved)]


@plant("trap 20", "a write is logged with the ids of the last answered auth, not of the last sent")
def writes_with_old_ids() -> Sequence[Patch]:
    def submit(self: Clients, connection: ZooKeeperConnection, commands: Any, size: int) -> None:
        self._origin.add(connection, connection.session, connection.ids, commands, size)

    return [(Clients, "submit", submit)]


@plant("trap 14", "getACL shows the hashes of passwords to everybody who may read")
def unmasked_acl() -> Sequence[Patch]:
    original = tree_reads.get_acl

    def get_acl(machine: Machine, path: str, ids: Any) -> Any:
        found = original(machine, path, ids)
        return found if isinstance(found, Code) else (found[1].acl, found[1])

    return [(tree_reads, "get_acl", get_acl)]


@plant("trap 25", "setACL moves mzxid")
def set_acl_moves_mzxid() -> Sequence[Patch]:
    original = Tree.set_acl

    def set_acl(self: Tree, command: Any, zxid: int) -> Any:
        result = original(self, command, zxid)
        if not isinstance(result, Code):
            result.mzxid = zxid
        return result

    return [(Tree, "set_acl", set_acl)]


@plant("D-12", "REAP is applied as proposed, without judging again")
def blind_reap() -> Sequence[Patch]:
    def reap(self: Tree, command: Any, zxid: int) -> Code:
        node = self.nodes.get(command[1])
        if node is None or node.czxid != command[2]:
            return Code.NO_NODE
        if node.children:
            return Code.NOT_EMPTY
        self.remove(command[1], zxid)
        return Code.OK

    return [(Tree, "reap", reap)]


@plant("D-12", "log time is the leader's wall clock: one that is a day ahead removes everything with a TTL")
def lifetimes_by_wall_clock() -> Sequence[Patch]:
    original = Leadership.lead

    def lead(self: Leadership, raft: Raft, wall_ms: int) -> None:
        self._log_time_base = wall_ms - self.uptime_ms
        original(self, raft, wall_ms)

    return [(Leadership, "lead", lead)]


@plant("multi", "a failed multi leaves what it counted in the usage of a quota")
def usage_of_failed_multi() -> Sequence[Patch]:
    def undo_usage(tree: Tree, stats: Any, data: bytes | None) -> None:
        return

    return [(quota_usage_module, "_undo_usage", undo_usage)]


@plant("trap 10", "a recursive watch hears of children, not of what is below them")
def recursive_misses_grandchildren() -> Sequence[Patch]:
    original = WatchTable._recursive_above

    def recursive_above(self: Any, path: str) -> list[Any]:
        above = path.rpartition("/")[0]
        row = self._data.get(above or "/", {}) if path != "/" else {}
        return [watcher for watcher in original(self, path) if watcher in row]

    return [(WatchTable, "_recursive_above", recursive_above)]


@plant("watches", "a lasting watch is spent by its first event")
def lasting_watch_consumed() -> Sequence[Patch]:
    def consume(self: Any, table: Any, kind: int, path: str) -> list[Any]:
        row = table.pop(path, {})
        for watcher, modes in row.items():
            self._recount(modes, 0)
            self._forget(kind, path, watcher)
        return list(row)

    return [(WatchTable, "_consume", consume)]


@plant("trap 9", "a lasting watch is told what was missed while its client was away")
def lasting_watch_catches_up() -> Sequence[Patch]:
    original = RestoredWatches.step

    def step(self: Any) -> bool:
        again = self._again
        for path in () if self._at else again.persistent:
            node = self._clients.machine.nodes.get(path)
            if node is not None and node.mzxid > again.relative_zxid:
                self._connection.emit(encode_watch_event(-1, 3, path))
        return original(self)

    return [(RestoredWatches, "step", step)]


@plant("trap 15", "an event is told to who may not read the znode")
def event_without_read() -> Sequence[Patch]:
    return [(clients_module, "permits", lambda acl, permission, ids: True)]


@plant("watches", "readers of a server without a quorum are told no events (found by seed 0)", Mode.READS)
def silent_readers() -> Sequence[Patch]:
    def publish(self: Clients, events: Any, zxid: int) -> bool:
        for event_type, path, acl in events:
            for connection in self.watches.trigger(event_type, path):
                if connection.phase is Phase.ATTACHED and permits(acl, READ, connection.ids):
                    connection.on_event(zxid, event_type, path)
        return False

    return [(Clients, "publish", publish)]


@plant("D-7", "a server without a quorum also serves what its log holds beyond the last commit", Mode.READS)
def uncommitted_to_readers() -> Sequence[Patch]:
    original = CoordinationGroup.settle

    def settle(self: CoordinationGroup) -> None:
        original(self)
        stale, before = self.contact.stale, self.__dict__.get("planted_stale", True)
        self.__dict__["planted_stale"] = stale
        replica = self.replica
        if stale and before and replica is not None and replica.raft.role is not Role.LEADER:
            with replaced((Raft, "applicable_index", property(lambda self: self.log.last_index))):
                replica.apply(APPLY_BYTES_PER_TURN)

    return [(CoordinationGroup, "settle", settle)]


# -- feature level 3


@plant("exactly once", "what numbered commands came to is forgotten when the session moves", Mode.BOOTS)
def once_forgets_on_attach() -> Sequence[Patch]:
    original = Machine._attach

    def attach(self: Machine, command: Any, zxid: int) -> Any:
        session = original(self, command, zxid)
        if isinstance(session, Session):
            session.kept = None
        return session

    return [(Machine, "_attach", attach)]


@plant("D-19", "a session ends and its will is not done")
def will_dropped() -> Sequence[Patch]:
    return [(machine_module, "carry_out", lambda tree, will, zxid: True)]


@plant("D-20", "what was truncated is there until it is out of memory")
def truncated_visible() -> Sequence[Patch]:
    return [(znodes_module, "is_hidden", lambda hidden, path: False)]
