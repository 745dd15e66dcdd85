"""Owns the disk of one simulated host of groups: the shipped log and snapshot stores on a `SimulatedDisk`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from attrs import frozen

from tests.simulation.disk import ProcessDied, SimulatedDisk, Trouble
from zraft.groups.effects import SnapshotTask
from zraft.groups.recovery import stored_group
from zraft.groups.replica import StoredGroup
from zraft.storage.directory import DataDirectory
from zraft.storage.records import Record
from zraft.storage.recovery import Recovered
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId, Instance, ServerId

PATH: Final = "/data"

WAL_SETTINGS: Final = WalSettings(
    segment_bytes_max=192 * 1024, group_tail_bytes_max=2 * 1024, index_stride_bytes=1024
)
"""Small enough that a run begins several segments, each of which restates what all groups stand at."""


@frozen
class Opened:
    """What a start found. `forgotten` are groups that are gone for good."""

    instance: Instance
    boot: int
    recovered: Recovered
    snapshots: Mapping[GroupId, SnapshotInfo]


class GroupsDisk:
    """One disk through all boots of its server, until it is replaced."""

    def __init__(self, server: ServerId, rng: random.Random) -> None:
        self._server = server
        self._rng = rng
        self.disk = SimulatedDisk()
        self._directory: DataDirectory | None = None
        self._wal: Wal | None = None
        self._stores: dict[GroupId, SnapshotStore] = {}
        self._entropy: Callable[[int], bytes] = rng.randbytes

    def open(self, entropy: Callable[[int], bytes]) -> Opened:
        """As a starting server does it: directory, snapshots of all groups, then the log on the strength of these."""
        fs = self.disk
        self._entropy = entropy
        self._directory = directory = DataDirectory.open(fs, PATH, server=self._server, entropy=entropy)
        self._stores = {}
        newest: dict[GroupId, SnapshotInfo] = {}
        names = fs.listdir(f"{PATH}/groups") if "groups" in fs.listdir(PATH) else []
        for group in sorted(GroupId(int(name)) for name in names):
            store = self._stores[group] = SnapshotStore.open(fs, directory, group)
            if store.newest is not None:
                newest[group] = store.newest
        self._wal, recovered = Wal.open(
            fs,
            directory,
            settings=WAL_SETTINGS,
            snapshots={group: info.meta for group, info in newest.items()},
        )
        for group in recovered.forgotten:
            newest.pop(group, None)
            self.forget(group)
        return Opened(directory.instance, directory.boot, recovered, newest)

    @property
    def directory(self) -> DataDirectory:
        """Of the start that runs."""
        assert self._directory is not None
        return self._directory

    def stored(self, opened: Opened, group: GroupId) -> StoredGroup:
        """One group as the start found it."""
        info = opened.snapshots.get(group)
        snapshot = None if info is None else (info.meta, self.image(group))
        wal = self._wal
        assert wal is not None
        return stored_group(wal, group, opened.recovered.groups.get(group), snapshot)

    def image(self, group: GroupId) -> bytes:
        """Of its newest snapshot."""
        store = self._stores[group]
        assert store.newest is not None
        return b"".join(store.blocks(store.newest))

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        store = self._stores.get(group)
        return store.newest if store is not None else None

    def append(self, records: Sequence[Record]) -> None:
        """Durable on return."""
        assert self._wal is not None
        self._wal.append(records)

    def compact(self, group: GroupId, index: int) -> None:
        assert self._wal is not None
        self._wal.compact(group, index)

    @property
    def segments(self) -> int:
        """How many there are now."""
        assert self._wal is not None
        return self._wal.statistics().segments

    def snapshot(self, task: SnapshotTask) -> SnapshotInfo:
        """Durable on return."""
        assert self._directory is not None
        store = self._stores.get(task.group)
        if store is None:
            store = self._stores[task.group] = SnapshotStore.open(self.disk, self._directory, task.group)
        store.begin(
            SnapshotHeader(
                task.group, task.meta, b"", self._server, self._directory.instance, self._entropy(16), 1, 0
            )
        )
        store.write(task.image)
        info = store.finish(1, task.digest, 0)
        store.purge(1)
        return info

    def forget(self, group: GroupId) -> None:
        """What is left of a group that is gone."""
        store = self._stores.pop(group, None)
        for info in store.infos if store is not None else ():
            # Durable before the log may lose the word of the group's end (docs/GROUPS.md).
            self.disk.unlink(info.path)
            self.disk.fsync_directory(info.path.rpartition("/")[0])

    def tear(self, records: Sequence[Record] | None, task: SnapshotTask | None) -> None:
        """The power fails while this is being done: nothing of it, a part, or all of it may survive."""
        rng = self._rng
        if rng.random() < 0.25:
            return
        trouble = rng.choice((Trouble.DIE_BEFORE, Trouble.DIE_DURING, Trouble.DIE_AFTER))
        self.disk.fail_at(rng.choice((1, 2, 2, 2, 3, 5, 8)), trouble, rng)
        try:
            if records is not None:
                self.append(records)
            if task is not None:
                self.snapshot(task)
        except (ProcessDied, StorageError):
            pass

    def crash(self) -> None:
        """The machine loses its power, or, less often, only the process dies and the page cache survives."""
        if self._rng.random() < 0.75:
            self.disk.crash(self._rng)
        else:
            self.disk.kill()
        self._wal = self._directory = None
        self._stores = {}
