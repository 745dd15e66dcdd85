"""A server's storage through many lives: log and snapshots beside a model of what must be there."""

from __future__ import annotations

from random import Random

from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.scenario import (
    GROUP,
    OTHER,
    PATH,
    SERVER,
    SMALL,
    Model,
    check,
    entropy_of,
    random_records,
)
from zraft.raft.messages import HardState
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.filesystem import FileSystem
from zraft.storage.records import HardStateRecord, Record, RestoreRecord
from zraft.storage.recovery import Recovered
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft_core.ids import GroupId, Instance

CLUSTER = b"c" * 16


def image_of(meta: SnapshotMeta) -> list[bytes]:
    """Pieces that stand for a state machine's image at `meta`; more than a page, compressible or not."""
    rng = Random(meta.index)
    return [b"znode %d " % meta.index * 300, rng.randbytes(rng.randint(1, 9000)), b"end"]


def header_of(meta: SnapshotMeta, *, group: GroupId = GROUP, cluster: bytes = CLUSTER) -> SnapshotHeader:
    id = Random(f"{meta.index}/{meta.term}").randbytes(16)
    return SnapshotHeader(group, meta, cluster, SERVER, Instance(bytes(16)), id, 1, 1_700_000_000_000)


def write_snapshot(store: SnapshotStore, meta: SnapshotMeta, *, cluster: bytes = CLUSTER) -> SnapshotInfo:
    store.begin(header_of(meta, cluster=cluster))
    for piece in image_of(meta):
        store.write(piece)
    return store.finish(items=7, digest=1 << 127 | meta.index, zxid=meta.next_position)


def open_store(fs: FileSystem, *, seed: int = 1, path: str = PATH) -> tuple[DataDirectory, SnapshotStore]:
    directory = DataDirectory.open(fs, path, server=SERVER, entropy=entropy_of(seed))
    return directory, SnapshotStore.open(fs, directory, GROUP)


def snapshot_bytes(meta: SnapshotMeta) -> tuple[SnapshotInfo, bytes]:
    """A snapshot as another server has it."""
    disk = SimulatedDisk()
    _, store = open_store(disk, seed=77)
    info = write_snapshot(store, meta)
    return info, disk.contents(info.path)


class Life:
    """One server's log through crashes; snapshots are only said to be there.

    `before` is what was acknowledged, `after` what a write in flight would make of it.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.snapshots: dict[GroupId, SnapshotMeta] = {}
        self.before = Model()
        self.after = self.before
        self.boot = 0
        self.removed = 0
        self.directory: DataDirectory
        self.wal: Wal
        self.recovered: Recovered

    def start(self) -> None:
        """Open; whichever of the two states is there must be there exactly, and from then on for good."""
        self.boot += 1
        self.directory = DataDirectory.open(self.disk, PATH, server=SERVER, entropy=entropy_of(self.boot))
        self.find_snapshots()
        self.wal, self.recovered = Wal.open(
            self.disk, self.directory, settings=SMALL, snapshots=self.snapshots
        )
        states = [self._with_snapshots(state) for state in (self.after, self.before)]
        for state in states:
            try:
                check(self.wal, self.recovered, state)
            except AssertionError:
                if state is states[-1]:
                    raise
            else:
                self.before = self.after = state
                return

    def find_snapshots(self) -> None:
        """Bring `snapshots` up to date with the disk."""

    def _with_snapshots(self, state: Model) -> Model:
        """A log that ends before its snapshot or contradicts it begins after it."""
        state = state.copy()
        for id, meta in self.snapshots.items():
            group = state.group(id)
            if group.last_index >= meta.index and group.meta(meta.index).term == meta.term:
                continue
            if group.hard_state.term < meta.term:
                state.apply([HardStateRecord(id, HardState(meta.term, None))])
            state.apply([RestoreRecord(id, meta)])
        return state

    def append(self, *records: Record) -> None:
        self.after = self.before.copy()
        self.after.apply(records)
        self.wal.append(records)
        self.before = self.after

    def compact(self, id: GroupId, index: int) -> None:
        """A snapshot at `index` is durable."""
        group = self.before.group(id)
        if index <= group.base.index:
            return
        self.snapshots[id] = group.meta(index)
        self.compact_log(id, index)

    def compact_log(self, id: GroupId, index: int) -> None:
        group = self.before.group(id)
        group.compacted = max(group.compacted, index)
        self.removed += self.wal.compact(id, index)

    def restore(self, id: GroupId, meta: SnapshotMeta) -> None:
        """A snapshot from another server is durable, and then the log says so."""
        self.snapshots[id] = meta
        group = self.before.group(id)
        records: list[Record] = []
        if group.hard_state.term < meta.term:
            records.append(HardStateRecord(id, HardState(meta.term, None)))
        self.append(*records, RestoreRecord(id, meta))
        self.compact_log(id, meta.index)

    def random_turn(self, rng: Random) -> None:
        chance = rng.random()
        id = rng.choice((GROUP, OTHER))
        group = self.before.group(id)
        if chance < 0.2 and group.last_index > group.base.index:
            self.compact(id, rng.randint(max(group.compacted, group.last_index - 10), group.last_index))
        elif chance < 0.25:
            index = group.last_index + rng.randint(-3, 9)
            if index > max(group.compacted, group.base.index):
                meta = SnapshotMeta(index, group.last_term + 1, rng.randint(1, 99), b"members")
                self.restore(id, meta)
        else:
            self.append(*random_records(self.before, rng))


class NodeLife(Life):
    """The same with real snapshot files of one group.

    `acknowledged` are the ids whose snapshot was reported durable and was not purged, oldest first; `metas` all that
    were ever begun.
    """

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__(disk)
        self.metas: dict[bytes, SnapshotMeta] = {}
        self.acknowledged: list[bytes] = []
        self.store: SnapshotStore

    def find_snapshots(self) -> None:
        self.store = SnapshotStore.open(self.disk, self.directory, GROUP)
        assert self.store.damaged == ()
        found = [info.id for info in self.store.infos]
        assert set(self.acknowledged) <= set(found)
        for info in self.store.infos:
            assert info.meta == self.metas[info.id]
            assert b"".join(self.store.blocks(info)) == b"".join(image_of(info.meta))
        assert not [name for name in self.disk.listdir(f"{PATH}/groups/0/snap") if name.endswith(".tmp")]
        self.acknowledged = found
        newest = self.store.newest
        self.snapshots = {GROUP: newest.meta} if newest else {}

    def take_snapshot(self, index: int) -> None:
        meta = self.before.group(GROUP).meta(index)
        self.metas[header_of(meta).id] = meta
        info = write_snapshot(self.store, meta)
        self.acknowledged.append(info.id)
        self.snapshots[GROUP] = meta

    def compact_to_fallback(self) -> None:
        if self.store.fallback is not None:
            self.compact_log(GROUP, self.store.fallback.meta.index)

    def purge(self, keep: int) -> None:
        del self.acknowledged[:-keep]
        self.store.purge(keep)

    def install(self, meta: SnapshotMeta, *, piece: int = 2000) -> None:
        """Receive it in pieces, then let the log say so, as the driver does."""
        info, data = snapshot_bytes(meta)
        self.metas[info.id] = meta
        have = self.store.receive(info.id, info.size)
        while have < info.size:
            have = self.store.store(info.id, have, data[have : have + piece])
        self.store.complete(info.id)
        self.acknowledged.append(info.id)
        self.restore(GROUP, meta)
