"""The state of a stopped server: its newest snapshot, with all of its log applied to it."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from zraft.offline.errors import OfflineError
from zraft.offline.founding import Origin
from zraft.offline.reading import machine_of
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind
from zraft.storage.directory import DataDirectory
from zraft.storage.errors import CutSegment
from zraft.storage.filesystem import FileSystem
from zraft.storage.recovery import GroupRecovered
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP
from zraft_core.znodes.txn import command_count, unpack_entry

READ_BYTES = 4 << 20


@frozen
class Replayed:
    """Contents of a data directory.

    Attributes:
        origin: where its log ends.
        snapshot_index: of the entry after which the snapshot was taken, 0 if the whole log was applied.
        entries: how many entries were applied after it.
        membership: the configuration of the old cluster, as far as this server knew; None if it never had one.
        cut: the log was cut short, and this is what is left; None: it was not, as far as anybody knows.
    """

    machine: Machine
    origin: Origin
    snapshot_index: int
    entries: int
    membership: Membership | None
    cut: CutSegment | None = None


def replay(
    fs: FileSystem,
    directory: DataDirectory,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> Replayed:
    """Return everything the directory knows, committed or not. This changes nothing in it.

    `on_progress` gets (index applied, last index).

    Raises:
        OfflineError: there is nothing.
        CorruptionError: the log or all snapshots are damaged, otherwise than by a cut of the log's last
            file.
        FeatureLevelError: a newer release wrote it.
        ProtocolError: a newer release wrote it, or an entry cannot be read.
    """
    store = SnapshotStore.open(fs, directory, COORDINATION_GROUP)
    newest = store.newest
    snapshots = {COORDINATION_GROUP: newest.meta} if newest is not None else {}
    wal, recovered = Wal.open(fs, directory, snapshots=snapshots, read_only=True)
    try:
        group = recovered.groups.get(COORDINATION_GROUP)
        if group is None or group.last_index == 0:
            raise OfflineError(
                f"{directory.path}: its log is empty: this server has never been part of a cluster; use the directory of "
                "another one, or `zraft snapshot restore`"
            )
        return evolve(_apply(store, newest, wal, group, on_progress), cut=recovered.report.cut)
    finally:
        wal.close()
        store.close()


def _apply(
    store: SnapshotStore,
    newest: SnapshotInfo | None,
    wal: Wal,
    group: GroupRecovered,
    on_progress: Callable[[int, int], None],
) -> Replayed:
    machine = Machine()
    begin, term, next_position = 0, 0, 1
    payload: bytes | None = None
    if newest is not None:
        machine = machine_of(store.blocks(newest), newest.path)
        begin, term, next_position = newest.meta.index, newest.meta.term, newest.meta.next_position
        payload = newest.meta.membership
    index = begin
    while index < group.last_index:
        for entry in wal.read_entries(COORDINATION_GROUP, index + 1, group.last_index + 1, READ_BYTES):
            apply_entry(machine, entry)
            if entry.kind is EntryKind.MEMBERSHIP:
                payload = entry.payload
            index, term, next_position = entry.index, entry.term, entry.next_position
        on_progress(index, group.last_index)
    return Replayed(
        machine,
        Origin(index, term, next_position, max(term, group.hard_state.term)),
        begin,
        index - begin,
        Membership.decode(payload) if payload is not None else None,
    )


def apply_entry(machine: Machine, entry: Entry) -> None:
    """Apply a committed entry to the state, as on every server; nobody waits for results or events here.

    Raises:
        ProtocolError: it is of a format that this release does not know.
        FeatureLevelError: it raises the feature level above those that this release knows.
    """
    if entry.kind is EntryKind.COMMANDS:
        log_time, wall_time, batches = unpack_entry(entry.payload)
        machine.begin_entry(entry.index, entry.term, entry.position, log_time, wall_time)
        for server, instance, boot, seq, runs in batches:
            if not machine.begin_batch(server, instance, boot, seq):
                machine.skip_batch(command_count(runs))
                continue
            for session, ids, commands in runs:
                machine.begin_run(session, ids)
                for command in commands:
                    machine.execute(command)
                    machine.events.clear()
        return
    if entry.kind is EntryKind.MEMBERSHIP:
        members = Membership.decode(entry.payload).members
        machine.set_members(
            [(server, member.instance) for server, member in members.items() if member.instance]
        )
    machine.pass_entry(entry.index, entry.term)
