"""From the data directory to what each group starts with: all snapshots are found first, then the log is opened (D-13).

A group's image is read at the start as well: later, when the coordination group's state has said that the group still
exists, the loop has no time for files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from zraft.groups.recovery import stored_group
from zraft.groups.replica import StoredGroup
from zraft.ids import COORDINATION_GROUP, GroupId
from zraft.raft.log import Archive
from zraft.raft.messages import Entry
from zraft.raft.snapshot import SnapshotMeta
from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, remove_if_hollow
from zraft.storage.filesystem import FileSystem
from zraft.storage.recovery import Recovered
from zraft.storage.snapshot_format import SnapshotInfo
from zraft.storage.snapshots import SnapshotStore
from zraft.storage.wal import Wal


class StoredGroups(Protocol):
    """What the disk held of groups when this process started."""

    @property
    def present(self) -> frozenset[GroupId]:
        """Groups that were not taken yet, and of which the disk knows something."""

    def holds(self, group: GroupId) -> bool:
        """Whether it is one of them."""

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        """Its newest snapshot, while it is not taken."""

    def take(self, group: GroupId) -> StoredGroup:
        """What the disk holds of it, which may be nothing; once."""

    def drop(self, group: GroupId) -> None:
        """It is gone for good."""


class RecoveredGroups:
    """What a start found. Holds images and tails of the log until they are taken."""

    def __init__(
        self, recovered: Recovered, snapshots: Mapping[GroupId, tuple[SnapshotInfo, bytes]], wal: Wal
    ) -> None:
        self._groups = {group: log for group, log in recovered.groups.items() if group != COORDINATION_GROUP}
        self._snapshots = dict(snapshots)
        self._wal = wal

    @property
    def present(self) -> frozenset[GroupId]:
        return frozenset(self._groups) | frozenset(self._snapshots)

    def holds(self, group: GroupId) -> bool:
        return group in self._groups or group in self._snapshots

    def newest(self, group: GroupId) -> SnapshotInfo | None:
        found = self._snapshots.get(group)
        return None if found is None else found[0]

    def take(self, group: GroupId) -> StoredGroup:
        found = self._snapshots.pop(group, None)
        snapshot: tuple[SnapshotMeta, bytes] | None = None
        if found is not None:
            snapshot = (found[0].meta, found[1])
        return stored_group(
            self._groups.pop(group, None),
            self._archive(group),
            snapshot,
            lambda index: self._wal.held_after(group, index),
        )

    def drop(self, group: GroupId) -> None:
        self._groups.pop(group, None)
        self._snapshots.pop(group, None)

    def _archive(self, group: GroupId) -> Archive:
        def read(lo: int, hi: int, bytes_max: int) -> Sequence[Entry]:
            return self._wal.read_entries(group, lo, hi, bytes_max)

        return read


def open_stores(fs: FileSystem, directory: DataDirectory) -> dict[GroupId, SnapshotStore]:
    """The snapshots of every group that this disk has some of, but the coordination group's.

    Raises:
        StorageError: a directory cannot be read or written.
    """
    with reading(directory.path):
        if "groups" not in fs.listdir(directory.path):
            return {}
        names = fs.listdir(f"{directory.path}/groups")
    groups = sorted(GroupId(int(name)) for name in names if name.isascii() and name.isdigit())
    return {
        group: SnapshotStore.open(fs, directory, group)
        for group in groups
        # What is empty holds nothing of a living group, and is what earlier releases left of those that are gone.
        if group != COORDINATION_GROUP and not remove_if_hollow(fs, f"{directory.path}/groups/{group}")
    }


def read_images(
    stores: Mapping[GroupId, SnapshotStore],
    recovered: Recovered,
    on_forgotten: Callable[[GroupId], None],
) -> dict[GroupId, tuple[SnapshotInfo, bytes]]:
    """The newest snapshot of each group with its image; `on_forgotten` is told of those whose files have to go.

    Raises:
        CorruptionError: a file is damaged.
    """
    for group in recovered.forgotten:
        on_forgotten(group)
    return {
        group: (store.newest, b"".join(store.blocks(store.newest)))
        for group, store in stores.items()
        if store.newest is not None and group not in recovered.forgotten
    }
