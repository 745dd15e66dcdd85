"""States to found clusters with, and directories of clusters that were."""

from __future__ import annotations

import os
from pathlib import Path

from tests.unit.tree.scenario import Scenario
from zraft.groups.recovery import restore_machine
from zraft.offline.founders import Founders
from zraft.offline.founding import Founded, Origin, check_empty, claimed, found
from zraft.raft.membership.value import Membership
from zraft.raft.messages import Entry, EntryKind, HardState, Member
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import FileSystem, RealFileSystem
from zraft.storage.records import EntryRecord, HardStateRecord
from zraft.storage.snapshot_format import SnapshotHeader
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft.tree.image.writer import ImageWriter
from zraft.tree.machine import Machine
from zraft_core.ids import COORDINATION_GROUP, Instance, ServerId
from zraft_core.znodes.txn import CREATE, CREATE_SESSION, REGISTER, SETTINGS, Command, pack_batch, pack_entry

ONE = ServerId(1)
FOUNDERS = Founders(ONE, {ONE: "a:1", ServerId(2): "b:2", ServerId(3): "c:3"})
ORIGIN = Origin(index=70, term=3, next_position=90, hard_term=5)
CLUSTER = b"the old cluster!"
PASSWORD = b"p" * 16


def rich() -> Machine:
    """A machine with some of everything."""
    scenario = Scenario()
    scenario.run((CREATE, "/a", b"data", None, 0, 0))
    scenario.run((CREATE, "/a/s-", b"x" * 5_000, None, 2, 0))
    scenario.run((CREATE, "/e", None, None, 1, 0))
    return scenario.machine


def found_at(path: Path, machine: Machine | None = None, *, fs: FileSystem | None = None) -> Founded:
    """As `zraft snapshot restore` does it."""
    fs = fs if fs is not None else RealFileSystem()
    with claimed(fs, str(path)):
        check_empty(fs, str(path))
        return found(
            fs,
            str(path),
            machine if machine is not None else rich(),
            FOUNDERS,
            ORIGIN,
            replaces=None,
            entropy=os.urandom,
            wall_ms=1,
        )


def opened(path: Path) -> tuple[DataDirectory, Wal, Machine, SnapshotMeta, HardState]:
    """What a server finds at its start."""
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    store = SnapshotStore.open(fs, directory, COORDINATION_GROUP)
    assert store.newest is not None
    meta = store.newest.meta
    wal, recovered = Wal.open(fs, directory, snapshots={COORDINATION_GROUP: meta})
    group = recovered.groups[COORDINATION_GROUP]
    assert group.base == meta
    machine = restore_machine(store, store.newest)
    wal.close()
    directory.close()
    return directory, wal, machine, meta, group.hard_state


def entries(instance: Instance, count: int, *last: Command) -> list[Entry]:
    """A log: who belongs to the cluster, a session, `count` znodes that it creates, and a leader's `last` commands."""
    made: list[Entry] = []
    position = 1

    def add(kind: EntryKind, payload: bytes, commands: int) -> None:
        nonlocal position
        made.append(Entry(len(made) + 1, 1, kind, position, commands, payload))
        position += commands

    def batch(seq: int, session: int, *commands: tuple[object, ...]) -> None:
        blob = pack_batch(ONE, instance, 1, seq, [(session, (), list(commands))])
        add(EntryKind.COMMANDS, pack_entry(1_000 * seq, 1_700_000_000_000 + seq, [blob]), len(commands))

    add(EntryKind.MEMBERSHIP, Membership({ONE: Member(instance, address="a:1")}).encode(), 0)
    add(EntryKind.NOOP, b"", 0)
    batch(1, 0, (REGISTER, b"boot id!"))
    leaders = pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), [(SETTINGS, {"quota_enforced": 1})])])
    add(EntryKind.COMMANDS, pack_entry(1_500, 1_700_000_000_001, [leaders]), 1)
    batch(2, 0, (CREATE_SESSION, 10_000, PASSWORD))
    # The first of the epoch; after the register and the settings.
    session = (1 << 56) | ((1 << 32) + 2)
    for number in range(count):
        batch(
            3 + number,
            session,
            (CREATE, f"/n{number}", b"%d" % number, None, 0, 0),
            (CREATE, "/n0", b"", None, 0, 0),
        )
    if last:
        blob = pack_batch(ServerId(0), Instance(b""), 0, 0, [(0, (), list(last))])
        add(EntryKind.COMMANDS, pack_entry(1 << 30, 1_700_000_000_000, [blob]), len(last))
    return made


def server_directory(path: Path, *last: Command, count: int = 20) -> Instance:
    """The directory of a server that was killed, with a log that was never compacted."""
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    directory.set_cluster(CLUSTER)
    wal, _ = Wal.open(fs, directory)
    wal.append([HardStateRecord(COORDINATION_GROUP, HardState(4, ONE))])
    for entry in entries(directory.instance, count, *last):
        wal.append([EntryRecord(COORDINATION_GROUP, entry)])
    wal.close()
    directory.close()
    return directory.instance


def snapshot_of(path: Path, machine: Machine, meta: SnapshotMeta) -> None:
    """Adds a snapshot of its state to a server's directory."""
    fs = RealFileSystem()
    directory = DataDirectory.open(fs, str(path), server=ONE, entropy=os.urandom)
    store = SnapshotStore.open(fs, directory, COORDINATION_GROUP)
    writer = ImageWriter(machine)
    store.begin(
        SnapshotHeader(
            COORDINATION_GROUP, meta, CLUSTER, ONE, directory.instance, b"i" * 16, machine.feature_level, 1
        )
    )
    while piece := writer.step(1_000, 1 << 20):
        store.write(piece)
    store.finish(writer.items, writer.digest, writer.zxid)
    directory.close()
