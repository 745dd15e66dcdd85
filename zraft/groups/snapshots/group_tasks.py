"""What a server asks of the disk that its groups' snapshots are on, and who does it: values, and one class that blocks.

The same thread performs these and the tasks of the coordination group's own snapshots (`snapshot_tasks`), one after the
other. A group's image is small, for what is large lies in delivery segments (D-13): so it is one task to write it, and
one to read it.
"""

from __future__ import annotations

from attrs import frozen

from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, remove_directory, remove_if_hollow, sync_directory
from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotGoneError, SnapshotRejectedError
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import WRITE_BYTES_MAX, SnapshotStore, snapshots_of
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId

SNAPSHOTS_KEPT = 2
"""The newest, and the one before it: a transfer of that one may be under way."""


@frozen
class TakeSnapshot:
    """Make this image durable as a group's newest snapshot. Result: `SnapshotInfo`."""

    header: SnapshotHeader
    image: bytes
    digest: int

    @property
    def group(self) -> GroupId:
        """Whose image it is."""
        return self.header.group


@frozen
class ReadPiece:
    """Bytes of a group's finished snapshot, for `server`. Result: bytes."""

    server: int
    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class ReceiveFile:
    """A group's snapshot is going to arrive. Result: how many of its bytes are here already."""

    group: GroupId
    id: bytes
    size: int


@frozen
class StoreBytes:
    """The next piece of what arrives."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class CompleteFile:
    """All of it is here: verify it and make it durable. Result: `Installable`."""

    group: GroupId
    id: bytes


@frozen
class Installable:
    """A snapshot of another server, durable here, and its image."""

    info: SnapshotInfo
    image: bytes


@frozen
class RemoveFiles:
    """The group is gone for good, and so are its deliveries: its snapshots go, and its directory. Can be repeated after a
    crash."""

    group: GroupId


GroupTask = TakeSnapshot | ReadPiece | ReceiveFile | StoreBytes | CompleteFile | RemoveFiles
GroupResult = SnapshotInfo | Installable | bytes | int | StorageError | None
"""A `StorageError` concerns this task's group only: the disk is full, or the file is damaged or gone."""


class GroupSnapshotDisk:
    """Performs tasks on a store per group; blocks. Errors that end the process (EIO, a failed fsync) are raised."""

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, stores: dict[GroupId, SnapshotStore] | None = None
    ) -> None:
        """`stores` are those that a start has opened; others are opened when they are first used."""
        self._fs = fs
        self._directory = directory
        self._stores = stores if stores is not None else {}

    def perform(self, task: GroupTask) -> GroupResult:
        """Carry out one task.

        Raises:
            StorageError: the disk failed; the process has to end (D-10).
        """
        try:
            return self._perform(task)
        except (DiskFullError, CorruptionError, SnapshotGoneError, SnapshotRejectedError) as error:
            return error

    def _perform(self, task: GroupTask) -> GroupResult:
        if isinstance(task, RemoveFiles):
            self._remove(task.group)
            return None
        store = self._store(task.group)
        match task:
            case TakeSnapshot(header, image, digest):
                return self._take(store, header, image, digest)
            case ReadPiece(_, _, id, offset, length):
                return store.read(id, offset, length)
            case ReceiveFile(_, id, size):
                return store.receive(id, size)
            case StoreBytes(_, id, offset, data):
                return store.store(id, offset, data)
            case CompleteFile(_, id):
                info = store.complete(id)
                image = b"".join(store.blocks(info))
                store.purge(SNAPSHOTS_KEPT)
                return Installable(info, image)

    def _take(self, store: SnapshotStore, header: SnapshotHeader, image: bytes, digest: int) -> SnapshotInfo:
        newest = store.newest
        if newest is not None and newest.meta.index >= header.meta.index:
            # One that another server sent has come meanwhile.
            return newest
        store.begin(header)
        for offset in range(0, len(image), WRITE_BYTES_MAX):
            store.write(image[offset : offset + WRITE_BYTES_MAX])
        info = store.finish(1, digest, 0)
        store.purge(SNAPSHOTS_KEPT)
        return info

    def _store(self, group: GroupId) -> SnapshotStore:
        store = self._stores.get(group)
        if store is None:
            store = self._stores[group] = SnapshotStore.open(self._fs, self._directory, group)
        return store

    def _remove(self, group: GroupId) -> None:
        store = self._stores.pop(group, None)
        if store is not None:
            store.close()
        data = self._directory.path
        with reading(data):
            if "groups" not in self._fs.listdir(data):
                return
        remove_directory(self._fs, snapshots_of(data, group))
        if not remove_if_hollow(self._fs, f"{data}/groups/{group}"):
            sync_directory(self._fs, f"{data}/groups/{group}")  # somebody else's file is in it
        # Also if nothing was left to remove: the process before may have ended just before this.
        sync_directory(self._fs, f"{data}/groups")
