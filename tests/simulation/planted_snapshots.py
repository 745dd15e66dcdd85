"""Planted bugs of snapshots, of the log that is cut behind them, and of disks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from attrs import evolve

from tests.simulation.planted_registry import Patch, plant, replaced
from tests.simulation.profile import Mode
from zraft.groups.replica import Replica
from zraft.groups.snapshots.keeper import SnapshotKeeper
from zraft.groups.snapshots.receiving import ReceivedSnapshot, SnapshotReceiver
from zraft.raft.core import Raft
from zraft.raft.log import Log
from zraft.raft.messages import (
    HardState,
)
from zraft.raft.snapshot import SnapshotMeta
from zraft.raft.writes import Writes
from zraft.server.clients.output import Output
from zraft.server.clients.table import Clients
from zraft.server.coordination.origin import OriginStream
from zraft.server.engine.driver import Driver
from zraft.storage import durable as durable_module
from zraft.storage import segments as segments_module
from zraft.storage import snapshots as snapshot_store_module
from zraft.storage import wal as wal_module
from zraft.storage.errors import DiskFullError, FsyncError
from zraft.storage.frames import HEAD_BYTES
from zraft.storage.wal import Wal
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine

# -- snapshots and the log's end


@plant("D-4", "a late offer of a snapshot takes back what was committed since", Mode.SNAPSHOTS)
def old_snapshot_accepted() -> Sequence[Patch]:
    def keep(self: Driver, replica: Replica, wall_ms: int) -> None:
        raft = replica.raft
        arrived = self.snapshots.turn(
            self.clock.now, wall_ms, raft, replica.where_applied, self.cluster, idle=self.origin.idle
        )
        for to, message in self.snapshots.work.take_outgoing():
            self._outbox.send(to, message)
        for received in arrived:
            raft.restore(received.info.meta)
            self._adopt(received)

    return [
        (SnapshotReceiver, "_is_needed", lambda self, offer, commit_index: True),
        (Driver, "_keep_snapshots", keep),
        (Raft, "_accepts_snapshot", lambda self, meta: True),
    ]


@plant("D-4", "clients stay connected to a server whose state a snapshot replaced", Mode.SNAPSHOTS)
def snapshot_keeps_clients() -> Sequence[Patch]:
    original = Driver._adopt

    def adopt(self: Driver, received: ReceivedSnapshot) -> None:
        with replaced((Clients, "close_all", lambda self: None)):
            original(self, received)

    return [(Driver, "_adopt", adopt)]


@plant("D-4", "what was to be said to clients when a snapshot replaces the state is still said")
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

    def adopt(self: Driver, received: ReceivedSnapshot) -> None:
        with replaced((Clients, "close_all", close_all)):
            original(self, received)
        adopting.add(self.clients)

    return [(Driver, "_adopt", adopt), (Clients, "flush", flush_once)]


@plant("D-4", "a server forgets the batches that the snapshot which replaced its state does not cover")
def uncovered_batches_dropped() -> Sequence[Patch]:
    original = OriginStream.on_restore

    def on_restore(self: OriginStream, boot: int, seq: int) -> list[Any]:
        owners = original(self, boot, seq)
        self.unapplied.clear()
        return owners

    return [(OriginStream, "on_restore", on_restore)]


@plant("D-4", "a server keeps the batches that the snapshot which replaced its state covers")
def covered_batches_kept() -> Sequence[Patch]:
    original = OriginStream.on_restore

    def on_restore(self: OriginStream, boot: int, seq: int) -> list[Any]:
        return original(self, boot, 0)

    return [(OriginStream, "on_restore", on_restore)]


def _durable_at_once(*arguments: Any) -> None:
    """In place of an fsync."""


@plant("D-10", "a snapshot's name is not made durable (no fsync of its directory)", Mode.SNAPSHOTS)
def directory_not_synced() -> Sequence[Patch]:
    return [(snapshot_store_module, "sync_directory", _durable_at_once)]


@plant("D-10", "a snapshot gets its name before its fsync", Mode.SNAPSHOTS)
def snapshot_before_fsync() -> Sequence[Patch]:
    return [(snapshot_store_module, "sync_file", _durable_at_once)]


@plant("D-4", "the log is cut behind what is applied, not behind the snapshot", Mode.SNAPSHOTS)
def compaction_above_snapshot() -> Sequence[Patch]:
    def may_compact_to(self: SnapshotKeeper, needed: Any, pulled: int | None = None) -> int:
        index: int = self._machine.index
        return index if self.newest is not None else 0

    return [(SnapshotKeeper, "may_compact_to", may_compact_to)]


@plant("D-7", "what was being written when the log began anew after a snapshot counts for the new log")
def restore_acknowledged_early() -> Sequence[Patch]:
    original = Writes.restore

    def restore(self: Writes, meta: SnapshotMeta) -> None:
        with replaced((Writes, "_limit_durable", lambda self, index: None)):
            original(self, meta)

    return [(Writes, "restore", restore)]


@plant("D-4", "that the log begins anew after a snapshot is never written", Mode.SNAPSHOTS)
def restore_not_written() -> Sequence[Patch]:
    original = Writes.take

    def take(self: Writes, last_index: int) -> Any:
        write = original(self, last_index)
        return None if write is None else evolve(write, restore=None)

    return [(Writes, "take", take)]


@plant("D-10", "a new segment does not repeat the term and the vote", Mode.SNAPSHOTS)
def hard_state_not_repeated() -> Sequence[Patch]:
    original = Wal._bases

    def bases(self: Wal) -> Any:
        return [evolve(base, hard_state=HardState()) for base in original(self)]

    return [(Wal, "_bases", bases)]


@plant("D-4", "an image is taken while the state goes on changing under it", Mode.SNAPSHOTS)
def torn_image() -> Sequence[Patch]:
    return [(ImageWriter, "_before_node", lambda self, path: None)]


@plant("D-18", "who is wanted is lost with a snapshot", Mode.MEMBERS)
def snapshot_without_members() -> Sequence[Patch]:
    original = Machine.adopt

    def adopt(self: Machine, state: Any) -> Any:
        remains = original(self, state)
        self.members = {}
        return remains

    return [(Machine, "adopt", adopt)]


@plant("D-16", "positions begin anew after a snapshot", Mode.SNAPSHOTS)
def position_lost() -> Sequence[Patch]:
    original = Replica.stands_at

    def stands_at(self: Replica, meta: SnapshotMeta) -> None:
        original(self, meta)
        self.next_position = 1

    return [(Replica, "stands_at", stands_at)]


@plant("D-1", "the configuration of a snapshot is not taken over with it", Mode.MEMBERS)
def configuration_of_snapshot_ignored() -> Sequence[Patch]:
    original = Log.restart_after

    def restart_after(self: Log, meta: SnapshotMeta) -> None:
        before = list(self._memberships)
        original(self, meta)
        self._memberships = before or self._memberships

    return [(Log, "restart_after", restart_after)]


# -- disks


@plant("D-10", "entries that a full disk refused count as written", Mode.DISKS)
def full_disk_acknowledged() -> Sequence[Patch]:
    original = Wal.append

    def append(self: Wal, records: Any) -> None:
        with suppress(DiskFullError):
            original(self, records)

    return [(Wal, "append", append)]


@plant("D-10", "a failed fsync is passed over", Mode.DISKS)
def failed_fsync_ignored() -> Sequence[Patch]:
    original = durable_module.sync_file

    def sync_file(*arguments: Any) -> None:
        with suppress(FsyncError):
            original(*arguments)

    write = Wal._write

    def write_frame(self: Wal, body: bytes) -> int:
        with suppress(FsyncError):
            return write(self, body)
        return HEAD_BYTES + len(body)

    return [
        (Wal, "_write", write_frame),
        (wal_module, "sync_file", sync_file),
        (segments_module, "sync_file", sync_file),
    ]
