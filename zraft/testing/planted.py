"""Bugs planted into the shipped code, each of which the checkers must notice: the test of the tests.

A plant replaces a few attributes of shipped classes or modules while it is in force. Each is one rule taken
back (docs/RULES.md), or one mistake that a release could make. `mode` names the class of faults in which it
shows; some are too rare for the general mix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from attrs import evolve, frozen

from zraft.errors import Code
from zraft.ids import COORDINATION_GROUP, ServerId
from zraft.raft import election as election_module
from zraft.raft import following as following_module
from zraft.raft import quorum as quorum_module
from zraft.raft import state as state_module
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.membership import Membership
from zraft.raft.messages import (
    AppendEntries,
    Entry,
    HardState,
    Heartbeat,
    HeartbeatReply,
    ReadIndexReply,
)
from zraft.raft.replication import Replication
from zraft.raft.role import Role
from zraft.raft.snapshot import SnapshotMeta
from zraft.raft.writes import Writes
from zraft.server import clients as clients_module
from zraft.server import clock as clock_module
from zraft.server import connection as connection_module
from zraft.server import intake as intake_module
from zraft.server import membership_keeper as keeper_module
from zraft.server import queries as queries_module
from zraft.server import reconciliation as reconciliation_module
from zraft.server.applier import Applier
from zraft.server.client_connection import Phase
from zraft.server.clients import Clients, Output
from zraft.server.connection import Connection
from zraft.server.contact import Contact
from zraft.server.driver import Driver
from zraft.server.driver_types import Effects
from zraft.server.expiry import SessionExpiry
from zraft.server.joining import Joining
from zraft.server.leadership import Leadership
from zraft.server.membership_keeper import MembershipKeeper
from zraft.server.origin import NumberedBatch, OriginStream
from zraft.server.reads import LinearizableReads
from zraft.server.snapshot_keeper import SnapshotKeeper
from zraft.server.snapshot_transfer import Received, SnapshotReceiver
from zraft.storage import durable as durable_module
from zraft.storage import snapshots as snapshot_store_module
from zraft.storage import wal as wal_module
from zraft.storage.errors import DiskFullError, FsyncError
from zraft.storage.wal import Wal
from zraft.testing.profile import Mode
from zraft.testing.raft_checks import RaftChecks
from zraft.transport.messages import OriginBatch, Sender, TouchReport, Welcome
from zraft.tree import machine as machine_module
from zraft.tree import quota_usage as quota_usage_module
from zraft.tree import reads as tree_reads
from zraft.tree import znodes as znodes_module
from zraft.tree.acl import READ, permits
from zraft.tree.image_writer import ImageWriter
from zraft.tree.machine import Machine
from zraft.tree.origins import Origins
from zraft.tree.sessions import Session
from zraft.tree.txn import pack_batch, unpack_batch
from zraft.tree.watches import WatchTable
from zraft.tree.znodes import Tree
from zraft.wire.events import encode_watch_event

Patch = tuple[Any, str, Any]
"""Whose attribute is replaced, its name, and by what."""


@frozen
class Plant:
    """One planted bug: the rule it breaks, what it does, where it shows, and the replacements."""

    rule: str
    text: str
    mode: Mode | None
    patches: Callable[[], Sequence[Patch]]


PLANTS: Final[dict[str, Plant]] = {}


def _plant(
    rule: str, text: str, mode: Mode | None = None
) -> Callable[[Callable[[], Sequence[Patch]]], Callable[[], Sequence[Patch]]]:
    def register(patches: Callable[[], Sequence[Patch]]) -> Callable[[], Sequence[Patch]]:
        PLANTS[patches.__name__] = Plant(rule, text, mode, patches)
        return patches

    return register


@contextmanager
def _replaced(*patches: Patch) -> Iterator[None]:
    old = [(owner, attribute, getattr(owner, attribute)) for owner, attribute, _ in patches]
    for owner, attribute, new in patches:
        setattr(owner, attribute, new)
    try:
        yield
    finally:
        for owner, attribute, value in old:
            setattr(owner, attribute, value)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Everything inside runs with the bug."""
    with _replaced(*PLANTS[name].patches()):
        yield


# -- Raft and what waits for the disk


def _send_at_once(self: Raft, to: ServerId, message: Any) -> None:
    self._outbox.messages.append((to, message))


@_plant("D-7", "the vote is forgotten on a restart, the term is not", Mode.VOTES)
def vote_forgotten() -> Sequence[Patch]:
    def recover(self: Raft, hard_state: HardState) -> None:
        self.term = hard_state.term
        self._voted_for = None

    return [(Raft, "_recover_hard_state", recover)]


@_plant("D-7", "a candidate asks for votes and counts its own before its fsync", Mode.VOTES)
def own_vote_early() -> Sequence[Patch]:
    original = Raft._campaign

    def campaign(self: Raft) -> None:
        with _replaced((Raft, "_send_with_hard_state", _send_at_once)):
            original(self)
        self._election.votes[self.server] = True

    return [(Raft, "_campaign", campaign)]


@_plant("D-7", "votes, vote requests and replies leave before the fsync they depend on", Mode.VOTES)
def vote_before_fsync() -> Sequence[Patch]:
    return [(Raft, "_send_with_hard_state", _send_at_once)]


@_plant("D-7", "entries are acknowledged before their fsync")
def ack_before_fsync() -> Sequence[Patch]:
    original = Raft._acknowledge

    def acknowledge(self: Raft) -> None:
        writes = self._writes
        log_write, writes.log_write = writes.log_write, 0
        original(self)
        writes.log_write = log_write

    return [(Raft, "_acknowledge", acknowledge)]


@_plant("D-7", "the leader counts itself before its fsync")
def leader_counts_early() -> Sequence[Patch]:
    return [(Raft, "_own_match_index", lambda self: self.log.last_index)]


@_plant("D-7", "heartbeats carry the leader's commit, whatever the follower matches")
def heartbeat_commit() -> Sequence[Patch]:
    return [(Raft, "_heartbeat_commit", lambda self, progress: self.commit_index)]


@_plant("Raft 5.4.2", "entries of an older term are committed by counting", Mode.VOTES)
def commit_older_term() -> Sequence[Patch]:
    return [(Raft, "_may_count", lambda self, index: True)]


@_plant("Raft 5.3", "a late append truncates what follows its entries", Mode.BOOTS)
def stale_append_truncates() -> Sequence[Patch]:
    def new_entries(log: Log, message: AppendEntries) -> tuple[Entry, ...]:
        return message.entries

    return [(following_module, "new_entries", new_entries)]


@_plant("Raft 5.4.1", "a vote is given to a candidate whose log is behind", Mode.VOTES)
def vote_for_shorter_log() -> Sequence[Patch]:
    return [(Raft, "_log_is_current", lambda self, index, term: True)]


@_plant(
    "6.4",
    "a late heartbeat of an older term answers a round of the present one (found by seed 0)",
    Mode.BOOTS,
)
def stale_round() -> Sequence[Patch]:
    original = Raft._on_heartbeat

    def on_heartbeat(self: Raft, sender: ServerId, message: Heartbeat) -> None:
        if message.term < self.term and message.round:
            reply = HeartbeatReply(self.group, self.term, message.round, self.log.last_index)
            self._send_with_hard_state(sender, reply)
        else:
            original(self, sender, message)

    return [(Raft, "_on_heartbeat", on_heartbeat)]


@_plant("D-1", "a wiped disk is welcomed as the voter that its predecessor was", Mode.WIPES)
def wiped_voter() -> Sequence[Patch]:
    original = Joining.on_welcome

    def on_welcome(self: Joining, welcome: Welcome) -> Membership | None:
        membership = Membership.decode(welcome.membership)
        if self.membership is None and self._server in membership.members:
            self.membership = membership
            self.problem = None
            return membership
        return original(self, welcome)

    def has(self: Membership, server: ServerId, instance: bytes) -> bool:
        return server in self.members

    def has_voter(self: Membership, server: ServerId, instance: bytes) -> bool:
        return server in self.electorate

    return [
        (Joining, "on_welcome", on_welcome),
        (Membership, "has", has),
        (Membership, "has_voter", has_voter),
    ]


# -- snapshots and the log's end


@_plant("D-4", "a late offer of a snapshot takes back what was committed since", Mode.SNAPSHOTS)
def old_snapshot_accepted() -> Sequence[Patch]:
    on_offer = SnapshotReceiver.on_offer

    def keep(self: Driver, raft: Raft, wall_ms: int) -> None:
        received = self.snapshots.turn(
            self.clock.now, wall_ms, raft, self._where_applied, self.cluster, idle=self.origin.idle
        )
        for to, message in self.snapshots.take_outgoing():
            self._outbox.send(to, message)
        if received is not None:
            raft.restore(received.info.header.meta)
            self._adopt(received)

    def offered(self: SnapshotReceiver, server: ServerId, offer: Any, commit: int, now: int) -> Any:
        return on_offer(self, server, offer, 0, now)

    return [
        (SnapshotReceiver, "on_offer", offered),
        (Driver, "_keep_snapshots", keep),
        (Raft, "_accepts_snapshot", lambda self, meta: True),
    ]


@_plant("D-4", "clients stay connected to a server whose state a snapshot replaced", Mode.SNAPSHOTS)
def snapshot_keeps_clients() -> Sequence[Patch]:
    original = Driver._adopt

    def adopt(self: Driver, received: Received) -> None:
        with _replaced((Clients, "close_all", lambda self: None)):
            original(self, received)

    return [(Driver, "_adopt", adopt)]


@_plant("D-4", "what was to be said to clients when a snapshot replaces the state is still said")
def snapshot_says_more() -> Sequence[Patch]:
    original = Driver._adopt

    def close_all(self: Clients) -> None:
        for connection in list(self._connections):
            connection.closing = True
            self.mark_dirty(connection)

    def flush(self: Clients, now: int) -> list[Output]:
        dirty, self._dirty = self._dirty, []
        outputs = [(connection, b"".join(connection.out), connection.closing) for connection in dirty]
        for connection in dirty:
            connection.out.clear()
            connection.dirty = False
            self.release(connection)
        return outputs

    flush_as_ever = Clients.flush
    adopting: set[Clients] = set()

    def flush_once(self: Clients, now: int) -> list[Output]:
        if self not in adopting:
            return flush_as_ever(self, now)
        adopting.discard(self)
        return flush(self, now)

    def adopt(self: Driver, received: Received) -> None:
        with _replaced((Clients, "close_all", close_all)):
            original(self, received)
        adopting.add(self.clients)

    return [(Driver, "_adopt", adopt), (Clients, "flush", flush_once)]


@_plant("D-4", "a server forgets the batches that the snapshot which replaced its state does not cover")
def uncovered_batches_dropped() -> Sequence[Patch]:
    original = OriginStream.on_restore

    def on_restore(self: OriginStream, boot: int, seq: int) -> list[Any]:
        owners = original(self, boot, seq)
        self._unapplied.clear()
        return owners

    return [(OriginStream, "on_restore", on_restore)]


@_plant("D-4", "a server keeps the batches that the snapshot which replaced its state covers")
def covered_batches_kept() -> Sequence[Patch]:
    original = OriginStream.on_restore

    def on_restore(self: OriginStream, boot: int, seq: int) -> list[Any]:
        return original(self, boot, 0)

    return [(OriginStream, "on_restore", on_restore)]


def _durable_at_once(*arguments: Any) -> None:
    """In place of an fsync."""


@_plant("D-10", "a snapshot's name is not made durable (no fsync of its directory)", Mode.SNAPSHOTS)
def directory_not_synced() -> Sequence[Patch]:
    return [(snapshot_store_module, "sync_directory", _durable_at_once)]


@_plant("D-10", "a snapshot gets its name before its fsync", Mode.SNAPSHOTS)
def snapshot_before_fsync() -> Sequence[Patch]:
    return [(snapshot_store_module, "sync_file", _durable_at_once)]


@_plant("D-4", "the log is cut behind what is applied, not behind the snapshot", Mode.SNAPSHOTS)
def compaction_above_snapshot() -> Sequence[Patch]:
    def may_compact_to(self: SnapshotKeeper, needed: Any) -> int:
        index: int = self._machine.index
        return index if self.newest is not None else 0

    return [(SnapshotKeeper, "may_compact_to", may_compact_to)]


@_plant("D-7", "what was being written when the log began anew after a snapshot counts for the new log")
def restore_acknowledged_early() -> Sequence[Patch]:
    original = Writes.restore

    def restore(self: Writes, meta: SnapshotMeta) -> None:
        with _replaced((Writes, "_limit_durable", lambda self, index: None)):
            original(self, meta)

    return [(Writes, "restore", restore)]


@_plant("D-4", "that the log begins anew after a snapshot is never written", Mode.SNAPSHOTS)
def restore_not_written() -> Sequence[Patch]:
    original = Writes.take

    def take(self: Writes, last_index: int) -> Any:
        write = original(self, last_index)
        return None if write is None else evolve(write, restore=None)

    return [(Writes, "take", take)]


@_plant("D-10", "a new segment does not repeat the term and the vote", Mode.SNAPSHOTS)
def hard_state_not_repeated() -> Sequence[Patch]:
    original = Wal._bases

    def bases(self: Wal) -> Any:
        return [evolve(base, hard_state=HardState()) for base in original(self)]

    return [(Wal, "_bases", bases)]


@_plant("D-4", "an image is taken while the state goes on changing under it", Mode.SNAPSHOTS)
def torn_image() -> Sequence[Patch]:
    return [(ImageWriter, "_before_node", lambda self, path: None)]


@_plant("D-18", "who is wanted is lost with a snapshot", Mode.MEMBERS)
def snapshot_without_members() -> Sequence[Patch]:
    original = Machine.adopt

    def adopt(self: Machine, state: Any) -> Any:
        remains = original(self, state)
        self.members = {}
        return remains

    return [(Machine, "adopt", adopt)]


@_plant("D-16", "positions begin anew after a snapshot", Mode.SNAPSHOTS)
def position_lost() -> Sequence[Patch]:
    original = Applier.restored

    def restored(self: Applier, meta: SnapshotMeta) -> None:
        original(self, meta)
        self.next_position = 1

    return [(Applier, "restored", restored)]


@_plant("D-1", "the configuration of a snapshot is not taken over with it", Mode.MEMBERS)
def configuration_of_snapshot_ignored() -> Sequence[Patch]:
    original = Log.restart_after

    def restart_after(self: Log, meta: SnapshotMeta) -> None:
        before = list(self._memberships)
        original(self, meta)
        self._memberships = before or self._memberships

    return [(Log, "restart_after", restart_after)]


# -- disks


@_plant("D-10", "entries that a full disk refused count as written", Mode.DISKS)
def full_disk_acknowledged() -> Sequence[Patch]:
    original = Wal.append

    def append(self: Wal, records: Any) -> None:
        with suppress(DiskFullError):
            original(self, records)

    return [(Wal, "append", append)]


@_plant("D-10", "a failed fsync is passed over", Mode.DISKS)
def failed_fsync_ignored() -> Sequence[Patch]:
    original = durable_module.sync_file

    def sync_file(*arguments: Any) -> None:
        with suppress(FsyncError):
            original(*arguments)

    return [(wal_module, "sync_file", sync_file)]


# -- members


@_plant("Ongaro 4.3", "a joint configuration decides with a majority of its new half", Mode.MEMBERS)
def joint_counts_one_half() -> Sequence[Patch]:
    def agreed(membership: Membership, value_of: Any) -> int:
        return quorum_module.majority_value(map(value_of, membership.voters))

    return [(state_module, "agreed_value", agreed)]


@_plant("Ongaro 4.3", "an election in a joint configuration is won with its new half", Mode.MEMBERS)
def joint_elects_one_half() -> Sequence[Patch]:
    def result(membership: Membership, votes: Any) -> Any:
        return quorum_module.majority_vote(membership.voters, votes)

    return [(election_module, "vote_result", result)]


@_plant("Ongaro 4.2.1", "learners count for commit", Mode.MEMBERS)
def learner_counts() -> Sequence[Patch]:
    def agreed(membership: Membership, value_of: Any) -> int:
        values: list[int] = sorted(map(value_of, membership.members), reverse=True)
        return values[len(membership.voters) // 2]

    return [(state_module, "agreed_value", agreed)]


@_plant("Ongaro 4.3", "the final configuration follows a joint one that is not committed", Mode.MEMBERS)
def final_too_early() -> Sequence[Patch]:
    original = Raft.change_membership

    def change(self: Raft, target: Any) -> int | None:
        index = original(self, target)
        if index is not None and self.membership.joint:
            self._append_membership(self.membership.final())
        return index

    return [(Raft, "change_membership", change)]


@_plant("Ongaro 4.1", "a change begins before the one before it is committed", Mode.MEMBERS)
def two_changes_at_once() -> Sequence[Patch]:
    def may_change(self: Raft) -> bool:
        return self.role is Role.LEADER and not self.membership.joint and self._is_voter

    return [(Raft, "_may_change", may_change)]


@_plant("D-1", "what a lost disk acknowledged counts for its successor", Mode.WIPES)
def progress_of_lost_disk() -> Sequence[Patch]:
    return [(Replication, "remove", lambda self, server: None)]


@_plant("D-3", "the origin row of a replaced disk stays", Mode.WIPES)
def row_of_lost_disk() -> Sequence[Patch]:
    original = Origins.set_members

    def set_members(self: Origins, members: Any) -> None:
        original(self, [*self.rows, *members])

    return [(Origins, "set_members", set_members)]


@_plant("D-18", "a learner votes before it has caught up", Mode.MEMBERS)
def promoted_blindly() -> Sequence[Patch]:
    original = reconciliation_module._promote

    def promote(situation: Any) -> Any:
        return original(evolve(situation, caught_up=frozenset(situation.membership.members)))

    return [(reconciliation_module, "_promote", promote)]


@_plant("D-18", "a voter goes before those vote who are to replace it", Mode.MEMBERS)
def removed_first() -> Sequence[Patch]:
    original = reconciliation_module.next_step

    def next_step(situation: Any) -> Any:
        members = situation.membership.members
        kept = {server: member for server, member in members.items() if server in situation.wanted}
        if len(kept) < len(members) and any(member.voter for member in kept.values()):
            return reconciliation_module.Step(kept, "removed first")
        return original(situation)

    return [(keeper_module, "next_step", next_step)]


@_plant("Ongaro 3.10", "a late order to lead is obeyed in a later term", Mode.MEMBERS)
def late_transfer() -> Sequence[Patch]:
    def obeys(self: Raft, sender: ServerId, message: Any) -> bool:
        return self.role is Role.FOLLOWER and self._is_voter

    return [(Raft, "_obeys_timeout_now", obeys)]


@_plant("Ongaro 4.2.3", "nobody tells a removed server that it was", Mode.MEMBERS)
def removed_and_not_told() -> Sequence[Patch]:
    return [
        (MembershipKeeper, "not_member", lambda self, *arguments: None),
        (Driver, "_removed", lambda self, index: None),
    ]


@_plant("D-5", "the leader raises the feature level that it knows, whatever the others know")
def feature_level_blindly_raised() -> Sequence[Patch]:
    return [(MembershipKeeper, "level_of_all", lambda self, membership: 2)]


def _differs_from(server: int, index: int) -> Sequence[Patch]:
    original = Applier.apply

    def apply(self: Applier, entry: Entry) -> None:
        before = self.applied_index
        original(self, entry)
        if self._me[0] == server and before < index <= entry.index:
            # As a wrong count of bytes would: no client can see it.
            self._machine.marks.total += 1

    return [(Applier, "apply", apply), (RaftChecks, "COMPARES", False)]


@_plant("D-26", "server 2 computes something else from some entry on; the servers find out by themselves")
def one_differs() -> Sequence[Patch]:
    return _differs_from(2, 150)


@contextmanager
def differing(server: ServerId, index: int) -> Iterator[None]:
    """Inside, that server computes something else with the entry at `index`, if there are commands in it."""
    with _replaced(*_differs_from(server, index)):
        yield


# -- origin streams


@_plant("D-2", "the next number of an origin is kept from an earlier leadership", Mode.ELECTIONS)
def stale_next() -> Sequence[Patch]:
    original = Driver._follow_role

    def follow_role(self: Driver, raft: Raft, step: int) -> None:
        before = self.leadership
        if before is not None:
            self.__dict__["planted_taken"] = dict(before.intake._taken)
        original(self, raft, step)
        if self.leadership is not None and self.leadership is not before:
            self.leadership.intake._taken.update(self.__dict__.get("planted_taken", {}))

    return [(Driver, "_follow_role", follow_role)]


@_plant("D-3", "a late batch of an old boot is accepted", Mode.BOOTS)
def old_boot() -> Sequence[Patch]:
    original_accept, original_next = Origins.accept, intake_module.is_next

    def accept(self: Origins, origin: Any, boot: int, seq: int) -> bool:
        row = self.rows.get(origin)
        return (row is not None and boot < row.boot) or original_accept(self, origin, boot, seq)

    def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
        return batch_boot < boot or original_next(boot, seq, batch_boot, batch_seq)

    def later_boot(self: Driver, sender: Sender) -> int | None:
        return None

    return [
        (Origins, "accept", accept),
        (intake_module, "is_next", is_next),
        (Driver, "_later_boot", later_boot),
    ]


@_plant("D-2", "a gap in an origin's numbers is appended and applied", Mode.READS)
def gap() -> Sequence[Patch]:
    original_accept, original_next = Origins.accept, intake_module.is_next

    def accept(self: Origins, origin: Any, boot: int, seq: int) -> bool:
        row = self.rows.get(origin)
        if row is not None and boot == row.boot and seq > row.seq:
            row.seq = seq
            return True
        return original_accept(self, origin, boot, seq)

    def is_next(boot: int, seq: int, batch_boot: int, batch_seq: int) -> bool:
        return (batch_boot == boot and batch_seq > seq) or original_next(boot, seq, batch_boot, batch_seq)

    return [(Origins, "accept", accept), (intake_module, "is_next", is_next)]


@_plant("D-3a", "the older connection of a session on this server is still read after a resume", Mode.EXPIRY)
def keep_old_connection() -> Sequence[Patch]:
    original = Clients.attach

    def attach(self: Clients, connection: Connection, request: Any) -> None:
        held, self._by_session = self._by_session, {}
        attaching, self._attaching = self._attaching, {}
        original(self, connection, request)
        self._by_session = held
        self._attaching = {**attaching, **self._attaching}

    def moved(self: Clients, session: int, to: Connection | None) -> None:
        return

    return [(Clients, "attach", attach), (Clients, "on_session_moved", moved)]


# -- expiry and silence


@_plant("D-11", "time in which the process did not run ages sessions", Mode.EXPIRY)
def expiry_on_waking() -> Sequence[Patch]:
    original = Driver.turn

    def turn(self: Driver, now_ms: int, wall_ms: int) -> Effects:
        if self.applier.expiry is not None:
            self.applier.expiry.advance(max(0, now_ms - self.clock.now - clock_module.TURN_STEP_MS_MAX))
        return original(self, now_ms, wall_ms)

    return [(Driver, "turn", turn)]


@_plant("D-11", "the touch table is not read again after the quorum round", Mode.EXPIRY)
def table_not_read_again() -> Sequence[Patch]:
    original = SessionExpiry.confirmed

    def confirmed(self: SessionExpiry, sessions: Any, quorum_round: int) -> Any:
        with _replaced((SessionExpiry, "_aged", lambda self, session, record: True)):
            return original(self, sessions, quorum_round)

    return [(SessionExpiry, "confirmed", confirmed)]


@_plant("D-11", "EXPIRE is applied although the session attached or wrote since", Mode.EXPIRY)
def blind_expire() -> Sequence[Patch]:
    def expire(self: Machine, command: Any, zxid: int) -> Code:
        session = self.sessions.get(command[1])
        if session is None:
            return Code.UNKNOWN_SESSION
        self._end_session(session, zxid)
        return Code.OK

    return [(Machine, "_expire", expire)]


@_plant("D-11a", "touches of a session whose EXPIRE is in the log are acknowledged", Mode.EXPIRY)
def touch_while_expiring() -> Sequence[Patch]:
    original = SessionExpiry.accept_report

    def accept(self: SessionExpiry, server: Any, instance: Any, report: TouchReport, sessions: Any) -> Any:
        proposed, self._proposed = self._proposed, set()
        try:
            return original(self, server, instance, report, sessions)
        finally:
            self._proposed = proposed

    return [(SessionExpiry, "accept_report", accept)]


@_plant("D-14", "nothing is held: any open connection is answered", Mode.EXPIRY)
def nothing_held() -> Sequence[Patch]:
    def flush(self: Clients, now: int) -> list[Output]:
        dirty, self._dirty = self._dirty, []
        outputs: list[Output] = []
        for connection in dirty:
            connection.dirty = False
            outputs.append((connection, b"".join(connection.out), connection.closing))
            connection.out.clear()
            if connection.closing:
                self.release(connection)
        return outputs

    return [(Clients, "flush", flush), (Contact, "lost", property(lambda self: False))]


# -- what clients see


@_plant("D-15", "the events of a turn leave after its replies")
def event_after_reply() -> Sequence[Patch]:
    late: dict[Connection, list[bytes]] = {}
    original = Clients.flush

    def publish(self: Clients, events: Any, zxid: int) -> None:
        for event_type, path, acl in events:
            for connection in self.watches.trigger(event_type, path):
                assert isinstance(connection, Connection), "ZooKeeper's clients, in the simulation"
                if connection.phase is Phase.ATTACHED and permits(acl, READ, connection.ids):
                    late.setdefault(connection, []).append(encode_watch_event(zxid, event_type, path))

    def flush(self: Clients, now: int) -> list[Output]:
        for connection in list(late):
            if connection._clients is self:
                connection.out += late.pop(connection)
                if not connection.dirty:
                    self.mark_dirty(connection)
        return original(self, now)

    return [(Clients, "publish", publish), (Clients, "flush", flush)]


@_plant("design 4", "a read does not wait for the session's own writes before it")
def read_ahead() -> Sequence[Patch]:
    original_take, original_answer = Connection._take, Connection._answer
    early: dict[tuple[int, int], list[bytes]] = {}
    reads = (connection_module.GET_DATA, connection_module.EXISTS)

    def take(self: Connection, frames: list[bytes]) -> None:
        for frame in frames:
            xid, opcode = connection_module.HEADER(frame)
            if opcode in reads and frame[-1] == 0:
                out, self.out = self.out, []
                original_answer(self, opcode, xid, frame)
                early[id(self), xid], self.out = self.out, out
        original_take(self, frames)

    def answer(self: Connection, opcode: int, xid: int, frame: bytes) -> None:
        ready = early.pop((id(self), xid), None)
        if ready is None:
            original_answer(self, opcode, xid, frame)
        else:
            self.out += ready

    return [(Connection, "_take", take), (Connection, "_answer", answer)]


@_plant("6.4", "sync is answered from local state, without asking the leader", Mode.READS)
def local_sync() -> Sequence[Patch]:
    def ask(self: LinearizableReads, now: int) -> int | None:
        for connection in self._clients.take_syncs():
            connection.complete_sync()
        return None

    return [(LinearizableReads, "ask", ask)]


@_plant("6.4", "a leader answers ReadIndex without a quorum round", Mode.READS)
def read_index_without_quorum() -> Sequence[Patch]:
    def add_read(self: Raft, asker: ServerId, context: int) -> None:
        if asker == self.server:
            self._read_states.append((context, self.commit_index))
        else:
            self._send_with_hard_state(
                asker, ReadIndexReply(self.group, self.term, context, self.commit_index)
            )

    return [(Raft, "_add_read", add_read)]


@_plant("D-2", "what an origin has not applied is cut anew when it is sent again", Mode.ELECTIONS)
def batches_recut() -> Sequence[Patch]:
    original = OriginStream.on_leader_change

    def on_leader_change(self: OriginStream) -> None:
        original(self)
        batches = list(self._unapplied.values())
        if len(batches) < 2:
            return
        seq = batches[0].message.seq
        runs = [run for batch in batches for run in unpack_batch(batch.message.blob)[4]]
        blob = pack_batch(self._server, self._instance, self._boot, seq, runs)
        count = sum(batch.message.count for batch in batches)
        message = OriginBatch(COORDINATION_GROUP, self._boot, seq, count, blob)
        owners = [owner for batch in batches for owner in batch.owners]
        merged = NumberedBatch(message, owners, self._unapplied_bytes, batches[0].cut_at, batches[0].arrivals)
        self._unapplied = {seq: merged}
        self._last_seq = seq

    return [(OriginStream, "on_leader_change", on_leader_change)]


# -- rights, lifetimes, quotas and watches


@_plant("D-5", "a run's ACLs are checked with the ids of the run before it")
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


@_plant("trap 20", "reads behind an auth are answered to who the client was before it")
def reads_with_old_ids() -> Sequence[Patch]:
    def proved(self: Connection, ids: Any, reply: bytes) -> None:
        self.ids_of_writes = ids
        if self.queue:
            self.queue.append((connection_module.PROVED, 0, (self.ids, reply)))
            self._queued_bytes += connection_module.REQUEST_OVERHEAD_BYTES
        else:
            self._emit(reply)

    return [(Connection, "_proved", proved)]


@_plant("trap 20", "a write is logged with the ids of the last answered auth, not of the last sent")
def writes_with_old_ids() -> Sequence[Patch]:
    def submit(self: Clients, connection: Connection, commands: Any, size: int) -> None:
        self._origin.add(connection, connection.session, connection.ids, commands, size)

    return [(Clients, "submit", submit)]


@_plant("trap 14", "getACL shows the hashes of passwords to everybody who may read")
def unmasked_acl() -> Sequence[Patch]:
    original = tree_reads.get_acl

    def get_acl(machine: Machine, path: str, ids: Any) -> Any:
        found = original(machine, path, ids)
        return found if isinstance(found, Code) else (found[1].acl, found[1])

    return [(tree_reads, "get_acl", get_acl)]


@_plant("trap 25", "setACL moves mzxid")
def set_acl_moves_mzxid() -> Sequence[Patch]:
    original = Tree.set_acl

    def set_acl(self: Tree, command: Any, zxid: int) -> Any:
        result = original(self, command, zxid)
        if not isinstance(result, Code):
            result.mzxid = zxid
        return result

    return [(Tree, "set_acl", set_acl)]


@_plant("D-12", "REAP is applied as proposed, without judging again")
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


@_plant("D-12", "log time is the leader's wall clock: one that is a day ahead removes everything with a TTL")
def lifetimes_by_wall_clock() -> Sequence[Patch]:
    original = Leadership.lead

    def lead(self: Leadership, raft: Raft, now_ms: int, run_ms: int, wall_ms: int, **settled: bool) -> object:
        self._log_time_base = wall_ms - run_ms + self._began
        return original(self, raft, now_ms, run_ms, wall_ms, **settled)

    return [(Leadership, "lead", lead)]


@_plant("multi", "a failed multi leaves what it counted in the usage of a quota")
def usage_of_failed_multi() -> Sequence[Patch]:
    def undo_usage(tree: Tree, stats: Any, data: bytes | None) -> None:
        return

    return [(quota_usage_module, "_undo_usage", undo_usage)]


@_plant("trap 10", "a recursive watch hears of children, not of what is below them")
def recursive_misses_grandchildren() -> Sequence[Patch]:
    original = WatchTable._recursive_above

    def recursive_above(self: Any, path: str) -> list[Any]:
        above = path.rpartition("/")[0]
        row = self._data.get(above or "/", {}) if path != "/" else {}
        return [watcher for watcher in original(self, path) if watcher in row]

    return [(WatchTable, "_recursive_above", recursive_above)]


@_plant("watches", "a lasting watch is spent by its first event")
def lasting_watch_consumed() -> Sequence[Patch]:
    def consume(self: Any, table: Any, kind: int, path: str) -> list[Any]:
        row = table.pop(path, {})
        for watcher, modes in row.items():
            self._recount(modes, 0)
            self._forget(kind, path, watcher)
        return list(row)

    return [(WatchTable, "_consume", consume)]


@_plant("trap 9", "a lasting watch is told what was missed while its client was away")
def lasting_watch_catches_up() -> Sequence[Patch]:
    original = queries_module._watch_again

    def watch_again(clients: Clients, connection: Connection, xid: int, again: Any) -> Any:
        reply = original(clients, connection, xid, again)
        assert isinstance(reply, bytes), "setWatches is never refused"
        events = []
        for path in again.persistent:
            node = clients.machine.nodes.get(path)
            if node is not None and node.mzxid > again.relative_zxid:
                events.append(encode_watch_event(-1, 3, path))
        return b"".join(events) + reply

    return [(queries_module, "_watch_again", watch_again)]


@_plant("trap 15", "an event is told to who may not read the znode")
def event_without_read() -> Sequence[Patch]:
    return [(clients_module, "permits", lambda acl, permission, ids: True)]


@_plant("watches", "readers of a server without a quorum are told no events (found by seed 0)", Mode.READS)
def silent_readers() -> Sequence[Patch]:
    def publish(self: Clients, events: Any, zxid: int) -> None:
        for event_type, path, acl in events:
            for connection in self.watches.trigger(event_type, path):
                if connection.phase is Phase.ATTACHED and permits(acl, READ, connection.ids):
                    connection.on_event(zxid, event_type, path)

    return [(Clients, "publish", publish)]


@_plant("D-7", "a server without a quorum also serves what its log holds beyond the last commit", Mode.READS)
def uncommitted_to_readers() -> Sequence[Patch]:
    original = Driver._advance

    def advance(self: Driver, raft: Raft) -> None:
        original(self, raft)
        if self.contact.stale and raft.role is not Role.LEADER and not self.clients.serving:
            self.applier.apply_committed(raft.log, raft.log.last_index)

    return [(Driver, "_advance", advance)]


# -- feature level 3


@_plant("exactly once", "what numbered commands came to is forgotten when the session moves", Mode.BOOTS)
def once_forgets_on_attach() -> Sequence[Patch]:
    original = Machine._attach

    def attach(self: Machine, command: Any, zxid: int) -> Any:
        session = original(self, command, zxid)
        if isinstance(session, Session):
            session.kept = None
        return session

    return [(Machine, "_attach", attach)]


@_plant("D-19", "a session ends and its will is not done")
def will_dropped() -> Sequence[Patch]:
    return [(machine_module, "carry_out", lambda tree, will, zxid: True)]


@_plant("D-20", "what was truncated is there until it is out of memory")
def truncated_visible() -> Sequence[Patch]:
    return [(znodes_module, "is_hidden", lambda hidden, path: False)]
