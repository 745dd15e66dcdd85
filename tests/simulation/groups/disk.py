"""Owns the disk of one simulated host of groups: the shipped log and snapshot stores on a `SimulatedDisk`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from tests.simulation.disk import Trouble
from tests.simulation.server_disk import DEATHS, ServerDisk
from zraft.groups.effects import SnapshotTask
from zraft.groups.recovery import open_stores, stored_group
from zraft.groups.replica import StoredGroup
from zraft.storage.recovery import Recovered
from zraft.storage.settings import WalSettings
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal
from zraft_core.ids import GroupId, Instance, ServerId

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


class GroupsDisk(ServerDisk):
    """One disk through all boots of its server, until it is replaced."""

    def __init__(self, server: ServerId, rng: random.Random) -> None:
        super().__init__(server, rng)
        self._stores: dict[GroupId, SnapshotStore] = {}
        self._entropy: Callable[[int], bytes] = rng.randbytes

    def open(self, entropy: Callable[[int], bytes]) -> Opened:
        """As a starting server does it: directory, snapshots of all groups, then the log on the strength of these."""
        fs = self.disk
        self._entropy = entropy
        directory = self._open_directory(entropy)
        self._stores = open_stores(fs, directory)
        newest = {group: store.newest for group, store in self._stores.items() if store.newest is not None}
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

    def stored(self, opened: Opened, group: GroupId) -> StoredGroup:
        """One group as the start found it."""
        info = opened.snapshots.get(group)
        snapshot = None if info is None else (info.meta, self.image(group))
        return stored_group(self.wal, group, opened.recovered.groups.get(group), snapshot)

    def image(self, group: GroupId) -> bytes:
        """Of its newest snapshot."""
        store = self._stores[group]
        assert store.newest is not None
        return b"".join(store.blocks(store.newest))

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        store = self._stores.get(group)
        return store.newest if store is not None else None

    def perform(self, task: SnapshotTask) -> SnapshotInfo:
        """Durable on return."""
        directory = self.directory
        assert directory is not None
        store = self._stores.get(task.group)
        if store is None:
            store = self._stores[task.group] = SnapshotStore.open(self.disk, directory, task.group)
        store.begin(
            SnapshotHeader(
                task.group, task.meta, b"", self._server, directory.instance, self._entropy(16), 1, 0
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
            # Durable before the log may lose the word of the group's end (docs/explanation/groups.md).
            self.disk.unlink(info.path)
            self.disk.fsync_directory(info.path.rpartition("/")[0])

    def _death(self) -> tuple[int, Trouble]:
        trouble = self._rng.choice(DEATHS)
        return self._rng.choice((1, 2, 2, 2, 3, 5, 8)), trouble

    def crash(self, power: bool | None = None) -> None:
        super().crash(power)
        self._stores = {}
