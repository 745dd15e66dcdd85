"""What a driver asks of its snapshot disk, and who does it: values, and one class that blocks.

The driver decides, a thread (or the simulator) performs, one task after the other in the order given, and the
driver is told the result. So a snapshot is written, read, received and loaded without the loop ever waiting for
the disk, and the simulator can cut the power between any two steps. Every task says whose snapshot it is about: the
coordination group's and those of topics' groups are on the same disk and take the same tasks.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from zraft.storage.directory import DataDirectory
from zraft.storage.durable import reading, remove_directory, remove_if_hollow, sync_directory
from zraft.storage.errors import CorruptionError, DiskFullError, SnapshotGoneError, SnapshotRejectedError
from zraft.storage.filesystem import FileSystem
from zraft.storage.snapshot_format import SnapshotHeader, SnapshotInfo
from zraft.storage.snapshots import SnapshotStore, snapshots_of
from zraft_core.errors import StorageError
from zraft_core.ids import GroupId


@frozen
class Begin:
    """Begin to write a snapshot."""

    header: SnapshotHeader

    @property
    def group(self) -> GroupId:
        """Whose image it is."""
        return self.header.group


@frozen
class WriteBlock:
    """Its next piece, of at most `WRITE_BYTES_MAX` bytes."""

    group: GroupId
    block: bytes


@frozen
class Finish:
    """It is complete: make it durable. Result: `SnapshotInfo`."""

    group: GroupId
    items: int
    digest: int
    zxid: int


@frozen
class Abort:
    """Forget the snapshot that is being written."""

    group: GroupId


@frozen
class Read:
    """A piece of a finished snapshot's file, for `server`. Result: bytes."""

    server: int
    group: GroupId
    id: bytes
    offset: int
    length: int


@frozen
class Receive:
    """A snapshot is going to arrive. Result: how many of its bytes are here already."""

    group: GroupId
    id: bytes
    size: int


@frozen
class Store:
    """The next piece of what arrives."""

    group: GroupId
    id: bytes
    offset: int
    data: bytes


@frozen
class Complete:
    """All of it is here: verify it and make it durable. Result: `SnapshotInfo`."""

    group: GroupId
    id: bytes


@frozen
class Load:
    """The next block of a finished snapshot, its first one if `first`. Result: bytes; None at its end and beyond.

    Several may be asked for ahead: those behind the end must not begin again.
    """

    info: SnapshotInfo
    first: bool = False

    @property
    def group(self) -> GroupId:
        """Whose image it is."""
        return self.info.group

    @property
    def id(self) -> bytes:
        """Names the snapshot."""
        return self.info.id


@frozen
class Purge:
    """Keep the newest `keep` snapshots. Result: the oldest one kept, None if there is none."""

    group: GroupId
    keep: int


@frozen
class Remove:
    """The group is gone for good, and so are its deliveries: its snapshots go, and its directory. Can be repeated after a
    crash."""

    group: GroupId


Task = Begin | WriteBlock | Finish | Abort | Read | Receive | Store | Complete | Load | Purge | Remove
Result = SnapshotInfo | bytes | int | StorageError | None
"""A `StorageError` if the disk is full or the file is damaged or gone: it concerns this task's group only."""


class SnapshotDisk:
    """Performs tasks on a store per group; blocks. Errors that end the process (EIO, a failed fsync) are raised."""

    def __init__(
        self, fs: FileSystem, directory: DataDirectory, stores: dict[GroupId, SnapshotStore] | None = None
    ) -> None:
        """`stores` are those that a start has opened; others are opened when they are first used."""
        self._fs = fs
        self._directory = directory
        self._stores = stores if stores is not None else {}
        self._loading: dict[GroupId, tuple[bytes, Iterator[bytes]]] = {}

    def perform(self, task: Task) -> Result:
        """Carry out one task.

        Raises:
            StorageError: the disk failed; the process has to end (D-10).
        """
        try:
            return self._perform(task)
        except (DiskFullError, CorruptionError, SnapshotGoneError, SnapshotRejectedError) as error:
            return error

    def _perform(self, task: Task) -> Result:
        if isinstance(task, Remove):
            self._remove(task.group)
            return None
        store = self._store(task.group)
        match task:
            case Begin(header):
                store.begin(header)
            case WriteBlock() | Finish() if not store.writing:
                # They were on their way when an earlier task of this snapshot failed.
                return SnapshotGoneError("the snapshot was given up: the disk could not take its beginning")
            case WriteBlock(_, block):
                store.write(block)
            case Finish(_, items, digest, zxid):
                return store.finish(items, digest, zxid)
            case Abort():
                store.abort()
            case Read(_, _, id, offset, length):
                return store.read(id, offset, length)
            case Receive(_, id, size):
                return store.receive(id, size)
            case Store(_, id, offset, data):
                store.store(id, offset, data)
            case Complete(_, id):
                return store.complete(id)
            case Load(info, first):
                loading = self._loading.get(task.group)
                if first or loading is None or loading[0] != info.id:
                    loading = self._loading[task.group] = (info.id, store.blocks(info))
                return next(loading[1], None)
            case Purge(_, keep):
                store.purge(keep)
        return None

    def _store(self, group: GroupId) -> SnapshotStore:
        store = self._stores.get(group)
        if store is None:
            store = self._stores[group] = SnapshotStore.open(self._fs, self._directory, group)
        return store

    def _remove(self, group: GroupId) -> None:
        self._loading.pop(group, None)
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
